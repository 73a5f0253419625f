//! An open spill file.

use super::label::{GraveKind, SpillLabel};
use crate::cemetery::sorted::Grave;
use crate::directory::{spill_name, spill_number};
use crate::error::{Error, Result};
use crate::sst::InternalIterator;
use crate::sst::{LookupKey, Table, TableIterator, TableMemory, TableSettings};
use crate::storage::{Area, OpenMode, Storage, Transfer};
use crate::sync::Arc;
use std::ops::Range;
use std::path::{Path, PathBuf};
use waystation_format::key::{self, MAX_SEQUENCE, ValueKind, compare_internal};
use waystation_format::order::Order;
use waystation_format::varint::get_u64;

/// The open file of spilled graves.
#[derive(Debug)]
pub(crate) struct SpillHandle {
    pub(crate) number: u64,
    table: Arc<Table>,
}

/// Spilled graves: a file and its label.
#[derive(Debug, Clone)]
pub(crate) struct SpillFile {
    label: SpillLabel,
    file: Arc<SpillHandle>,
}

impl SpillFile {
    /// The facts about it that are known without reading it.
    pub(crate) fn label(&self) -> &SpillLabel {
        &self.label
    }

    /// Its file, which stays for as long as a reader holds it.
    pub(crate) fn file(&self) -> &Arc<SpillHandle> {
        &self.file
    }

    /// The same, promoted: its dates are past for every reader, and the flushed graves go through `number`.
    pub(crate) fn promoted_at(&self, number: u64) -> Self {
        let mut spill = self.clone();
        spill.label.promoted_through = number.max(self.label.sequences.1);
        spill
    }

    /// The latest deletion of the key that `lookup` asks for, up to `snapshot`; 0 if there is none.
    pub(super) fn covering(
        &self,
        key: &[u8],
        lookup: &LookupKey<'_>,
        snapshot: u64,
    ) -> Result<u64> {
        let found = self.find(key, lookup, snapshot)?;
        Ok(found.map_or(0, |cursor| key::trailer(cursor.key()) >> 8))
    }

    /// The same, of deletions whose date, or what tables must be purged through, is `time` or below.
    pub(super) fn dated_covering(
        &self,
        key: &[u8],
        lookup: &LookupKey<'_>,
        snapshot: u64,
        time: u64,
    ) -> Result<u64> {
        let Some(mut cursor) = self.find(key, lookup, snapshot)? else {
            return Ok(0);
        };
        while cursor.valid() && key::user_key(cursor.key()) == key {
            let grave = grave_of(&self.file, &cursor)?;
            if grave.number <= time {
                return Ok(grave.sequence);
            }
            cursor.next()?;
        }
        Ok(0)
    }

    /// The date of the grave of `key` with the number `sequence`.
    pub(super) fn date_of(&self, key: &[u8], sequence: u64) -> Result<Option<u64>> {
        let found = self.find(key, &LookupKey::new(key, sequence), sequence)?;
        let Some(cursor) = found else {
            return Ok(None);
        };
        let grave = grave_of(&self.file, &cursor)?;
        Ok((grave.sequence == sequence).then_some(grave.date()))
    }

    /// The numbers of all deletions of `key`, the latest first.
    pub(crate) fn deletions_of(&self, key: &[u8]) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        let lookup = LookupKey::new(key, MAX_SEQUENCE);
        if let Some(mut cursor) = self.find(key, &lookup, MAX_SEQUENCE)? {
            while cursor.valid() && key::user_key(cursor.key()) == key {
                found.push(key::trailer(cursor.key()) >> 8);
                cursor.next()?;
            }
        }
        Ok(found)
    }

    /// Adds all its graves to `graves`: key, number of the deletion, and what tables must be purged through or the
    /// date. Those before damage are there.
    pub(crate) fn read_into(&self, graves: &mut Vec<(Vec<u8>, u64, u64)>) -> Result<()> {
        let mut cursor = self.scan();
        cursor.seek_to_first()?;
        while cursor.valid() {
            let (grave, _) = self.grave(&cursor)?;
            let number = match self.label.promoted_through {
                0 => grave.number,
                promoted => promoted,
            };
            graves.push((grave.key.to_vec(), grave.sequence, number));
            cursor.next()?;
        }
        Ok(())
    }

    /// Reads all of it, and compares it with its label.
    pub(crate) fn verify(&self, path: &Path) -> Result<()> {
        let refuse = |reason| Err(Error::corruption(path, 0, reason));
        let label = &self.label;
        let mut cursor = self.scan();
        cursor.seek_to_first()?;
        let mut before: Vec<u8> = Vec::new();
        let mut graves = 0;
        while cursor.valid() {
            let (grave, is_dated) = self.grave(&cursor)?;
            let within = |(low, high): (u64, u64), it| low <= it && it <= high;
            let is_as_told = label.spans(grave.key)
                && is_dated == (label.kind == GraveKind::Dated)
                && within(label.sequences, grave.sequence)
                && within(label.numbers, grave.number);
            if !is_as_told {
                return refuse("a grave in it is not as GRAVES tells");
            }
            if graves > 0 && compare_internal(&before, cursor.key()).is_ge() {
                return refuse("its graves are not in order");
            }
            before.clear();
            before.extend_from_slice(cursor.key());
            graves += 1;
            cursor.next()?;
        }
        if graves != label.graves {
            return refuse("it has not as many graves as GRAVES tells");
        }
        Ok(())
    }

    /// A cursor at the latest grave of `key` up to `snapshot`, if there is one.
    fn find(
        &self,
        key: &[u8],
        lookup: &LookupKey<'_>,
        snapshot: u64,
    ) -> Result<Option<TableIterator>> {
        if !self.label.spans(key) || !self.file.table.may_hold(lookup) {
            return Ok(None);
        }
        let mut cursor = self.file.table.iter();
        cursor.seek(&target(key, snapshot))?;
        let is_found = cursor.valid() && key::user_key(cursor.key()) == key;
        Ok(is_found.then_some(cursor))
    }

    /// Where of its data bytes keys from `first` to `last` lie, about; nothing if there are none.
    pub(crate) fn place_of(&self, first: &[u8], last: &[u8]) -> Range<u64> {
        if !self.label.overlaps(Some(first), Some(last)) {
            return 0..0;
        }
        self.file.table.span_of(first, last)
    }

    /// About how many of its graves lie in `bytes` of its data; one at least, if these are any.
    pub(crate) fn graves_in(&self, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let all = self.data_bytes().max(1);
        let share = u128::from(self.label.graves) * u128::from(bytes.min(all)) / u128::from(all);
        (share as u64).max(1)
    }

    /// Bytes of its data.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.file.table.block_bytes()
    }

    /// Bytes of memory that its filter and its index take, and its label.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.file.table.memory_bytes()
            + self.label.first.len()
            + self.label.last.len()
            + size_of_val(&self.label.dates[..])
            + size_of::<Self>()
    }

    /// A cursor over all of it, that leaves the cache alone.
    pub(crate) fn scan(&self) -> TableIterator {
        self.file.table.scan()
    }

    /// A cursor over it for a reader.
    pub(super) fn cursor(&self) -> TableIterator {
        self.file.table.iter()
    }

    /// The grave that `cursor`, which may be over other spill files, too, is on, as it was written; and whether it has
    /// a date.
    pub(crate) fn grave<'c>(&self, cursor: &'c impl InternalIterator) -> Result<(Grave<'c>, bool)> {
        let kind = key::trailer(cursor.key()) & 0xff;
        let grave = grave_of(&self.file, cursor)?;
        Ok((grave, kind == ValueKind::Value as u64))
    }
}

