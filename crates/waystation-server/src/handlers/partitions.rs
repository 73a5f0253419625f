//! Partitions of a database: figures about one, and what asks for the documents of one.

use crate::failure::{Failure, Outcome};
use crate::handlers::{all_docs, find, views};
use crate::reply::{self, Reply};
use crate::request::Call;
use waystation_documents::json::quote;
use waystation_documents::partition::check_partition;

/// The parameter that names the partition.
const PARTITION: &str = "partition";

pub(crate) async fn partition(mut call: Call) -> Outcome<Reply> {
    let Some(name) = call.segments.get(2).cloned() else {
        return Err(Failure::bad_request("invalid_partition_req"));
    };
    let database = call.database().await?;
    check_partition(&name)?;
    if !database.is_partitioned() {
        return Err(Failure::bad_request("database is not partitioned"));
    }
    if call.segments.len() == 3 {
        return info(call, name).await;
    }
    if call.query.get(PARTITION).is_some_and(|other| other != name) {
        let reason = "Conflicting value for `partition` in query string";
        return Err(Failure::bad_request(reason));
    }
    call.query.set(PARTITION, &name);
    call.segments.drain(1..3);
    let names: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    match names.as_slice() {
        [_, "_all_docs"] => all_docs::all_documents(call).await,
        [_, "_find"] => find::find(call).await,
        [_, "_explain"] => find::explain(call).await,
        [_, "_design", _, "_view", _] => views::view(call).await,
        _ => Err(Failure::not_found("missing")),
    }
}

async fn info(call: Call, name: String) -> Outcome<Reply> {
    call.allow("GET")?;
    let database = call.database().await?;
    call.user.require_all(&database)?;
    let work = move |_: &crate::app::App| {
        let info = database.partition_info(&name)?;
        let (documents, deleted, bytes) = (info.documents, info.deleted, info.bytes);
        Ok(format!(
            "{{\"db_name\":{},\"sizes\":{{\"active\":{bytes},\"external\":{bytes}}},\"partition\":{},\
             \"doc_count\":{documents},\"doc_del_count\":{deleted}}}",
            quote(database.name()),
            quote(&name)
        ))
    };
    Ok(reply::ok(call.app.run(work).await?))
}
