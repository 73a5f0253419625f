//! Records of one segment that lie so near together that they are read at once.

use super::Pass;
use super::Stored;
use super::wanted::{Start, Wanted, end_of};
use crate::log::segment::SegmentFile;
use crate::storage::AlignedBuffer;
use crate::sync::Arc;
use std::ops::Range;

/// Reading on over a gap of this size costs no more than another read (bytes).
const GAP_BYTES_MAX: u64 = 16 * 1024;
/// Nor does it over one of this size (bytes) for whoever comes by once, with much to read, while others have the
/// processors: after each read he waits for one of them.
const ONCE_GAP_BYTES_MAX: u64 = 128 * 1024;
/// At most this much is read at once (bytes): behind a longer read, those of others wait in the device.
const STRETCH_BYTES_MAX: u64 = 256 * 1024;

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
        let gap_bytes_max = match self.pass {
            Pass::Often => GAP_BYTES_MAX,
            Pass::Once => ONCE_GAP_BYTES_MAX,
        };
        self.file.as_ref().is_some_and(|own| Arc::ptr_eq(own, file))
            && units.start <= self.units.end + gap_bytes_max
            && units.end - self.units.start <= STRETCH_BYTES_MAX
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
        bytes as u64 <= STRETCH_BYTES_MAX && {
            let end = self.file.offset_of(start.units(bytes).end);
            end <= self.file.header.capacity
        }
    }
}
