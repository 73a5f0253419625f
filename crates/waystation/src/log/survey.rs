//! Which segment files a directory holds, and what they say of themselves.
//!
//! A segment's first unit is one of three things: zeros, or the whole header of an earlier use (the file was made
//! ready and not begun), or its own header. The sector that a header lies in is written as a whole or not at
//! all, so anything else is damage.

use crate::directory::{segment_name, segment_number};
use crate::error::{Error, Result};
use crate::storage::{AlignedBuffer, Area, File, OpenMode, Storage, Transfer};
use crate::sync::Arc;
use std::path::{Path, PathBuf};
use waystation_format::log::{
    JournalState, SEGMENT_HEADER_BYTES, SegmentFooter, SegmentHeader, UNIT_BYTES, decode_index,
    tail_bytes,
};

/// A segment file found in the directory.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: SegmentHeader,
}

impl Found {
    pub(super) fn offset_of(&self, lsn: u64) -> u64 {
        SEGMENT_HEADER_BYTES as u64 + (lsn - self.header.start_lsn)
    }

    /// The footer, if the segment was sealed and footer and index check.
    pub(super) fn footer(&self) -> Result<Option<SegmentFooter>> {
        let Some(last) = self.tail(tail_bytes(0))? else {
            return Ok(None);
        };
        let Some(footer) = SegmentFooter::peek(&last).filter(|footer| {
            footer.number == self.header.number && footer.incarnation == self.header.incarnation
        }) else {
            return Ok(None);
        };
        let tail = self.tail(footer.tail_bytes())?;
        Ok(tail
            .and_then(|tail| decode_index(&tail))
            .map(|(_, footer)| footer))
    }

    /// The last `bytes` bytes of the file, which is shorter than its header says if it was cut.
    fn tail(&self, bytes: usize) -> Result<Option<Vec<u8>>> {
        let whole = bytes.next_multiple_of(UNIT_BYTES);
        // Before memory is taken for it.
        let end = self.header.capacity.min(self.file.size()?);
        let Some(offset) = end.checked_sub(whole as u64) else {
            return Ok(None);
        };
        let mut units = AlignedBuffer::zeroed(whole);
        let read = self.file.read_at(units.as_mut_slice(), offset)?;
        Ok((read == whole).then(|| units[whole - bytes..].to_vec()))
    }
}

/// The segments of a directory, by number, and the files that are none.
pub(crate) struct Survey {
    pub(crate) segments: Vec<Found>,
    /// Unfinished or superseded: to be removed.
    pub(crate) leftovers: Vec<PathBuf>,
    /// Of lives that never began.
    pub(crate) uncommitted: Vec<PathBuf>,
    /// The numbers of all files that are named as a segment is, in order.
    pub(crate) numbers: Vec<u64>,
}

impl Survey {
    /// The highest number seen, in use or not.
    pub(crate) fn highest_number(&self) -> u64 {
        self.numbers.last().copied().unwrap_or(0)
    }

    /// Whether there is a file for segment `number`, whatever it holds.
    pub(super) fn has_file(&self, number: u64) -> bool {
        self.numbers.binary_search(&number).is_ok()
    }
}

/// Looks at every segment file of `dir` that belongs to the life in `journal` or an earlier one.
pub(crate) fn survey(
    storage: &dyn Storage,
    dir: &Path,
    journal: &JournalState,
    transfer: Transfer,
) -> Result<Survey> {
    let entries = storage.list(dir)?;
    let numbers = entries
        .iter()
        .filter_map(|entry| segment_number(&entry.name));
    let mut survey = Survey {
        segments: Vec::new(),
        leftovers: Vec::new(),
        uncommitted: Vec::new(),
        numbers: numbers.collect(),
    };
    survey.numbers.sort_unstable();
    for &number in &survey.numbers {
        let path = dir.join(segment_name(number));
        let file = storage.open(&path, OpenMode::Read, transfer, Area::Journal)?;
        let mut unit = AlignedBuffer::zeroed(UNIT_BYTES);
        let read = file.read_at(unit.as_mut_slice(), 0)?;
        match read_header(&path, &unit[..read])? {
            Some(header)
                if header.number == number && header.incarnation <= journal.incarnation =>
            {
                survey.segments.push(Found { path, file, header });
            }
            Some(header) if header.incarnation > journal.incarnation => {
                survey.uncommitted.push(path);
            }
            _ => survey.leftovers.push(path),
        }
    }
    let newest = survey.segments.last().map_or(0, |it| it.header.number);
    if newest < journal.first_segment {
        return Err(missing(dir, journal.first_segment));
    }
    Ok(survey)
}

/// The header in a file's first unit, its own or an earlier one; `None` if there never was one.
fn read_header(path: &Path, unit: &[u8]) -> Result<Option<SegmentHeader>> {
    if let Some(header) = SegmentHeader::decode(unit) {
        return Ok(Some(header));
    }
    if SegmentHeader::is_newer(unit) {
        return Err(Error::Incompatible {
            path: path.to_owned(),
            reason: "the log was written by a newer version; use that one".into(),
        });
    }
    if unit.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    Err(Error::corruption(
        path,
        0,
        "the segment's header is damaged",
    ))
}

/// The error for a segment that should be there.
pub(super) fn missing(dir: &Path, number: u64) -> Error {
    Error::corruption(
        dir.join(segment_name(number)),
        0,
        "the log's segment is missing",
    )
}
