//! A segment file as the log's writer holds it: created or recycled, filled with blocks, sealed by an index.
//!
//! A recycled file keeps its length and its written extents, so that writing into it again costs the file
//! system no metadata. Its old blocks and footer name another segment number, which is never used twice.

use crate::error::{Error, Result};
use crate::storage::{AlignedBuffer, Area, File, OpenMode, Storage, Transfer};
use crate::sync::Arc;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use waystation_format::log::{
    IndexEntry, SEGMENT_HEADER_BYTES, SegmentFooter, SegmentHeader, UNIT_BYTES, encode_index,
    tail_bytes,
};

/// A segment is so many times as long as the one before, up to a whole one: few are made until then.
pub(super) const LONGER: u64 = 4;

/// How long segments are (bytes).
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentLengths {
    /// At most, but for records that are longer.
    pub(crate) whole: u64,
    /// At first, and where less than `kept_beside` is left beside a longer one.
    pub(crate) short: u64,
    pub(crate) kept_beside: u64,
}

impl SegmentLengths {
    /// The length for the segment in `dir` after one of `before` bytes (0 for the first one of a life), which is to use the file
    /// `spare` again if there is one. A life begins with a short segment, and they become longer: so a database takes little
    /// room until it writes much.
    pub(super) fn after(
        &self,
        before: u64,
        (storage, dir): (&dyn Storage, &Path),
        spare: Option<&Path>,
    ) -> u64 {
        let most = storage.segment_bytes_max(spare).min(self.whole);
        let most = most.max(self.short);
        let longer = before.saturating_mul(LONGER).clamp(self.short, most);
        // What cannot be looked at, its creation will tell.
        let free = storage.free_bytes(dir).unwrap_or(u64::MAX);
        if free >= longer.saturating_add(self.kept_beside) {
            longer
        } else {
            self.short
        }
    }
}

/// A file that is ready to become a segment: named, as long as it will be, without a header yet.
pub(super) struct BlankSegment {
    pub(super) number: u64,
    pub(super) file: Arc<dyn File>,
    pub(super) path: PathBuf,
    pub(super) capacity: u64,
    /// Whether every extent of the file has been written in an earlier use.
    initialised: bool,
}

impl BlankSegment {
    /// Creates the file `path` for segment `number`, from `recycled` where there is such a file, of any length.
    pub(super) fn create(
        storage: &dyn Storage,
        path: PathBuf,
        number: u64,
        capacity: u64,
        recycled: Option<&Path>,
        transfer: Transfer,
    ) -> Result<Self> {
        let mode = match recycled {
            Some(old) => {
                storage.rename(old, &path)?;
                OpenMode::ReadWrite
            }
            None => OpenMode::Create,
        };
        // Its name is durable before anything is written: a segment that another one names and that is not there
        // was removed by an owner, not by a power cut. (Nor do bytes that are written to a recycled file show up under
        // the old name.)
        let created = storage
            .open(&path, mode, transfer, Area::Journal)
            .and_then(|file| {
                let written = file.size()?;
                let capacity = capacity.max(written);
                file.preallocate(capacity)?;
                storage.sync_dir(path.parent().unwrap_or(Path::new("")))?;
                Ok((file, capacity, written == capacity))
            });
        match created {
            Ok((file, capacity, is_written)) => Ok(Self {
                number,
                file,
                path,
                capacity,
                initialised: recycled.is_some() && is_written,
            }),
            Err(error) => {
                // An unusable file must not take the space that the next attempt needs.
                let _ = storage.remove(&path);
                Err(error)
            }
        }
    }

    /// Makes it the segment that goes on at `start`.
    pub(super) fn begin(self, start: &Start, incarnation: u64) -> Segment {
        let start_lsn = start.lsn;
        let header = SegmentHeader {
            number: self.number,
            incarnation,
            start_lsn,
            capacity: self.capacity,
            durable_lsn: start.durable_lsn,
            first_sequence: start.first_sequence,
            previous: start.previous,
        };
        Segment {
            initialised_lsn: if self.initialised {
                u64::MAX
            } else {
                start_lsn
            },
            file: Arc::new(SegmentFile {
                file: self.file,
                path: self.path,
                header,
            }),
            blocks: Vec::new(),
            end_lsn: start_lsn,
            file_bytes: self.capacity,
            half_lsn: start_lsn + self.capacity / 2,
        }
    }
}

/// Where in the stream a segment begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub(super) lsn: u64,
    /// The sequence number of the first record that starts there or later.
    pub(super) first_sequence: u64,
    pub(super) durable_lsn: u64,
    /// The number of the segment that holds the bytes before; 0 for none.
    pub(super) previous: u64,
}

/// An open segment file and where it lies in the stream.
pub(super) struct SegmentFile {
    pub(super) file: Arc<dyn File>,
    pub(super) path: PathBuf,
    pub(super) header: SegmentHeader,
}

