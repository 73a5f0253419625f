//! One database as the protocol sees it: the engine, how keys are encoded, which commands exclude each other, and what
//! was watched.
//!
//! Commands that read before they write hold their keys alone; a plain `SET` shares its key with others of its kind; reads
//! hold nothing. Keys are held by stripes, until what they led to is committed.
//!
//! A thread that waits for a key hands its other connections to another thread first.
//!
//! A transaction's watch is a flag that a commit raises after it is visible and before its keys are let go. `EXEC` holds
//! the watched keys when it looks.

use crate::clock::Clock;
use crate::encoding::{Encoding, EncodingError};
use crate::failure::{Outcome, STOPPING};
use crate::waits::Waits;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::{mpsc, oneshot};
use tokio::task::block_in_place;
use waystation::{Db, Durability, Extractor, WriteBatch};

/// Keys are held by so many stripes.
pub(crate) const STRIPES: usize = 1024;
/// Places of scans that are kept. A scan whose place was forgotten is refused.
const PLACES_MAX: usize = 16_384;

/// What a commit that reached the disk, or did not, answers.
pub(crate) type Synced = Result<(), waystation::Error>;

/// A database.
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) db: Arc<Db>,
    pub(crate) encoding: Encoding,
    pub(crate) extractor: Option<Extractor>,
    pub(crate) clock: Clock,
    hasher: RandomState,
    stripes: Box<[RwLock<()>]>,
    watches: Watches,
    places: Mutex<Places>,
    syncs: mpsc::UnboundedSender<oneshot::Sender<Synced>>,
    /// Something was committed that was not synced since.
    pub(crate) is_dirty: AtomicBool,
    /// The first date at which a key is over (milliseconds since 1970); 0: it is not known.
    pub(crate) next_date: AtomicU64,
    /// Batches that were committed.
    pub(crate) commits: AtomicU64,
    /// Whether commands wait for storage.
    pub(crate) waits: Waits,
    /// Whether no more is written. Writes hold it shared.
    is_closed: RwLock<bool>,
}

