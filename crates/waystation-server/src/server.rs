//! Sockets: connections of a bounded number, their timeouts, and stopping.
//!
//! A server that is told to stop takes no more connections and lets requests end; feeds end at once. After a while it
//! leaves what is still going on.

use crate::app::App;
use crate::auth;
use crate::impatient::Impatient;
use crate::lenient::Lenient;
use crate::mending;
use crate::replicator::documents;
use crate::route::{self, Peer};
use crate::settings::Settings;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use waystation_access::Secret;
use waystation_tls::TlsError;

/// The longest head of a request (bytes).
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
/// A pause after a connection could not be taken, as when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a server did not start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Every caller could do anything.
    #[error(
        "{0} can be reached from other machines, and there is no administrator and no user: name one with --admin or in the configuration, or listen on 127.0.0.1"
    )]
    NoAdmin(SocketAddr),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; choose another address or stop what listens there"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file with certificates or a key cannot be used.
    #[error("TLS: {0}; name PEM files with a certificate and its key")]
    Tls(#[from] TlsError),
    /// The databases cannot be opened.
    #[error(transparent)]
    Documents(#[from] waystation_documents::Error),
}

/// Tells a server to stop.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Has the server take no more requests, and end those it has.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// A server that listens.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    address: SocketAddr,
    stopper: Stopper,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Server");
        shown
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the databases and listens. Call it within a tokio runtime, with its timers and sockets.
    ///
    /// # Errors
    /// [`ServerError`].
    pub async fn bind(settings: Settings) -> Result<Self, ServerError> {
        let address = settings.listen;
        let acceptor = settings.tls.as_ref().map(|it| it.acceptor(&[b"http/1.1"]));
        let acceptor = acceptor.transpose()?;
        let refused = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let (stop, stopping) = watch::channel(false);
        let opened = tokio::task::spawn_blocking(|| App::open(settings, stopping)).await;
        let app = opened.map_err(|error| refused(io::Error::other(error)))??;
        if auth::has_no_users(&app) && !address.ip().is_loopback() {
            return Err(ServerError::NoAdmin(address));
        }
        Ok(Self {
            app: Arc::new(app),
            listener,
            acceptor,
            address,
            stopper: Stopper(stop),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves until it is told to stop, and has ended what it began.
    pub async fn run(self) {
        let graceful = GracefulShutdown::new();
        tokio::spawn(documents::follow(Arc::clone(&self.app)));
        let mending = mending::start(&self.app);
        let places = Arc::new(Semaphore::new(self.app.settings.connections_max));
        let mut stopping = self.app.stopping.clone();
        loop {
            let accepted = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (self.listener.accept().await, place)
            };
            let (accepted, place) = tokio::select! {
                accepted = accepted => accepted,
                _ = stopping.wait_for(|is_told| *is_told) => break,
            };
            match accepted {
                Ok((stream, peer)) => self.serve(stream, peer.ip(), place.ok(), &graceful),
                Err(error) => {
                    log::warn!("a connection was not taken: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
        drop(self.listener);
        if timeout(self.app.settings.stop_timeout, graceful.shutdown())
            .await
            .is_err()
        {
            log::warn!("some requests did not end in time");
        }
        let app = Arc::clone(&self.app);
        let stopped = tokio::task::spawn_blocking(move || mending::stop(&app, mending));
        if let Err(error) = stopped.await {
            log::error!("the mending of copies was not stopped: {error}");
        }
    }

    fn serve(
        &self,
        stream: TcpStream,
        peer: IpAddr,
        place: Option<OwnedSemaphorePermit>,
        graceful: &GracefulShutdown,
    ) {
        // Answers are written whole: waiting for more only delays them.
        let _ = stream.set_nodelay(true);
        let app = Arc::clone(&self.app);
        let stream = Impatient::new(stream, app.settings.stall_timeout);
        let (acceptor, watcher) = (self.acceptor.clone(), graceful.watcher());
        let peer = Peer {
            address: peer,
            certificate: None,
        };
        tokio::spawn(async move {
            if let Some(acceptor) = acceptor {
                let begun = timeout(app.settings.idle_timeout, acceptor.accept(stream)).await;
                match begun {
                    Ok(Ok(stream)) => {
                        let (_, tls) = stream.get_ref();
                        let shown = tls.peer_certificates().and_then(<[_]>::first);
                        let certificate = shown.map(|shown| Secret::of(shown));
                        let peer = Peer {
                            certificate,
                            ..peer
                        };
                        converse(app, peer, stream, watcher).await;
                    }
                    Ok(Err(error)) => log::debug!("a connection does not speak TLS: {error}"),
                    Err(_) => log::debug!("a connection did not begin TLS in time"),
                }
            } else {
                converse(app, peer, stream, watcher).await;
            }
            drop(place);
        });
    }
}

/// Answers the requests of a connection until its end.
async fn converse<S>(app: Arc<App>, peer: Peer, stream: S, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(app.settings.idle_timeout)
        .max_buf_size(HEAD_BYTES_MAX);
    let service = service_fn(move |request| route::answer(Arc::clone(&app), peer, request));
    let connection = http.serve_connection(TokioIo::new(Lenient::new(stream)), service);
    if let Err(error) = watcher.watch(connection).await {
        log::debug!("a connection ended: {error}");
    }
}
