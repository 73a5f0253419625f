//! A cursor over a memtable, which it keeps alive. It sees entries inserted after it was made, if they are ahead
//! of it; what a reader must not see is told by sequence numbers.

use super::MemTable;
use super::arena::{HEAD, NIL, Node};
use crate::error::Result;
use crate::sst::InternalIterator;
use crate::sync::Arc;

/// A cursor over the entries of a memtable.
pub(crate) struct MemTableIterator {
    table: Arc<MemTable>,
    /// The entry it is on; [`NIL`] when invalid.
    node: Node,
    /// No entry has a higher sequence number.
    newest: u64,
}

impl MemTableIterator {
    /// A cursor that is not yet anywhere.
    pub(super) fn new(table: Arc<MemTable>) -> Self {
        Self {
            table,
            node: NIL,
            newest: u64::MAX,
        }
    }

    /// The same, where no entry has a higher sequence number than `newest`.
    pub(crate) fn with_newest(self, newest: u64) -> Self {
        Self { newest, ..self }
    }

    /// Goes to `node`, which is the head if there is no entry.
    fn settle(&mut self, node: Node) {
        self.node = if node == HEAD { NIL } else { node };
    }
}

impl InternalIterator for MemTableIterator {
    #[inline]
    fn valid(&self) -> bool {
        self.node != NIL
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.node = self.table.list.next(HEAD);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.settle(self.table.list.last());
        Ok(())
    }

    fn seek(&mut self, internal_key: &[u8]) -> Result<()> {
        self.node = self.table.list.first_at_or_after(internal_key);
        Ok(())
    }

    fn seek_for_prev(&mut self, internal_key: &[u8]) -> Result<()> {
        let list = &self.table.list;
        let before = list.last_before(internal_key);
        // The one behind may be the key itself.
        let next = list.next(before);
        let exact = next != NIL && list.internal_key(next) == internal_key;
        self.settle(if exact { next } else { before });
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        assert!(self.valid(), "next on an invalid cursor");
        self.node = self.table.list.next(self.node);
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        assert!(self.valid(), "prev on an invalid cursor");
        self.settle(self.table.list.previous(self.node));
        Ok(())
    }

    fn skip_forward(&mut self, end: Option<&[u8]>, covering: u64) -> Result<()> {
        if self.newest >= covering && !self.table.is_clear(end, covering) {
            return Ok(());
        }
        if let Some(end) = end {
            return self.seek(end);
        }
        self.node = NIL;
        Ok(())
    }

    fn skip_backward(&mut self, start: &[u8], covering: u64) -> Result<()> {
        if self.newest < covering {
            let before = self.table.list.last_before(start);
            self.settle(before);
        }
        Ok(())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        assert!(self.valid(), "key of an invalid cursor");
        self.table.list.internal_key(self.node)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        assert!(self.valid(), "value of an invalid cursor");
        self.table.list.value(self.node)
    }
}
