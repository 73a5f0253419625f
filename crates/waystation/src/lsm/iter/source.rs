//! What a merge of the tree can have as a child: known kinds, so that a step is a jump and not a call through
//! a pointer.

use super::LevelIterator;
use crate::error::Result;
use crate::lsm::memtable::MemTableIterator;
use crate::sst::InternalIterator;
use crate::sst::TableIterator;

/// A cursor over a part of the tree.
pub(crate) enum Source {
    /// Over a memtable.
    Memtable(MemTableIterator),
    /// Over an open table.
    Table(TableIterator),
    /// Over tables that are opened as the cursor gets to them.
    Level(LevelIterator),
    /// Over what lies outside the tree, in the upper level.
    Outside(Box<dyn InternalIterator + Send + Sync>),
}

impl From<MemTableIterator> for Source {
    fn from(iter: MemTableIterator) -> Self {
        Self::Memtable(iter)
    }
}

impl From<TableIterator> for Source {
    fn from(iter: TableIterator) -> Self {
        Self::Table(iter)
    }
}

impl From<LevelIterator> for Source {
    fn from(iter: LevelIterator) -> Self {
        Self::Level(iter)
    }
}

/// Does the same to whatever cursor a source is.
macro_rules! delegate {
    ($source:expr, $iter:ident => $call:expr) => {
        match $source {
            Source::Memtable($iter) => $call,
            Source::Table($iter) => $call,
            Source::Level($iter) => $call,
            Source::Outside($iter) => $call,
        }
    };
}

impl InternalIterator for Source {
    #[inline]
    fn valid(&self) -> bool {
        delegate!(self, iter => iter.valid())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        delegate!(self, iter => iter.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        delegate!(self, iter => iter.seek_to_last())
    }

    fn seek(&mut self, internal_key: &[u8]) -> Result<()> {
        delegate!(self, iter => iter.seek(internal_key))
    }

    fn seek_for_prev(&mut self, internal_key: &[u8]) -> Result<()> {
        delegate!(self, iter => iter.seek_for_prev(internal_key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        delegate!(self, iter => iter.next())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        delegate!(self, iter => iter.prev())
    }

    fn skip_forward(&mut self, end: Option<&[u8]>, covering: u64) -> Result<()> {
        delegate!(self, iter => iter.skip_forward(end, covering))
    }

    fn seek_past(&mut self, internal_key: &[u8], end: Option<&[u8]>, covering: u64) -> Result<()> {
        delegate!(self, iter => iter.seek_past(internal_key, end, covering))
    }

    fn skip_backward(&mut self, start: &[u8], covering: u64) -> Result<()> {
        delegate!(self, iter => iter.skip_backward(start, covering))
    }

    #[inline]
    fn key(&self) -> &[u8] {
        delegate!(self, iter => iter.key())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        delegate!(self, iter => iter.value())
    }
}
