//! The console: one page that asks for the status again and again. Its files are in the program.

use crate::failure::Outcome;
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;

/// A file of the console: its type and its text.
type File = (&'static str, &'static str);

pub(super) const PAGE: File = (
    "text/html; charset=utf-8",
    include_str!("console/console.html"),
);
pub(super) const STYLE: File = (
    "text/css; charset=utf-8",
    include_str!("console/console.css"),
);
pub(super) const SCRIPT: File = (
    "text/javascript; charset=utf-8",
    include_str!("console/console.js"),
);
/// Nothing of another origin is loaded, asked or shown around the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

pub(super) fn file(call: &Call, (media, text): File) -> Outcome<Reply> {
    call.allow("GET")?;
    let mut answer = reply::bytes(StatusCode::OK, media, text);
    reply::set(&mut answer, "content-security-policy", POLICY);
    reply::set(&mut answer, "x-content-type-options", "nosniff");
    reply::set(&mut answer, "cache-control", "no-cache");
    Ok(answer)
}

pub(super) fn redirect() -> Reply {
    let mut answer = reply::empty(StatusCode::FOUND);
    reply::set(&mut answer, "Location", "/_waystation/console");
    answer
}
