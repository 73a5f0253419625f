//! The description of a merge: plain data, complete.
//!
//! An executor needs the job and the files, and nothing of the engine's state: bounds and sequence limits
//! are frozen in it. It may run twice or in two places; only its result is ever installed, once. Its bytes are in
//! `message`.

use super::Hidden;
use crate::error::{Error, Result};
use crate::sst::{Compression, TableMeta, TableSettings};

/// A merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// The inputs, the shallowest level first.
    pub inputs: Vec<JobInput>,
    /// Only user keys from this one on are merged: the tables of the others are made already. `None`: all are.
    pub from: Option<Vec<u8>>,
    /// The level the outputs will stand in.
    pub output_level: usize,
    /// No reader sees a version that has a newer one at or below this sequence number.
    pub smallest_snapshot: u64,
    /// User-key ranges, sorted and disjoint, which levels below the output level may hold: within them a
    /// deletion must stay.
    pub deeper: Vec<(Vec<u8>, Vec<u8>)>,
    /// What graves hide from all readers.
    pub hidden: Hidden,
    /// The tables of the level below the output level within the job's range, by key.
    pub grandparents: Vec<Grandparent>,
    /// Where outputs are cut.
    pub limits: OutputLimits,
    /// How outputs are laid out.
    pub layout: OutputLayout,
}

/// The tables a job takes from one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobInput {
    /// The level.
    pub level: usize,
    /// Its tables: newest first in level 0, by key below.
    pub tables: Vec<TableMeta>,
}

/// A table that an output will be merged with later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grandparent {
    /// Its last user key.
    pub largest: Vec<u8>,
    /// Its length.
    pub bytes: u64,
}

/// Where outputs are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputLimits {
    /// A table is cut at the first new user key after this many bytes.
    pub table_bytes: u64,
    /// A table is cut before it overlaps more than this many bytes of grandparents.
    pub grandparent_bytes: u64,
}

/// How outputs are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputLayout {
    /// A block ends once it has this many bytes, uncompressed.
    pub block_bytes: u64,
    /// Entries per restart point.
    pub restart_interval: u64,
    /// How blocks are compressed: the number in their trailers.
    pub compression: u8,
    /// Bits of the filter per key; 0 for no filter.
    pub filter_bits_per_key: u32,
}

impl From<&TableSettings> for OutputLayout {
    fn from(settings: &TableSettings) -> Self {
        Self {
            block_bytes: settings.block_bytes as u64,
            restart_interval: settings.restart_interval as u64,
            compression: settings.compression as u8,
            filter_bits_per_key: settings.filter_bits_per_key,
        }
    }
}

impl Job {
    /// How its outputs are to be written, but for the order of keys, or why this version cannot.
    pub(crate) fn table_settings(&self) -> Result<TableSettings> {
        let refuse = |reason| Err(Error::InvalidArgument(format!("a compaction job {reason}")));
        let layout = self.layout;
        let Some(compression) = Compression::from_byte(layout.compression) else {
            return refuse(format!(
                "asks for compression {}, which is unknown",
                layout.compression
            ));
        };
        Ok(TableSettings {
            block_bytes: usize::try_from(layout.block_bytes).unwrap_or(usize::MAX),
            restart_interval: usize::try_from(layout.restart_interval).unwrap_or(usize::MAX),
            compression,
            filter_bits_per_key: layout.filter_bits_per_key,
            purged_through: self.purged_through(),
            ..TableSettings::default()
        })
    }

    /// All input tables, level by level.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableMeta> {
        self.inputs.iter().flat_map(|input| &input.tables)
    }

    /// Graves up to this number were applied to all inputs, and so to all outputs.
    pub(crate) fn purged_through(&self) -> u64 {
        let known = |table: &TableMeta| table.facts().map_or(0, |facts| facts.purged_through);
        let before = self.tables().map(known).min().unwrap_or(0);
        before.max(self.hidden.through)
    }

    /// No input has a version below this number, for all that is known.
    pub(crate) fn smallest_sequence(&self) -> u64 {
        let known = |table: &TableMeta| table.facts().map_or(0, |facts| facts.smallest_sequence);
        self.tables().map(known).min().unwrap_or(0)
    }

    /// Bytes of all inputs.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.tables().map(|table| table.file_bytes).sum()
    }
}
