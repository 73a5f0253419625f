//! The search for dead ranges: it goes on while keys are deleted, so that not even the first cursor that comes there
//! has to walk them.
//!
//! Active graves keep a sample of the keys that were deleted last. A cursor is sent behind such a key: if a run of dead
//! keys begins there, it notes the run in the [cache](DeadRangeCache) as every cursor does, and the next search begins
//! where the run ended, however far the deletions have gone on from there meanwhile. Keys that are deleted one here,
//! one there make no runs; then only a few of them are looked at.
//!
//! A run may be as long as the database, and merges leave out what it is made of meanwhile. So a search reads for a while only,
//! and goes on after a pause.

use super::DeadRangeCache;
use crate::cemetery::points::{Points, SAMPLE_EVERY, SAMPLES};
use crate::error::Result;
use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Mutex, lock};
use std::time::Duration;

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
    /// Goes to the first key at or behind `key`, and returns it, if there is one. Behind a front it notes a run however short:
    /// it goes on from another one.
    ///
    /// # Errors
    /// Those of reading.
    fn go_to(&mut self, key: &[u8], is_front: bool) -> Result<Option<&[u8]>>;
    /// Whether it has read for long enough: the key that it returned last is one to go on from.
    fn is_over(&self) -> bool;
}

/// Searches the keys that were deleted last for dead ranges.
pub(crate) struct DeadRangeSearch {
    /// A search is due when the active memtable has so many deletions.
    due_at: AtomicUsize,
    progress: Mutex<Progress>,
}

/// A key before which a run ended.
#[derive(Debug)]
struct Front {
    key: Vec<u8>,
    /// It was seen still when new deletions were searched: they may not have come to it, but if that happens twice the run is
    /// over.
    is_vain: bool,
}

impl Front {
    fn new(key: Vec<u8>) -> Self {
        Self {
            key,
            is_vain: false,
        }
    }
}

/// How far deletions were searched.
#[derive(Debug, Default)]
struct Progress {
    /// The sequence number with which the memtable began.
    began_at: u64,
    /// How many graves it had.
    graves: usize,
    fronts: Vec<Front>,
    /// When the search goes on that ended before it had looked at everything.
    goes_on_at: Option<Duration>,
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
    /// sequence number `began_at`. One thread searches at a time. If there is more to search, returns when to call again,
    /// which is `pause` after this call: a call before, `now`, does nothing.
    ///
    /// # Errors
    /// Those of `open` and of its cursor.
    pub(crate) fn run<P: Probe>(
        &self,
        (graves, cache): ((&Points, u64), &DeadRangeCache),
        now: Duration,
        open: impl FnOnce() -> Result<P>,
        pause: impl FnOnce() -> Duration,
    ) -> Result<Option<Duration>> {
        // No thread waits for this while it reads.
        let mut progress = std::mem::take(&mut *lock(&self.progress));
        let is_early = progress.goes_on_at.is_some_and(|at| now < at);
        let mut outcome = Ok(());
        if !is_early {
            let is_more = progress.search(graves, cache, open);
            progress.goes_on_at = matches!(is_more, Ok(true)).then(pause);
            outcome = is_more.map(drop);
        }
        let goes_on_at = progress.goes_on_at;
        let next = progress.graves + WORTH_SEARCHING;
        let due_at = goes_on_at.map_or(next, |_| usize::MAX);
        self.due_at.store(due_at, Relaxed);
        *lock(&self.progress) = progress;
        outcome.map(|()| goes_on_at)
    }
}

impl Progress {
    /// Returns whether there is more to search.
    fn search<P: Probe>(
        &mut self,
        (graves, began_at): (&Points, u64),
        cache: &DeadRangeCache,
        open: impl FnOnce() -> Result<P>,
    ) -> Result<bool> {
        let count = graves.len();
        if self.began_at != began_at {
            self.began_at = began_at;
            self.graves = 0;
        }
        let is_due = count >= self.graves + WORTH_SEARCHING;
        if !is_due && self.goes_on_at.is_none() {
            return Ok(false);
        }
        let from = self.graves.div_ceil(SAMPLE_EVERY);
        let to = count.div_ceil(SAMPLE_EVERY);
        self.graves = count;
        let mut probe = open()?;
        let mut fronts = std::mem::take(&mut self.fronts).into_iter();
        while !probe.is_over()
            && let Some(front) = fronts.next()
        {
            match follow(&mut probe, cache, (&front.key, true))? {
                Some(key) => self.fronts.push(Front::new(key)),
                None if is_due && front.is_vain => {}
                None => self.fronts.push(Front {
                    is_vain: is_due || front.is_vain,
                    ..front
                }),
            }
        }
        self.fronts.extend(fronts);
        let mut vain = 0;
        for number in from.max(to.saturating_sub(SAMPLES))..to {
            if probe.is_over() {
                self.graves = number * SAMPLE_EVERY;
                break;
            }
            let Some(key) = graves.sample(number) else {
                continue;
            };
            if cache.covers(&key, &key, 1, probe.snapshot()) {
                continue;
            }
            if let Some(front) = follow(&mut probe, cache, (&key, false))? {
                vain = 0;
                self.fronts.push(Front::new(front));
                continue;
            }
            vain += 1;
            if vain >= VAIN_MAX {
                break;
            }
        }
        let surplus = self.fronts.len().saturating_sub(FRONTS_MAX);
        self.fronts.drain(..surplus);
        Ok(probe.is_over())
    }
}

