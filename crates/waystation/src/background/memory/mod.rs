//! The memory that databases of a process share: who takes how much, and the ceiling for all of it.
//!
//! Every database has an [`Account`] and notes what its rings, memtables, indexes, open tables and graves take, in steps. The
//! cache has what they leave. When the sum has changed by a part of the ceiling, the watch of the database that noted it
//! weighs all accounts ([`relief`]): the cache gets another size, a database flushes or lets devices settle early, and close
//! to the ceiling writers are slowed. Reads are never refused.
//!
//! A database that shares no memory has a ledger of its own without a ceiling, in which nothing is weighed.

mod relief;

use super::member::Member;
use super::plan::{Id, Kind};
use super::throttle::slowed_rate;
use crate::error::{Error, Result};
use crate::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::{Arc, Mutex, Weak, lock};
use relief::{Ceiling, Share, WORTH_BYTES, relieve};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The accounts are weighed when this part of the ceiling was taken or given back since.
const STEP_PART: u64 = 64;
/// Rings may take this part of the ceiling.
const RINGS_PART: u64 = 2;

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The staging ring of the log.
    Ring,
    /// Memtables, as far as writes have reserved them.
    Memtables,
    /// Indexes of the upper level.
    Indexes,
    /// Indexes and filters of open tables.
    Tables,
    /// Flushed graves.
    Graves,
    /// What is known of the blocks that were read, and of their copies in the fast directory.
    Placement,
    /// Cached blocks; no part of the sum, as the cache has the rest.
    Cache,
}

/// Every use, [`Use::Cache`] last.
const USES: usize = Use::Cache as usize + 1;

/// A cache whose size changes.
pub(crate) trait Elastic: Send + Sync {
    /// Keeps at most `bytes` from now on.
    fn resize(&self, bytes: u64);
}

/// Who takes what.
pub(crate) struct Ledger {
    ceiling: Option<Ceiling>,
    /// Caches with their parts of the cache, in 1/256.
    caches: Vec<(Arc<dyn Elastic>, u64)>,
    accounts: Mutex<BTreeMap<Id, Weak<Account>>>,
    last_id: AtomicU64,
    /// What all take besides the cache.
    taken: AtomicU64,
    /// Of that their rings, which do not shrink.
    rings: AtomicU64,
    /// What they took when the accounts were weighed last.
    weighed_at: AtomicU64,
    /// The accounts are to be weighed.
    is_due: AtomicBool,
    /// What the cache may keep.
    cache_bytes: AtomicU64,
    /// At what rate writers are admitted (bytes per second); 0 for no limit.
    rate: AtomicU64,
}

impl Ledger {
    /// A ledger without a ceiling.
    pub(crate) fn unlimited() -> Arc<Self> {
        Arc::new(Self::with(None, Vec::new()))
    }

    /// A ledger with a ceiling of `memory_bytes`, of which `caches` take up to `cache_bytes`, each its part in 1/256.
    pub(crate) fn new(
        memory_bytes: u64,
        cache_bytes: u64,
        caches: Vec<(Arc<dyn Elastic>, u64)>,
    ) -> Arc<Self> {
        let ceiling = Ceiling {
            memory_bytes,
            cache_bytes,
        };
        Arc::new(Self::with(Some(ceiling), caches))
    }

    fn with(ceiling: Option<Ceiling>, caches: Vec<(Arc<dyn Elastic>, u64)>) -> Self {
        Self {
            caches,
            accounts: Mutex::default(),
            last_id: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            rings: AtomicU64::new(0),
            weighed_at: AtomicU64::new(0),
            is_due: AtomicBool::new(false),
            cache_bytes: AtomicU64::new(ceiling.map_or(0, |it| it.cache_bytes)),
            rate: AtomicU64::new(0),
            ceiling,
        }
    }

    /// An account for the database in `path`, whose ring takes `ring_bytes`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if rings would take more than half of the ceiling.
    pub(crate) fn open(self: &Arc<Self>, path: &Path, ring_bytes: u64) -> Result<Arc<Account>> {
        let rings = self.rings.fetch_add(ring_bytes, SeqCst);
        if let Some(ceiling) = &self.ceiling
            && rings + ring_bytes > ceiling.memory_bytes / RINGS_PART
        {
            self.rings.fetch_sub(ring_bytes, SeqCst);
            let left = (ceiling.memory_bytes / RINGS_PART).saturating_sub(rings);
            return Err(Error::InvalidArgument(format!(
                "ring_bytes is {ring_bytes}; rings may take half of the {} bytes of memory that databases share here, and \
                 {left} of that are left: make rings smaller, or share more memory",
                ceiling.memory_bytes
            )));
        }
        let account = self.insert(path);
        account.set(Use::Ring, ring_bytes);
        Ok(account)
    }

