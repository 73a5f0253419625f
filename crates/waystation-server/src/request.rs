//! A request on its way through the server: what it names, what it asks, who calls, and its body.

use crate::app::App;
use crate::auth::User;
use crate::failure::{Failure, Outcome};
use crate::query::Query;
use crate::reply::Body;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use hyper::{Method, StatusCode};
use std::io::Read;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use waystation_documents::json::{Json, Kind, canonical};
use waystation_documents::{Database, Revision};

/// A request.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) method: Method,
    /// The path, decoded.
    pub(crate) segments: Vec<String>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) user: User,
    pub(crate) body: Option<Body>,
}

/// A body, with the memory that it takes of all bodies' together.
pub(crate) struct Taken {
    pub(crate) bytes: Bytes,
    _memory: OwnedSemaphorePermit,
}

impl Call {
    /// The text of a header; empty if it is not there.
    pub(crate) fn header(&self, name: impl hyper::header::AsHeaderName) -> &str {
        let value = self.headers.get(name);
        value.and_then(|it| it.to_str().ok()).unwrap_or_default()
    }

    /// Whether the client takes `media` and has not asked for JSON.
    pub(crate) fn prefers(&self, media: &str) -> bool {
        let accept = self.header(ACCEPT);
        accept.contains(media) && !accept.contains("application/json")
    }

    /// The body, of at most as many bytes as the settings allow.
    pub(crate) async fn take_body(&mut self) -> Outcome<Taken> {
        let limit = self.app.config.now().body_bytes_max;
        let length = match self.header(CONTENT_LENGTH) {
            "" => limit,
            text => text
                .parse()
                .map_err(|_| Failure::bad_request("Content-Length is no number"))?,
        };
        if length > limit {
            return Err(Failure::too_large());
        }
        let memory = self.app.admit_body(length).await?;
        let mut bytes = Vec::with_capacity(length.min(1 << 16));
        if let Some(mut body) = self.body.take() {
            let stall = self.app.settings.stall_timeout;
            loop {
                let frame = timeout(stall, body.frame()).await.map_err(|_| {
                    Failure::new(
                        StatusCode::REQUEST_TIMEOUT,
                        "timeout",
                        "the body of the request did not come in time",
                    )
                })?;
                let Some(frame) = frame else { break };
                let frame = frame.map_err(|error| {
                    Failure::bad_request(format!("the body of the request was cut: {error}"))
                })?;
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                if bytes.len() + data.len() > limit {
                    return Err(Failure::too_large());
                }
                bytes.extend_from_slice(&data);
            }
        }
        let bytes = self.decoded(bytes)?;
        Ok(Taken {
            bytes: bytes.into(),
            _memory: memory,
        })
    }

    /// Undoes the encoding of a JSON body. Attachments keep theirs.
    fn decoded(&self, bytes: Vec<u8>) -> Outcome<Vec<u8>> {
        if self.header(CONTENT_ENCODING) != "gzip" || !self.is_json() {
            return Ok(bytes);
        }
        gunzip(&bytes, self.app.config.now().body_bytes_max)
    }

    fn is_json(&self) -> bool {
        let media = self.header(CONTENT_TYPE);
        media.is_empty() || media.starts_with("application/json")
    }

    /// The body as canonical JSON, whatever its type is said to be.
    pub(crate) async fn take_json(&mut self) -> Outcome<String> {
        let taken = self.take_body().await?;
        canonical(&taken.bytes).map_err(|_| Failure::bad_request("invalid UTF-8 JSON"))
    }

    /// The body of a POST as a JSON object, in canonical text.
    pub(crate) async fn take_object(&mut self) -> Outcome<String> {
        self.require_json()?;
        let text = self.take_json().await?;
        if Json::new(&text).kind() != Kind::Object {
            let reason = "Request body must be a JSON object";
            return Err(Failure::bad_request(reason));
        }
        Ok(text)
    }

    /// Refuses a POST whose body is not said to be JSON.
    pub(crate) fn require_json(&self) -> Outcome<()> {
        if !self.is_json() || self.header(CONTENT_TYPE).is_empty() {
            return Err(Failure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "bad_content_type",
                "Content-Type must be application/json",
            ));
        }
        Ok(())
    }

    /// The database that the path names, if the caller may use it.
    pub(crate) async fn database(&self) -> Outcome<Arc<Database>> {
        let name = self.segments[0].clone();
        let database = self
            .app
            .run(move |app| Ok(app.catalogue.get(&name)?))
            .await?;
        self.user.require_member(&database)?;
        Ok(database)
    }

    /// The revision that the request names in its parameters or in `If-Match`.
    pub(crate) fn revision(&self) -> Outcome<Option<Revision>> {
        let named = self.query.get("rev").filter(|rev| !rev.is_empty());
        let named = named.map(str::parse::<Revision>).transpose()?;
        let tag = self.header("if-match").trim_matches('"');
        let tag = (!tag.is_empty()).then(|| tag.parse::<Revision>());
        match (named, tag.transpose()?) {
            (Some(named), Some(tag)) if named != tag => Err(Failure::bad_request(
                "Document rev and etag have different values",
            )),
            (named, tag) => Ok(named.or(tag)),
        }
    }

    /// Whether the client has what `tag` names.
    pub(crate) fn has(&self, tag: &str) -> bool {
        let known = self.header("if-none-match");
        known
            .split(',')
            .any(|known| matches!(known.trim(), it if it == tag || it == "*"))
    }

    /// Refuses methods that the path has no meaning for.
    pub(crate) fn allow(&self, allowed: &'static str) -> Outcome<()> {
        let is_allowed = allowed.split(',').any(|name| name == self.method.as_str());
        is_allowed
            .then_some(())
            .ok_or_else(|| Failure::method(allowed))
    }
}

/// Undoes gzip, up to `limit` bytes.
pub(crate) fn gunzip(bytes: &[u8], limit: usize) -> Outcome<Vec<u8>> {
    let mut out = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(bytes).take(limit as u64 + 1);
    let read = reader.read_to_end(&mut out);
    read.map_err(|_| Failure::bad_request("the body is not gzip, as its header says"))?;
    if out.len() > limit {
        return Err(Failure::too_large());
    }
    Ok(out)
}
