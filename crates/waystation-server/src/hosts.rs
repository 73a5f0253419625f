//! Names under which a server without users answers.
//!
//! Such a server trusts the machine that it runs on: it listens on a loopback address, and every caller is an
//! administrator. A page in a browser of that machine is a caller as well. The same-origin policy keeps the page from
//! reading answers, until the page's own name is made to lead to the loopback address (DNS rebinding). The name that the
//! browser calls stands in the request, and a page cannot change it: names beside the machine's own are refused.

use crate::failure::{Failure, Outcome};
use hyper::Uri;
use hyper::header::{HOST, HeaderMap};
use std::net::IpAddr;

/// Refuses a request to a name that may be another's. `allowed` are further names of this server.
pub(crate) fn check(uri: &Uri, headers: &HeaderMap, allowed: &[String]) -> Outcome<()> {
    let Some(called) = called(uri, headers)? else {
        return Ok(());
    };
    let name = without_port(called);
    if is_own(name) || allowed.iter().any(|it| it.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    Err(Failure::forbidden(format!(
        "This server has no users, and answers to localhost and to IP addresses only, not to {name:?}. Set up a user, or name the host in `hosts` of [http] in the configuration."
    )))
}

/// The host that a request calls; `None`: a client that is no browser does not say.
fn called<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Outcome<Option<&'a str>> {
    if let Some(authority) = uri.authority() {
        return Ok(Some(authority.as_str()));
    }
    let Some(host) = headers.get(HOST) else {
        return Ok(None);
    };
    let text = host.to_str();
    text.map(Some)
        .map_err(|_| Failure::bad_request("the Host header is no text"))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether a name cannot be made to lead here by another's name server.
fn is_own(name: &str) -> bool {
    let address = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_address = address.unwrap_or(name).parse::<IpAddr>().is_ok();
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    is_address || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(host: &'static str) -> bool {
        let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        check(&Uri::from_static("/"), &headers, &["Gateway".to_owned()]).is_ok()
    }

    #[test]
    fn addresses_localhost_and_named_hosts_are_taken() {
        for host in [
            "localhost",
            "LOCALHOST:5984",
            "localhost.",
            "db.localhost:80",
            "127.0.0.1:5984",
            "192.168.1.7",
            "[::1]:5984",
            "[::1]",
            "gateway:5984",
        ] {
            assert!(is_taken(host), "{host}");
        }
    }

    #[test]
    fn names_of_others_are_refused() {
        for host in [
            "evil.example:5984",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "",
            "user@localhost.evil.example",
            "::1.evil.example",
        ] {
            assert!(!is_taken(host), "{host}");
        }
    }

    #[test]
    fn the_name_of_an_absolute_target_counts() {
        let headers = HeaderMap::from_iter([(HOST, "localhost".parse().unwrap())]);
        let uri = Uri::from_static("http://evil.example/cars");
        assert!(check(&uri, &headers, &[]).is_err());
        assert!(check(&Uri::from_static("/"), &HeaderMap::new(), &[]).is_ok());
    }
}
