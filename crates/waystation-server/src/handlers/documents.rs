//! Documents: read, written, deleted and copied one by one.

use crate::failure::{Failure, Outcome};
use crate::handlers::open::{Wanted, revisions_in};
use crate::handlers::validation::{prepare, validate};
use crate::multipart;
use crate::query::{decode, encode};
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use std::sync::Arc;
use waystation_documents::json::{canonical, quote};
use waystation_documents::shard::{Edits, Opened, Revisions};
use waystation_documents::{Database, Document, Error, Given, Revision, array};

pub(crate) async fn document(call: Call, id: String) -> Outcome<Reply> {
    let database = call.database().await?;
    call.user.require_document(&database, &id)?;
    if database.is_partitioned() {
        database.check_id(&id)?;
    }
    match call.method.as_str() {
        "GET" => read(call, database, id).await,
        "PUT" => write(call, database, id).await,
        "DELETE" => delete(call, database, id).await,
        "COPY" => copy(call, database, id).await,
        _ => Err(Failure::method("DELETE,GET,HEAD,POST,PUT,COPY")),
    }
}

async fn read(call: Call, database: Arc<Database>, id: String) -> Outcome<Reply> {
    let wanted = Wanted::parse(&call.query)?;
    if let Some(text) = call.query.get("open_revs") {
        let revisions = if text == "all" {
            Revisions::Leaves
        } else {
            let text = canonical(text.as_bytes());
            let text = text.map_err(|_| Failure::bad_request("invalid UTF-8 JSON"))?;
            Revisions::Named(revisions_in(&text)?)
        };
        return open_revisions(call, database, id, revisions, wanted).await;
    }
    let named = call
        .query
        .get("rev")
        .map(str::parse::<Revision>)
        .transpose()?;
    let latest = call.query.is_true("latest");
    let in_parts = wanted.attachments && call.prefers("multipart/related");
    let is_plain = wanted.is_plain();
    let has_attachments = wanted.attachments;
    let (source, name, wants) = (Arc::clone(&database), id.clone(), wanted.clone());
    let read = move |_: &crate::app::App| {
        let opened = open(&source, &name, named.as_ref(), latest)?;
        let bytes = wants.attachment_bytes(&opened);
        Ok((opened, bytes))
    };
    let show = move |opened: Opened| {
        let parts = if in_parts {
            wanted.related(&database, &id, &opened)?
        } else {
            None
        };
        let (content_type, body) = if let Some(parts) = parts {
            parts
        } else {
            let text = wanted.json(&database, &id, &opened)? + "\n";
            ("application/json".to_owned(), text.into_bytes())
        };
        Ok((opened.version.revision, content_type, body))
    };
    let (shown, held) = if has_attachments {
        let (opened, bytes) = call.app.run(read).await?;
        let held = call.app.admit_attachments(bytes).await?;
        (call.app.run(move |_| show(opened)).await?, Some(held))
    } else {
        let work = move |app: &crate::app::App| show(read(app)?.0);
        (call.app.run(work).await?, None)
    };
    let (revision, content_type, body) = shown;
    let tag = format!("\"{revision}\"");
    if is_plain && call.has(&tag) {
        let mut reply = reply::empty(StatusCode::NOT_MODIFIED);
        reply::set(&mut reply, "ETag", &tag);
        return Ok(reply);
    }
    let mut reply = reply::bytes(StatusCode::OK, &content_type, body);
    if is_plain {
        reply::set(&mut reply, "ETag", &tag);
    }
    Ok(reply::hold(reply, held))
}

/// The version that a reader gets who names `revision`, or none.
pub(crate) fn open(
    database: &Database,
    id: &str,
    revision: Option<&Revision>,
    latest: bool,
) -> Result<Opened, Error> {
    match revision {
        None => database.open_winner(id),
        Some(revision) if latest => {
            let named = Revisions::Named(vec![revision.clone()]);
            let mut found = database.open_revisions(id, &named, true)?;
            let missing = || Error::NotFound(waystation_documents::Absence::Missing);
            found.pop().and_then(Result::ok).ok_or_else(missing)
        }
        Some(revision) => database.open_revision(id, revision),
    }
}

