//! What keeps databases in order: compaction, purging, limits, and syncs.

use crate::failure::{Failure, Outcome};
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use std::sync::Arc;
use waystation_documents::json::{Json, Kind, quote, unquote};
use waystation_documents::{Revision, array};

/// Documents of one purge.
const PURGED_IDS_MAX: usize = 100;
/// Revisions of one purge.
const PURGED_REVISIONS_MAX: usize = 1000;

fn accepted() -> Reply {
    reply::json(StatusCode::ACCEPTED, r#"{"ok":true}"#.to_owned())
}

/// Begins a compaction; it goes on after the answer.
pub(crate) async fn compact(call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    let database = call.database().await?;
    call.user.require_admin_of(&database)?;
    call.require_json()?;
    let app = Arc::clone(&call.app);
    let compaction = database.begin_compaction();
    tokio::spawn(async move {
        let compacted = app.run(move |_| Ok(compaction.run()?)).await;
        if let Err(failure) = compacted {
            log::warn!("a compaction failed: {}", failure.reason);
        }
    });
    Ok(accepted())
}

/// Removes the rows of views that no design document has. Mango's indexes need none of it: they go by themselves.
pub(crate) async fn view_cleanup(call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    let database = call.database().await?;
    call.user.require_admin_of(&database)?;
    call.app
        .run(move |_| Ok(database.clean_up_views()?))
        .await?;
    Ok(accepted())
}

/// Has all that was written survive a power cut.
pub(crate) async fn full_commit(call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    let database = call.database().await?;
    call.app.run(move |_| Ok(database.sync()?)).await?;
    let text = r#"{"ok":true,"instance_start_time":"0"}"#.to_owned();
    Ok(reply::json(StatusCode::CREATED, text))
}

pub(crate) async fn limits(mut call: Call) -> Outcome<Reply> {
    call.allow("PUT,GET")?;
    let database = call.database().await?;
    let is_of_revisions = call.segments[1] == "_revs_limit";
    if call.method == "GET" {
        if !is_of_revisions {
            return Ok(reply::ok("1000"));
        }
        let limit = call.app.run(move |_| Ok(database.revs_limit()?)).await?;
        return Ok(reply::ok(limit.to_string()));
    }
    call.user.require_admin_of(&database)?;
    let text = call.take_json().await?;
    let limit = Json::new(&text)
        .integer()
        .and_then(|it| u64::try_from(it).ok());
    let Some(limit) = limit.filter(|limit| *limit > 0) else {
        let reason = "Rev limit has to be an integer";
        return Err(Failure::bad_request(reason));
    };
    if is_of_revisions {
        call.app
            .run(move |_| Ok(database.set_revs_limit(limit)?))
            .await?;
    }
    Ok(reply::ok(r#"{"ok":true}"#))
}

pub(crate) async fn purge(mut call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    let database = call.database().await?;
    call.user.require_admin_of(&database)?;
    let text = call.take_object().await?;
    let mut wanted = Vec::new();
    for (id, revisions) in Json::new(&text).members() {
        if revisions.kind() != Kind::Array {
            return Err(Failure::bad_request("Invalid purge request."));
        }
        if database.is_partitioned() {
            database.check_id(&unquote(id))?;
        }
        wanted.push((unquote(id).into_owned(), revisions_of(revisions)?));
    }
    let count: usize = wanted.iter().map(|(_, revisions)| revisions.len()).sum();
    if wanted.len() > PURGED_IDS_MAX {
        return Err(Failure::bad_request(
            "Exceeded maximum number of documents.",
        ));
    }
    if count > PURGED_REVISIONS_MAX {
        return Err(Failure::bad_request(
            "Exceeded maximum number of revisions.",
        ));
    }
    let purged = call
        .app
        .run(move |app| {
            let mut purged = Vec::new();
            for (id, revisions) in wanted {
                let gone = database.purge(&id, &revisions)?;
                let gone = array(gone.iter().map(|it| quote(&it.to_string())));
                purged.push(format!("{}:{gone}", quote(&id)));
            }
            app.announce(&database);
            Ok(purged.join(","))
        })
        .await?;
    let text = format!("{{\"purge_seq\":null,\"purged\":{{{purged}}}}}");
    Ok(reply::json(StatusCode::CREATED, text))
}

/// Purges are not remembered: this server has no copies that would have to follow.
pub(crate) async fn purged(call: Call) -> Outcome<Reply> {
    call.allow("GET")?;
    call.database().await?;
    Ok(reply::ok(r#"{"purged_infos":[]}"#))
}

/// The revisions that an array names.
pub(crate) fn revisions_of(json: Json<'_>) -> Outcome<Vec<Revision>> {
    let invalid = || Failure::bad_request("Invalid rev format");
    let revision = |it: Json<'_>| Ok(it.string().ok_or_else(invalid)?.parse()?);
    json.elements().map(revision).collect()
}
