//! The search for dead ranges: it goes on while keys are deleted, so that not even the first cursor that comes there
//! has to walk them.
//!
//! Active graves keep a sample of the keys that were deleted last. A cursor is sent behind such a key: if a run of dead
//! keys begins there, it notes the run in the [cache](DeadRangeCache) as every cursor does, and the next search begins
//! where the run ended, however far the deletions have gone on from there meanwhile. Keys that are deleted one here,
//! one there make no runs; then only a few of them are looked at.

use super::DeadRangeCache;
use crate::cemetery::points::{Points, SAMPLE_EVERY, SAMPLES};
use crate::error::Result;
use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Mutex, lock};

/// A search is worth it after so many deletions.
pub(crate) const WORTH_SEARCHING: usize = 512;
/// So many samples in a row without a run make a search end.
const VAIN_MAX: usize = 4;
/// So many runs are followed from search to search.
const FRONTS_MAX: usize = 16;

/// A cursor over the keys that are seen now.
pub(crate) trait Probe {
    /// The sequence number that it reads at.
    fn snapshot(&self) -> u64;
    /// Goes to the first key at or behind `key`, and returns it, if there is one.
    ///
    /// # Errors
    /// Those of reading.
    fn go_to(&mut self, key: &[u8]) -> Result<Option<&[u8]>>;
}

/// Searches the keys that were deleted last for dead ranges.
pub(crate) struct DeadRangeSearch {
    /// A search is due when the active memtable has so many deletions.
    due_at: AtomicUsize,
    progress: Mutex<Progress>,
}

/// How far deletions were searched.
#[derive(Debug, Default)]
struct Progress {
    /// The sequence number with which the memtable began.
    began_at: u64,
    /// How many graves it had.
    graves: usize,
    /// The keys before which runs ended.
    fronts: Vec<Vec<u8>>,
}

impl Default for DeadRangeSearch {
    fn default() -> Self {
        Self {
            due_at: AtomicUsize::new(WORTH_SEARCHING),
            progress: Mutex::default(),
        }
    }
}

impl DeadRangeSearch {
    /// Another memtable takes writes from now on.
    pub(crate) fn start_over(&self) {
        self.due_at.store(WORTH_SEARCHING, Relaxed);
    }

    /// Whether a search is worth it among `graves`, to which deletions go.
    #[inline]
    pub(crate) fn is_due(&self, graves: &Points) -> bool {
        graves.len() >= self.due_at.load(Relaxed)
    }

    /// A search will come: until it does, none is due.
    pub(crate) fn expect(&self) {
        self.due_at.store(usize::MAX, Relaxed);
    }

    /// Searches what was deleted since the last time, of which `graves` are those in the memtable that began with
    /// sequence number `began_at`. One thread searches at a time.
    ///
    /// # Errors
    /// Those of `open` and of its cursor.
    pub(crate) fn run<P: Probe>(
        &self,
        (graves, began_at): (&Points, u64),
        cache: &DeadRangeCache,
        open: impl FnOnce() -> Result<P>,
    ) -> Result<()> {
        // No thread waits for this while it reads.
        let mut progress = std::mem::take(&mut *lock(&self.progress));
        let outcome = progress.search((graves, began_at), cache, open);
        self.due_at
            .store(progress.graves + WORTH_SEARCHING, Relaxed);
        *lock(&self.progress) = progress;
        outcome
    }
}

impl Progress {
    fn search<P: Probe>(
        &mut self,
        (graves, began_at): (&Points, u64),
        cache: &DeadRangeCache,
        open: impl FnOnce() -> Result<P>,
    ) -> Result<()> {
        let count = graves.len();
        if self.began_at != began_at {
            self.began_at = began_at;
            self.graves = 0;
        }
        if count < self.graves + WORTH_SEARCHING {
            return Ok(());
        }
        let from = self.graves.div_ceil(SAMPLE_EVERY);
        let to = count.div_ceil(SAMPLE_EVERY);
        self.graves = count;
        let mut probe = open()?;
        for front in std::mem::take(&mut self.fronts) {
            self.fronts.extend(follow(&mut probe, cache, &front)?);
        }
        let mut vain = 0;
        for number in from.max(to.saturating_sub(SAMPLES))..to {
            let Some(key) = graves.sample(number) else {
                continue;
            };
            if cache.covers(&key, &key, 1, probe.snapshot()) {
                continue;
            }
            if let Some(front) = follow(&mut probe, cache, &key)? {
                vain = 0;
                self.fronts.push(front);
                continue;
            }
            vain += 1;
            if vain >= VAIN_MAX {
                break;
            }
        }
        let surplus = self.fronts.len().saturating_sub(FRONTS_MAX);
        self.fronts.drain(..surplus);
        Ok(())
    }
}

/// Sends the cursor to `key`; the key before which the run of dead keys ended that begins there, if one does.
fn follow(probe: &mut impl Probe, cache: &DeadRangeCache, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let before = cache.added();
    let end = probe.go_to(key)?;
    let is_run = cache.added() > before;
    Ok(end.filter(|_| is_run).map(<[u8]>::to_vec))
}
