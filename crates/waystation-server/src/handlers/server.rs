//! The server itself: its name, its databases, identifiers.

use crate::auth::User;
use crate::failure::{Failure, Outcome};
use crate::handlers::databases::info_json;
use crate::handlers::{nodes, replicate};
use crate::query::Query;
use crate::reply::{self, Reply};
use crate::request::Call;
use crate::uuids::hex;
use hyper::StatusCode;
use waystation_documents::array;
use waystation_documents::json::{Json, Kind, quote};

/// The version of CouchDB whose interface this is.
const COUCHDB_VERSION: &str = "3.5.0";
/// The only node.
pub(crate) const NODE: &str = "\"nonode@nohost\"";
/// Identifiers that are made at once.
const UUIDS_MAX: u64 = 1000;
/// Databases that `_dbs_info` tells of at once.
const INFOS_MAX: usize = 100;

pub(crate) fn welcome(call: &Call) -> Outcome<Reply> {
    call.allow("GET")?;
    let (uuid, version) = (quote(&call.app.uuid), env!("CARGO_PKG_VERSION"));
    Ok(reply::ok(format!(
        "{{\"couchdb\":\"Welcome\",\"version\":\"{COUCHDB_VERSION}\",\"git_sha\":\"waystation\",\"uuid\":{uuid},\
         \"features\":[\"partitioned\",\"scheduler\"],\"vendor\":{{\"name\":\"Waystation\",\"version\":\"{version}\"}}}}"
    )))
}

pub(crate) fn up(call: &Call) -> Outcome<Reply> {
    call.allow("GET")?;
    Ok(reply::ok(r#"{"status":"ok","seeds":{}}"#))
}

pub(crate) fn active_tasks(call: &Call) -> Outcome<Reply> {
    call.user.require_admin()?;
    call.allow("GET")?;
    let tasks = replicate::tasks(call).into_iter().chain(nodes::tasks(call));
    Ok(reply::ok(array(tasks)))
}

/// Endpoints of CouchDB's that are not there, and names that no database can have.
pub(crate) fn other(call: &Call) -> Outcome<Reply> {
    let name = call.segments[0].as_str();
    match name {
        "_cluster_setup"
        | "_reshard"
        | "_db_updates"
        | "_search_analyze"
        | "_nouveau_analyze"
        | "_reload_query_servers" => Err(Failure::not_implemented()),
        _ => {
            let name = name.to_owned();
            Err(waystation_documents::Error::IllegalDatabaseName(name).into())
        }
    }
}

pub(crate) fn uuids(call: &Call) -> Outcome<Reply> {
    call.allow("GET")?;
    let count = call.query.whole("count")?.unwrap_or(1);
    if count > UUIDS_MAX {
        let reason = "count parameter too large";
        return Err(Failure::new(StatusCode::BAD_REQUEST, "bad_request", reason));
    }
    let uuids = array((0..count).map(|_| quote(&call.app.uuids.next())));
    let mut reply = reply::ok(format!("{{\"uuids\":{uuids}}}"));
    reply::set(&mut reply, "cache-control", "must-revalidate, no-cache");
    reply::set(&mut reply, "pragma", "no-cache");
    let tag = format!("\"{}\"", hex(&crate::uuids::random::<8>()));
    reply::set(&mut reply, "ETag", &tag);
    Ok(reply)
}

/// Names between the keys that the parameters name, in their direction.
fn names(query: &Query, user: &User, mut names: Vec<String>) -> Outcome<Vec<String>> {
    user.require_admin()?;
    let key = |one: &str, other: &str| -> Outcome<Option<String>> {
        let text = query.json(one)?.or(query.json(other)?);
        Ok(text.and_then(|text| Json::new(&text).string().map(std::borrow::Cow::into_owned)))
    };
    let descending = query.is_true("descending");
    let (start, end) = (key("startkey", "start_key")?, key("endkey", "end_key")?);
    let (low, high) = if descending {
        (end, start)
    } else {
        (start, end)
    };
    names.retain(|name| low.as_ref().is_none_or(|low| name >= low));
    names.retain(|name| high.as_ref().is_none_or(|high| name <= high));
    if descending {
        names.reverse();
    }
    let skip = query.whole("skip")?.unwrap_or(0);
    let limit = query.whole("limit")?.unwrap_or(u64::MAX);
    let taken = names
        .into_iter()
        .skip(usize::try_from(skip).unwrap_or(usize::MAX));
    Ok(taken
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .collect())
}

pub(crate) fn all_databases(call: &Call) -> Outcome<Reply> {
    call.allow("GET")?;
    let names = names(&call.query, &call.user, call.app.catalogue.names())?;
    Ok(reply::ok(array(names.iter().map(|name| quote(name)))))
}

pub(crate) async fn databases_info(mut call: Call) -> Outcome<Reply> {
    call.allow("GET,POST")?;
    let named = if call.method == "POST" {
        call.user.require_admin()?;
        let text = call.take_object().await?;
        let keys = Json::new(&text)
            .member("keys")
            .filter(|keys| keys.kind() == Kind::Array);
        let Some(keys) = keys else {
            return Err(Failure::bad_request("`keys` member must exist."));
        };
        let names: Vec<String> = keys
            .elements()
            .filter_map(Json::string)
            .map(Into::into)
            .collect();
        if names.len() > INFOS_MAX {
            let reason = "`keys` array max size is 100";
            return Err(Failure::bad_request(reason));
        }
        names
    } else {
        names(&call.query, &call.user, call.app.catalogue.names())?
    };
    let text = call
        .app
        .run(move |app| {
            let info = |name: String| {
                let found = app.catalogue.get(&name).and_then(|it| info_json(&it));
                match found {
                    Ok(info) => format!("{{\"key\":{},\"info\":{info}}}", quote(&name)),
                    Err(_) => format!("{{\"key\":{},\"error\":\"not_found\"}}", quote(&name)),
                }
            };
            Ok(array(named.into_iter().map(info)))
        })
        .await?;
    Ok(reply::ok(text))
}
