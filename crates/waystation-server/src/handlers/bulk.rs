//! Many documents in one request, written or read.

use crate::failure::{Failure, Outcome};
use crate::handlers::documents;
use crate::handlers::maintenance::revisions_of;
use crate::handlers::open::Wanted;
use crate::handlers::validation::{prepare, validate};
use crate::multipart;
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use std::sync::Arc;
use waystation_documents::json::{Json, Kind, quote};
use waystation_documents::shard::{Edits, Opened, Revisions};
use waystation_documents::{Database, Document, Error, Revision, Updated, array};

/// Rows of `_bulk_get` that are read at once.
const ROWS_AT_ONCE: usize = 64;

pub(crate) async fn bulk_documents(mut call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    let database = call.database().await?;
    let text = call.take_object().await?;
    let edits = match Json::new(&text).member("new_edits").and_then(Json::boolean) {
        Some(false) => Edits::Replicated,
        _ => Edits::Interactive,
    };
    let mut documents = documents_in(&call, &database, &text, edits)?;
    let (user, wanted) = (call.user.clone(), call.query.whole("w")?);
    let work = move |app: &crate::app::App| {
        // A document that may not be written keeps its place in the answer.
        let mut refused: Vec<Option<Failure>> = Vec::new();
        for document in &mut documents {
            let allowed = user
                .require_document(&database, &document.id)
                .and_then(|()| user.require_writer(&database, &document.id))
                .and_then(|()| prepare(app, &database, &user, document))
                .and_then(|()| validate(&database, &user, document, edits));
            refused.push(allowed.err());
        }
        let ids: Vec<String> = documents.iter().map(|it| it.id.clone()).collect();
        let mut is_refused = refused.iter().map(Option::is_some);
        documents.retain(|_| !is_refused.next().unwrap_or_default());
        let updated = database.update(documents, edits, app.durability())?;
        app.announce(&database);
        let mut is_accepted = Vec::new();
        for (id, outcome) in ids.iter().zip(&refused) {
            is_accepted.push(outcome.is_none() && !database.has_quorum(id, wanted)?);
        }
        let has_quorum = !is_accepted.contains(&true);
        let ids = ids.into_iter().zip(is_accepted).collect();
        Ok((answer(ids, refused, updated, edits)?, has_quorum))
    };
    let (text, has_quorum) = call.app.run(work).await?;
    Ok(reply::json(documents::written(has_quorum), text))
}

fn documents_in(
    call: &Call,
    database: &Database,
    text: &str,
    edits: Edits,
) -> Outcome<Vec<Document>> {
    let docs = Json::new(text).member("docs");
    let docs =
        docs.ok_or_else(|| Failure::bad_request("POST body must include `docs` parameter."))?;
    if docs.kind() != Kind::Array {
        return Err(Failure::bad_request("`docs` parameter must be an array."));
    }
    let size_max = call.app.config.now().document_bytes_max;
    let parse = |json| {
        let mut document = Document::from_json(json)?;
        if document.id.is_empty() {
            document.id = call.app.uuids.next();
        }
        database.check_id(&document.id)?;
        documents::check_edits(edits, &document)?;
        documents::check_size(size_max, &document)?;
        Ok(document)
    };
    docs.elements().map(parse).collect()
}

/// What became of each document; of replicated ones, only what failed. Beside an identifier stands whether the document is
/// on fewer copies than it should be.
fn answer(
    ids: Vec<(String, bool)>,
    refused: Vec<Option<Failure>>,
    updated: Vec<Updated>,
    edits: Edits,
) -> Outcome<String> {
    let mut updated = updated.into_iter();
    let mut rows = Vec::new();
    for ((id, is_accepted), refused) in ids.into_iter().zip(refused) {
        let id = quote(&id);
        let outcome = match refused {
            Some(failure) => Err(failure),
            None => match updated.next() {
                // Without the bytes nothing of the request can be right.
                Some(Err(error @ Error::MissingStub { .. })) => return Err(error.into()),
                Some(outcome) => outcome.map_err(Failure::from),
                None => break,
            },
        };
        match outcome {
            Ok(_) if edits == Edits::Replicated => {}
            Ok(revision) => {
                let revision = quote(&revision.to_string());
                let accepted = if is_accepted {
                    ",\"accepted\":true"
                } else {
                    ""
                };
                rows.push(format!(
                    "{{\"ok\":true,\"id\":{id},\"rev\":{revision}{accepted}}}"
                ));
            }
            Err(failure) => {
                let (word, reason) = (quote(&failure.word), quote(&failure.reason));
                rows.push(format!(
                    "{{\"id\":{id},\"error\":{word},\"reason\":{reason}}}"
                ));
            }
        }
    }
    Ok(array(rows))
}

/// A document that `_bulk_get` asks for.
struct Asked {
    id: String,
    revision: Option<Revision>,
    since: Vec<Revision>,
}

