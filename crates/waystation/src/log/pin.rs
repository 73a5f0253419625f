//! Log pins: no segment is recycled while a backup copies the log.

use super::Log;
use crate::sync::{Arc, lock};
use std::path::PathBuf;
use waystation_format::log::JournalState;

/// While this lives no segment is recycled. The next release after it recycles all that were released meanwhile.
pub(crate) struct LogPin(Arc<Log>);

impl Drop for LogPin {
    fn drop(&mut self) {
        lock(&self.0.writer).pins -= 1;
    }
}

/// The part of the log that lies in one segment: so many bytes behind the segment's header.
pub(crate) struct Part {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

impl Log {
    /// Pins all segments that are there now and all that come.
    pub(crate) fn pin(log: &Arc<Self>) -> LogPin {
        lock(&log.writer).pins += 1;
        LogPin(Arc::clone(log))
    }

    /// What a copy of the log consists of that was closed cleanly at the durable end: `JOURNAL`, and the segments up to
    /// there. For the owner of a [`LogPin`].
    pub(crate) fn clean_copy(&self) -> (JournalState, Vec<Part>) {
        let state = lock(&self.writer);
        let end = state.durable_lsn;
        let mut parts: Vec<Part> = Vec::new();
        for segment in &state.sealed {
            parts.push(Part {
                number: segment.number,
                path: segment.path.clone(),
                bytes: segment.end_lsn.min(end) - segment.start_lsn,
            });
        }
        let current = &state.current.file;
        // Its header may not be there before its first block is. The first segment of a life has one.
        if current.header.start_lsn < end || parts.is_empty() {
            parts.push(Part {
                number: current.header.number,
                path: current.path.clone(),
                bytes: end.saturating_sub(current.header.start_lsn),
            });
        }
        let journal = JournalState {
            incarnation: self.incarnation,
            ring_bytes: self.ring.len_max(),
            first_segment: parts[0].number,
            clean_lsn: end,
            boot: None,
        };
        (journal, parts)
    }
}
