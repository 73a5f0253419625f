//! A table from its first entry to its last, past blocks that do not check.

use super::report::damage_of;
use super::tables::FoundTable;
use crate::error::Result;
use crate::inspect::source::Source;
use crate::inspect::table::{IndexedBlock, TableView};
use crate::storage::{Area, Storage};
use std::cmp::Ordering;
use std::path::Path;
use waystation_format::key::{InternalKey, compare_internal, user_key};

/// Keys that a part of a table may have held which cannot be read.
pub(super) struct Hidden {
    pub(super) offset: u64,
    pub(super) reason: String,
    /// All are behind this one; from the table's first on, if there is none.
    pub(super) after: Option<Vec<u8>>,
    /// None is behind this one.
    pub(super) through: Vec<u8>,
}

/// A cursor that only goes on.
pub(super) struct TableCursor {
    view: TableView,
    blocks: std::vec::IntoIter<IndexedBlock>,
    /// The rest of the block it is in.
    entries: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    /// The key of the last block in the index.
    last: Option<Vec<u8>>,
    /// No entry lies before this key.
    least: Vec<u8>,
    /// The table's last user key.
    most: Vec<u8>,
    /// The highest sequence number of any entry, if the table says so.
    pub(super) largest_sequence: Option<u64>,
}

impl TableCursor {
    /// Opens `table`, or says where and why nothing of it can be read.
    pub(super) fn open(
        storage: &dyn Storage,
        dir: &Path,
        table: &FoundTable,
    ) -> Result<Result<Self, (u64, String)>> {
        let opened = Source::open_lenient(storage, &dir.join(&table.name), Area::Tables)
            .and_then(|source| TableView::new(source, table.bytes))
            .and_then(|view| Ok((view.index()?, view)));
        let (index, view) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(damage_of(error)?)),
        };
        let ascends = |pair: &[IndexedBlock]| {
            compare_internal(&pair[0].separator, &pair[1].separator) == Ordering::Less
        };
        if !index.windows(2).all(ascends) {
            return Ok(Err((0, "the keys of its index do not ascend".to_owned())));
        }
        let properties = view.properties().ok().flatten();
        Ok(Ok(Self {
            view,
            blocks: index.into_iter(),
            entries: Vec::new().into_iter(),
            last: None,
            least: table.smallest.clone(),
            most: user_key(&table.largest).to_vec(),
            largest_sequence: properties.map(|it| it.largest_sequence),
        }))
    }

    /// The next entry; entries that it passes over go to `hide`.
    pub(super) fn next(
        &mut self,
        hide: &mut dyn FnMut(Hidden),
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Ok(Some(entry));
            }
            let Some(block) = self.blocks.next() else {
                return Ok(None);
            };
            match self.read(&block) {
                Ok(entries) => self.entries = entries.into_iter(),
                Err(error) => {
                    let (offset, reason) = damage_of(error)?;
                    hide(Hidden {
                        offset,
                        reason,
                        after: self.last.as_ref().map(|last| user_key(last).to_vec()),
                        through: user_key(&block.separator).min(&self.most).to_vec(),
                    });
                }
            }
            self.least.clone_from(&block.separator);
            self.last = Some(block.separator);
        }
    }

    /// The entries of a block, all of which have to be where they belong.
    fn read(&self, indexed: &IndexedBlock) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let block = self.view.block(indexed.handle)?;
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut is_in_order = true;
        self.view.each(&block, &mut |key, value| {
            let before = entries.last().map_or(&self.least, |(key, _)| key);
            let follows = match compare_internal(before, key) {
                Ordering::Less => true,
                Ordering::Equal => entries.is_empty() && self.last.is_none(),
                Ordering::Greater => false,
            };
            is_in_order = follows
                && InternalKey::parse(key).is_ok()
                && compare_internal(key, &indexed.separator) != Ordering::Greater;
            entries.push((key.to_vec(), value.to_vec()));
            is_in_order
        })?;
        if is_in_order {
            return Ok(entries);
        }
        Err(self
            .view
            .damage(indexed.handle.offset, "its entries are not in order"))
    }
}
