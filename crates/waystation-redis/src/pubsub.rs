//! Channels: who listens to which, and messages on their way.
//!
//! A listener has a bounded queue. One that is full belongs to a client that does not read: its connection is ended, as
//! Redis does, and others notice nothing.

use crate::glob;
use crate::store::lock;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// Messages that wait for one client.
pub(crate) const MESSAGES_MAX: usize = 4096;
/// Their bytes.
const BYTES_MAX: usize = 8 << 20;

/// A message for one listener.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// The pattern by which the client hears it; `None`: it listens to the channel itself.
    pub(crate) pattern: Option<Arc<[u8]>>,
    pub(crate) channel: Arc<[u8]>,
    pub(crate) text: Arc<[u8]>,
}

impl Message {
    /// What it takes while it waits.
    pub(crate) fn byte_len(&self) -> usize {
        self.channel.len() + self.text.len()
    }
}

/// Where a client's messages go.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    pub(crate) queue: mpsc::Sender<Message>,
    pub(crate) waiting_bytes: Arc<AtomicUsize>,
    pub(crate) client: Arc<crate::client::Info>,
}

impl Listener {
    fn send(&self, message: Message) {
        let bytes = message.byte_len();
        let waiting = self.waiting_bytes.fetch_add(bytes, SeqCst);
        if waiting + bytes > BYTES_MAX || self.queue.try_send(message).is_err() {
            self.client.kill();
        }
    }
}

type Listeners = HashMap<u64, Listener>;

#[derive(Default)]
struct Tables {
    channels: HashMap<Vec<u8>, Listeners>,
    patterns: BTreeMap<Vec<u8>, Listeners>,
}

impl Tables {
    fn of(&mut self, by_pattern: bool, name: &[u8]) -> &mut Listeners {
        if by_pattern {
            self.patterns.entry(name.to_vec()).or_default()
        } else {
            self.channels.entry(name.to_vec()).or_default()
        }
    }
}

/// All channels of a server.
#[derive(Default)]
pub(crate) struct PubSub(Mutex<Tables>);

impl PubSub {
    pub(crate) fn subscribe(&self, by_pattern: bool, name: &[u8], listener: Listener) {
        let id = listener.client.id;
        lock(&self.0).of(by_pattern, name).insert(id, listener);
    }

    pub(crate) fn unsubscribe(&self, by_pattern: bool, name: &[u8], client: u64) {
        let mut tables = lock(&self.0);
        let listeners = tables.of(by_pattern, name);
        listeners.remove(&client);
        if listeners.is_empty() {
            if by_pattern {
                tables.patterns.remove(name);
            } else {
                tables.channels.remove(name);
            }
        }
    }

    /// Sends a message to all who listen; how many they are.
    pub(crate) fn publish(&self, channel: &[u8], text: &[u8]) -> usize {
        let tables = lock(&self.0);
        if tables.channels.is_empty() && tables.patterns.is_empty() {
            return 0;
        }
        let mut message = Message {
            pattern: None,
            channel: channel.into(),
            text: text.into(),
        };
        let mut receivers = 0;
        if let Some(listeners) = tables.channels.get(channel) {
            for listener in listeners.values() {
                listener.send(message.clone());
            }
            receivers += listeners.len();
        }
        let fitting = tables
            .patterns
            .iter()
            .filter(|it| glob::matches(it.0, channel));
        for (pattern, listeners) in fitting {
            message.pattern = Some(pattern.as_slice().into());
            for listener in listeners.values() {
                listener.send(message.clone());
            }
            receivers += listeners.len();
        }
        receivers
    }

    /// How many would hear a message now.
    pub(crate) fn receivers(&self, channel: &[u8]) -> usize {
        let tables = lock(&self.0);
        let fitting = tables
            .patterns
            .iter()
            .filter(|it| glob::matches(it.0, channel));
        let by_pattern: usize = fitting.map(|it| it.1.len()).sum();
        by_pattern + tables.channels.get(channel).map_or(0, HashMap::len)
    }

    /// The channels that have listeners and fit a pattern.
    pub(crate) fn channels(&self, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let tables = lock(&self.0);
        let fits = |name: &&Vec<u8>| pattern.is_none_or(|it| glob::matches(it, name));
        tables.channels.keys().filter(fits).cloned().collect()
    }

    pub(crate) fn listeners(&self, channel: &[u8]) -> usize {
        lock(&self.0).channels.get(channel).map_or(0, HashMap::len)
    }

    pub(crate) fn patterns(&self) -> usize {
        lock(&self.0).patterns.len()
    }
}
