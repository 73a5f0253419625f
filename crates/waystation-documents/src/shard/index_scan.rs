//! Scans through an index: documents in the order of its columns, within ranges of them.

use super::scan::{ScanStats, Source, StoredDocument};
use super::{Shard, keys};
use crate::collate::AFTER;
use crate::error::{Error, Result};
use crate::mango::{Direction, KeyRange};
use std::borrow::Cow;
use waystation::{DbIterator, IterOptions};

/// A scan through an index, as it stood when the scan began.
pub struct IndexScan<'a> {
    source: Source<'a>,
    entries: DbIterator,
    /// Ranges of entries' keys that are still to be read, the next one last.
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// The range that is being read.
    range: Option<(Vec<u8>, Vec<u8>)>,
    direction: Direction,
    /// The key of the entry that was returned last.
    position: Vec<u8>,
    /// Bytes of what all keys of the index begin with.
    prefix_bytes: usize,
}

impl Shard {
    /// Begins a scan through the index `name` within `ranges` (`None`: all of it), behind the entry `after`, if one is
    /// named: what [`IndexScan::position`] said.
    ///
    /// # Errors
    /// [`Error::Query`] if there is no such index that is whole; [`Error::Engine`].
    pub fn scan_index(
        &self,
        name: &str,
        ranges: Option<&[KeyRange]>,
        direction: Direction,
        after: Option<&[u8]>,
    ) -> Result<IndexScan<'_>> {
        let indexes = self.indexes();
        let index = indexes
            .iter()
            .find(|it| it.definition.name == name && it.is_whole);
        let index = index.ok_or_else(|| {
            Error::query(
                "invalid_index",
                format!("There is no index {name} that serves queries."),
            )
        })?;
        let source = Source::new(self);
        let prefix = keys::index(index.number);
        let within =
            |begin: &[u8], end: &[u8]| ([&prefix, begin].concat(), [&prefix, end].concat());
        let mut ranges: Vec<_> = match ranges {
            None => vec![within(&[], &[AFTER])],
            Some(ranges) => ranges
                .iter()
                .map(|range| within(&range.begin, &range.end))
                .collect(),
        };
        if let Some(after) = after {
            for (begin, end) in &mut ranges {
                match direction {
                    Direction::Ascending => {
                        *begin = begin.clone().max([&prefix, after, &[0]].concat());
                    }
                    Direction::Descending => *end = end.clone().min([&prefix, after].concat()),
                }
            }
        }
        ranges.retain(|(begin, end)| begin < end);
        if direction == Direction::Ascending {
            ranges.reverse();
        }
        let prefix_bytes = prefix.len();
        let mut options = IterOptions::prefix(prefix);
        options.snapshot = Some(source.snapshot.clone());
        Ok(IndexScan {
            entries: self.db.iter(options)?,
            source,
            ranges,
            range: None,
            direction,
            position: Vec::new(),
            prefix_bytes,
        })
    }
}

impl IndexScan<'_> {
    /// The next document; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn next_document(&mut self) -> Result<Option<StoredDocument<'_>>> {
        if !self.go_on()? {
            return Ok(None);
        }
        self.position.clear();
        self.position.extend_from_slice(self.entries.key());
        let id = keys::id_of_entry(&self.position)
            .ok_or_else(|| Error::damaged("an index", "an entry names no document"))?;
        let bytes = self.source.read_head(&id)?;
        let (head, revision, deleted) = self.source.read(&id, &bytes)?;
        if deleted {
            let reason = "an entry names a deleted document";
            return Err(Error::damaged("an index", reason));
        }
        let document = self
            .source
            .document(id, Cow::Owned(bytes), (head, revision));
        Ok(Some(document))
    }

    /// Goes to the next entry; whether there is one.
    fn go_on(&mut self) -> Result<bool> {
        if self.range.is_some() {
            match self.direction {
                Direction::Ascending => self.entries.next()?,
                Direction::Descending => self.entries.prev()?,
            }
        }
        loop {
            let is_within = |(begin, end): &(Vec<u8>, Vec<u8>)| {
                let key = self.entries.key();
                key >= begin.as_slice() && key < end.as_slice()
            };
            if self.range.is_some()
                && self.entries.valid()
                && self.range.as_ref().is_some_and(is_within)
            {
                return Ok(true);
            }
            let Some(range) = self.ranges.pop() else {
                self.range = None;
                return Ok(false);
            };
            match self.direction {
                Direction::Ascending => self.entries.seek(&range.0)?,
                Direction::Descending => {
                    self.entries.seek_for_prev(&range.1)?;
                    if self.entries.valid() && self.entries.key() == range.1 {
                        self.entries.prev()?;
                    }
                }
            }
            self.range = Some(range);
        }
    }

    /// The entry that was returned last, to go on behind it, in this shard or another one. Positions are in the order
    /// of the index.
    pub fn position(&self) -> &[u8] {
        self.position.get(self.prefix_bytes..).unwrap_or_default()
    }

    /// What it has cost so far.
    pub fn stats(&self) -> ScanStats {
        self.source.stats()
    }
}
