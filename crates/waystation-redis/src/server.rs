//! The listener, and what all connections share.

use crate::client::{Client, Info, Shown};
use crate::clock::Clock;
use crate::connection;
use crate::dates;
use crate::failure::{Failure, Outcome};
use crate::pubsub::PubSub;
use crate::settings::{Durability, Live, Settings};
use crate::store::{Store, lock};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use waystation::{Db, Extractor};
use waystation_access::{Rates, Secret};

/// A pause after a connection could not be taken, as when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// How often idle clients are looked for, and dates that have come.
pub(crate) const ROUND: Duration = Duration::from_secs(1);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Every caller could do anything.
    #[error(
        "{0} can be reached from other machines, and no password is set for Redis clients: set `password_file` or a user in [redis], or listen on 127.0.0.1"
    )]
    NoPassword(SocketAddr),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address} for Redis clients: {source}; choose another address or stop what listens there"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// A database's keys cannot be encoded.
    #[error("database {name}: {reason}")]
    Database {
        /// Its name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// There is none.
    #[error("there is no key-value database for Redis clients: name one in [[database]]")]
    NoDatabase,
}

/// A database for clients, by its number in their order.
pub struct Database {
    /// The name.
    pub name: String,
    /// The engine.
    pub db: Arc<Db>,
    /// What names its devices.
    pub extractor: Option<Extractor>,
}

/// Figures of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Clients that are connected.
    pub clients: usize,
    /// Connections that were taken.
    pub connections: u64,
    /// Connections that were refused because there were too many.
    pub refused: u64,
    /// Commands that were carried out.
    pub commands: u64,
    /// Batches that were committed.
    pub batches: u64,
    /// Times that a client was read from later, as it sent more commands than it may.
    pub delays: u64,
    /// What clients have in memory of commands and answers (bytes).
    pub buffers_bytes: usize,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) stores: Vec<Arc<Store>>,
    live: RwLock<Arc<Live>>,
    pub(crate) pubsub: PubSub,
    pub(crate) clients: Mutex<HashMap<u64, Arc<Info>>>,
    next_client: AtomicU64,
    pub(crate) clock: Clock,
    pub(crate) address: SocketAddr,
    pub(crate) connections: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) rates: Rates,
    pub(crate) delays: AtomicU64,
    /// Bytes of commands and answers in memory.
    pub(crate) held: AtomicUsize,
    answer_bytes_max: AtomicUsize,
    is_stopping: AtomicBool,
    left: Notify,
}

impl Shared {
    pub(crate) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_live(&self, live: Live) {
        self.answer_bytes_max.store(live.answer_bytes_max, SeqCst);
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(live);
        let clients: Vec<_> = lock(&self.clients).values().cloned().collect();
        for info in &clients {
            self.check_user(info);
        }
    }

    /// Ends the connection of a client whose user is not there any more, or has other rights or another password. To be
    /// called when the users have changed, and when a client has become one.
    pub(crate) fn check_user(&self, info: &Info) {
        let user = lock(&info.shown).user.clone();
        if user.is_some_and(|user| !self.live().users.have(&user)) {
            info.kill();
        }
    }

    /// Refuses an answer of many parts that has grown too long.
    pub(crate) fn check_answer(&self, bytes: usize) -> Outcome {
        if bytes <= self.answer_bytes_max.load(SeqCst) {
            return Ok(());
        }
        Err(Failure::new(
            "ERR the answer is longer than the server allows: ask for a part of it, or use a scan",
        ))
    }

    /// A number that no client foresees.
    pub(crate) fn random(&self) -> u64 {
        RandomState::new().hash_one(self.clock.since_epoch())
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(SeqCst)
    }

    /// Notes a client that has come.
    fn arrive(&self, address: SocketAddr) -> Arc<Info> {
        let now = self.clock.millis();
        let info = Arc::new(Info {
            id: self.next_client.fetch_add(1, SeqCst) + 1,
            address,
            since: now,
            active_at: AtomicU64::new(now),
            has_part: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            is_listening: AtomicBool::new(false),
            shown: Mutex::new(Shown::default()),
            database: AtomicUsize::new(0),
            is_killed: AtomicBool::new(false),
            killed: Notify::new(),
        });
        lock(&self.clients).insert(info.id, Arc::clone(&info));
        info
    }

    fn leave(&self, info: &Info) {
        lock(&self.clients).remove(&info.id);
        self.left.notify_one();
    }

    /// Ends connections that are idle, or stall.
    fn end_idle(&self) {
        let (live, now) = (self.live(), self.clock.millis());
        for info in lock(&self.clients).values() {
            let idle = Duration::from_millis(now.saturating_sub(info.active_at.load(SeqCst)));
            let stalls = info.has_part.load(SeqCst) || !info.is_known.load(SeqCst);
            let is_idle = !live.idle_timeout.is_zero()
                && idle > live.idle_timeout
                && !info.is_listening.load(SeqCst);
            if is_idle || (stalls && idle > live.stall_timeout) {
                info.kill();
            }
        }
    }
}

/// Changes a server that runs, and tells of it.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
}

impl Handle {
    /// Has the server take no more connections, and end those it has when their commands are answered.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// The settings that hold now.
    pub fn live(&self) -> Live {
        (*self.shared.live()).clone()
    }

    /// Changes settings, for commands that come from now on.
    pub fn set_live(&self, live: Live) {
        self.shared.set_live(live);
    }

