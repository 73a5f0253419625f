//! Answers: JSON in one piece, or in pages as the client takes them.

use crate::failure::{Failure, Outcome};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Bytes, Frame};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use waystation_documents::json::quote;

/// The body of an answer.
pub(crate) type Body = BoxBody<Bytes, io::Error>;
/// An answer.
pub(crate) type Reply = Response<Body>;

/// Pages that wait for the client.
const PAGES_WAITING: usize = 2;
/// A long page is sent in pieces of this length (bytes).
const PIECE_BYTES: usize = 1 << 20;

/// An answer with `body` as it is.
pub(crate) fn bytes(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Reply {
    let body = Full::new(body.into())
        .map_err(|never| match never {})
        .boxed();
    with_type(status, content_type, body)
}

fn with_type(status: StatusCode, content_type: &str, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let fallback = HeaderValue::from_static("application/octet-stream");
    let value = HeaderValue::from_str(content_type).unwrap_or(fallback);
    reply.headers_mut().insert(CONTENT_TYPE, value);
    reply
}

/// An answer with the JSON `text`.
pub(crate) fn json(status: StatusCode, mut text: String) -> Reply {
    text.push('\n');
    bytes(status, "application/json", text)
}

/// The JSON `text` with status 200.
pub(crate) fn ok(text: impl Into<String>) -> Reply {
    json(StatusCode::OK, text.into())
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Reply {
    let mut reply = bytes(status, "application/json", Bytes::new());
    reply.headers_mut().remove(CONTENT_TYPE);
    reply
}

/// The answer to a request that failed.
pub(crate) fn failed(failure: &Failure) -> Reply {
    let text = error_json(&failure.word, &failure.reason);
    let mut reply = json(failure.status, text);
    if let Some((name, value)) = &failure.header {
        set(&mut reply, name, value);
    }
    reply
}

/// An error as it stands in answers.
pub(crate) fn error_json(word: &str, reason: &str) -> String {
    let (word, reason) = (quote(word), quote(reason));
    format!("{{\"error\":{word},\"reason\":{reason}}}")
}

/// Sets a header; a value that no header can have is left out.
pub(crate) fn set(reply: &mut Reply, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        let name = HeaderName::from_static(name_in_lower_case(name));
        reply.headers_mut().insert(name, value);
    }
}

/// Names of headers that the server sets, as hyper takes them.
fn name_in_lower_case(name: &'static str) -> &'static str {
    match name {
        "Allow" => "allow",
        "Location" => "location",
        "ETag" => "etag",
        "Set-Cookie" => "set-cookie",
        other => other,
    }
}

/// The same answer, which keeps `held` until its body was sent or dropped.
pub(crate) fn hold<T: Send + Sync + 'static>(reply: Reply, held: T) -> Reply {
    reply.map(|body| {
        let keep = move |frame| {
            let _ = &held;
            frame
        };
        body.map_frame(keep).boxed()
    })
}

/// Where pages of an answer go.
pub(crate) struct Pages {
    sender: mpsc::Sender<io::Result<Bytes>>,
}

/// The client has gone.
#[derive(Debug)]
pub(crate) struct Gone;

impl Pages {
    /// Sends a page when the client has taken those before.
    pub(crate) async fn send(&self, page: impl Into<Bytes>) -> Result<(), Gone> {
        let page = page.into();
        if page.is_empty() {
            return Ok(());
        }
        self.sender.send(Ok(page)).await.map_err(|_| Gone)
    }

    /// Sends a long page in pieces, so that little of it waits when this returns.
    pub(crate) async fn send_long(&self, page: &str) -> Result<(), Gone> {
        for piece in page.as_bytes().chunks(PIECE_BYTES) {
            self.send(Bytes::copy_from_slice(piece)).await?;
        }
        Ok(())
    }

    /// Waits until the client has gone.
    pub(crate) async fn gone(&self) {
        self.sender.closed().await;
    }

    /// Cuts the answer, so that the client sees that it is not whole.
    async fn cut(&self, failure: &Failure) {
        let error = io::Error::other(failure.reason.clone());
        // If the client has gone, it needs no telling.
        let _ = self.sender.send(Err(error)).await;
    }
}

/// An answer in pages that `write` sends. What fails after the first page cuts the answer.
pub(crate) fn pages<F, W>(content_type: &str, write: W) -> Reply
where
    W: FnOnce(Pages) -> F + Send + 'static,
    F: Future<Output = (Pages, Outcome<()>)> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(PAGES_WAITING);
    tokio::spawn(async move {
        if let (pages, Err(failure)) = write(Pages { sender }).await {
            log::warn!("an answer was cut: {}", failure.reason);
            pages.cut(&failure).await;
        }
    });
    with_type(StatusCode::OK, content_type, Received(receiver).boxed())
}

/// A body that comes through a channel.
struct Received(mpsc::Receiver<io::Result<Bytes>>);

impl HttpBody for Received {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let page = self.0.poll_recv(context);
        page.map(|page| page.map(|page| page.map(Frame::data)))
    }
}
