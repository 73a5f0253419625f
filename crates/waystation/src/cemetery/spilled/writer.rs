//! Writing a spill file, grave by grave.

use super::SpillDirectory;
use super::label::{GraveKind, SpillLabel};
use crate::cemetery::points::hash;
use crate::cemetery::sorted::Grave;
use crate::error::Result;
use crate::sst::{TableBuilder, TableSettings};
use waystation_format::key::{self, ValueKind};
use waystation_format::order::Order;
use waystation_format::varint::put_u64;

/// The length of a data block, about.
const BLOCK_BYTES: usize = 4 << 10;
/// Bits of a spill file's filter per grave: who has nothing to find seldom reads.
const FILTER_BITS: u32 = 10;
/// A label has at most so many dates.
const DATES_MAX: usize = 64;

/// Writes a spill file.
pub(crate) struct SpillWriter {
    builder: TableBuilder,
    label: SpillLabel,
    /// The sample of dates, and of which keys' hashes: one of `stride`, wherever they lie.
    sample: Vec<(u64, u64)>,
    stride: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl SpillWriter {
    /// Begins spill file `number`.
    pub(crate) fn create(site: &SpillDirectory, number: u64, kind: GraveKind) -> Result<Self> {
        let settings = TableSettings {
            block_bytes: BLOCK_BYTES,
            filter_bits_per_key: FILTER_BITS,
            purged_through: 0,
            order: Order::Bytewise,
            ..site.settings
        };
        let path = site.path(number);
        Ok(Self {
            builder: TableBuilder::create(&site.storage, &path, number, settings)?,
            label: SpillLabel {
                number,
                file_bytes: 0,
                graves: 0,
                kind,
                promoted_through: 0,
                sequences: (u64::MAX, 0),
                numbers: (u64::MAX, 0),
                first: Vec::new(),
                last: Vec::new(),
                dates: Vec::new(),
            },
            sample: Vec::new(),
            stride: 1,
            key: Vec::new(),
            value: Vec::new(),
        })
    }

    /// Puts a grave behind the last one: by key, of one key the latest first.
    pub(crate) fn add(&mut self, grave: &Grave<'_>) -> Result<()> {
        let label = &mut self.label;
        self.key.clear();
        self.value.clear();
        let number = match label.kind {
            GraveKind::Counting => {
                key::append(
                    &mut self.key,
                    grave.key,
                    grave.sequence,
                    ValueKind::Deletion,
                );
                grave.purge_through() - grave.sequence
            }
            GraveKind::Dated => {
                key::append(&mut self.key, grave.key, grave.sequence, ValueKind::Value);
                grave.date()
            }
        };
        if number > 0 {
            put_u64(&mut self.value, number);
        }
        self.builder.add(&self.key, &self.value)?;
        if label.graves == 0 {
            label.first = grave.key.to_vec();
        }
        let place = hash(grave.key) >> 32;
        if label.kind == GraveKind::Dated && place.is_multiple_of(self.stride) {
            self.sample.push((grave.date(), place));
            while self.sample.len() > DATES_MAX {
                self.stride *= 2;
                let stride = self.stride;
                self.sample
                    .retain(|(_, place)| place.is_multiple_of(stride));
            }
        }
        label.last.clear();
        label.last.extend_from_slice(grave.key);
        label.graves += 1;
        let widen = |(low, high): (u64, u64), it: u64| (low.min(it), high.max(it));
        label.sequences = widen(label.sequences, grave.sequence);
        label.numbers = widen(label.numbers, grave.number);
        Ok(())
    }

    /// Completes it and makes its content durable; its name is once its directory is synced.
    pub(crate) fn finish(mut self) -> Result<SpillLabel> {
        self.label.dates = self.sample.iter().map(|it| it.0).collect();
        self.label.dates.sort_unstable();
        self.label.file_bytes = self.builder.finish()?.file_bytes;
        Ok(self.label)
    }

    /// Gives it up.
    pub(crate) fn abandon(self) {
        if let Err(error) = self.builder.abandon() {
            log::warn!("a spill file that was given up stays for now: {error}");
        }
    }
}
