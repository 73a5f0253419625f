//! The job.

use super::fields::{Field, FieldWriter, Fields};
use super::{JOB_MAGIC, READER_MIN, READER_MIN_OF_PARTS, seal_for, unseal};
use crate::FormatError;
use crate::key::TRAILER_BYTES;

/// A merge of tables: what an executor needs besides the tables themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// Names it.
    pub id: JobId,
    /// Which run of it this is, from 1: the engine refuses the report of an earlier one.
    pub attempt: u64,
    /// The name of the order of user keys.
    pub comparator: String,
    /// What is merged, the shallowest level first.
    pub inputs: Vec<InputLevel>,
    /// Only user keys from this one on are merged; `None`: all.
    pub from: Option<Vec<u8>>,
    /// The level that the outputs will stand in.
    pub output_level: u32,
    /// No reader sees a version that has a newer one at or below this sequence number.
    pub smallest_snapshot: u64,
    /// User-key ranges, sorted and disjoint, both ends included, that deeper levels may hold: in them deletions stay.
    pub deeper: Vec<(Vec<u8>, Vec<u8>)>,
    /// What is deleted apart from the tables.
    pub graves: Graves,
    /// The tables of the level below the output level within the range of the job, by key.
    pub grandparents: Vec<Grandparent>,
    /// Where outputs are cut.
    pub limits: Limits,
    /// How outputs are laid out.
    pub layout: Layout,
}

/// Names a job among those of all engines and for all time: drawn at random.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct JobId(pub [u8; 16]);

impl JobId {
    /// The name that a message holds.
    pub(super) fn take(field: &Field<'_>) -> Result<Self, FormatError> {
        let name = field.bytes.try_into();
        name.map(Self)
            .map_err(|_| field.malformed("a job's name has 16 bytes"))
    }
}

/// The tables a job takes from one level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputLevel {
    /// The level.
    pub level: u32,
    /// Its tables: the newest first in level 0, by key below.
    pub tables: Vec<Table>,
}

/// A table that is read or was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The number in the name of its file. The engine gives an output another one.
    pub number: u64,
    /// Where its footer ends.
    pub file_bytes: u64,
    /// The first internal key.
    pub smallest: Vec<u8>,
    /// The last internal key.
    pub largest: Vec<u8>,
    /// What it says of its content; `None` if it does not.
    pub facts: Option<Facts>,
}

/// What a table says of its content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// The lowest sequence number of any entry.
    pub smallest_sequence: u64,
    /// The highest sequence number of any entry.
    pub largest_sequence: u64,
    /// The highest number up to which all graves were applied when it was written.
    pub purged_through: u64,
    /// How many entries it has.
    pub entries: u64,
    /// How many of them are deletions.
    pub deletions: u64,
}

/// Deletions apart from the tables, as far as they concern the keys of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graves {
    /// They, as the file `GRAVES` has them; empty if there are none.
    pub checkpoint: Vec<u8>,
    /// What graves up to this number hide is left out of the outputs.
    pub through: u64,
}

/// A table that an output will be merged with later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grandparent {
    /// Its last user key.
    pub largest: Vec<u8>,
    /// Its length.
    pub bytes: u64,
}

/// Where outputs are cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// A table is cut at the first new user key after this many bytes.
    pub table_bytes: u64,
    /// A table is cut before it overlaps more than this many bytes of grandparents.
    pub grandparent_bytes: u64,
}

/// How outputs are laid out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    /// A block ends once it has this many bytes, uncompressed.
    pub block_bytes: u64,
    /// Entries per restart point.
    pub restart_interval: u64,
    /// How blocks are compressed: the number in their trailers.
    pub compression: u8,
    /// Bits of the filter per key; 0 for no filter.
    pub filter_bits_per_key: u32,
}

/// The tags of a job's fields. Never reuse a number.
mod tag {
    pub(super) const ID: u32 = 1;
    pub(super) const ATTEMPT: u32 = 2;
    pub(super) const COMPARATOR: u32 = 3;
    pub(super) const INPUT: u32 = 4;
    pub(super) const OUTPUT_LEVEL: u32 = 5;
    pub(super) const SMALLEST_SNAPSHOT: u32 = 6;
    pub(super) const DEEPER: u32 = 7;
    pub(super) const GRAVES: u32 = 8;
    pub(super) const GRAVES_THROUGH: u32 = 9;
    pub(super) const GRANDPARENT: u32 = 10;
    pub(super) const TABLE_BYTES: u32 = 11;
    pub(super) const GRANDPARENT_BYTES: u32 = 12;
    pub(super) const BLOCK_BYTES: u32 = 13;
    pub(super) const RESTART_INTERVAL: u32 = 14;
    pub(super) const COMPRESSION: u32 = 15;
    pub(super) const FILTER_BITS: u32 = 16;
    pub(super) const FROM: u32 = 17;

