//! How often readers wait for storage: work that is not due stands back while they do.
//!
//! Readers count the blocks that the block cache lacks. A look counts what came since the last one. After a long pause that says
//! little of the moment: then readers are busy, until the next look, if any block came.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, lock};
use std::time::Duration;

/// Blocks are counted for at least so long ...
const WINDOW: Duration = Duration::from_millis(100);
/// ... and after so long they say little of the moment.
const LONG: Duration = Duration::from_secs(1);
/// Readers that load a block more often than this are busy: a hard disk reads about as many.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

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
    was_busy: bool,
}

impl ReadLoad {
    /// A reader loads a block from storage.
    #[inline]
    pub(super) fn note_block(&self) {
        self.blocks.fetch_add(1, Relaxed);
    }

    /// Whether readers are busy `now`.
    pub(crate) fn is_busy(&self, now: Duration) -> bool {
        let mut last = lock(&self.last_look);
        let elapsed = now.saturating_sub(last.at);
        if elapsed < WINDOW {
            return last.was_busy;
        }
        let blocks = self.blocks.load(Relaxed);
        let came = u32::try_from(blocks - last.blocks).unwrap_or(u32::MAX);
        let was_busy = if elapsed < LONG {
            BUSY_PAUSE.saturating_mul(came) > elapsed
        } else {
            came > 0
        };
        *last = Look {
            at: now,
            blocks,
            was_busy,
        };
        was_busy
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

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
}
