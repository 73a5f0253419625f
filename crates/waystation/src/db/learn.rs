//! Learning ahead: runs of dead keys are looked for while keys are deleted, so that not even the first cursor that comes
//! there has to walk them.
//!
//! A plot keeps a sample of the keys that were deleted last. Behind such a key a cursor is sent: if a run of dead keys
//! begins there, it notes the run (see [`Learned`](crate::cemetery::learned::Learned)) as every cursor does. Keys that
//! are deleted one here, one there make no runs; then only a few of them are looked at.

use super::{Core, IterOptions};
use crate::cemetery::points::{SAMPLE_EVERY, SAMPLES};
use crate::error::Result;
use crate::sync::{Arc, lock};

/// A look is worth it after so many deletions.
const WORTH_LOOKING: usize = 512;
/// So many samples in a row without a run make a look end.
const VAIN_MAX: usize = 4;

/// How far deletions were looked at.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// The sequence number with which the plot began.
    plot: u64,
    /// How many graves it had.
    graves: usize,
}

impl Core {
    /// Looks for runs of dead keys among what was deleted since the last time.
    pub(super) fn learn(&self) -> Result<()> {
        let active = Arc::clone(&self.views.load().active);
        let points = active.memory.graves.points();
        let graves = points.len();
        let mut looked = lock(&self.cemetery.looked);
        if looked.plot != active.start_sequence {
            *looked = Looked {
                plot: active.start_sequence,
                graves: 0,
            };
        }
        if graves < looked.graves + WORTH_LOOKING {
            return Ok(());
        }
        let (from, to) = (
            looked.graves.div_ceil(SAMPLE_EVERY),
            graves.div_ceil(SAMPLE_EVERY),
        );
        looked.graves = graves;
        drop(looked);
        let learned = &self.cemetery.learned;
        let mut cursor = self.iter(IterOptions::default())?;
        let mut vain = 0;
        for number in from.max(to.saturating_sub(SAMPLES))..to {
            let Some(key) = points.sample(number) else {
                continue;
            };
            if learned.covers(&key, &key, 1, cursor.sequence()) {
                continue;
            }
            let before = learned.added();
            cursor.seek(&key)?;
            if learned.added() > before {
                vain = 0;
                continue;
            }
            vain += 1;
            if vain >= VAIN_MAX {
                break;
            }
        }
        Ok(())
    }
}