/// Sends the cursor to `key`, which may be a front. Returns the next front: the key before which the run of dead keys ended that
/// begins there, if one does; or, if the cursor has read for long enough, the dead key to go on from.
fn follow(
    probe: &mut impl Probe,
    cache: &DeadRangeCache,
    (key, is_front): (&[u8], bool),
) -> Result<Option<Vec<u8>>> {
    let before = cache.added();
    let end = probe.go_to(key, is_front)?.map(<[u8]>::to_vec);
    let is_noted = cache.added() > before;
    // Or else it came through too little for that.
    let unmoved = || probe.is_over().then(|| key.to_vec());
    Ok(if is_noted { end } else { unmoved() })
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    const SNAPSHOT: u64 = 1_000_000;

    fn key(number: usize) -> Vec<u8> {
        format!("{number:05}").into_bytes()
    }

    /// Walks over the first `dead` of all keys, and `patience` of them at most.
    struct Walker<'c> {
        cache: &'c DeadRangeCache,
        dead: usize,
        patience: usize,
        at: Vec<u8>,
        is_over: bool,
    }

    impl Probe for Walker<'_> {
        fn snapshot(&self) -> u64 {
            SNAPSHOT
        }

        fn go_to(&mut self, from: &[u8], _: bool) -> Result<Option<&[u8]>> {
            let start: usize = std::str::from_utf8(from).unwrap().parse().unwrap();
            let end = self.dead.min(start + self.patience).max(start);
            self.at = key(end);
            self.is_over = end < self.dead;
            if end > start {
                self.cache.add(from, Some(&self.at), SNAPSHOT);
            }
            Ok(Some(&self.at))
        }

        fn is_over(&self) -> bool {
            self.is_over
        }
    }

    #[test]
    fn a_search_that_takes_long_goes_on_after_a_pause_until_it_has_seen_all() {
        const DEAD: usize = 2_000;
        let second = Duration::from_secs(1);
        let (search, cache) = (DeadRangeSearch::default(), DeadRangeCache::default());
        let graves = Points::new(1 << 20);
        for number in 0..DEAD {
            graves.insert(&key(number), number as u64 + 1);
        }
        let walker = || {
            Ok(Walker {
                cache: &cache,
                dead: DEAD,
                patience: 100,
                at: Vec::new(),
                is_over: false,
            })
        };
        let covers = |last| cache.covers(&key(0), &key(last), SNAPSHOT, SNAPSHOT);
        let mut now = Duration::ZERO;
        let mut searches = 0;
        assert!(search.is_due(&graves));
        while let Some(at) = search
            .run(((&graves, 1), &cache), now, walker, || now + second)
            .unwrap()
        {
            assert_eq!(at, now + second);
            assert!(!search.is_due(&graves), "it comes by itself");
            searches += 1;
            assert!(covers(100 * searches - 1) && !covers(100 * searches));
            let early = search.run(((&graves, 1), &cache), now, walker, || unreachable!());
            assert_eq!(early.unwrap(), Some(at));
            assert!(!covers(100 * searches), "nothing is read in the pause");
            now = at;
        }
        assert!(covers(DEAD - 1), "{searches} searches");
        assert_eq!(searches, DEAD / 100 - 1);
    }

    #[test]
    fn a_run_goes_on_that_had_not_grown_when_others_were_searched() {
        let (search, cache) = (DeadRangeSearch::default(), DeadRangeCache::default());
        let graves = Points::new(1 << 20);
        let mut seen = 0;
        let mut look = |deleted: usize, dead| {
            for number in seen..deleted {
                graves.insert(&key(number), number as u64 + 1);
            }
            seen = deleted;
            let walker = || {
                Ok(Walker {
                    cache: &cache,
                    dead,
                    patience: usize::MAX / 2,
                    at: Vec::new(),
                    is_over: false,
                })
            };
            let pause = || unreachable!();
            let goes_on = search.run(((&graves, 1), &cache), Duration::ZERO, walker, pause);
            assert_eq!(goes_on.unwrap(), None);
            cache.covers(&key(0), &key(dead - 1), SNAPSHOT, SNAPSHOT)
        };
        assert!(look(WORTH_SEARCHING, WORTH_SEARCHING + 7));
        // What was counted for this one the last one saw.
        assert!(look(2 * WORTH_SEARCHING, WORTH_SEARCHING + 7));
        assert!(look(3 * WORTH_SEARCHING, 3 * WORTH_SEARCHING));
    }
}
