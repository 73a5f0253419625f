//! Local documents: checkpoints of replicators, which are never replicated.

use crate::failure::{Failure, Outcome};
use crate::handlers::documents;
use crate::reply::{self, Reply};
use crate::request::Call;
use waystation_documents::json::{Json, quote};
use waystation_documents::shard::LocalDocument;
use waystation_documents::{Document, array};

fn revision(document: &LocalDocument) -> String {
    quote(&format!("0-{}", document.version))
}

fn json(document: &LocalDocument) -> String {
    let id = quote(&format!("_local/{}", document.name));
    let members = Json::new(&document.body).members();
    let members: Vec<String> = members
        .map(|(name, value)| format!(",{name}:{}", value.text()))
        .collect();
    let members = members.concat();
    format!("{{\"_id\":{id},\"_rev\":{}{members}}}", revision(document))
}

pub(crate) async fn local_document(mut call: Call, name: String) -> Outcome<Reply> {
    let database = call.database().await?;
    call.user.require_all(&database)?;
    match call.method.as_str() {
        "GET" => {
            let found = call
                .app
                .run(move |_| Ok(database.open_local(&name)?))
                .await?;
            Ok(reply::ok(json(&found)))
        }
        "PUT" => {
            let text = call.take_json().await?;
            let mut document = Document::parse(text.as_bytes())?;
            document.id = format!("_local/{name}");
            document.revision = document.revision.take().or(call.revision()?);
            documents::save(&call, database, document).await
        }
        "DELETE" => {
            let document = Document {
                id: format!("_local/{name}"),
                revision: call.revision()?,
                deleted: true,
                ..Document::default()
            };
            let mut reply = documents::save(&call, database, document).await?;
            *reply.status_mut() = hyper::StatusCode::OK;
            Ok(reply)
        }
        _ => Err(Failure::method("DELETE,GET,HEAD,POST,PUT,COPY")),
    }
}

pub(crate) async fn local_documents(call: Call) -> Outcome<Reply> {
    call.allow("GET,POST")?;
    let database = call.database().await?;
    call.user.require_all(&database)?;
    let found = call
        .app
        .run(move |_| Ok(database.local_documents()?))
        .await?;
    let with_documents = call.query.is_true("include_docs");
    let row = |document: &LocalDocument| {
        let id = quote(&format!("_local/{}", document.name));
        let doc = if with_documents {
            format!(",\"doc\":{}", json(document))
        } else {
            String::new()
        };
        format!(
            "{{\"id\":{id},\"key\":{id},\"value\":{{\"rev\":{}}}{doc}}}",
            revision(document)
        )
    };
    let rows = array(found.iter().map(row));
    Ok(reply::ok(format!(
        "{{\"total_rows\":null,\"offset\":null,\"rows\":{rows}}}"
    )))
}
