//! Search ahead: runs of dead keys are looked for while keys are deleted, so that not even the first cursor that comes
//! there has to walk them.
//!
//! The active graves keep a sample of the keys that were deleted last. Behind such a key a cursor is sent: if a run of
//! dead keys begins there, it notes the run (see [`DeadRangeCache`](crate::cemetery::dead_ranges::DeadRangeCache)) as
//! every cursor does, and the next look begins where the run ended, however far the deletions have gone on from there
//! meanwhile. Keys that are deleted one here, one there make no runs; then only a few of them are looked at.

use super::{Core, DbIterator, IterOptions};
use crate::background::Kind;
use crate::cemetery::points::{SAMPLE_EVERY, SAMPLES};
use crate::error::Result;
use crate::read_state::{LoggedMemTable, MemtablePair};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Arc, lock};
use std::time::Duration;

/// A look is worth it after so many deletions.
pub(super) const WORTH_LOOKING: usize = 512;
/// And at the earliest so long after they have come together: half a million a second may be deleted.
const PAUSE: Duration = Duration::from_millis(5);
/// So many samples in a row without a run make a look end.
const VAIN_MAX: usize = 4;
/// So many runs are followed from look to look.
const FRONTS_MAX: usize = 16;

/// How far deletions were looked at.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// The sequence number with which the memtable began.
    began_at: u64,
    /// How many graves it had.
    graves: usize,
    /// The keys before which runs ended.
    fronts: Vec<Vec<u8>>,
}

impl Core {
    /// What a cursor finds out that is made next counts up to the number it reads at. If there is something to be
    /// jumped over at all, the memtable tells the one after it what was inserted since.
    pub(super) fn watch_memtable(&self) {
        if !self.cemetery.dead_ranges.has_news() {
            return;
        }
        let next_sequence = || self.log.at_front(|_, sequence| sequence);
        self.read_states
            .load()
            .active
            .memory
            .table
            .watch(next_sequence);
    }

    /// Something may have been deleted in `memory`, to which writes go: has the watcher look if it is worth it.
    #[inline]
    pub(super) fn note_deletions(&self, memory: &MemtablePair) {
        if memory.graves.points().len() >= self.learn_at.load(Relaxed) {
            self.learn_soon();
        }
    }

    #[cold]
    fn learn_soon(&self) {
        // One call is enough.
        self.learn_at.store(usize::MAX, Relaxed);
        self.jobs.by(Kind::Watch, self.storage.now() + PAUSE);
    }

    /// Looks for runs of dead keys among what was deleted since the last time.
    pub(super) fn learn(&self) -> Result<()> {
        let active = Arc::clone(&self.read_states.load().active);
        // Only the watcher looks; nobody waits for this while it reads.
        let mut looked = std::mem::take(&mut *lock(&self.cemetery.looked));
        let outcome = self.look_at(&active, &mut looked);
        self.learn_at.store(looked.graves + WORTH_LOOKING, Relaxed);
        *lock(&self.cemetery.looked) = looked;
        outcome
    }

    fn look_at(&self, active: &LoggedMemTable, looked: &mut Looked) -> Result<()> {
        let points = active.memory.graves.points();
        let graves = points.len();
        if looked.began_at != active.start_sequence {
            looked.began_at = active.start_sequence;
            looked.graves = 0;
        }
        if graves < looked.graves + WORTH_LOOKING {
            return Ok(());
        }
        let (from, to) = (
            looked.graves.div_ceil(SAMPLE_EVERY),
            graves.div_ceil(SAMPLE_EVERY),
        );
        looked.graves = graves;
        let mut cursor = self.iter(IterOptions::default())?;
        for front in std::mem::take(&mut looked.fronts) {
            looked.fronts.extend(self.follow(&mut cursor, &front)?);
        }
        let mut vain = 0;
        for number in from.max(to.saturating_sub(SAMPLES))..to {
            let Some(key) = points.sample(number) else {
                continue;
            };
            if self
                .cemetery
                .dead_ranges
                .covers(&key, &key, 1, cursor.sequence())
            {
                continue;
            }
            if let Some(front) = self.follow(&mut cursor, &key)? {
                vain = 0;
                looked.fronts.push(front);
                continue;
            }
            vain += 1;
            if vain >= VAIN_MAX {
                break;
            }
        }
        let most = looked.fronts.len().saturating_sub(FRONTS_MAX);
        looked.fronts.drain(..most);
        Ok(())
    }

    /// Sends the cursor to `key`; the key before which the run of dead keys ended that begins there, if one does.
    fn follow(&self, cursor: &mut DbIterator, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let before = self.cemetery.dead_ranges.added();
        cursor.seek(key)?;
        let is_run = self.cemetery.dead_ranges.added() > before && cursor.valid();
        Ok(is_run.then(|| cursor.key().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::WORTH_LOOKING;
    use crate::db::{Db, Options};
    use crate::storage::SimStorage;
    use std::time::Duration;

    fn key(number: usize) -> Vec<u8> {
        format!("{number:05}").into_bytes()
    }

    #[test]
    fn a_run_is_followed_from_look_to_look_without_a_gap() {
        // No multiple of the distance between samples.
        const STAGE: usize = 6 * WORTH_LOOKING + 37;
        let db = Db::open_with(SimStorage::new(1), "/db", Options::default()).unwrap();
        for number in 0..5 * STAGE {
            db.put(&key(number), b"value").unwrap();
        }
        db.flush().unwrap();
        // Of the first stage the earliest samples may be gone when it is looked at.
        let start = key(WORTH_LOOKING / 2);
        for stage in 0..4 {
            for number in stage * STAGE..(stage + 1) * STAGE {
                db.delete(&key(number)).unwrap();
            }
            // Looks come in the middle of them, and memtables may change there.
            let end = key((stage + 1) * STAGE - 4 * WORTH_LOOKING);
            let snapshot = db.core.log.visible_sequence();
            let dead_ranges = &db.core.cemetery.dead_ranges;
            let is_covered = (0..60_000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                dead_ranges.covers(&start, &end, 5 * STAGE as u64, snapshot)
            });
            assert!(is_covered, "stage {stage}");
        }
    }
}
