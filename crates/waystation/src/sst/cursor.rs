//! Cursors over internal keys: the one shape in which memtables, tables and levels show their entries.
//!
//! An internal key is the user key followed by eight bytes, little-endian: sequence << 8 | kind. Entries are
//! ordered by user key, then from the newest version to the oldest.

use crate::error::Result;

/// A cursor over internal keys, both ways.
///
/// It is made invalid; a positioning call that succeeds leaves it on an entry or, where there is none, invalid.
/// After an error `valid()` is false until the next positioning call.
pub(crate) trait InternalIterator {
    /// Whether the cursor is on an entry.
    fn valid(&self) -> bool;
    /// Goes to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Goes to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Goes to the first entry at or after `internal_key`.
    fn seek(&mut self, internal_key: &[u8]) -> Result<()>;
    /// Goes to the last entry at or before `internal_key`.
    fn seek_for_prev(&mut self, internal_key: &[u8]) -> Result<()>;
    /// Goes one entry on. The cursor must be valid.
    fn next(&mut self) -> Result<()>;
    /// Goes one entry back. The cursor must be valid.
    fn prev(&mut self) -> Result<()>;
    /// The internal key of the entry. The cursor must be valid.
    fn key(&self) -> &[u8];
    /// The value of the entry. The cursor must be valid.
    fn value(&self) -> &[u8];

    /// Versions with sequence numbers below `covering` are of no use from here up to the internal key `end` (excluded;
    /// `None`: to the last one): goes past some of them, as far as it is cheap to tell, and never past others. The
    /// cursor is before `end`.
    fn skip_forward(&mut self, _end: Option<&[u8]>, _floor: u64) -> Result<()> {
        Ok(())
    }

    /// Goes to the first entry at or after `internal_key`, past some of those between it and `end` that
    /// [`skip_forward`](Self::skip_forward) would go past. The key is before `end`.
    fn seek_past(&mut self, internal_key: &[u8], _end: Option<&[u8]>, _floor: u64) -> Result<()> {
        self.seek(internal_key)
    }

    /// The same as [`skip_forward`](Self::skip_forward) on the way back, to the internal key `start` (included).
    fn skip_backward(&mut self, _start: &[u8], _floor: u64) -> Result<()> {
        Ok(())
    }
}

/// Entries in order, once, from the first to the last: all that writing tables takes.
pub(crate) trait EntryStream {
    /// Goes to the first entry.
    fn start(&mut self) -> Result<()>;
    /// Whether there is an entry.
    fn has_entry(&self) -> bool;
    /// Goes one entry on.
    fn advance(&mut self) -> Result<()>;
    /// The internal key and the value of the entry.
    fn entry(&self) -> (&[u8], &[u8]);
}

impl<I: InternalIterator> EntryStream for I {
    fn start(&mut self) -> Result<()> {
        self.seek_to_first()
    }

    #[inline]
    fn has_entry(&self) -> bool {
        self.valid()
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        self.next()
    }

    #[inline]
    fn entry(&self) -> (&[u8], &[u8]) {
        (self.key(), self.value())
    }
}
