//! Attachments by their own paths: whole or in ranges, each change a new revision of the document.

use crate::failure::{Failure, Outcome};
use crate::handlers::documents;
use crate::reply::{self, Reply};
use crate::request::{Call, gunzip};
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use std::sync::Arc;
use waystation_documents::{Attachment, Database, Document, Error, Given, Revision};

pub(crate) async fn attachment(call: Call, id: String, name: String) -> Outcome<Reply> {
    let database = call.database().await?;
    call.user.require_document(&database, &id)?;
    match call.method.as_str() {
        "GET" => read(call, database, id, name).await,
        "PUT" => write(call, database, id, name).await,
        "DELETE" => delete(call, database, id, name).await,
        _ => Err(Failure::method("GET,HEAD,PUT,DELETE")),
    }
}

async fn read(call: Call, database: Arc<Database>, id: String, name: String) -> Outcome<Reply> {
    let named = call
        .query
        .get("rev")
        .map(str::parse::<Revision>)
        .transpose()?;
    let (source, document) = (Arc::clone(&database), id.clone());
    let look = move |_: &crate::app::App| {
        let opened = documents::open(&source, &document, named.as_ref(), false)?;
        let mut infos = opened.version.attachments.into_iter();
        let missing = || Failure::not_found("Document is missing attachment");
        infos.find(|info| info.name == name).ok_or_else(missing)
    };
    let info = call.app.run(look).await?;
    let digest = info.digest.to_string();
    let digest = digest.strip_prefix("md5-").unwrap_or(&digest);
    let tag = format!("\"{digest}\"");
    let mut reply = if call.has(&tag) {
        reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        let held = call.app.admit_attachments(info.length).await?;
        let content_type = info.content_type.clone();
        let work = move |_: &crate::app::App| Ok(database.attachment(&id, &info)?);
        let bytes = call.app.run(work).await?;
        reply::hold(in_range(&call, &content_type, bytes)?, held)
    };
    reply::set(&mut reply, "ETag", &tag);
    reply::set(&mut reply, "accept-ranges", "bytes");
    reply::set(&mut reply, "content-md5", digest);
    // What users upload must not run as a page of this server.
    reply::set(&mut reply, "content-security-policy", "sandbox");
    Ok(reply)
}

fn in_range(call: &Call, content_type: &str, bytes: Vec<u8>) -> Outcome<Reply> {
    let length = bytes.len();
    match range(call.header("range"), length) {
        Some(Ok((begin, end))) => {
            let part = hyper::body::Bytes::from(bytes).slice(begin..=end);
            let mut reply = reply::bytes(StatusCode::PARTIAL_CONTENT, content_type, part);
            let place = format!("bytes {begin}-{end}/{length}");
            reply::set(&mut reply, "content-range", &place);
            Ok(reply)
        }
        Some(Err(())) => Err(Failure {
            header: Some(("content-range", format!("bytes */{length}"))),
            ..Failure::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "requested_range_not_satisfiable",
                "Requested range not satisfiable",
            )
        }),
        None => Ok(reply::bytes(StatusCode::OK, content_type, bytes)),
    }
}

/// The first and last byte that the header asks for; an error if there are none; `None` if it asks for no single range.
fn range(header: &str, length: usize) -> Option<Result<(usize, usize), ()>> {
    let (begin, end) = header.strip_prefix("bytes=")?.split_once('-')?;
    let last = length.checked_sub(1);
    let (begin, end) = match (begin.parse::<usize>(), end.parse::<usize>()) {
        (Ok(begin), Ok(end)) => (begin, end),
        (Ok(begin), Err(_)) if end.is_empty() => (begin, usize::MAX),
        (Err(_), Ok(count)) if begin.is_empty() => (length.saturating_sub(count), usize::MAX),
        _ => return None,
    };
    match last {
        Some(last) if begin <= last && begin <= end => Some(Ok((begin, end.min(last)))),
        _ => Some(Err(())),
    }
}

async fn write(
    mut call: Call,
    database: Arc<Database>,
    id: String,
    name: String,
) -> Outcome<Reply> {
    if name.starts_with('_') {
        let reason = format!("Attachment name '{name}' starts with prohibited character '_'");
        return Err(Failure::bad_request(reason));
    }
    let content_type = match call.header(CONTENT_TYPE) {
        "" => "application/octet-stream".to_owned(),
        media => media.to_owned(),
    };
    let limit = call.app.config.now().body_bytes_max;
    let encoding = call.header(CONTENT_ENCODING).to_owned();
    let taken = call.take_body().await?;
    let bytes = match encoding.as_str() {
        "" | "identity" => taken.bytes.to_vec(),
        "gzip" => gunzip(&taken.bytes, limit)?,
        _ => {
            let reason = "Only gzip and identity content-encodings are supported";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Failure::new(status, "bad_content_type", reason));
        }
    };
    let added = Attachment {
        name,
        content_type,
        revpos: None,
        content: Given::Bytes(bytes),
    };
    change(call, database, id, added.name.clone(), Some(added)).await
}

async fn delete(call: Call, database: Arc<Database>, id: String, name: String) -> Outcome<Reply> {
    let mut reply = change(call, database, id, name, None).await?;
    *reply.status_mut() = StatusCode::OK;
    Ok(reply)
}

/// Writes the document with the attachment `name` replaced by `added`, or without it.
async fn change(
    call: Call,
    database: Arc<Database>,
    id: String,
    name: String,
    added: Option<Attachment>,
) -> Outcome<Reply> {
    let revision = call.revision()?;
    let source = Arc::clone(&database);
    let work = move |_: &crate::app::App| {
        let opened = match &revision {
            Some(revision) => source.open_revision(&id, revision),
            None => source.open_winner(&id),
        };
        let mut document = Document {
            id,
            revision,
            body: "{}".to_owned(),
            ..Document::default()
        };
        let mut infos = Vec::new();
        match opened {
            Ok(opened) => {
                document.body.clone_from(&opened.version.body);
                infos = opened.version.attachments;
            }
            // A new document may begin with an attachment; a revision that is not there is a conflict.
            Err(Error::NotFound(_)) if document.revision.is_some() => {
                return Err(Error::Conflict.into());
            }
            Err(Error::NotFound(_)) if added.is_some() => {}
            Err(error) => return Err(error.into()),
        }
        if added.is_none() && !infos.iter().any(|info| info.name == name) {
            return Err(Failure::not_found("Document is missing attachment"));
        }
        let kept = infos.into_iter().filter(|info| info.name != name);
        document.attachments = kept
            .map(|info| Attachment {
                name: info.name,
                content_type: info.content_type,
                revpos: Some(info.revpos),
                content: Given::Stub,
            })
            .collect();
        document.attachments.extend(added);
        Ok(document)
    };
    let document = call.app.run(work).await?;
    documents::save(&call, database, document).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_what_is_there() {
        let cases = [
            ("bytes=0-3", Some(Ok((0, 3)))),
            ("bytes=5-", Some(Ok((5, 9)))),
            ("bytes=-3", Some(Ok((7, 9)))),
            ("bytes=0-99", Some(Ok((0, 9)))),
            ("bytes=10-", Some(Err(()))),
            ("bytes=3-2", Some(Err(()))),
            ("bytes=0-1,3-4", None),
            ("", None),
            ("lines=0-3", None),
        ];
        for (header, expected) in cases {
            assert_eq!(range(header, 10), expected, "{header}");
        }
        assert_eq!(range("bytes=0-0", 0), Some(Err(())));
    }
}