    /// In an input.
    pub(super) const LEVEL: u32 = 1;
    pub(super) const TABLE: u32 = 2;

    /// In a range of keys, and of a grandparent.
    pub(super) const FIRST: u32 = 1;
    pub(super) const LAST: u32 = 2;
    pub(super) const LENGTH: u32 = 3;
}

/// The tags of a table's fields, in jobs and reports. Never reuse a number.
mod table_tag {
    pub(super) const NUMBER: u32 = 1;
    pub(super) const FILE_BYTES: u32 = 2;
    pub(super) const SMALLEST: u32 = 3;
    pub(super) const LARGEST: u32 = 4;
    pub(super) const FACTS: u32 = 5;

    pub(super) const SMALLEST_SEQUENCE: u32 = 1;
    pub(super) const LARGEST_SEQUENCE: u32 = 2;
    pub(super) const PURGED_THROUGH: u32 = 3;
    pub(super) const ENTRIES: u32 = 4;
    pub(super) const DELETIONS: u32 = 5;
}

impl Job {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FieldWriter::default();
        out.bytes(tag::ID, &self.id.0)
            .number(tag::ATTEMPT, self.attempt)
            .bytes(tag::COMPARATOR, self.comparator.as_bytes());
        for input in &self.inputs {
            out.group(tag::INPUT, |out| input.put(out));
        }
        out.number(tag::OUTPUT_LEVEL, self.output_level.into())
            .number(tag::SMALLEST_SNAPSHOT, self.smallest_snapshot);
        for (first, last) in &self.deeper {
            out.group(tag::DEEPER, |out| {
                out.bytes(tag::FIRST, first).bytes(tag::LAST, last);
            });
        }
        if !self.graves.checkpoint.is_empty() {
            out.bytes(tag::GRAVES, &self.graves.checkpoint);
        }
        out.number(tag::GRAVES_THROUGH, self.graves.through);
        for grandparent in &self.grandparents {
            out.group(tag::GRANDPARENT, |out| {
                out.bytes(tag::LAST, &grandparent.largest)
                    .number(tag::LENGTH, grandparent.bytes);
            });
        }
        out.number(tag::TABLE_BYTES, self.limits.table_bytes)
            .number(tag::GRANDPARENT_BYTES, self.limits.grandparent_bytes)
            .number(tag::BLOCK_BYTES, self.layout.block_bytes)
            .number(tag::RESTART_INTERVAL, self.layout.restart_interval)
            .number(tag::COMPRESSION, self.layout.compression.into())
            .number(tag::FILTER_BITS, self.layout.filter_bits_per_key.into());
        let Some(from) = &self.from else {
            return seal_for(READER_MIN, JOB_MAGIC, out.finish());
        };
        out.bytes(tag::FROM, from);
        seal_for(READER_MIN_OF_PARTS, JOB_MAGIC, out.finish())
    }

    /// The job of these bytes, or why they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = unseal(JOB_MAGIC, bytes)?;
        let mut job = Self::default();
        while let Some(field) = fields.next()? {
            job.take(&field)?;
        }
        if job.inputs.iter().all(|input| input.tables.is_empty()) {
            return Err(FormatError::malformed(bytes.len(), "the job has no input"));
        }
        if job.limits.table_bytes == 0 || job.layout.block_bytes == 0 {
            let reason = "the job says nothing of the size of tables or blocks";
            return Err(FormatError::malformed(bytes.len(), reason));
        }
        Ok(job)
    }

    fn take(&mut self, field: &Field<'_>) -> Result<(), FormatError> {
        match field.tag {
            tag::ID => self.id = JobId::take(field)?,
            tag::ATTEMPT => self.attempt = field.number()?,
            tag::COMPARATOR => self.comparator = field.text()?,
            tag::INPUT => self.inputs.push(InputLevel::take(field.group())?),
            tag::OUTPUT_LEVEL => self.output_level = field.small()?,
            tag::SMALLEST_SNAPSHOT => self.smallest_snapshot = field.number()?,
            tag::DEEPER => self.deeper.push(range(field.group())?),
            tag::GRAVES => self.graves.checkpoint = field.bytes.to_vec(),
            tag::GRAVES_THROUGH => self.graves.through = field.number()?,
            tag::GRANDPARENT => self.grandparents.push(Grandparent::take(field.group())?),
            tag::TABLE_BYTES => self.limits.table_bytes = field.number()?,
            tag::GRANDPARENT_BYTES => self.limits.grandparent_bytes = field.number()?,
            tag::BLOCK_BYTES => self.layout.block_bytes = field.number()?,
            tag::RESTART_INTERVAL => self.layout.restart_interval = field.number()?,
            tag::COMPRESSION => {
                let compression = u8::try_from(field.small()?);
                self.layout.compression =
                    compression.map_err(|_| field.malformed("no compression has such a number"))?;
            }
            tag::FILTER_BITS => self.layout.filter_bits_per_key = field.small()?,
            tag::FROM => self.from = Some(field.bytes.to_vec()),
            _ => {}
        }
        Ok(())
    }

    /// All input tables, level by level.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.inputs.iter().flat_map(|input| &input.tables)
    }
}

