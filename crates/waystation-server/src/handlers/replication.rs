//! What replicators ask before they send documents: which revisions are missing.

use crate::failure::{Failure, Outcome};
use crate::handlers::maintenance::revisions_of;
use crate::reply::{self, Reply};
use crate::request::Call;
use std::sync::Arc;
use waystation_documents::json::{Json, Kind, quote, unquote};
use waystation_documents::{Database, Revision, array};

/// What is missing of a document.
struct Missing {
    id: String,
    revisions: Vec<Revision>,
    ancestors: Vec<Revision>,
}

fn names(revisions: &[Revision]) -> String {
    array(
        revisions
            .iter()
            .map(|revision| quote(&revision.to_string())),
    )
}

async fn missing(mut call: Call) -> Outcome<Vec<Missing>> {
    call.allow("POST")?;
    let database = call.database().await?;
    let text = call.take_object().await?;
    call.app.run(move |_| missing_in(&database, &text)).await
}

fn missing_in(database: &Arc<Database>, text: &str) -> Outcome<Vec<Missing>> {
    let mut all = Vec::new();
    for (id, named) in Json::new(text).members() {
        if named.kind() != Kind::Array {
            return Err(Failure::bad_request(
                "Request body must be a JSON object of lists",
            ));
        }
        let id = unquote(id).into_owned();
        let (revisions, ancestors) = database.missing_revisions(&id, &revisions_of(named)?)?;
        if !revisions.is_empty() {
            all.push(Missing {
                id,
                revisions,
                ancestors,
            });
        }
    }
    Ok(all)
}

pub(crate) async fn revisions_difference(call: Call) -> Outcome<Reply> {
    let row = |missing: Missing| {
        let ancestors = match missing.ancestors.as_slice() {
            [] => String::new(),
            ancestors => format!(",\"possible_ancestors\":{}", names(ancestors)),
        };
        let (id, revisions) = (quote(&missing.id), names(&missing.revisions));
        format!("{id}:{{\"missing\":{revisions}{ancestors}}}")
    };
    let rows: Vec<String> = missing(call).await?.into_iter().map(row).collect();
    Ok(reply::ok(format!("{{{}}}", rows.join(","))))
}

pub(crate) async fn missing_revisions(call: Call) -> Outcome<Reply> {
    let row = |missing: Missing| format!("{}:{}", quote(&missing.id), names(&missing.revisions));
    let rows: Vec<String> = missing(call).await?.into_iter().map(row).collect();
    Ok(reply::ok(format!(
        "{{\"missing_revs\":{{{}}}}}",
        rows.join(",")
    )))
}
