//! Databases: made, described, deleted; who may use them; where their documents are.

use crate::auth;
use crate::failure::{Failure, Outcome};
use crate::handlers::documents;
use crate::handlers::nodes::node_name;
use crate::query::encode;
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use waystation_documents::json::{Json, quote};
use waystation_documents::{Database, Error};

/// Who may do what, if a database says nothing.
const SECURITY: &str = r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;

/// Whether a database of the server itself has this name.
pub(crate) fn is_system(name: &str) -> bool {
    matches!(name, "_users" | "_replicator" | "_global_changes")
}

pub(crate) async fn database(call: Call) -> Outcome<Reply> {
    match call.method.as_str() {
        "GET" => info(&call).await,
        "PUT" => create(&call).await,
        "DELETE" => delete(&call).await,
        "POST" => documents::create(call).await,
        _ => Err(Failure::method("DELETE,GET,HEAD,POST,PUT")),
    }
}

async fn info(call: &Call) -> Outcome<Reply> {
    let database = call.database().await?;
    let text = call.app.run(move |_| Ok(info_json(&database)?)).await?;
    Ok(reply::ok(text))
}

/// What is told of a database.
pub(crate) fn info_json(database: &Database) -> Result<String, Error> {
    let info = database.info()?;
    let (file, active) = (info.file_bytes, info.active_bytes);
    let (shards, copies) = (database.ranges().len(), database.copies_max()?);
    let quorum = copies / 2 + 1;
    let props = if database.is_partitioned() {
        r#"{"partitioned":true}"#
    } else {
        "{}"
    };
    Ok(format!(
        "{{\"instance_start_time\":\"0\",\"db_name\":{},\"purge_seq\":{},\"update_seq\":{},\
         \"sizes\":{{\"file\":{file},\"external\":{active},\"active\":{active}}},\"props\":{props},\
         \"doc_del_count\":{},\"doc_count\":{},\"disk_format_version\":8,\"compact_running\":{},\
         \"cluster\":{{\"q\":{shards},\"n\":{copies},\"w\":{quorum},\"r\":1}}}}",
        quote(database.name()),
        quote(&format!("{}-waystation", info.purge_sequence)),
        quote(&info.update_sequence.to_string()),
        info.deleted,
        info.documents,
        database.is_compacting(),
    ))
}

async fn create(call: &Call) -> Outcome<Reply> {
    call.user.require_admin()?;
    let shards = match call.query.get("q") {
        None => call.app.settings.shards,
        // What is no number is refused as 0 is.
        Some(text) => text.parse().unwrap_or(0),
    };
    let is_partitioned = match call.query.get("partitioned") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Failure::bad_request("Invalid `partitioned` parameter")),
    };
    // Zones are CouchDB's; weights of nodes have a meaning where there are some.
    let has_drives = call.app.settings.nodes.is_some();
    let placement = call.query.get("placement").filter(|_| has_drives);
    let weights = placement.map(weights_of).transpose()?;
    let copies = match call.query.get("n").filter(|_| has_drives) {
        None => 1,
        Some(text) => text.parse().unwrap_or(0),
    };
    let name = call.segments[0].clone();
    let location = format!("/{}", encode(&name));
    call.app
        .run(move |app| {
            let (catalogue, weights) = (&app.catalogue, weights.as_deref());
            if is_partitioned {
                catalogue.create_partitioned(&name, (shards, copies), weights)?;
            } else {
                catalogue.create_copies(&name, (shards, copies), weights)?;
            }
            Ok(())
        })
        .await?;
    let mut reply = reply::json(StatusCode::CREATED, r#"{"ok":true}"#.to_owned());
    reply::set(&mut reply, "Location", &location);
    Ok(reply)
}

/// Reads `NODE:WEIGHT,...`; `_local` is this process.
fn weights_of(text: &str) -> Outcome<Vec<(String, f64)>> {
    let weight = |part: &str| {
        let (name, weight) = part.rsplit_once(':')?;
        let weight: f64 = weight.parse().ok()?;
        let name = node_name(name);
        let is_weight = weight.is_finite() && weight >= 0.0 && !name.is_empty();
        is_weight.then(|| (name.to_owned(), weight))
    };
    let weights: Option<Vec<_>> = text.split(',').map(weight).collect();
    let reason = "`placement` must be NODE:WEIGHT, several of them separated by commas";
    weights.ok_or_else(|| Failure::bad_request(reason))
}

async fn delete(call: &Call) -> Outcome<Reply> {
    call.user.require_admin()?;
    if call.query.get("rev").is_some() {
        let reason = "You tried to DELETE a database with a ?rev= parameter. Did you mean to DELETE a document instead?";
        return Err(Failure::bad_request(reason));
    }
    let name = call.segments[0].clone();
    call.app
        .run(move |app| {
            let database = app.catalogue.get(&name)?;
            app.catalogue.delete(&name)?;
            app.forget(&database);
            Ok(())
        })
        .await?;
    Ok(reply::ok(r#"{"ok":true}"#))
}

/// The security object of `database`, as clients and validations see it.
pub(crate) fn security_of(database: &Database) -> String {
    let security = database.security();
    if security.is_empty() {
        SECURITY.to_owned()
    } else {
        security
    }
}

pub(crate) async fn security(mut call: Call) -> Outcome<Reply> {
    call.allow("PUT,GET")?;
    let database = call.database().await?;
    if call.method == "GET" {
        return Ok(reply::ok(security_of(&database)));
    }
    call.user.require_admin_of(&database)?;
    if database.name() == "_users" {
        return Err(Failure::forbidden(
            "You can't edit the security object of the user database.",
        ));
    }
    let text = call.take_json().await?;
    auth::check_security(Json::new(&text))?;
    call.app
        .run(move |app| Ok(app.catalogue.set_security(&database, &text)?))
        .await?;
    Ok(reply::ok(r#"{"ok":true}"#))
}

/// Copies of a shard agree, or are filled without being asked to.
pub(crate) async fn sync_shards(call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    let database = call.database().await?;
    call.user.require_admin_of(&database)?;
    let ok = r#"{"ok":true}"#.to_owned();
    Ok(reply::json(StatusCode::ACCEPTED, ok))
}
