//! How often readers wait for storage: work that is not due stands back while they do.
//!
//! Readers count the blocks that the block cache lacks. A look counts what came since the last one. After a long pause that says
//! little of the moment: then readers are busy, until the next look, if any block came.
//!
//! Nothing stands back for ever: the page cache may serve the readers, who gain by the work and lose little. Readers that were
//! busy in all looks of half a minute do not count any more.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, lock};
use std::time::Duration;

/// Blocks are counted for at least so long ...
const WINDOW: Duration = Duration::from_millis(100);
/// ... and after so long they say little of the moment.
const LONG: Duration = Duration::from_secs(1);
/// Readers that load a block more often than this are busy: a hard disk reads about as many.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Work stands back for so long at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often readers wait for storage.
#[derive(Debug, Default)]
pub(crate) struct ReadLoad {
    blocks: AtomicU64,
    last_look: Mutex<Look>,
}

#[derive(Debug, Default)]
struct Look {
    at: Duration,
    blocks: u64,
    /// Since when readers were busy in every look.
    busy_since: Option<Duration>,
}

impl Look {
    fn counts(&self, now: Duration) -> bool {
        self.busy_since.is_some_and(|since| now < since + PATIENCE)
    }
}

impl ReadLoad {
    /// A reader loads a block from storage.
    #[inline]
    pub(super) fn note_block(&self) {
        self.blocks.fetch_add(1, Relaxed);
    }

    /// Whether work that is not due stands back for the readers, `now`.
    pub(crate) fn is_busy(&self, now: Duration) -> bool {
        let mut last = lock(&self.last_look);
        let elapsed = now.saturating_sub(last.at);
        if elapsed < WINDOW {
            return last.counts(now);
        }
        let blocks = self.blocks.load(Relaxed);
        let came = u32::try_from(blocks - last.blocks).unwrap_or(u32::MAX);
        let before = last.busy_since.filter(|_| elapsed < PATIENCE);
        let busy_since = if BUSY_PAUSE.saturating_mul(came) > elapsed {
            before.or(Some(now))
        } else {
            (elapsed >= LONG && came > 0).then_some(now)
        };
        *last = Look {
            at: now,
            blocks,
            busy_since,
        };
        last.counts(now)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::sst::TableSettings;
    use crate::sst::tests::{Place, forward, numbered};

    #[test]
    fn every_block_of_a_walk_counts_and_none_of_a_merge() {
        let place = Place::new(0);
        let meta = place.build(1, &TableSettings::default(), &numbered(2_000, 100));
        let table = place.cache.get(&meta).unwrap();
        let is_busy = |ms| (place.cache.memory().reads).is_busy(Duration::from_millis(ms));
        forward(&mut table.scan()).unwrap();
        assert!(!is_busy(60_000));
        forward(&mut table.iter()).unwrap();
        assert!(is_busy(60_200));
    }

    fn after(load: &ReadLoad, blocks: u64, now_ms: u64) -> bool {
        (0..blocks).for_each(|_| load.note_block());
        load.is_busy(Duration::from_millis(now_ms))
    }

    #[test]
    fn readers_are_busy_while_they_load_many_blocks() {
        let load = ReadLoad::default();
        assert!(!after(&load, 0, 5_000));
        assert!(after(&load, 51, 5_500));
        assert!(after(&load, 0, 5_550), "too soon to tell");
        assert!(!after(&load, 49, 6_000));
        assert!(!after(&load, 0, 6_100));
    }

    #[test]
    fn after_a_pause_any_block_counts_until_the_next_look() {
        let load = ReadLoad::default();
        assert!(after(&load, 1, 60_000));
        assert!(!after(&load, 1, 60_200));
        assert!(!after(&load, 0, 120_000));
    }

    #[test]
    fn nothing_stands_back_for_more_than_half_a_minute() {
        let load = ReadLoad::default();
        let looks = |from: u64| {
            (from..)
                .step_by(500)
                .map(|now_ms| (now_ms, after(&load, 60, now_ms)))
        };
        let (end, _) = looks(60_000).find(|(_, is_busy)| !is_busy).unwrap();
        assert_eq!(end, 90_000);
        // Work that takes its time goes on then; after a pause it stands back again.
        assert!(!after(&load, 600, 95_000));
        assert!(after(&load, 6_000, 125_000));
    }
}
