//! What a commit is given, and what it returns: a record on its way into the log.

use crate::error::Error;
use waystation_format::checksum;
use waystation_format::log::RecordKind;

/// Why a record was not committed. Nothing was reserved for it.
pub(crate) enum Rejection {
    /// Too many full memtables: wait for a flush.
    NoRoom,
    /// A device is not where it was when it was looked up: look again.
    Moved,
    Failed(Error),
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A record to be committed, with its checksum: a commit that is tried again computes none.
pub(crate) struct NewRecord<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) payload: &'a [u8],
    /// Of the payload.
    pub(crate) checksum: u32,
    /// How many sequence numbers it takes.
    pub(crate) operations: u32,
}

impl<'a> NewRecord<'a> {
    /// A record of `kind` that takes as many sequence numbers as it has `operations`.
    #[inline]
    pub(crate) fn new(kind: RecordKind, payload: &'a [u8], operations: u32) -> Self {
        Self {
            kind,
            payload,
            checksum: checksum::crc32c(payload),
            operations,
        }
    }
}

/// Where a record is in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Logged {
    /// The sequence number of its first operation.
    pub(crate) first_sequence: u64,
    /// Its position, by which it can be read.
    pub(crate) record_lsn: u64,
    /// Syncing the log up to here makes it durable.
    pub(crate) end_lsn: u64,
}