impl SegmentFile {
    /// Gives the file that was written under the name `draft` its own, and opens it by that, as errors name the path that
    /// a file was opened by.
    pub(super) fn take_name(
        &self,
        storage: &dyn Storage,
        draft: &Path,
        transfer: Transfer,
    ) -> Result<Arc<Self>> {
        storage.rename(draft, &self.path)?;
        Ok(Arc::new(Self {
            file: storage.open(&self.path, OpenMode::ReadWrite, transfer, Area::Journal)?,
            path: self.path.clone(),
            header: self.header,
        }))
    }

    /// Where the byte at `lsn` lies in the file.
    pub(super) fn offset_of(&self, lsn: u64) -> u64 {
        SEGMENT_HEADER_BYTES as u64 + (lsn - self.header.start_lsn)
    }

    /// Writes the header unit.
    pub(super) fn write_header(&self) -> Result<()> {
        let mut unit = AlignedBuffer::zeroed(UNIT_BYTES);
        self.header.encode_into(unit.as_mut_slice());
        self.file.write_at(&unit, 0)
    }

    /// Writes index and footer at the very end of the file.
    pub(super) fn write_footer(&self, footer: &Footer) -> Result<()> {
        let end = footer.file_bytes;
        let index_offset = end - tail_bytes(footer.blocks.len()) as u64;
        let tail = encode_index(
            &footer.blocks,
            &SegmentFooter {
                number: self.header.number,
                incarnation: self.header.incarnation,
                blocks: footer.blocks.len() as u32,
                end_lsn: footer.end_lsn,
                last_sequence: footer.last_sequence,
                index_offset,
                durable_lsn: footer.durable_lsn,
                next: footer.next,
            },
        );
        let mut units = AlignedBuffer::zeroed(tail.len().next_multiple_of(UNIT_BYTES));
        let start = units.len() - tail.len();
        units.as_mut_slice()[start..].copy_from_slice(&tail);
        self.file.write_at(&units, end - units.len() as u64)
    }

    /// Fills `[lsn, lsn + len)` with zeros.
    pub(super) fn zero(&self, lsn: u64, len: u64) -> Result<()> {
        self.file
            .write_at(&AlignedBuffer::zeroed(len as usize), self.offset_of(lsn))
    }

    /// Reads `[lsn, lsn + len)` back.
    pub(super) fn read(&self, lsn: u64, len: usize) -> Result<AlignedBuffer> {
        let mut bytes = AlignedBuffer::zeroed(len);
        self.read_into(lsn, bytes.as_mut_slice())?;
        Ok(bytes)
    }

    /// Fills `bytes` with what lies from `lsn` on. As [`read`](Self::read).
    pub(super) fn read_into(&self, lsn: u64, bytes: &mut [u8]) -> Result<()> {
        let offset = self.offset_of(lsn);
        if self.file.read_at(bytes, offset)? < bytes.len() {
            let reason = "the file ends too early";
            return Err(Error::corruption(&self.path, offset, reason));
        }
        Ok(())
    }
}

/// What a sealed segment's footer will say.
pub(super) struct Footer {
    /// The length of the file.
    pub(super) file_bytes: u64,
    pub(super) blocks: Vec<IndexEntry>,
    pub(super) end_lsn: u64,
    pub(super) last_sequence: u64,
    pub(super) durable_lsn: u64,
    /// The number of the segment in which the log goes on.
    pub(super) next: u64,
}

/// The segment being filled.
pub(super) struct Segment {
    pub(super) file: Arc<SegmentFile>,
    pub(super) blocks: Vec<IndexEntry>,
    /// Where the next block goes.
    pub(super) end_lsn: u64,
    /// Below this position the file's extents have been written to: writing there again changes no metadata.
    initialised_lsn: u64,
    /// The length of the file: the capacity, or less if it was cut.
    file_bytes: u64,
    /// Behind this position the next segment should be made ready.
    half_lsn: u64,
}

/// How far ahead of a small synced write a fresh file is filled with zeros.
const ZEROS_AHEAD: u64 = 1024 * 1024;

impl Segment {
    /// Whether a block of `length` bytes still fits, with the index that would then be needed.
    pub(super) fn fits(&self, length: u32) -> bool {
        self.length_for(u64::from(length)) <= self.file_bytes
    }

    /// The length that its file needs for another block of `more` bytes.
    fn length_for(&self, more: u64) -> u64 {
        self.file.offset_of(self.end_lsn) + more + self.next_index_bytes()
    }

    /// The bytes of the index with another block.
    fn next_index_bytes(&self) -> u64 {
        tail_bytes(self.blocks.len() + 1).next_multiple_of(UNIT_BYTES) as u64
    }

    /// The length of its file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Whether it has less room than its header says, as nothing was written for long.
    pub(super) fn is_cut(&self) -> bool {
        self.file_bytes < self.file.header.capacity
    }