async fn open_revisions(
    call: Call,
    database: Arc<Database>,
    id: String,
    revisions: Revisions,
    wanted: Wanted,
) -> Outcome<Reply> {
    let latest = call.query.is_true("latest");
    let in_parts = !call.header("accept").is_empty()
        && (call.prefers("multipart/mixed") || call.prefers("*/*"));
    let (source, name) = (Arc::clone(&database), id.clone());
    let read = move |_: &crate::app::App| Ok(source.open_revisions(&name, &revisions, latest)?);
    let found = call.app.run(read).await?;
    let opened = found.iter().flatten();
    let bytes = opened.map(|it| wanted.attachment_bytes(it)).sum();
    let held = call.app.admit_attachments(bytes).await?;
    let work = move |_: &crate::app::App| {
        if in_parts {
            return in_mixed(&database, &id, &found, &wanted);
        }
        let mut rows = Vec::new();
        for found in &found {
            rows.push(match found {
                Ok(opened) => format!("{{\"ok\":{}}}", wanted.json(&database, &id, opened)?),
                Err(revision) => format!("{{\"missing\":{}}}", quote(&revision.to_string())),
            });
        }
        let text = array(rows) + "\n";
        Ok(("application/json".to_owned(), text.into_bytes()))
    };
    let (content_type, body) = call.app.run(work).await?;
    let reply = reply::bytes(StatusCode::OK, &content_type, body);
    Ok(reply::hold(reply, held))
}

fn in_mixed(
    database: &Database,
    id: &str,
    found: &[Result<Opened, Revision>],
    wanted: &Wanted,
) -> Outcome<(String, Vec<u8>)> {
    let mut writer = multipart::Writer::new();
    for found in found {
        match found {
            Err(revision) => {
                let text = format!("{{\"missing\":{}}}", quote(&revision.to_string()));
                writer.part(
                    "Content-Type: application/json; error=\"true\"\r\n",
                    text.as_bytes(),
                );
            }
            Ok(opened) => wanted.part(&mut writer, database, id, opened)?,
        }
    }
    Ok(writer.finish("mixed"))
}

async fn write(mut call: Call, database: Arc<Database>, id: String) -> Outcome<Reply> {
    let media = call.header(CONTENT_TYPE).to_owned();
    let limit = call.app.config.now().body_bytes_max;
    let taken = call.take_body().await?;
    let mut document = if media.starts_with("multipart/related") {
        let parts = multipart::parts(&taken.bytes, multipart::boundary(&media)?)?;
        multipart::document(&parts, limit)?
    } else {
        Document::parse(&taken.bytes)?
    };
    let named = call.revision()?;
    if let (Some(named), Some(own)) = (&named, &document.revision)
        && named != own
    {
        let reason = "Document rev from request body and query string have different values";
        return Err(Failure::bad_request(reason));
    }
    document.revision = document.revision.take().or(named);
    document.id = id;
    save(&call, database, document).await
}

/// `POST` to a database: a document whose identifier may be the server's.
pub(crate) async fn create(mut call: Call) -> Outcome<Reply> {
    let database = call.database().await?;
    let text = call.take_object().await?;
    let mut document = Document::parse(text.as_bytes())?;
    if document.id.is_empty() {
        document.id = call.app.uuids.next();
    }
    call.user.require_document(&database, &document.id)?;
    save(&call, database, document).await
}

async fn delete(call: Call, database: Arc<Database>, id: String) -> Outcome<Reply> {
    let revision = call.revision()?;
    let body = "{}".to_owned();
    let document = Document {
        deleted: true,
        id,
        revision,
        body,
        ..Document::default()
    };
    let mut reply = save(&call, database, document).await?;
    if reply.status() == StatusCode::CREATED {
        *reply.status_mut() = StatusCode::OK;
    }
    reply.headers_mut().remove("location");
    Ok(reply)
}