impl InputLevel {
    fn put(&self, out: &mut FieldWriter) {
        out.number(tag::LEVEL, self.level.into());
        for table in &self.tables {
            out.group(tag::TABLE, |out| table.put(out));
        }
    }

    fn take(mut fields: Fields<'_>) -> Result<Self, FormatError> {
        let mut input = Self::default();
        while let Some(field) = fields.next()? {
            match field.tag {
                tag::LEVEL => input.level = field.small()?,
                tag::TABLE => input.tables.push(Table::take(&field)?),
                _ => {}
            }
        }
        Ok(input)
    }
}

impl Table {
    pub(super) fn put(&self, out: &mut FieldWriter) {
        out.number(table_tag::NUMBER, self.number)
            .number(table_tag::FILE_BYTES, self.file_bytes);
        out.bytes(table_tag::SMALLEST, &self.smallest)
            .bytes(table_tag::LARGEST, &self.largest);
        if let Some(facts) = self.facts {
            out.group(table_tag::FACTS, |out| facts.put(out));
        }
    }

    pub(super) fn take(group: &Field<'_>) -> Result<Self, FormatError> {
        let mut table = Self::default();
        let mut fields = group.group();
        while let Some(field) = fields.next()? {
            match field.tag {
                table_tag::NUMBER => table.number = field.number()?,
                table_tag::FILE_BYTES => table.file_bytes = field.number()?,
                table_tag::SMALLEST => table.smallest = field.bytes.to_vec(),
                table_tag::LARGEST => table.largest = field.bytes.to_vec(),
                table_tag::FACTS => table.facts = Some(Facts::take(field.group())?),
                _ => {}
            }
        }
        if table.smallest.len().min(table.largest.len()) < TRAILER_BYTES {
            return Err(group.malformed("a bound of a table is no internal key"));
        }
        Ok(table)
    }
}

impl Facts {
    fn put(&self, out: &mut FieldWriter) {
        out.number(table_tag::SMALLEST_SEQUENCE, self.smallest_sequence)
            .number(table_tag::LARGEST_SEQUENCE, self.largest_sequence)
            .number(table_tag::PURGED_THROUGH, self.purged_through)
            .number(table_tag::ENTRIES, self.entries)
            .number(table_tag::DELETIONS, self.deletions);
    }

    fn take(mut fields: Fields<'_>) -> Result<Self, FormatError> {
        let mut facts = Self::default();
        while let Some(field) = fields.next()? {
            let place = match field.tag {
                table_tag::SMALLEST_SEQUENCE => &mut facts.smallest_sequence,
                table_tag::LARGEST_SEQUENCE => &mut facts.largest_sequence,
                table_tag::PURGED_THROUGH => &mut facts.purged_through,
                table_tag::ENTRIES => &mut facts.entries,
                table_tag::DELETIONS => &mut facts.deletions,
                _ => continue,
            };
            *place = field.number()?;
        }
        Ok(facts)
    }
}

impl Grandparent {
    fn take(mut fields: Fields<'_>) -> Result<Self, FormatError> {
        let mut grandparent = Self::default();
        while let Some(field) = fields.next()? {
            match field.tag {
                tag::LAST => grandparent.largest = field.bytes.to_vec(),
                tag::LENGTH => grandparent.bytes = field.number()?,
                _ => {}
            }
        }
        Ok(grandparent)
    }
}

fn range(mut fields: Fields<'_>) -> Result<(Vec<u8>, Vec<u8>), FormatError> {
    let mut range = (Vec::new(), Vec::new());
    while let Some(field) = fields.next()? {
        match field.tag {
            tag::FIRST => range.0 = field.bytes.to_vec(),
            tag::LAST => range.1 = field.bytes.to_vec(),
            _ => {}
        }
    }
    Ok(range)
}