    /// The length at which it has room for another `left` bytes, if that is shorter by as much at least.
    pub(super) fn length_with(&self, left: u64) -> Option<u64> {
        let bytes = self.length_for(left);
        (bytes + left <= self.file_bytes).then_some(bytes)
    }

    /// Notes that the file was cut to `bytes`, as [`length_with`](Self::length_with) says.
    pub(super) fn note_cut(&mut self, bytes: u64) {
        let left = bytes - self.file.offset_of(self.end_lsn);
        self.file_bytes = bytes;
        self.half_lsn = self.end_lsn + left / 2;
    }

    /// What to fill with zeros (position and length) before a small write that ends where the segment now does is synced.
    ///
    /// The first write to a preallocated extent changes the file system's metadata, and a sync then waits for
    /// its journal too: twice as long. One write of zeros saves that for the syncs that follow.
    pub(super) fn zeros_due(&mut self) -> Option<(u64, u64)> {
        if self.end_lsn <= self.initialised_lsn {
            return None;
        }
        let room = self.file_bytes - self.file.offset_of(self.end_lsn);
        let length = room.min(ZEROS_AHEAD);
        self.initialised_lsn = self.end_lsn + length;
        (length > 0).then_some((self.end_lsn, length))
    }

    /// How far the log can go on in it, if it closes no more blocks before.
    pub(super) fn room_until(&self) -> u64 {
        let taken = SEGMENT_HEADER_BYTES as u64 + self.next_index_bytes();
        self.file.header.start_lsn + self.file_bytes.saturating_sub(taken)
    }

    /// Whether so little room is left that the next segment should be made ready.
    pub(super) fn is_half_full(&self) -> bool {
        self.end_lsn > self.half_lsn
    }
}

/// A segment that is not filled any more and whose records are still needed.
pub(super) struct SealedSegment {
    /// The open file, if this life wrote it.
    pub(super) file: Option<Arc<SegmentFile>>,
    /// The open file, if an earlier life wrote it.
    pub(super) inherited: Option<Arc<Inherited>>,
    pub(super) path: PathBuf,
    pub(super) number: u64,
    pub(super) start_lsn: u64,
    pub(super) end_lsn: u64,
    /// What this life wrote.
    pub(super) blocks: Vec<IndexEntry>,
}

/// A segment of an earlier life: where its blocks are is found out when one is read.
pub(super) struct Inherited {
    pub(super) file: Arc<SegmentFile>,
    pub(super) blocks: OnceLock<Vec<IndexEntry>>,
}

impl Segment {
    /// What remains of it when the log goes on elsewhere.
    pub(super) fn as_sealed(&self) -> SealedSegment {
        SealedSegment {
            path: self.file.path.clone(),
            number: self.file.header.number,
            start_lsn: self.file.header.start_lsn,
            end_lsn: self.end_lsn,
            file: Some(Arc::clone(&self.file)),
            inherited: None,
            blocks: self.blocks.clone(),
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::storage::SimStorage;

    const LENGTHS: SegmentLengths = SegmentLengths {
        whole: 1 << 20,
        short: 64 << 10,
        kept_beside: 1 << 20,
    };

    #[test]
    fn segments_begin_short_and_grow_while_there_is_room() {
        let storage = SimStorage::new(1);
        let after = |before| LENGTHS.after(before, (&*storage, Path::new("/")), None);
        assert_eq!(after(0), LENGTHS.short);
        assert_eq!(after(LENGTHS.short), 4 * LENGTHS.short);
        assert_eq!(after(LENGTHS.whole / 2), LENGTHS.whole);
        assert_eq!(after(LENGTHS.whole), LENGTHS.whole);
        // After one that was made for a long record.
        assert_eq!(after(u64::MAX), LENGTHS.whole);
        storage.set_capacity(Some(LENGTHS.kept_beside + 4 * LENGTHS.short));
        assert_eq!(after(LENGTHS.short), 4 * LENGTHS.short);
        assert_eq!(after(4 * LENGTHS.short), LENGTHS.short);
    }

    /// The part of a recycled file that is new has extents that no write has reached.
    #[test]
    fn a_recycled_file_that_grows_is_filled_with_zeros_ahead() {
        let storage = SimStorage::new(2);
        let [old, path] = ["/old", "/new"].map(Path::new);
        let blank = |capacity, recycled| {
            let transfer = Transfer::Buffered;
            BlankSegment::create(&*storage, path.to_owned(), 7, capacity, recycled, transfer)
        };
        let short = blank(LENGTHS.short, None).unwrap();
        assert!(!short.initialised);
        for (capacity, is_written) in [(LENGTHS.short, true), (LENGTHS.whole, false)] {
            storage.rename(path, old).unwrap();
            let blank = blank(capacity, Some(old)).unwrap();
            assert_eq!((blank.capacity, blank.initialised), (capacity, is_written));
            assert_eq!(blank.file.size().unwrap(), capacity);
        }
    }
}
