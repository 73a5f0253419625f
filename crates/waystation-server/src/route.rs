//! From a request to its handler, and from a handler's answer to the client.
//!
//! The first segment of a path names a database or an endpoint of the server; in a database, segments that begin with an
//! underscore name endpoints, others documents. Identifiers of design and local documents are two segments.

use crate::app::App;
use crate::auth::{self, User};
use crate::failure::{Failure, Outcome};
use crate::gateway;
use crate::handlers::{
    all_docs, attachments, bulk, changes, cors, databases, documents, find, local, maintenance,
    node, nodes, partitions, replicate, replication, server, sessions, views,
};
use crate::hosts;
use crate::query::{Query, segments};
use crate::reply::{self, Body, Reply};
use crate::request::Call;
use crate::server::HEAD_BYTES_MAX;
use crate::uuids::{hex, random};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, SERVER};
use hyper::{Method, Request, StatusCode};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use waystation_access::Secret;

/// The header that names a request, in the client's log and the server's.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");
/// The program and its version.
const PRODUCT: HeaderValue = HeaderValue::from_static(concat!(
    "Waystation/",
    env!("CARGO_PKG_VERSION"),
    " (CouchDB)"
));

/// Paths that callers without a name may ask where others may not.
const OPEN: [&str; 3] = ["_up", "health", "ready"];

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The certificate that it has shown, and whose key it has.
    pub(crate) certificate: Option<Secret>,
}

/// Answers a request of `peer`, whatever it is.
pub(crate) async fn answer(
    app: Arc<App>,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let (method, headers) = (request.method().clone(), request.headers().clone());
    let config = app.config.now();
    let cors = config.cors.as_ref();
    let limit = app.settings.requests_per_second;
    let admitted = app.rates.admit(peer.address, limit, app.stats.uptime());
    let preflight = || cors.and_then(|cors| cors::preflight(cors, &method, &headers));
    let mut reply = match admitted.map(|()| preflight()) {
        Err(wait) => reply::failed(&too_many(wait)),
        Ok(Some(reply)) => reply,
        Ok(None) if head_bytes(&request) > HEAD_BYTES_MAX => reply::failed(&head_too_large()),
        Ok(None) => match handle(&app, &peer, request).await {
            Ok(reply) => reply,
            Err(failure) => reply::failed(&failure),
        },
    };
    if let Some(cors) = cors {
        cors::mark(cors, &headers, &mut reply);
    }
    if let Some(challenge) = &config.challenge
        && reply.status() == StatusCode::UNAUTHORIZED
    {
        reply::set(&mut reply, "www-authenticate", challenge);
    }
    finish(&headers, &mut reply);
    app.stats.count(&method, reply.status());
    Ok(reply)
}

/// The length of a request's head as it came, but for spaces that say nothing.
fn head_bytes(request: &Request<Incoming>) -> usize {
    let target = request.uri().path_and_query();
    let target = target.map_or(0, |target| target.as_str().len());
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + ": \r\n".len() + value.len());
    let line = request.method().as_str().len() + "  HTTP/1.1\r\n".len() + target;
    line + fields.sum::<usize>() + "\r\n".len()
}

fn too_many(wait: Duration) -> Failure {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    Failure {
        header: Some(("retry-after", seconds.to_string())),
        ..Failure::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many_requests",
            "this address has sent more requests than it may in a second",
        )
    }
}

fn head_too_large() -> Failure {
    Failure::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "too_large",
        format!("the URL and the headers of a request have at most {HEAD_BYTES_MAX} bytes"),
    )
}

/// Sets what every answer has.
fn finish(request: &HeaderMap, reply: &mut Reply) {
    let headers = reply.headers_mut();
    headers.insert(SERVER, PRODUCT);
    let revalidate = HeaderValue::from_static("must-revalidate");
    headers.entry(CACHE_CONTROL).or_insert(revalidate);
    let given = request.get(&REQUEST_ID).cloned();
    let id = given.or_else(|| HeaderValue::from_str(&hex(&random::<5>())).ok());
    if let Some(id) = id {
        headers.insert(REQUEST_ID, id);
    }
}

async fn handle(app: &Arc<App>, peer: &Peer, request: Request<Incoming>) -> Outcome<Reply> {
    if auth::is_open(app) {
        hosts::check(request.uri(), request.headers(), &app.settings.hosts)?;
    }
    let request = request.map(|body| body.map_err(std::io::Error::other).boxed());
    let mut call = read(app, request)?;
    let is_login = call.segments[0] == "_session" && call.method == Method::POST;
    call.user = match auth::identify(app, peer, &call.headers).await {
        // What was wrong in an old cookie or header is no reason to refuse a new login.
        Err(_) if is_login => User::default(),
        user => user?,
    };
    let is_named = call.user.name.is_some() || is_login || OPEN.contains(&&*call.segments[0]);
    if app.config.now().requires_user && !is_named {
        return Err(Failure::unauthorized("Authentication required."));
    }
    let cookie = call.user.cookie.clone();
    let mut reply = if gateway::is_for(&call) {
        gateway::answer(call).await?
    } else {
        to_handler(call).await?
    };
    if let Some(cookie) = cookie.filter(|_| !reply.headers().contains_key("set-cookie")) {
        reply::set(&mut reply, "Set-Cookie", &cookie);
    }
    Ok(reply)
}

