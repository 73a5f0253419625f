//! Where the search for dead ranges meets the database: who begins it, the cursor that it sends, and how long that may walk.

use super::{Core, DbIterator, IterOptions};
use crate::background::Kind;
use crate::cemetery::dead_ranges::search::Probe;
use crate::error::Result;
use crate::read_state::MemtablePair;
use crate::storage::Storage;
use crate::sync::Arc;
use std::time::Duration;

/// A search begins so long after it was found due, at the earliest: half a million keys a second may be deleted.
const PAUSE: Duration = Duration::from_millis(5);
/// A search reads for so long. Then it pauses for so many times as long, and leaves the device to the merges that leave out
/// what was deleted.
const SEARCH_MAX: Duration = Duration::from_millis(50);
const PAUSE_SHARE: u32 = 4;
/// The clock is looked at when so many versions have been passed.
const LOOK_EVERY: u32 = 256;

/// How long a cursor walks over dead keys.
pub(super) struct Patience {
    storage: Arc<dyn Storage>,
    until: Duration,
    passed: u32,
    is_over: bool,
}

impl Patience {
    /// Until the clock of `storage` comes to `until`, which is looked at from time to time.
    pub(super) fn new(storage: Arc<dyn Storage>, until: Duration) -> Self {
        Self {
            storage,
            until,
            passed: 0,
            is_over: false,
        }
    }

    /// A version was passed: whether the walk ends.
    pub(super) fn ends(&mut self) -> bool {
        self.passed += 1;
        if self.passed.is_multiple_of(LOOK_EVERY) {
            self.is_over = self.storage.now() >= self.until;
        }
        self.is_over
    }

    /// Whether a walk was ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

impl Probe for DbIterator {
    fn snapshot(&self) -> u64 {
        self.sequence()
    }

    fn go_to(&mut self, key: &[u8], is_front: bool) -> Result<Option<&[u8]>> {
        self.seek_on(key, is_front)?;
        Ok(if self.valid() {
            Some(self.key())
        } else {
            self.gave_up_at()
        })
    }

    fn is_over(&self) -> bool {
        self.gave_up_at().is_some()
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

    /// Searches what was deleted since the last time for dead ranges. Only the watch does. Returns when to go on, if there is
    /// more to search.
    pub(super) fn search_dead_ranges(&self) -> Result<Option<Duration>> {
        let began = self.storage.now();
        let active = Arc::clone(&self.read_states.load().active);
        let graves = (active.memory.graves.points(), active.start_sequence);
        let cache = self.graves.dead_ranges();
        let patience = Patience::new(Arc::clone(&self.storage), began + SEARCH_MAX);
        let open = || {
            let cursor = self.iter(IterOptions::default())?;
            Ok(cursor.with_patience(patience))
        };
        let pause = || {
            let ended = self.storage.now();
            ended + (ended.saturating_sub(began)) * PAUSE_SHARE
        };
        self.dead_range_search
            .run((graves, cache), began, open, pause)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::{LOOK_EVERY, Patience};
    use crate::cemetery::dead_ranges::RUN_MIN;
    use crate::cemetery::dead_ranges::search::{Probe, WORTH_SEARCHING};
    use crate::db::{Db, DbIterator, IterOptions, Options};
    use crate::storage::SimStorage;
    use crate::sync::Arc;
    use std::ops::{Bound, Range};
    use std::time::Duration;

    fn key(number: usize) -> Vec<u8> {
        format!("{number:05}").into_bytes()
    }

    /// A database with so many keys in tables.
    fn filled(keys: usize) -> Db {
        let db = Db::open_with(SimStorage::new(1), "/db", Options::default()).unwrap();
        for number in 0..keys {
            db.put(&key(number), b"value").unwrap();
        }
        db.flush().unwrap();
        db
    }

    fn delete(db: &Db, numbers: Range<usize>) {
        for number in numbers {
            db.delete(&key(number)).unwrap();
        }
    }

    /// A cursor that is patient until then.
    fn walk(db: &Db, until: Duration) -> DbIterator {
        let cursor = db.iter(IterOptions::default()).unwrap();
        cursor.with_patience(Patience::new(Arc::clone(&db.core.storage), until))
    }

    /// Whether all that was put from the first key to that of `number` is known to be dead.
    fn covers(db: &Db, number: usize) -> bool {
        let snapshot = db.core.log.visible_sequence();
        let dead_ranges = db.core.graves.dead_ranges();
        dead_ranges.covers(&key(0), &key(number), number as u64 + 1, snapshot)
    }

    #[test]
    fn a_cursor_whose_patience_is_over_notes_how_far_it_came() {
        // Fewer than the watch searches; what the second walk comes through is too little for a run of its own.
        const DEAD: usize = LOOK_EVERY as usize + RUN_MIN / 2;
        const _: () = assert!(DEAD < WORTH_SEARCHING);
        let db = filled(DEAD);
        delete(&db, 0..DEAD);
        let walk = |until| walk(&db, until);
        let covers = |number| covers(&db, number);
        let mut cursor = walk(Duration::ZERO);
        let stop = cursor.go_to(&key(0), false).unwrap().unwrap().to_vec();
        assert!(cursor.is_over() && !cursor.valid());
        assert_eq!(stop, key(LOOK_EVERY as usize - 1));
        assert!(covers(LOOK_EVERY as usize - 2) && !covers(LOOK_EVERY as usize - 1));
        let mut patient = walk(Duration::MAX);
        assert_eq!(patient.go_to(&stop, false).unwrap(), None);
        assert!(!covers(DEAD - 1), "few keys make no run");
        assert_eq!(patient.go_to(&stop, true).unwrap(), None);
        assert!(!patient.is_over() && covers(DEAD - 1), "but prolong one");
    }

    #[test]
    fn a_run_goes_on_where_merges_have_left_out_what_it_was_made_of() {
        let db = filled(3 * RUN_MIN);
        delete(&db, 0..RUN_MIN);
        let mut cursor = walk(&db, Duration::MAX);
        let front = cursor.go_to(&key(0), false).unwrap().unwrap().to_vec();
        assert_eq!(front, key(RUN_MIN));
        delete(&db, RUN_MIN..2 * RUN_MIN);
        drop(cursor);
        db.compact_range(Bound::Unbounded, Bound::Unbounded)
            .unwrap();
        let mut cursor = walk(&db, Duration::MAX);
        assert_eq!(
            cursor.go_to(&front, false).unwrap(),
            Some(&key(2 * RUN_MIN)[..])
        );
        assert!(!covers(&db, RUN_MIN));
        let front = cursor.go_to(&front, true).unwrap().unwrap().to_vec();
        assert!(covers(&db, 2 * RUN_MIN - 1) && !covers(&db, 2 * RUN_MIN));
        let noted = db.core.graves.dead_ranges().added();
        assert_eq!(cursor.go_to(&front, true).unwrap(), Some(&front[..]));
        assert_eq!(db.core.graves.dead_ranges().added(), noted);
    }

    #[test]
    fn a_run_is_followed_from_look_to_look_without_a_gap() {
        // No multiple of the distance between samples.
        const STAGE: usize = 6 * WORTH_SEARCHING + 37;
        let db = filled(5 * STAGE);
        // Of the first stage the earliest samples may be gone when it is looked at.
        let start = key(WORTH_SEARCHING / 2);
        for stage in 0..4 {
            delete(&db, stage * STAGE..(stage + 1) * STAGE);
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