/// The internal key before all graves of `key` with numbers up to `snapshot`.
pub(super) fn target(key: &[u8], snapshot: u64) -> Vec<u8> {
    let mut target = Vec::with_capacity(key.len() + 8);
    key::append(
        &mut target,
        key,
        snapshot.min(MAX_SEQUENCE),
        ValueKind::SEEK,
    );
    target
}

/// The grave that `cursor` is on, as it is in the file.
fn grave_of<'c>(file: &SpillHandle, cursor: &'c impl InternalIterator) -> Result<Grave<'c>> {
    let (internal, value) = (cursor.key(), cursor.value());
    let trailer = key::trailer(internal);
    let sequence = trailer >> 8;
    let number = match value {
        [] => Some(0),
        value => get_u64(value).map(|(number, _)| number),
    };
    let Some(number) = number else {
        let path = PathBuf::from(spill_name(file.number));
        return Err(Error::corruption(path, 0, "a grave's number is malformed"));
    };
    let key = key::user_key(internal);
    let is_dated = trailer & 0xff == ValueKind::Value as u64;
    Ok(if is_dated {
        Grave::dated(key, sequence, number)
    } else {
        Grave::counting(key, sequence, sequence.saturating_add(number))
    })
}

/// Where spill files are.
pub(crate) struct SpillDirectory {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) dir: PathBuf,
    pub(crate) settings: TableSettings,
    pub(crate) memory: TableMemory,
}

impl SpillDirectory {
    /// The path of spill file `number`.
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        self.dir.join(spill_name(number))
    }

    /// Opens the spill file with this label, and compares the two.
    pub(crate) fn open(&self, label: SpillLabel) -> Result<SpillFile> {
        open(&*self.storage, &self.dir, label, &self.memory)
    }

    /// Removes a spill file that nothing names. One that stays is removed at the next open.
    pub(crate) fn discard(&self, number: u64) {
        if let Err(error) = self.storage.remove(&self.path(number))
            && !error.is_not_found()
        {
            log::warn!("a spill file that is not needed any more stays for now: {error}");
        }
    }
}

/// Opens the spill file in `dir` with this label, and compares the two.
pub(crate) fn open(
    storage: &dyn Storage,
    dir: &Path,
    label: SpillLabel,
    memory: &TableMemory,
) -> Result<SpillFile> {
    let path = dir.join(spill_name(label.number));
    let file = storage.open(&path, OpenMode::Read, Transfer::Buffered, Area::Tables)?;
    let table = Table::open(file, label.file_bytes, false, memory, &Order::Bytewise)?;
    let is_it = table.facts().is_some_and(|facts| {
        let sequences = (facts.smallest_sequence, facts.largest_sequence);
        (facts.entries, sequences) == (label.graves, label.sequences)
    });
    if !is_it {
        let reason = "it is not the spill file that GRAVES tells of";
        return Err(Error::corruption(path, 0, reason));
    }
    let file = SpillHandle {
        number: label.number,
        table: Arc::new(table),
    };
    Ok(SpillFile {
        label,
        file: Arc::new(file),
    })
}

/// Removes the spill files that are not `named`.
pub(crate) fn remove_others(site: &SpillDirectory, named: &[u64]) -> Result<()> {
    for entry in site.storage.list(&site.dir)? {
        if spill_number(&entry.name).is_some_and(|number| !named.contains(&number)) {
            site.storage.remove(&site.dir.join(&entry.name))?;
        }
    }
    Ok(())
}
