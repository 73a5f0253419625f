//! Mango: queries, how they would be answered, and indexes.

use crate::failure::{Failure, Outcome};
use crate::reply::{self, Reply};
use crate::request::Call;
use std::fmt::Write;
use std::sync::Arc;
use tokio::time::Instant;
use waystation_documents::Database;
use waystation_documents::array;
use waystation_documents::database::{FindPage, FindRequest, Finder, IndexInfo, IndexRequest};
use waystation_documents::json::{Json, Kind, quote};
use waystation_documents::shard::ScanStats;

/// Reads the next page of a query, and gives the query back.
async fn next(
    app: &Arc<crate::app::App>,
    database: &Arc<Database>,
    mut finder: Finder,
) -> Outcome<(Finder, FindPage)> {
    let database = Arc::clone(database);
    app.run(move |_| {
        let page = database.find(&mut finder)?;
        Ok((finder, page))
    })
    .await
}

/// The query in the body `text`, in the partition that the path names.
fn request(call: &Call, text: &str) -> Outcome<FindRequest> {
    let mut request = FindRequest::parse(Json::new(text))?;
    if let Some(partition) = call.query.get("partition") {
        request.partition = Some(partition.to_owned());
    }
    Ok(request)
}

pub(crate) async fn find(mut call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    let database = call.database().await?;
    call.user.require_all(&database)?;
    let text = call.take_object().await?;
    let request = request(&call, &text)?;
    let with_stats = request.execution_stats;
    let begin = Instant::now();
    let planned = Arc::clone(&database);
    let finder = call.app.run(move |_| Ok(planned.finder(request)?)).await?;
    // What is wrong with a query shows on its first page, before the answer begins.
    let (mut finder, mut page) = next(&call.app, &database, finder).await?;
    let app = call.app;
    Ok(reply::pages("application/json", move |pages| async move {
        let written = async {
            let mut lead = "{\"docs\":[\r\n";
            loop {
                if !page.documents.is_empty() {
                    let text = format!("{lead}{}", page.documents.join(",\r\n"));
                    lead = ",\r\n";
                    if pages.send(text).await.is_err() {
                        return Ok(());
                    }
                }
                if page.is_end {
                    break;
                }
                (finder, page) = next(&app, &database, finder).await?;
            }
            let begun = if lead.starts_with('{') { lead } else { "" };
            let elapsed = begin.elapsed().as_secs_f64() * 1000.0;
            let tail = format!(
                "{begun}\r\n]{}}}\n",
                tail(&finder, &database, with_stats, elapsed)
            );
            // If the client has gone, the answer is at its end too.
            let _ = pages.send(tail).await;
            Ok(())
        };
        let written = written.await;
        (pages, written)
    }))
}

/// What stands behind the documents.
fn tail(finder: &Finder, database: &Database, with_stats: bool, elapsed_ms: f64) -> String {
    if finder.is_empty() {
        return String::new();
    }
    // Writing into a string cannot fail.
    let mut tail = format!(",\r\n\"bookmark\":{}", quote(&finder.bookmark()));
    if with_stats {
        let stats = finder.stats();
        let (examined, returned) = (stats.examined, stats.returned);
        let _ = write!(
            tail,
            ",\r\n\"execution_stats\":{{\"total_keys_examined\":{examined},\"total_docs_examined\":{examined},\
             \"total_quorum_docs_examined\":0,\"results_returned\":{returned},\"execution_time_ms\":{elapsed_ms:.3}{}}}",
            shards(finder, database)
        );
    }
    if let Some(aggregates) = finder.aggregates() {
        let _ = write!(tail, ",\r\n\"aggregates\":{aggregates}");
    }
    if let Some(warning) = finder.warning() {
        let _ = write!(tail, ",\r\n\"warning\":{}", quote(&warning));
    }
    tail
}

/// What each shard has cost, if that was asked for: a member of the statistics.
fn shards(finder: &Finder, database: &Database) -> String {
    let stats = finder.shard_stats();
    if stats.is_empty() {
        return String::new();
    }
    // A range whose copies cannot be told now is told without its node.
    let places = database.places().unwrap_or_default();
    let shard = |(at, stats): (usize, ScanStats)| {
        let (range, copies) = places.get(at).cloned().unwrap_or_default();
        let node = copies.into_iter().find(|it| it.standing.is_in_service());
        let node = node.map_or(String::new(), |copy| copy.node);
        format!(
            "{{\"range\":{},\"node\":{},\"docs_examined\":{},\"bodies_read\":{},\"bytes_read\":{}}}",
            quote(&range),
            quote(&node),
            stats.examined,
            stats.bodies,
            stats.bytes
        )
    };
    format!(",\"shards\":{}", array(stats.into_iter().map(shard)))
}