/// Answers a request of this process, as one of `user`. Handlers start replications, and replications call handlers:
/// the box keeps the compiler from looking into the circle.
pub(crate) fn inside(
    app: Arc<App>,
    user: User,
    request: Request<Body>,
) -> Pin<Box<dyn Future<Output = Reply> + Send>> {
    Box::pin(async move {
        let answered = async {
            let mut call = read(&app, request)?;
            call.user = user;
            to_handler(call).await
        };
        match answered.await {
            Ok(reply) => reply,
            Err(failure) => reply::failed(&failure),
        }
    })
}

/// What a request names and asks; its caller is still to be named.
fn read(app: &Arc<App>, request: Request<Body>) -> Outcome<Call> {
    let (head, body) = request.into_parts();
    let mut method = head.method;
    if method == Method::POST
        && let Some(other) = head.headers.get("x-http-method-override")
    {
        let other = Method::from_bytes(other.as_bytes());
        method = other.map_err(|_| Failure::bad_request("X-HTTP-Method-Override is no method"))?;
    }
    // What a HEAD does not send is cut off on the way out.
    if method == Method::HEAD {
        method = Method::GET;
    }
    Ok(Call {
        app: Arc::clone(app),
        method,
        segments: segments(head.uri.path())?,
        query: Query::parse(head.uri.query().unwrap_or_default())?,
        headers: head.headers,
        user: User::default(),
        body: Some(body),
    })
}

async fn to_handler(call: Call) -> Outcome<Reply> {
    let names: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    match names.as_slice() {
        [""] => server::welcome(&call),
        ["_up"] => server::up(&call),
        ["_all_dbs"] => server::all_databases(&call),
        ["_dbs_info"] => server::databases_info(call).await,
        ["_uuids"] => server::uuids(&call),
        ["_session"] => sessions::session(call).await,
        ["_active_tasks"] => server::active_tasks(&call),
        ["_replicate"] => replicate::replicate(call).await,
        ["_scheduler", ..] => replicate::scheduler(call).await,
        ["_membership" | "_rebalance"] => nodes::nodes(call).await,
        ["_node", ..] => node::node(call).await,
        ["_utils", ..] | ["favicon.ico"] | [] => Err(Failure::not_found("missing")),
        [name, ..] if name.starts_with('_') && !databases::is_system(name) => server::other(&call),
        [_] => databases::database(call).await,
        [_, "_all_docs"] => all_docs::all_documents(call).await,
        [_, "_all_docs", "queries"] => all_docs::queries(call).await,
        [_, "_design_docs"] => all_docs::design_documents(call).await,
        [_, "_local_docs"] => local::local_documents(call).await,
        [_, "_bulk_docs"] => bulk::bulk_documents(call).await,
        [_, "_bulk_get"] => bulk::bulk_get(call).await,
        [_, "_changes"] => changes::changes(call).await,
        [_, "_revs_diff"] => replication::revisions_difference(call).await,
        [_, "_missing_revs"] => replication::missing_revisions(call).await,
        [_, "_find"] => find::find(call).await,
        [_, "_explain"] => find::explain(call).await,
        [_, "_index", ..] => find::index(call).await,
        [_, "_security"] => databases::security(call).await,
        [_, "_shards", ..] => nodes::shards(call).await,
        [_, "_sync_shards"] => databases::sync_shards(call).await,
        [_, "_compact", ..] => maintenance::compact(call).await,
        [_, "_view_cleanup"] => maintenance::view_cleanup(call).await,
        [_, "_ensure_full_commit"] => maintenance::full_commit(call).await,
        [_, "_revs_limit" | "_purged_infos_limit"] => maintenance::limits(call).await,
        [_, "_purge"] => maintenance::purge(call).await,
        [_, "_purged_infos"] => maintenance::purged(call).await,
        [_, "_local", name] => {
            let name = (*name).to_owned();
            local::local_document(call, name).await
        }
        [_, "_local", _, ..] => {
            let reason = "_local documents do not accept attachments.";
            Err(Failure::bad_request(reason))
        }
        [_, "_design", _, name, ..] if name.starts_with('_') => design_endpoint(call).await,
        [_, "_design", name] => {
            let id = format!("_design/{name}");
            documents::document(call, id).await
        }
        [_, "_design", name, rest @ ..] => {
            let (id, name) = (format!("_design/{name}"), rest.join("/"));
            attachments::attachment(call, id, name).await
        }
        [_, "_partition", ..] => partitions::partition(call).await,
        [_, id] if id.starts_with("_local/") => {
            let name = id["_local/".len()..].to_owned();
            local::local_document(call, name).await
        }
        [_, id] => {
            let id = (*id).to_owned();
            documents::document(call, id).await
        }
        [_, id, rest @ ..] => {
            let (id, name) = ((*id).to_owned(), rest.join("/"));
            attachments::attachment(call, id, name).await
        }
    }
}

/// What design documents offer beside themselves.
async fn design_endpoint(call: Call) -> Outcome<Reply> {
    let names: Vec<&str> = call.segments[3..].iter().map(String::as_str).collect();
    match names.as_slice() {
        ["_view", _] | ["_view", _, "queries"] => views::view(call).await,
        ["_info"] => views::info(call).await,
        [
            "_update" | "_show" | "_list" | "_rewrite" | "_search" | "_nouveau" | "_search_info"
            | "_nouveau_info",
            ..,
        ] => Err(Failure::not_implemented()),
        _ => Err(Failure::not_found("missing")),
    }
}
