//! Calls of browsers from other origins, for the origins that the settings name.

use crate::config::Cors;
use crate::reply::{self, Reply};
use hyper::header::{HeaderMap, ORIGIN};
use hyper::{Method, StatusCode};

/// Methods that browsers may use.
const METHODS: &str = "GET, PUT, POST, HEAD, DELETE, COPY";
/// Headers that they may send if they ask for none.
const HEADERS: &str = "accept, authorization, content-type, origin, referer, x-csrf-token, if-match, if-none-match, destination";
/// Headers that scripts may read.
const EXPOSED: &str =
    "content-type, accept-ranges, etag, server, x-couch-request-id, cache-control";

/// The origin of the request, if it may call.
fn origin<'a>(cors: &Cors, headers: &'a HeaderMap) -> Option<&'a str> {
    let origin = headers.get(ORIGIN)?.to_str().ok()?;
    cors.origins
        .iter()
        .any(|it| it == "*" || it == origin)
        .then_some(origin)
}

/// The answer to a browser that asks what it may send.
pub(crate) fn preflight(cors: &Cors, method: &Method, headers: &HeaderMap) -> Option<Reply> {
    let asked = headers.get("access-control-request-method")?;
    origin(cors, headers)?;
    let methods = cors.methods.as_deref().unwrap_or(METHODS);
    let is_allowed = methods.split(',').any(|it| asked == it.trim());
    if *method != Method::OPTIONS || !is_allowed {
        return None;
    }
    let mut reply = reply::empty(StatusCode::NO_CONTENT);
    let wanted = headers.get("access-control-request-headers");
    let wanted = wanted.and_then(|it| it.to_str().ok()).unwrap_or(HEADERS);
    let wanted = cors.headers.as_deref().unwrap_or(wanted);
    reply::set(&mut reply, "access-control-allow-methods", methods);
    reply::set(&mut reply, "access-control-allow-headers", wanted);
    reply::set(&mut reply, "access-control-max-age", "600");
    Some(reply)
}

/// Lets the caller's origin read the answer.
pub(crate) fn mark(cors: &Cors, headers: &HeaderMap, reply: &mut Reply) {
    let Some(origin) = origin(cors, headers) else {
        return;
    };
    // With `*` alone no credentials may be sent, so that the origin is named.
    reply::set(reply, "access-control-allow-origin", origin);
    if cors.has_credentials {
        reply::set(reply, "access-control-allow-credentials", "true");
    }
    reply::set(reply, "access-control-expose-headers", EXPOSED);
    reply::set(reply, "vary", "Origin");
}