pub(crate) async fn explain(mut call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    let database = call.database().await?;
    let text = call.take_object().await?;
    let request = request(&call, &text)?;
    let text = call
        .app
        .run(move |_| Ok(database.explain(request)?))
        .await?;
    Ok(reply::ok(text))
}

pub(crate) async fn index(call: Call) -> Outcome<Reply> {
    let names: Vec<&str> = call.segments[2..].iter().map(String::as_str).collect();
    match (names.as_slice(), call.method.as_str()) {
        ([], "GET") => list(call).await,
        ([], "POST") => create(call).await,
        ([], _) => Err(Failure::method("GET,POST")),
        (["_bulk_delete"], "POST") => bulk_delete(call).await,
        (["_bulk_delete"], _) => Err(Failure::method("POST")),
        (["_design", design, _, name] | [design, _, name], "DELETE") => {
            let (design, name) = (design_id(design), (*name).to_owned());
            delete(call, design, name).await
        }
        ([_, _, _] | ["_design", _, _, _], _) => Err(Failure::method("DELETE")),
        _ => Err(Failure::not_found("missing")),
    }
}

fn design_id(name: &str) -> String {
    let bare = name.strip_prefix("_design/").unwrap_or(name);
    format!("_design/{bare}")
}

async fn list(call: Call) -> Outcome<Reply> {
    let database = call.database().await?;
    let indexes = call.app.run(move |_| Ok(database.indexes()?)).await?;
    let skip = call.query.whole("skip")?.unwrap_or(0) as usize;
    let limit = call
        .query
        .whole("limit")?
        .map_or(usize::MAX, |limit| limit as usize);
    let shown = indexes
        .iter()
        .skip(skip)
        .take(limit)
        .map(IndexInfo::to_json);
    let total = indexes.len();
    let shown = array(shown);
    Ok(reply::ok(format!(
        "{{\"total_rows\":{total},\"indexes\":{shown}}}"
    )))
}

async fn create(mut call: Call) -> Outcome<Reply> {
    let database = call.database().await?;
    call.user.require_admin_of(&database)?;
    let text = call.take_object().await?;
    let request = IndexRequest::parse(Json::new(&text))?;
    let work = move |app: &crate::app::App| {
        let created = database.create_index(&request)?;
        app.announce(&database);
        Ok(created)
    };
    let (index, is_new) = call.app.run(work).await?;
    let result = if is_new { "created" } else { "exists" };
    let id = quote(index.design.as_deref().unwrap_or_default());
    let name = quote(&index.name);
    Ok(reply::ok(format!(
        "{{\"result\":\"{result}\",\"id\":{id},\"name\":{name}}}"
    )))
}

async fn delete(call: Call, design: String, name: String) -> Outcome<Reply> {
    let database = call.database().await?;
    call.user.require_admin_of(&database)?;
    let work = move |app: &crate::app::App| {
        let deleted = database.delete_index(&design, Some(&name))?;
        app.announce(&database);
        Ok(deleted)
    };
    if call.app.run(work).await? {
        Ok(reply::ok(r#"{"ok":true}"#))
    } else {
        Err(Failure::not_found("missing"))
    }
}

async fn bulk_delete(mut call: Call) -> Outcome<Reply> {
    let database = call.database().await?;
    call.user.require_admin_of(&database)?;
    let text = call.take_object().await?;
    let ids = Json::new(&text)
        .member("docids")
        .filter(|ids| ids.kind() == Kind::Array);
    let ids = ids.ok_or_else(|| Failure::bad_request("Missing required key: docids"))?;
    let ids: Vec<String> = ids
        .elements()
        .filter_map(Json::string)
        .map(Into::into)
        .collect();
    let work = move |app: &crate::app::App| {
        let (mut success, mut fail) = (Vec::new(), Vec::new());
        for id in ids {
            let id = design_id(&id);
            let quoted = quote(&id);
            match database.delete_index(&id, None) {
                Ok(true) => success.push(format!("{{\"id\":{quoted},\"ok\":true}}")),
                Ok(false) => fail.push(format!("{{\"id\":{quoted},\"error\":\"not_found\"}}")),
                Err(error) => {
                    let error = quote(error.word());
                    fail.push(format!("{{\"id\":{quoted},\"error\":{error}}}"));
                }
            }
        }
        app.announce(&database);
        Ok((array(success), array(fail)))
    };
    let (success, fail) = call.app.run(work).await?;
    Ok(reply::ok(format!(
        "{{\"success\":{success},\"fail\":{fail}}}"
    )))
}