    /// What the server does.
    pub fn figures(&self) -> Figures {
        let shared = &self.shared;
        let batches = shared.stores.iter().map(|it| it.commits.load(SeqCst));
        Figures {
            clients: lock(&shared.clients).len(),
            connections: shared.connections.load(SeqCst),
            refused: shared.refused.load(SeqCst),
            commands: shared.commands.load(SeqCst),
            batches: batches.sum(),
            delays: shared.delays.load(SeqCst),
            buffers_bytes: shared.held.load(SeqCst),
        }
    }
}

/// A server that listens.
pub struct Server {
    shared: Arc<Shared>,
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    stop_timeout: Duration,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Listens for clients of `databases`. Call it within a tokio runtime of several threads, with its timers and sockets.
    ///
    /// # Errors
    /// [`ServerError`].
    pub async fn bind(settings: Settings, databases: Vec<Database>) -> Result<Self, ServerError> {
        let address = settings.listen;
        settings.live.check(address)?;
        if databases.is_empty() {
            return Err(ServerError::NoDatabase);
        }
        let clock = Clock::start();
        let store = |it: Database| {
            let name = it.name.clone();
            let store = Store::new(it.name, it.db, it.extractor, clock);
            store.map(Arc::new).map_err(|error| ServerError::Database {
                name,
                reason: error.to_string(),
            })
        };
        let stores = databases.into_iter().map(store).collect::<Result<_, _>>()?;
        let refused = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let shared = Shared {
            stores,
            answer_bytes_max: AtomicUsize::new(settings.live.answer_bytes_max),
            live: RwLock::new(Arc::new(settings.live)),
            pubsub: PubSub::default(),
            clients: Mutex::default(),
            next_client: AtomicU64::new(0),
            clock,
            address,
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            rates: Rates::default(),
            delays: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            left: Notify::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            listener,
            acceptor: settings.tls,
            stop_timeout: settings.stop_timeout,
            stop: watch::channel(false).0,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// What changes and stops it.
    pub fn handle(&self) -> Handle {
        Handle {
            shared: Arc::clone(&self.shared),
            stop: self.stop.clone(),
        }
    }

    /// Serves until it is told to stop, and what clients sent until then is answered. Then everything that was answered
    /// is durable.
    pub async fn run(self) {
        let mut beside = JoinSet::new();
        beside.spawn(look_around(Arc::clone(&self.shared)));
        for store in &self.shared.stores {
            beside.spawn(dates::follow(Arc::clone(store)));
        }
        let mut stopping = self.stop.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stopping.wait_for(|is_told| *is_told) => break,
            };
            match accepted {
                Ok((stream, address)) => self.serve(stream, address),
                Err(error) => {
                    log::warn!("a Redis client's connection was not taken: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
        drop(self.listener);
        let shared = &self.shared;
        shared.is_stopping.store(true, SeqCst);
        lock(&shared.clients).values().for_each(|it| it.kill());
        let all_left = async {
            while !lock(&shared.clients).is_empty() {
                shared.left.notified().await;
            }
        };
        if timeout(self.stop_timeout, all_left).await.is_err() {
            log::warn!("some Redis clients did not take their answers in time");
        }
        beside.shutdown().await;
        for store in &shared.stores {
            // A client that goes on is told that nothing is written any more: acknowledged writes are synced.
            let closing = Arc::clone(store);
            let _ = spawn_blocking(move || closing.close()).await;
            if let Err(error) = store.sync().await {
                log::error!("database {} was not synced: {error}", store.name);
            }
        }
    }

    fn serve(&self, stream: TcpStream, address: SocketAddr) {
        // Answers are written whole: waiting for more only delays them.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&self.shared);
        shared.connections.fetch_add(1, SeqCst);
        let live = shared.live();
        if lock(&shared.clients).len() >= live.clients_max {
            shared.refused.fetch_add(1, SeqCst);
            let refusal = b"-ERR max number of clients reached\r\n";
            // A client that cannot be told is gone.
            let _ = stream.try_write(refusal);
            return;
        }
        let info = shared.arrive(address);
        // Without users every client may do everything.
        let user = live.users.is_empty().then(crate::users::anyone);
        info.is_known.store(user.is_some(), SeqCst);
        let client = Client::new(Arc::clone(&info), user);
        shared.check_user(&info);
        let acceptor = self.acceptor.clone();
        let begin = live.stall_timeout;
        tokio::spawn(async move {
            let _present = Present {
                shared: &shared,
                info: &info,
            };
            match acceptor {
                None => connection::converse(stream, &shared, client).await,
                Some(acceptor) => match timeout(begin, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        let mut client = client;
                        let (_, tls) = stream.get_ref();
                        if let Some(shown) = tls.peer_certificates().and_then(<[_]>::first) {
                            client.certificate = Some(Secret::of(shown));
                            client.be_nameless(&shared);
                        }
                        connection::converse(stream, &shared, client).await;
                    }
                    Ok(Err(error)) => log::debug!("a Redis client does not speak TLS: {error}"),
                    Err(_) => log::debug!("a Redis client did not begin TLS in time"),
                },
            }
        });
    }
}

/// A client that is connected, until this is dropped: a command that panics must not leave one behind.
struct Present<'a> {
    shared: &'a Shared,
    info: &'a Info,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.shared.leave(self.info);
    }
}

/// Looks for idle clients, and syncs every second if that was asked for.
async fn look_around(shared: Arc<Shared>) {
    loop {
        sleep(ROUND).await;
        shared.end_idle();
        if shared.live().durability != Durability::EverySecond {
            continue;
        }
        for store in &shared.stores {
            if let Err(error) = store.sync_if_dirty().await {
                log::warn!("database {} was not synced: {error}", store.name);
            }
        }
    }
}
