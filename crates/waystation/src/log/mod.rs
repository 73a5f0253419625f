//! The log: one log, one order, written once.
//!
//! Writers reserve a place (`front`), copy their record into the *staging ring* (`ring`), a window over the
//! end of the log that survives the death of the process, and are acknowledged; what they wrote becomes visible in order
//! (`publication`). Full blocks
//! leave the ring for *segments* (`writer`) by direct writes of up to 256 KiB, several in flight, unless tables hold their
//! records by then (`deferral`); a sync closes the open block early (`group_commit`). What the upper level keeps in the log alone is read back from
//! ring and segments (`read`). A failed write or sync suspends the log until it has moved to
//! a fresh segment (`heal`). Opening reads segments and ring back to a prefix of the order (`replay`) and
//! starts a new life (`recovery`); threads fill memory with it meanwhile (`inserters`). What a commit is given and returns is
//! in `new_record`.
//!
//! ```text
//!                       released   written              copied        reserved
//!  ... | segment | segment  v |  v |      |  ring  |      v             v
//!  ----+---------+------------+----+-----------------------+-------------+-----> LSN
//!        durable ^                 closed blocks ..........| open block
//! ```
//!
//! Invariants: durable <= written = released <= copied <= reserved <= released + ring. What is acknowledged
//! for a process crash is complete: in a segment, in a table, or in the ring, which is not used again before its
//! bytes were written or passed over. Between `copied` and `reserved` there may be records that are not complete: if the process dies,
//! they are *holes*, and recovery goes on behind them (`leftover`). A record that is acknowledged for a power loss lies below `durable`.

mod ahead;
mod assembler;
mod blocks;
mod chain;
mod deferral;
mod front;
mod group_commit;
mod growth;
mod heal;
mod inserters;
mod layout;
mod leftover;
mod new_record;
mod pin;
mod prepared;
mod publication;
mod read;
mod recovery;
mod recycle;
mod replay;
mod ring;
mod segment;
mod survey;
mod turns;
mod writer;
mod writer_state;

pub(crate) use assembler::Record;
pub(crate) use inserters::{CHUNK_BYTES, Chunk, Inserters};
pub(crate) use new_record::{Logged, NewRecord, Rejection};
pub(crate) use pin::LogPin;
pub(crate) use read::{LogBlocks, LogCache, Pass, ValueRef};
pub(crate) use recovery::{LogSettings, Recovered, open};
pub(crate) use replay::Needs;
pub(crate) use replay::check_chain;
pub(crate) use segment::SegmentLengths;

use crate::error::Error;
use crate::storage::{Storage, Transfer};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use crate::sync::{Arc, Condvar, Mutex};
use front::Front;
use publication::Publication;
use read::Readers;
use ring::RingBuffer;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::OnceLock;
use waystation_format::log::Seal;
use writer_state::WriterState;

/// The log of one open database.
pub(crate) struct Log {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    incarnation: u64,
    first_segment: u64,
    segment_lengths: SegmentLengths,
    /// How segments are read and written.
    transfer: Transfer,
    ring: RingBuffer,
    /// Whether writes are deferred.
    defers: bool,
    /// So much of the log goes to tables with each flush.
    flush_bytes: u64,
    /// Whether other files take the room that the ring gives back: it lies in the fast directory.
    ring_shares_room: bool,
    /// Writers are too slow for deferral to spare much, and other files are to have room of the ring.
    spares_little: AtomicBool,
    /// Blocks that were read back lately.
    cache: LogBlocks,
    readers: Readers,

    front: Mutex<Front>,
    /// Sequence numbers up to here are handed out.
    assigned_sequence: AtomicU64,
    /// Blocks closed by the front and not yet fetched by the writers, in order. Locked after `front`.
    closed: Mutex<VecDeque<Seal>>,
    publication: Publication,
    /// Whether an opening can tell a record that a dead process left incomplete from one that a power cut took.
    keeps_holes: bool,

    /// Ring space below this position plus the ring's length may be used.
    released_lsn: AtomicU64,
    space_sleepers: AtomicUsize,
    /// With `front`: room was released, or a suspension began or ended.
    space: Condvar,

    writer: Mutex<WriterState>,
    /// Calls for [`Log::write_out`]: there may be something to write out, to prepare or to heal.
    call: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// With `writer`: something was written, suspended or healed.
    progress: Condvar,
    /// With `writer`: a sync ended, or the log was suspended or healed.
    durability: Condvar,
    /// Threads within [`Log::sync`].
    sync_callers: AtomicUsize,
    /// A publication past this position wakes a writer.
    wake_at_lsn: AtomicU64,
    suspended: AtomicBool,
}

/// Why the log takes no more records for now.
#[derive(Debug, Clone)]
pub(crate) struct Suspension {
    cause: Arc<str>,
}

impl Suspension {
    fn new(cause: &Error) -> Self {
        Self {
            cause: cause.to_string().into(),
        }
    }

    fn error(suspension: Option<&Self>) -> Error {
        let cause = suspension.map_or_else(
            || "the log is moving to a fresh file".into(),
            |s| s.cause.clone(),
        );
        Error::Suspended { cause }
    }
}

/// Figures of the log, for `stats`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct LogStats {
    /// Segment files that hold live records.
    pub segments: usize,
    /// Bytes from the oldest live segment's start to the end of the log.
    pub live_bytes: u64,
    /// The end of the log.
    pub reserved_lsn: u64,
    /// Up to here the log survives a power loss.
    pub durable_lsn: u64,
    /// Bytes in the staging ring that have not reached a segment.
    pub staged_bytes: u64,
    /// Whether segments are written around the page cache.
    pub direct_io: bool,
    /// Why writes are suspended, if they are.
    pub suspended: Option<String>,
    /// How often the log suspended writes and healed.
    pub heals: u64,
}

#[cfg(test)]
#[cfg(shuttle)]
pub(crate) mod model_storage;
#[cfg(test)]
#[cfg(shuttle)]
mod model_tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