async fn copy(call: Call, database: Arc<Database>, id: String) -> Outcome<Reply> {
    let target = call.header("destination");
    if target.is_empty() {
        let reason = "Destination header is mandatory for COPY.";
        return Err(Failure::bad_request(reason));
    }
    if target.contains("://") {
        let reason = "Destination URL must be relative.";
        return Err(Failure::bad_request(reason));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let target = decode(path, true)?;
    let query = crate::query::Query::parse(query)?;
    let revision = query.get("rev").map(str::parse::<Revision>).transpose()?;
    call.user.require_document(&database, &target)?;
    let named = call
        .query
        .get("rev")
        .map(str::parse::<Revision>)
        .transpose()?;
    let source = Arc::clone(&database);
    let work = move |_: &crate::app::App| {
        let opened = open(&source, &id, named.as_ref(), false)?;
        let mut document = Document {
            id: target,
            revision,
            body: opened.version.body.clone(),
            ..Document::default()
        };
        for info in &opened.version.attachments {
            document.attachments.push(waystation_documents::Attachment {
                name: info.name.clone(),
                content_type: info.content_type.clone(),
                revpos: None,
                content: Given::Bytes(source.attachment(&id, info)?),
            });
        }
        Ok(document)
    };
    let document = call.app.run(work).await?;
    save(&call, database, document).await
}

/// Writes `document` as the request asks, and answers.
pub(crate) async fn save(
    call: &Call,
    database: Arc<Database>,
    mut document: Document,
) -> Outcome<Reply> {
    call.user.require_writer(&database, &document.id)?;
    let edits = match call.query.get("new_edits") {
        Some("false") => Edits::Replicated,
        _ => Edits::Interactive,
    };
    database.check_id(&document.id)?;
    check_edits(edits, &document)?;
    check_size(call.app.config.now().document_bytes_max, &document)?;
    let id = document.id.clone();
    let location = format!(
        "/{}/{}",
        encode(database.name()),
        encode(&id).replace("_design%2F", "_design/")
    );
    let (user, wanted) = (call.user.clone(), call.query.whole("w")?);
    let work = move |app: &crate::app::App| {
        prepare(app, &database, &user, &mut document)?;
        validate(&database, &user, &document, edits)?;
        let id = document.id.clone();
        let revision = database.update_one(document, edits, app.durability())?;
        app.announce(&database);
        Ok((revision.to_string(), database.has_quorum(&id, wanted)?))
    };
    let (revision, has_quorum) = call.app.run(work).await?;
    if call.query.get("batch") == Some("ok") {
        let text = format!("{{\"ok\":true,\"id\":{}}}", quote(&id));
        return Ok(reply::json(StatusCode::ACCEPTED, text));
    }
    let text = format!(
        "{{\"ok\":true,\"id\":{},\"rev\":{}}}",
        quote(&id),
        quote(&revision)
    );
    let mut reply = reply::json(written(has_quorum), text);
    reply::set(&mut reply, "ETag", &format!("\"{revision}\""));
    reply::set(&mut reply, "Location", &location);
    Ok(reply)
}

/// The status of a write that is on enough copies, or only on fewer.
pub(crate) fn written(has_quorum: bool) -> StatusCode {
    if has_quorum {
        StatusCode::CREATED
    } else {
        StatusCode::ACCEPTED
    }
}

/// Refuses replicated documents that do not say which revision they are.
pub(crate) fn check_edits(edits: Edits, document: &Document) -> Outcome<()> {
    let is_named = document.revision.is_some() || !document.history.is_empty();
    if edits == Edits::Interactive || is_named || document.id.starts_with("_local/") {
        return Ok(());
    }
    let reason = "When `new_edits: false`, the document needs `_rev` or `_revisions` specified";
    Err(Failure::bad_request(reason))
}

/// Refuses documents that are too large.
pub(crate) fn check_size(limit: usize, document: &Document) -> Outcome<()> {
    if document.body.len() <= limit {
        return Ok(());
    }
    let id = document.id.clone();
    Err(Error::DocumentTooLarge { id }.into())
}
