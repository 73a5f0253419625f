//! Connections to other servers: HTTP/1.1 over TCP or TLS, a few of them kept for the next requests.
//!
//! Every step has a limit of time: connecting, the handshake, the head of an answer, each piece of its body, and each
//! piece of a request that the other side has to take.

use super::fault::Fault;
use crate::impatient::Impatient;
use crate::reply::Body;
use crate::tls::Outgoing;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderName, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Connections that are kept.
const IDLE_MAX: usize = 2;

/// A database of another server.
pub(super) struct Remote {
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    patience: Duration,
    tls: Arc<Outgoing>,
    idle: Mutex<Vec<SendRequest<Body>>>,
}

/// A failure to connect, before there is a request to name.
enum Refusal {
    Unresolved,
    Other(String),
}

impl Remote {
    /// # Errors
    /// [`Fault::BadRequest`] if a header is none that HTTP knows.
    pub(super) fn new(
        url: Uri,
        headers: &[(String, String)],
        patience: Duration,
        tls: Arc<Outgoing>,
    ) -> Result<Self, Fault> {
        let header = |(name, value): &(String, String)| {
            let wrong = || Fault::BadRequest(format!("the header {name} cannot be sent"));
            let parsed = HeaderName::try_from(name).map_err(|_| wrong())?;
            Ok((parsed, HeaderValue::try_from(value).map_err(|_| wrong())?))
        };
        Ok(Self {
            headers: headers.iter().map(header).collect::<Result<_, Fault>>()?,
            url,
            patience,
            tls,
            idle: Mutex::default(),
        })
    }

    /// Sends `request`, which faults call `named`, and waits for the head of the answer up to `head_patience`.
    ///
    /// # Errors
    /// [`Fault::Unanswered`], [`Fault::Unresolved`].
    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
        named: &str,
        head_patience: Duration,
    ) -> Result<Response<Incoming>, Fault> {
        let unanswered = |reason: String| Fault::Unanswered {
            request: named.to_owned(),
            reason,
        };
        let headers = request.headers_mut();
        headers.extend(self.headers.iter().cloned());
        if let Some(authority) = self.url.authority()
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            headers.insert(HOST, host);
        }
        let mut sender = match self.take_idle() {
            Some(sender) => sender,
            None => self.connect().await.map_err(|refusal| match refusal {
                Refusal::Unresolved => Fault::Unresolved(format!("{}/", self.url)),
                Refusal::Other(reason) => unanswered(reason),
            })?,
        };
        let answered = timeout(head_patience, sender.send_request(request)).await;
        let response = answered
            .map_err(|_| unanswered("no answer came in time".to_owned()))?
            .map_err(|error| unanswered(reason_of(&error)))?;
        self.keep(sender);
        Ok(response)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<SendRequest<Body>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection whose last answer was read to its end.
    fn take_idle(&self) -> Option<SendRequest<Body>> {
        let mut idle = self.idle();
        idle.retain(|sender| !sender.is_closed());
        let at = idle.iter().position(SendRequest::is_ready)?;
        Some(idle.swap_remove(at))
    }

    fn keep(&self, sender: SendRequest<Body>) {
        let mut idle = self.idle();
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push(sender);
    }

    async fn connect(&self) -> Result<SendRequest<Body>, Refusal> {
        let host = self.url.host().unwrap_or_default();
        // Addresses of IPv6 stand in brackets in URLs.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_secure = self.url.scheme_str() == Some("https");
        let fallback = if is_secure { 443 } else { 80 };
        let port = self.url.port_u16().unwrap_or(fallback);
        let late = |_| Refusal::Other("the connection was not made in time".to_owned());
        let address = timeout(self.patience, tokio::net::lookup_host((host, port)))
            .await
            .map_err(late)?;
        let addresses: Vec<_> = address.map_err(|_| Refusal::Unresolved)?.collect();
        let connected = TcpStream::connect(addresses.as_slice());
        let stream = timeout(self.patience, connected).await.map_err(late)?;
        let stream = stream.map_err(|error| Refusal::Other(error.to_string()))?;
        // Requests are written whole: waiting for more only delays them.
        let _ = stream.set_nodelay(true);
        let stream = Impatient::new(stream, self.patience);
        if is_secure {
            let stream = timeout(self.patience, self.tls.connect(host, stream)).await;
            let stream = stream.map_err(late)?;
            let refused = |error: io::Error| Refusal::Other(format!("TLS: {error}"));
            return open(stream.map_err(refused)?).await;
        }
        open(stream).await
    }
}

async fn open<S>(stream: S) -> Result<SendRequest<Body>, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Refusal::Other(error.to_string()))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            log::debug!("a connection of a replication ended: {error}");
        }
    });
    Ok(sender)
}

/// What went wrong, with the cause that the operating system named.
fn reason_of(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The body of an answer, each piece of which comes in time.
pub(super) fn timed(body: Incoming, patience: Duration) -> Body {
    Timed {
        body,
        patience,
        waiting: None,
    }
    .boxed()
}

struct Timed {
    body: Incoming,
    patience: Duration,
    /// Runs while no piece comes.
    waiting: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
}

impl hyper::body::Body for Timed {
    type Data = hyper::body::Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, io::Error>>> {
        use std::task::Poll;
        let frame = std::pin::Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = frame {
            self.waiting = None;
            return Poll::Ready(frame.map(|it| it.map_err(io::Error::other)));
        }
        let patience = self.patience;
        let waiting = &mut self.waiting;
        let waiting = waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into()))),
            Poll::Pending => Poll::Pending,
        }
    }
}