    fn insert(self: &Arc<Self>, path: &Path) -> Arc<Account> {
        let mut accounts = lock(&self.accounts);
        let id = self.last_id.fetch_add(1, SeqCst) + 1;
        let account = Arc::new(Account {
            ledger: Arc::clone(self),
            id,
            path: path.to_owned(),
            uses: std::array::from_fn(|_| AtomicU64::new(0)),
            flush: Request::default(),
            settle: Request::default(),
            jobs: OnceLock::new(),
        });
        accounts.insert(id, Arc::downgrade(&account));
        account
    }

    /// Bytes that all databases take besides the cache.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken.load(SeqCst)
    }

    /// What the cache may keep now.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache_bytes.load(SeqCst)
    }

    /// The accounts there are.
    pub(crate) fn accounts(&self) -> Vec<Arc<Account>> {
        // Dropped outside the lock, which the last owner of one takes.
        lock(&self.accounts)
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// The rate at which writers are admitted (bytes per second), if they are slowed: by what the accounts weighed last, or by
    /// what is taken now. On a busy machine the watch that weighs them may run late, and writers would pass the ceiling.
    #[inline]
    pub(crate) fn rate(&self) -> Option<u64> {
        let ceiling = self.ceiling.as_ref()?;
        let weighed = self.rate.load(Relaxed);
        let weighed = (weighed > 0).then_some(weighed);
        let now = slowed_rate(self.taken.load(Relaxed) as f64 / ceiling.memory_bytes as f64);
        weighed.into_iter().chain(now).min()
    }

    /// Weighs the accounts if that is due.
    fn weigh(&self) {
        let Some(ceiling) = &self.ceiling else {
            return;
        };
        if !self.is_due.swap(false, SeqCst) {
            return;
        }
        self.weighed_at.store(self.taken_bytes(), SeqCst);
        let accounts = self.accounts();
        let shares: Vec<Share> = accounts.iter().map(|it| it.share()).collect();
        let relief = relieve(&shares, ceiling);
        self.rate
            .store(slowed_rate(relief.fill).unwrap_or(0), Relaxed);
        if self.cache_bytes.swap(relief.cache_bytes, SeqCst) != relief.cache_bytes {
            for (cache, part) in &self.caches {
                cache.resize(relief.cache_bytes / 256 * part);
            }
        }
        let find = |id: Option<Id>| accounts.iter().find(|it| Some(it.id) == id);
        if let Some(account) = find(relief.flush) {
            account.flush.ask(account.bytes(Use::Memtables));
            account.submit(Kind::Watch);
        }
        if let Some(account) = find(relief.settle) {
            account.settle.ask(account.bytes(Use::Indexes));
            account.submit(Kind::Settle);
        }
    }

    /// The sum changed by `more` and then `less` bytes. Whether the accounts are to be weighed.
    fn note(&self, more: u64, less: u64) -> bool {
        self.taken.fetch_add(more, SeqCst);
        let taken = self.taken.fetch_sub(less, SeqCst) - less;
        let Some(ceiling) = &self.ceiling else {
            return false;
        };
        let change = taken.abs_diff(self.weighed_at.load(Relaxed));
        change >= ceiling.memory_bytes / STEP_PART && !self.is_due.swap(true, SeqCst)
    }
}

/// A request to give memory back.
#[derive(Default)]
struct Request {
    is_open: AtomicBool,
    /// What was taken when it was made.
    bytes: AtomicU64,
}

impl Request {
    fn ask(&self, bytes: u64) {
        self.bytes.store(bytes, SeqCst);
        self.is_open.store(true, SeqCst);
    }

    fn is_open(&self) -> bool {
        self.is_open.load(SeqCst)
    }

    /// Ends it, now that `bytes` are taken. Whether it was open and brought anything.
    fn end(&self, bytes: u64) -> bool {
        let was_open = self.is_open.swap(false, SeqCst);
        was_open && bytes + WORTH_BYTES / 2 <= self.bytes.load(SeqCst)
    }
}