pub(crate) async fn bulk_get(mut call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    let database = call.database().await?;
    call.user.require_all(&database)?;
    let text = call.take_object().await?;
    let wanted = Wanted::parse(&call.query)?;
    let latest = call.query.is_true("latest");
    let docs = Json::new(&text).member("docs");
    let docs = docs.filter(|docs| docs.kind() == Kind::Array);
    let docs = docs.ok_or_else(|| Failure::bad_request("Missing JSON list of 'docs'."))?;
    let asked: Vec<Asked> = docs.elements().map(asked).collect::<Outcome<_>>()?;
    if call.prefers("multipart/mixed") || call.prefers("multipart/related") {
        return mixed(call, database, asked, wanted, latest).await;
    }
    let app = call.app;
    // Attachments come with one document at a time.
    let at_once = if wanted.attachments { 1 } else { ROWS_AT_ONCE };
    Ok(reply::pages("application/json", move |pages| async move {
        let written = async {
            let mut lead = "{\"results\":[";
            let mut asked = asked.into_iter();
            loop {
                let some: Vec<Asked> = asked.by_ref().take(at_once).collect();
                if some.is_empty() {
                    break;
                }
                let source = Arc::clone(&database);
                let read = move |_: &crate::app::App| read(&source, some, latest);
                let some = app.run(read).await?;
                let held = app.admit_attachments(bytes_of(&some, &wanted)).await?;
                let (source, wants) = (Arc::clone(&database), wanted.clone());
                let work = move |_: &crate::app::App| {
                    let row = |(asked, found): &(Asked, Found)| row(&source, asked, found, &wants);
                    some.iter().map(row).collect::<Outcome<Vec<String>>>()
                };
                let page = format!("{lead}{}", app.run(work).await?.join(","));
                lead = ",";
                if pages.send_long(&page).await.is_err() {
                    return Ok(());
                }
                drop(held);
            }
            let tail = if lead == "," {
                "]}\n"
            } else {
                "{\"results\":[]}\n"
            };
            // If the client has gone, the answer is at its end too.
            let _ = pages.send(tail).await;
            Ok(())
        };
        let written = written.await;
        (pages, written)
    }))
}

fn asked(json: Json<'_>) -> Outcome<Asked> {
    let id = json.member("id").and_then(Json::string);
    let id = id.ok_or_else(|| Failure::bad_request("document id missed"))?;
    let revision = json.member("rev").and_then(Json::string);
    let revision = revision.map(|rev| rev.parse::<Revision>()).transpose()?;
    let since = json.member("atts_since").map(revisions_of).transpose()?;
    Ok(Asked {
        id: id.into_owned(),
        revision,
        since: since.unwrap_or_default(),
    })
}

/// The versions that are asked for, as the protocol's error where there is none.
fn found(database: &Database, asked: &Asked, latest: bool) -> Outcome<Found> {
    let revisions = match &asked.revision {
        Some(revision) => Revisions::Named(vec![revision.clone()]),
        None => Revisions::Leaves,
    };
    match database.open_revisions(&asked.id, &revisions, latest) {
        Err(Error::NotFound(_)) => Ok(vec![Err(("undefined".to_owned(), "missing"))]),
        Err(error) => Err(error.into()),
        Ok(found) => Ok(found
            .into_iter()
            .map(|found| found.map_err(|revision| (revision.to_string(), "missing")))
            .collect()),
    }
}

/// Versions of one document, or the protocol's error in their place.
type Found = Vec<Result<Opened, (String, &'static str)>>;

/// Opens what is asked for.
fn read(database: &Database, asked: Vec<Asked>, latest: bool) -> Outcome<Vec<(Asked, Found)>> {
    let open = |asked: Asked| {
        let found = found(database, &asked, latest)?;
        Ok((asked, found))
    };
    asked.into_iter().map(open).collect()
}

/// The memory that the attachments of what was opened take in an answer.
fn bytes_of(opened: &[(Asked, Found)], wanted: &Wanted) -> u64 {
    let bytes = |(asked, found): &(Asked, Found)| {
        let wanted = wanted.since(asked.since.clone());
        let opened = found.iter().flatten();
        opened.map(|it| wanted.attachment_bytes(it)).sum::<u64>()
    };
    opened.iter().map(bytes).sum()
}

async fn mixed(
    call: Call,
    database: Arc<Database>,
    asked: Vec<Asked>,
    wanted: Wanted,
    latest: bool,
) -> Outcome<Reply> {
    let source = Arc::clone(&database);
    let opened = call.app.run(move |_| read(&source, asked, latest)).await?;
    let held = call
        .app
        .admit_attachments(bytes_of(&opened, &wanted))
        .await?;
    let work = move |_: &crate::app::App| in_mixed(&database, &opened, &wanted);
    let (content_type, body) = call.app.run(work).await?;
    let reply = reply::bytes(StatusCode::OK, &content_type, body);
    Ok(reply::hold(reply, held))
}

fn error_row(id: &str, revision: &str, reason: &str) -> String {
    let (id, revision, reason) = (quote(id), quote(revision), quote(reason));
    format!(
        "{{\"error\":{{\"id\":{id},\"rev\":{revision},\"error\":\"not_found\",\"reason\":{reason}}}}}"
    )
}

fn row(database: &Database, asked: &Asked, found: &Found, wanted: &Wanted) -> Outcome<String> {
    let wanted = wanted.since(asked.since.clone());
    let mut docs = Vec::new();
    for found in found {
        docs.push(match found {
            Ok(opened) => format!("{{\"ok\":{}}}", wanted.json(database, &asked.id, opened)?),
            Err((revision, reason)) => error_row(&asked.id, revision, reason),
        });
    }
    Ok(format!(
        "{{\"id\":{},\"docs\":{}}}",
        quote(&asked.id),
        array(docs)
    ))
}

fn in_mixed(
    database: &Database,
    opened: &[(Asked, Found)],
    wanted: &Wanted,
) -> Outcome<(String, Vec<u8>)> {
    let mut writer = multipart::Writer::new();
    for (asked, found) in opened {
        let wanted = wanted.since(asked.since.clone());
        for found in found {
            match found {
                Ok(opened) => wanted.part(&mut writer, database, &asked.id, opened)?,
                Err((revision, reason)) => {
                    let text = error_row(&asked.id, revision, reason);
                    let head = "Content-Type: application/json; error=\"true\"\r\n";
                    writer.part(head, text.as_bytes());
                }
            }
        }
    }
    Ok(writer.finish("mixed"))
}