/// A lock is not poisoned by what a panicking thread did to `()` or to a cache.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A key that is held.
pub(crate) enum Hold<'s> {
    Shared(#[expect(dead_code, reason = "held until it is dropped")] RwLockReadGuard<'s, ()>),
    Alone(#[expect(dead_code, reason = "held until it is dropped")] RwLockWriteGuard<'s, ()>),
}

impl Store {
    /// Call it within a runtime: syncs run there.
    pub(crate) fn new(
        name: String,
        db: Arc<Db>,
        extractor: Option<Extractor>,
        clock: Clock,
    ) -> Result<Self, EncodingError> {
        let encoding = Encoding::new(extractor)?;
        let (syncs, asked) = mpsc::unbounded_channel();
        tokio::spawn(answer_syncs(Arc::clone(&db), asked));
        Ok(Self {
            name,
            db,
            encoding,
            extractor,
            clock,
            hasher: RandomState::new(),
            stripes: (0..STRIPES).map(|_| RwLock::new(())).collect(),
            watches: Watches::default(),
            places: Mutex::default(),
            syncs,
            is_dirty: AtomicBool::new(false),
            next_date: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            waits: Waits::default(),
            is_closed: RwLock::new(false),
        })
    }

    pub(crate) fn stripe(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % STRIPES
    }

    /// Holds a stripe, if it need not wait.
    pub(crate) fn try_hold(&self, stripe: usize, alone: bool) -> Option<Hold<'_>> {
        let stripe = &self.stripes[stripe];
        if alone {
            stripe.try_write().ok().map(Hold::Alone)
        } else {
            stripe.try_read().ok().map(Hold::Shared)
        }
    }

    /// Holds a stripe. To be called in the order of stripes.
    pub(crate) fn hold(&self, stripe: usize, alone: bool) -> Hold<'_> {
        if let Some(hold) = self.try_hold(stripe, alone) {
            return hold;
        }
        let stripe = &self.stripes[stripe];
        block_in_place(|| {
            if alone {
                Hold::Alone(stripe.write().unwrap_or_else(PoisonError::into_inner))
            } else {
                Hold::Shared(stripe.read().unwrap_or_else(PoisonError::into_inner))
            }
        })
    }

    /// Allows a write until the answer is dropped, unless the database is closed for them.
    pub(crate) fn begin_write(&self) -> Outcome<RwLockReadGuard<'_, bool>> {
        let closed = self.is_closed.read();
        let closed = closed.unwrap_or_else(PoisonError::into_inner);
        if *closed { Err(STOPPING) } else { Ok(closed) }
    }

    /// Lets no write begin from now on, and waits for the writes that have begun.
    pub(crate) fn close(&self) {
        let closed = self.is_closed.write();
        *closed.unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Makes a batch visible.
    pub(crate) fn write(&self, batch: &WriteBatch) -> Outcome {
        let _open = self.begin_write()?;
        self.db.write(batch, Durability::ProcessCrash)?;
        self.note_written(batch);
        Ok(())
    }

    /// Raises the flags of watches on what `batch` wrote, which is visible.
    fn note_written(&self, batch: &WriteBatch) {
        self.is_dirty.store(true, SeqCst);
        self.commits.fetch_add(1, SeqCst);
        if self.watches.count.load(SeqCst) == 0 {
            return;
        }
        let watched = lock(&self.watches.keys);
        for operation in batch {
            if operation.time.is_some() {
                continue;
            }
            let is_all = operation.range_end == Some(&[]);
            match self.encoding.decode(operation.key) {
                _ if is_all => watched.values().flatten().for_each(raise),
                Some(decoded) => watched
                    .get(&decoded.key)
                    .into_iter()
                    .flatten()
                    .for_each(raise),
                // A range begins before the first thing under a key, at no whole key of the engine.
                None => watched
                    .iter()
                    .filter(|(key, _)| self.is_under(key, operation.key))
                    .flat_map(|(_, flags)| flags)
                    .for_each(raise),
            }
        }
    }

    fn is_under(&self, key: &[u8], engine_key: &[u8]) -> bool {
        let mut base = Vec::new();
        self.encoding.base(key, &mut base).is_ok() && engine_key.starts_with(&base)
    }

    /// Notes a write that is no batch: of devices.
    pub(crate) fn note_all_written(&self) {
        self.is_dirty.store(true, SeqCst);
        let watched = lock(&self.watches.keys);
        watched.values().flatten().for_each(raise);
    }

    /// Has `flag` raised when `key` is written.
    pub(crate) fn watch(&self, key: &[u8], flag: &Arc<AtomicBool>) {
        let mut watched = lock(&self.watches.keys);
        let flags = watched.entry(key.to_vec()).or_default();
        if !flags.iter().any(|it| Arc::ptr_eq(it, flag)) {
            flags.push(Arc::clone(flag));
            self.watches.count.fetch_add(1, SeqCst);
        }
    }

    pub(crate) fn unwatch(&self, key: &[u8], flag: &Arc<AtomicBool>) {
        let mut watched = lock(&self.watches.keys);
        let Some(flags) = watched.get_mut(key) else {
            return;
        };
        let before = flags.len();
        flags.retain(|it| !Arc::ptr_eq(it, flag));
        self.watches.count.fetch_sub(before - flags.len(), SeqCst);
        if flags.is_empty() {
            watched.remove(key);
        }
    }

    /// A number for a place in a scan.
    pub(crate) fn keep_place(&self, place: Vec<u8>) -> u64 {
        let mut places = lock(&self.places);
        places.next += 1;
        places.kept.push_back(place);
        if places.kept.len() > PLACES_MAX {
            places.kept.pop_front();
        }
        places.next
    }

    /// The place with this number, if it was not forgotten.
    pub(crate) fn place(&self, number: u64) -> Option<Vec<u8>> {
        let places = lock(&self.places);
        let age = usize::try_from(places.next.checked_sub(number)?).ok()?;
        let index = places.kept.len().checked_sub(1 + age)?;
        places.kept.get(index).cloned()
    }

    /// Waits until everything committed so far is durable. Callers that wait at the same time share a sync.
    pub(crate) async fn sync(&self) -> Synced {
        let (asker, answer) = oneshot::channel();
        let closed = waystation::Error::Closed("closed");
        self.syncs.send(asker).map_err(|_| closed.clone())?;
        answer.await.unwrap_or(Err(closed))
    }

    /// Syncs if something was committed since the last time.
    pub(crate) async fn sync_if_dirty(&self) -> Synced {
        if !self.is_dirty.swap(false, SeqCst) {
            return Ok(());
        }
        let synced = self.sync().await;
        if synced.is_err() {
            self.is_dirty.store(true, SeqCst);
        }
        synced
    }
}

fn raise(flag: &Arc<AtomicBool>) {
    flag.store(true, SeqCst);
}

/// Syncs for all who asked before it began, again and again.
async fn answer_syncs(db: Arc<Db>, mut asked: mpsc::UnboundedReceiver<oneshot::Sender<Synced>>) {
    let mut waiting = Vec::new();
    while asked.recv_many(&mut waiting, usize::MAX).await > 0 {
        let syncing = Arc::clone(&db);
        let synced = tokio::task::spawn_blocking(move || syncing.sync()).await;
        let synced = synced.unwrap_or(Err(waystation::Error::Closed("closed")));
        for asker in waiting.drain(..) {
            // An asker that has gone needs no answer.
            let _ = asker.send(synced.clone());
        }
    }
}

#[derive(Default)]
struct Watches {
    /// Flags in `keys`. Zero as a rule, and then commits look no further.
    count: AtomicUsize,
    keys: Mutex<HashMap<Vec<u8>, Vec<Arc<AtomicBool>>>>,
}

#[derive(Default)]
struct Places {
    /// The number of the last one.
    next: u64,
    kept: VecDeque<Vec<u8>>,
}
