//! One side of a replication, and how it is asked: in CouchDB's protocol, whether it is a database of this server or of
//! another one. Requests to this server take no socket; they are answered by the same handlers with the rights of the
//! user who ordered the replication.

use super::fault::Fault;
use super::order::{Endpoint, Order};
use super::remote::{Remote, timed};
use crate::app::App;
use crate::auth::User;
use crate::query::encode;
use crate::reply::Body;
use crate::route;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use waystation_documents::json::{Json, canonical};

/// The longest answer that is taken into memory (bytes).
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How much longer than a short request one may take whose body is streamed.
const STREAM_PATIENCE_FACTOR: u32 = 20;
/// Before the first repetition of a request; before each further one twice as long.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// The longest of these waits.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

enum Transport {
    Here { app: Arc<App>, user: User },
    There(Remote),
}

/// One side of a replication.
pub(super) struct Peer {
    transport: Transport,
    /// The path of the database.
    base: String,
    shown: String,
    retries: u64,
    patience: Duration,
}

/// An answer whose body is still to be read.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
    /// Method and URL of the request.
    request: String,
}

/// The body of a request.
pub(super) enum Sent {
    Nothing,
    Json(String),
    /// As an answer brought it: media type, length if it is known, and the bytes.
    Stream(HeaderValue, Option<HeaderValue>, Body),
}

impl Peer {
    pub(super) fn new(
        app: &Arc<App>,
        user: &User,
        endpoint: &Endpoint,
        order: &Order,
    ) -> Result<Self, Fault> {
        let (transport, base) = match endpoint {
            Endpoint::Here(name) => {
                let here = Transport::Here {
                    app: Arc::clone(app),
                    user: user.clone(),
                };
                (here, format!("/{}", encode(name)))
            }
            Endpoint::There { url, headers } => {
                let tls = Arc::clone(&app.outgoing);
                let remote = Remote::new(url.clone(), headers, order.patience, tls)?;
                (Transport::There(remote), url.path().to_owned())
            }
        };
        Ok(Self {
            transport,
            base,
            shown: endpoint.shown(),
            retries: order.retries,
            patience: order.patience,
        })
    }

    /// Without its credentials.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Sends one request to `path` within the database, which is empty or begins with a slash.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        sent: Sent,
    ) -> Result<Answer, Fault> {
        let named = format!("{method} {}{}", self.shown.trim_end_matches('/'), path);
        let malformed = |error: hyper::http::Error| Fault::BadRequest(format!("{named}: {error}"));
        let mut patience = self.patience;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(ACCEPT, accept);
        let body = match sent {
            Sent::Nothing => full(Bytes::new()),
            Sent::Json(text) => {
                request = request
                    .header(CONTENT_TYPE, "application/json")
                    .header(CONTENT_LENGTH, text.len());
                full(text)
            }
            Sent::Stream(media, length, body) => {
                patience *= STREAM_PATIENCE_FACTOR;
                request = request.header(CONTENT_TYPE, media);
                if let Some(length) = length {
                    request = request.header(CONTENT_LENGTH, length);
                }
                body
            }
        };
        match &self.transport {
            Transport::Here { app, user } => {
                let request = request.body(body).map_err(malformed)?;
                let reply = route::inside(Arc::clone(app), user.clone(), request).await;
                let (head, body) = reply.into_parts();
                Ok(Answer {
                    status: head.status,
                    headers: head.headers,
                    body,
                    request: named,
                })
            }
            Transport::There(remote) => {
                let request = request.body(body).map_err(malformed)?;
                let (head, body) = remote.send(request, &named, patience).await?.into_parts();
                Ok(Answer {
                    status: head.status,
                    headers: head.headers,
                    body: timed(body, self.patience),
                    request: named,
                })
            }
        }
    }

    /// Asks for JSON, again and again while the fault may pass. Returns the canonical text of a successful answer.
    pub(super) async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&str>,
    ) -> Result<String, Fault> {
        self.patiently(|| async {
            let sent = match body {
                None => Sent::Nothing,
                Some(text) => Sent::Json(text.to_owned()),
            };
            let answer = self.ask(method.clone(), path, "application/json", sent);
            answer.await?.json().await
        })
        .await
    }

    /// Does `work` again while its fault may pass.
    pub(super) async fn patiently<T, F>(&self, mut work: impl FnMut() -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let mut delay = RETRY_DELAY;
        for _ in 0..self.retries {
            match work().await {
                Err(fault) if fault.is_passing() => {
                    log::debug!("a replication tries again: {fault}");
                }
                outcome => return outcome,
            }
            sleep(delay).await;
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        }
        work().await
    }
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed()
}

impl Answer {
    /// The canonical text of a successful answer.
    pub(super) async fn json(self) -> Result<String, Fault> {
        if !self.status.is_success() {
            return Err(self.refused().await);
        }
        let request = self.request.clone();
        let bytes = self.bytes().await?;
        canonical(&bytes).map_err(|error| Fault::Malformed {
            request,
            reason: error.to_string(),
        })
    }

    /// The fault that an unsuccessful answer is.
    pub(super) async fn refused(self) -> Fault {
        let (request, status) = (self.request.clone(), self.status.as_u16());
        let text = match self.bytes().await {
            Ok(bytes) => canonical(&bytes).unwrap_or_default(),
            Err(fault) => return fault,
        };
        let json = Json::new(&text);
        let part = |name: &str| json.member(name).and_then(Json::string);
        let reason = match (part("error"), part("reason")) {
            (Some(word), Some(reason)) => format!("{word}: {reason}"),
            (Some(text), None) | (None, Some(text)) => text.into_owned(),
            (None, None) => "no reason was given".to_owned(),
        };
        Fault::Refused {
            request,
            status,
            reason,
        }
    }

    /// The fault that this answer is because of `reason`.
    pub(super) fn malformed(&self, reason: impl Into<String>) -> Fault {
        Fault::Malformed {
            request: self.request.clone(),
            reason: reason.into(),
        }
    }

    async fn bytes(mut self) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| Fault::Unanswered {
                request: self.request.clone(),
                reason: format!("the answer was cut: {error}"),
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > ANSWER_BYTES_MAX {
                return Err(Fault::Malformed {
                    request: self.request,
                    reason: format!("it has more than {ANSWER_BYTES_MAX} bytes"),
                });
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }
}
