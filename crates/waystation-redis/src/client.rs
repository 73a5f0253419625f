//! What is known of a client: what others may see ([`Info`]), and what its own connection needs ([`Client`]).

use crate::commands::Access;
use crate::pubsub::{Listener, MESSAGES_MAX, Message};
use crate::resp::Out;
use crate::server::Shared;
use crate::store::lock;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, mpsc};
use waystation_access::{Secret, User};

/// What `CLIENT LIST` shows of a client, and what ends its connection.
#[derive(Debug)]
pub(crate) struct Info {
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    /// When it came (milliseconds since 1970).
    pub(crate) since: u64,
    /// When it sent its last command.
    pub(crate) active_at: AtomicU64,
    /// It has sent a part of a command.
    pub(crate) has_part: AtomicBool,
    /// It has said who it is, or need not.
    pub(crate) is_known: AtomicBool,
    pub(crate) is_listening: AtomicBool,
    /// Name, user, library, and the last command.
    pub(crate) shown: Mutex<Shown>,
    pub(crate) database: AtomicUsize,
    pub(crate) is_killed: AtomicBool,
    pub(crate) killed: Notify,
}

/// What a client says of itself.
#[derive(Debug, Default, Clone)]
pub(crate) struct Shown {
    pub(crate) name: Vec<u8>,
    /// Who it is; `None`: it has not said so.
    pub(crate) user: Option<Arc<User>>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    pub(crate) command: &'static str,
    pub(crate) is_third: bool,
    pub(crate) channels: usize,
    pub(crate) patterns: usize,
    /// Commands in a transaction; `None`: there is none.
    pub(crate) queued: Option<usize>,
}

impl Info {
    /// Ends the connection.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, SeqCst);
        self.killed.notify_one();
    }
}

/// A transaction that gathers.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) commands: Vec<Vec<Vec<u8>>>,
    pub(crate) bytes: usize,
    /// A command was refused: it cannot be carried out.
    pub(crate) is_broken: bool,
}

/// What the connection does once the run is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Goes on.
    Continue,
    /// Waits until all writes are durable, or so many milliseconds (0: for ever), and answers `WAITAOF`, if the client
    /// wants answers.
    Durable(u64, bool),
    /// Ends.
    Close,
}

/// Which answers a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// Not the next one; then on.
    SkipNext,
    Skip,
}

/// A client, as its connection knows it.
pub(crate) struct Client {
    pub(crate) info: Arc<Info>,
    pub(crate) database: usize,
    /// Who it is; `None`: it has not said so.
    pub(crate) user: Option<Arc<User>>,
    /// The certificate that it has shown, and whose key it has.
    pub(crate) certificate: Option<Secret>,
    pub(crate) transaction: Option<Transaction>,
    /// A transaction is being carried out.
    pub(crate) is_executing: bool,
    /// Keys that it watches, with their databases.
    pub(crate) watched: Vec<(usize, Vec<u8>)>,
    pub(crate) is_dirty: Arc<AtomicBool>,
    pub(crate) channels: BTreeSet<Vec<u8>>,
    pub(crate) patterns: BTreeSet<Vec<u8>>,
    /// What its transaction publishes once it is committed: channels and texts.
    pub(crate) messages: Vec<(Vec<u8>, Vec<u8>)>,
    queue: Option<(Listener, mpsc::Receiver<Message>)>,
    pub(crate) after: After,
    pub(crate) replies: Replies,
}

impl Client {
    pub(crate) fn new(info: Arc<Info>, user: Option<Arc<User>>) -> Self {
        lock(&info.shown).user.clone_from(&user);
        Self {
            info,
            database: 0,
            user,
            certificate: None,
            transaction: None,
            is_executing: false,
            watched: Vec::new(),
            is_dirty: Arc::default(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            messages: Vec::new(),
            queue: None,
            after: After::Continue,
            replies: Replies::On,
        }
    }

    /// It is `user` from now on.
    pub(crate) fn be(&mut self, user: Arc<User>, shared: &Shared) {
        self.info.is_known.store(true, SeqCst);
        lock(&self.info.shown).user = Some(Arc::clone(&user));
        self.user = Some(user);
        // The user may have gone meanwhile.
        shared.check_user(&self.info);
    }

    /// It is who it is without a name: anyone, or the user whom its certificate names.
    pub(crate) fn be_nameless(&mut self, shared: &Shared) {
        let users = shared.live().users.clone();
        let certified = self.certificate.as_ref();
        let certified = certified.and_then(|it| users.with_certificate(it)).cloned();
        self.user = None;
        self.info.is_known.store(false, SeqCst);
        lock(&self.info.shown).user = None;
        let open = || users.is_empty().then(crate::users::anyone);
        if let Some(user) = certified.or_else(open) {
            self.be(user, shared);
        }
    }

    /// Whether it listens, and may therefore do little else in the second version of the protocol.
    pub(crate) fn is_listening(&self) -> bool {
        !self.channels.is_empty() || !self.patterns.is_empty()
    }

    /// Where its messages are to go.
    pub(crate) fn listener(&mut self) -> Listener {
        let info = &self.info;
        let (listener, _) = self.queue.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
            let listener = Listener {
                queue: sender,
                waiting_bytes: Arc::default(),
                client: Arc::clone(info),
            };
            (listener, receiver)
        });
        listener.clone()
    }

    /// The next message; never, if it does not listen.
    pub(crate) async fn next_message(&mut self) -> Message {
        if let Some((listener, receiver)) = &mut self.queue
            && let Some(message) = receiver.recv().await
        {
            listener.waiting_bytes.fetch_sub(message.byte_len(), SeqCst);
            return message;
        }
        std::future::pending().await
    }

    /// A message that waits already.
    pub(crate) fn waiting_message(&mut self) -> Option<Message> {
        let (listener, receiver) = self.queue.as_mut()?;
        let message = receiver.try_recv().ok()?;
        listener.waiting_bytes.fetch_sub(message.byte_len(), SeqCst);
        Some(message)
    }

    pub(crate) fn unwatch(&mut self, shared: &Shared) {
        for (database, key) in self.watched.drain(..) {
            shared.stores[database].unwatch(&key, &self.is_dirty);
        }
        self.is_dirty.store(false, SeqCst);
    }

    /// Takes back what the server keeps for it.
    pub(crate) fn leave(&mut self, shared: &Shared) {
        self.unwatch(shared);
        for channel in std::mem::take(&mut self.channels) {
            shared.pubsub.unsubscribe(false, &channel, self.info.id);
        }
        for pattern in std::mem::take(&mut self.patterns) {
            shared.pubsub.unsubscribe(true, &pattern, self.info.id);
        }
        self.queue = None;
    }

    /// Writes a message that it hears.
    pub(crate) fn show(message: &Message, out: &mut Out) {
        match &message.pattern {
            None => {
                out.push(3);
                out.bulk(b"message");
            }
            Some(pattern) => {
                out.push(4);
                out.bulk(b"pmessage");
                out.bulk(pattern);
            }
        }
        out.bulk(&message.channel);
        out.bulk(&message.text);
    }

    /// Whether it may give a command with this access before it has said who it is.
    pub(crate) fn is_known_for(&self, access: Access) -> bool {
        self.user.is_some() || access == Access::Open
    }
}
