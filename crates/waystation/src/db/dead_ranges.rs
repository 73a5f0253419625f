//! Where the search for dead ranges meets the database: who begins it, and the cursor that it sends.

use super::{Core, DbIterator, IterOptions};
use crate::background::Kind;
use crate::cemetery::dead_ranges::search::Probe;
use crate::error::Result;
use crate::read_state::MemtablePair;
use crate::sync::Arc;
use std::time::Duration;

/// A search begins so long after it was found due, at the earliest: half a million keys a second may be deleted.
const PAUSE: Duration = Duration::from_millis(5);

impl Probe for DbIterator {
    fn snapshot(&self) -> u64 {
        self.sequence()
    }

    fn go_to(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.seek(key)?;
        Ok(self.valid().then(|| self.key()))
    }
}

impl Core {
    /// What a cursor finds out that is made next counts up to the number it reads at. If there is something to be
    /// jumped over at all, the memtable tells the one after it what was inserted since.
    pub(super) fn watch_memtable(&self) {
        if !self.graves.dead_ranges().has_news() {
            return;
        }
        let next_sequence = || self.log.at_front(|_, sequence| sequence);
        let active = &self.read_states.load().active;
        active.memory.table.watch(next_sequence);
    }

    /// Something may have been deleted in `memory`, to which writes go: has the watch search if it is worth it.
    #[inline]
    pub(super) fn note_deletions(&self, memory: &MemtablePair) {
        if self.dead_range_search.is_due(memory.graves.points()) {
            self.search_soon();
        }
    }

    #[cold]
    fn search_soon(&self) {
        // One call is enough.
        self.dead_range_search.expect();
        self.jobs.by(Kind::Watch, self.storage.now() + PAUSE);
    }

    /// Searches what was deleted since the last time for dead ranges. Only the watch does.
    pub(super) fn search_dead_ranges(&self) -> Result<()> {
        let active = Arc::clone(&self.read_states.load().active);
        let graves = (active.memory.graves.points(), active.start_sequence);
        let cache = self.graves.dead_ranges();
        let open = || self.iter(IterOptions::default());
        self.dead_range_search.run(graves, cache, open)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use crate::cemetery::dead_ranges::search::WORTH_SEARCHING;
    use crate::db::{Db, Options};
    use crate::storage::SimStorage;
    use std::time::Duration;

    fn key(number: usize) -> Vec<u8> {
        format!("{number:05}").into_bytes()
    }

    #[test]
    fn a_run_is_followed_from_look_to_look_without_a_gap() {
        // No multiple of the distance between samples.
        const STAGE: usize = 6 * WORTH_SEARCHING + 37;
        let db = Db::open_with(SimStorage::new(1), "/db", Options::default()).unwrap();
        for number in 0..5 * STAGE {
            db.put(&key(number), b"value").unwrap();
        }
        db.flush().unwrap();
        // Of the first stage the earliest samples may be gone when it is looked at.
        let start = key(WORTH_SEARCHING / 2);
        for stage in 0..4 {
            for number in stage * STAGE..(stage + 1) * STAGE {
                db.delete(&key(number)).unwrap();
            }
            // Looks come in the middle of them, and memtables may change there.
            let end = key((stage + 1) * STAGE - 4 * WORTH_SEARCHING);
            let snapshot = db.core.log.visible_sequence();
            let dead_ranges = db.core.graves.dead_ranges();
            let is_covered = (0..60_000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                dead_ranges.covers(&start, &end, 5 * STAGE as u64, snapshot)
            });
            assert!(is_covered, "stage {stage}");
        }
    }
}