/// What one database takes.
pub(crate) struct Account {
    ledger: Arc<Ledger>,
    id: Id,
    path: PathBuf,
    uses: [AtomicU64; USES],
    /// Requests to flush, and to let devices settle early.
    flush: Request,
    settle: Request,
    /// The jobs of the database, once it has any.
    jobs: OnceLock<Arc<Member>>,
}

impl Account {
    /// An account in a ledger of its own, without a ceiling.
    pub(crate) fn own(path: &Path) -> Arc<Self> {
        Ledger::unlimited().insert(path)
    }

    /// The ledger that it is part of.
    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Its number in the ledger, which no other database gets.
    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// The directory of the database.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What relieves memory are `jobs` from now on.
    pub(crate) fn connect(&self, jobs: &Arc<Member>) {
        self.jobs.get_or_init(|| Arc::clone(jobs));
        // What it took before may have been too much.
        self.ledger.is_due.store(true, SeqCst);
    }

    /// Bytes taken for `what`.
    pub(crate) fn bytes(&self, what: Use) -> u64 {
        self.uses[what as usize].load(SeqCst)
    }

    /// Now `bytes` are taken for `what`.
    pub(crate) fn set(&self, what: Use, bytes: u64) {
        let before = self.uses[what as usize].swap(bytes, SeqCst);
        self.note(what, bytes, before);
    }

    /// Now `bytes` more are taken for `what`.
    pub(crate) fn add(&self, what: Use, bytes: u64) {
        self.uses[what as usize].fetch_add(bytes, SeqCst);
        self.note(what, bytes, 0);
    }

    /// Now `bytes` less are taken for `what`.
    pub(crate) fn subtract(&self, what: Use, bytes: u64) {
        self.uses[what as usize].fetch_sub(bytes, SeqCst);
        self.note(what, 0, bytes);
    }

    fn note(&self, what: Use, more: u64, less: u64) {
        if what != Use::Cache && self.ledger.note(more, less) {
            self.submit(Kind::Watch);
        }
    }

    fn submit(&self, kind: Kind) {
        if let Some(jobs) = self.jobs.get() {
            jobs.submit(kind);
        }
    }

    /// Weighs the accounts if that is due; whether this database is to flush its memtable.
    pub(crate) fn weigh(&self) -> bool {
        self.ledger.weigh();
        self.flush.is_open()
    }

    /// Whether devices are to settle early.
    pub(crate) fn is_to_settle(&self) -> bool {
        self.settle.is_open()
    }

    /// A flush has ended, however.
    pub(crate) fn end_flush(&self) {
        self.end(&self.flush, Use::Memtables);
    }

    /// A round of settling has ended, however.
    pub(crate) fn end_settling(&self) {
        self.end(&self.settle, Use::Indexes);
    }

    fn end(&self, request: &Request, what: Use) {
        // One that brought nothing is not made again before something changes.
        if request.end(self.bytes(what)) && !self.ledger.is_due.swap(true, SeqCst) {
            self.submit(Kind::Watch);
        }
    }

    fn share(&self) -> Share {
        let taken: u64 = self.uses[..Use::Cache as usize]
            .iter()
            .map(|bytes| bytes.load(SeqCst))
            .sum();
        let (memtable_bytes, index_bytes) = (self.bytes(Use::Memtables), self.bytes(Use::Indexes));
        Share {
            id: self.id,
            memtable_bytes,
            index_bytes,
            other_bytes: taken.saturating_sub(memtable_bytes + index_bytes),
            is_flushing: self.flush.is_open(),
            is_settling: self.settle.is_open(),
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let left = self.uses[..Use::Cache as usize].iter();
        let left: u64 = left.map(|bytes| bytes.load(SeqCst)).sum();
        self.ledger.rings.fetch_sub(self.bytes(Use::Ring), SeqCst);
        lock(&self.ledger.accounts).remove(&self.id);
        if self.ledger.note(0, left)
            && let Some(other) = self.ledger.accounts().first()
        {
            other.submit(Kind::Watch);
        }
    }
}

/// Memory that is taken for as long as this lives.
pub(crate) struct Charge {
    account: Arc<Account>,
    what: Use,
    bytes: u64,
}

impl Charge {
    /// Takes `bytes` for `what`.
    pub(crate) fn new(account: &Arc<Account>, what: Use, bytes: u64) -> Self {
        account.add(what, bytes);
        Self {
            account: Arc::clone(account),
            what,
            bytes,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.subtract(self.what, self.bytes);
    }
}
