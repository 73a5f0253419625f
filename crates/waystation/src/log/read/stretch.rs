//! Records of one segment that lie so near together that they are read at once.

use super::Pass;
use super::Stored;
use super::wanted::{Start, Wanted, end_of};
use crate::log::segment::SegmentFile;
use crate::storage::{AlignedBuffer, Haste};
use crate::sync::Arc;
use std::ops::Range;

/// The longest beginning of a record that is read as a part of a stretch (bytes).
const BEGINNING_BYTES_MAX: u64 = 256 * 1024;

/// How long reads are (bytes).
struct Limits {
    /// Reading on over a gap of this size costs no more than another read.
    gap: u64,
    /// At most this much is read at once: behind a longer read, those of others wait in the device.
    stretch: u64,
}

impl From<Pass> for Limits {
    fn from(pass: Pass) -> Self {
        let (gap, stretch) = match pass {
            Pass::Often => (16, 256),
            // Who comes by once has much to read, and where others have the processors he waits for one of them after
            // each read. So there should be few; but nobody is to wait behind what is not very urgent.
            Pass::Once(Haste::None | Haste::Some) => (64, 128),
            Pass::Once(Haste::Much) => (128, 512),
        };
        Self {
            gap: gap * 1024,
            stretch: stretch * 1024,
        }
    }
}

/// See the module.
pub(super) struct Stretch<'a> {
    pub(super) pass: Pass,
    /// `None`: it is empty.
    pub(super) file: Option<Arc<SegmentFile>>,
    /// The units that its records lie in.
    pub(super) units: Range<u64>,
    pub(super) records: Vec<(Start, &'a [Wanted])>,
    /// Memory to read into.
    pub(super) bytes: AlignedBuffer,
}

impl<'a> Stretch<'a> {
    pub(super) fn new(pass: Pass) -> Self {
        Self {
            pass,
            file: None,
            units: 0..0,
            records: Vec::new(),
            bytes: AlignedBuffer::new(),
        }
    }

    /// Whether a record, behind all that are in it, is worth reading together with them.
    pub(super) fn is_near(&self, file: &Arc<SegmentFile>, start: Start, wanted: &[Wanted]) -> bool {
        let units = start.units(end_of(wanted));
        let limits = Limits::from(self.pass);
        self.file.as_ref().is_some_and(|own| Arc::ptr_eq(own, file))
            && units.start <= self.units.end + limits.gap
            && units.end - self.units.start <= limits.stretch
    }

    pub(super) fn add(&mut self, stored: &Stored, start: Start, wanted: &'a [Wanted]) {
        let units = start.units(end_of(wanted));
        if self.file.is_none() {
            self.file = Some(Arc::clone(&stored.file));
            self.units = units;
        } else {
            self.units.end = self.units.end.max(units.end);
        }
        self.records.push((start, wanted));
    }
}

impl Stored {
    /// Whether what is wanted of the record that begins in it can be a part of a stretch: its beginning is short, and
    /// lies in the file.
    pub(super) fn is_short(&self, start: Start, wanted: &[Wanted]) -> bool {
        let bytes = end_of(wanted);
        bytes as u64 <= BEGINNING_BYTES_MAX && {
            let end = self.file.offset_of(start.units(bytes).end);
            end <= self.file.header.capacity
        }
    }
}
