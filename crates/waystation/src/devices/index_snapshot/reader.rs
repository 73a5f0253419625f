//! Reads an index snapshot, section by section.

use super::{
    END_BYTES, End, FRAME_BYTES, HEADER_BYTES, Header, SECTION_BYTES_MAX, section_checksum,
};
use crate::error::{Error, Result};
use crate::storage::{Area, File, OpenMode, Storage, Transfer};
use crate::sync::Arc;
use std::path::Path;
use waystation_format::FormatError;
use waystation_format::varint::Reader;

/// The bytes that are brought near ahead of the section that is read.
const AHEAD_BYTES: u64 = 8 << 20;

/// An index snapshot that is being read.
pub(crate) struct SnapshotReader {
    file: Arc<dyn File>,
    pub(crate) header: Header,
    /// Where the section begins that was read last, and the next one.
    begun: u64,
    at: u64,
    bytes: u64,
    /// The bytes that are on their way, or here.
    prefetched: u64,
}

/// What comes next in an index snapshot.
pub(crate) enum Next {
    /// The content of a section, which checks.
    Section(Vec<u8>),
    /// Nothing more.
    End(End),
}

impl SnapshotReader {
    /// Opens the index snapshot at `path`; `None` if there is none.
    pub(crate) fn open(storage: &dyn Storage, path: &Path) -> Result<Option<Self>> {
        let opened = storage.open(path, OpenMode::Read, Transfer::Buffered, Area::Tables);
        let file = match opened {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        let bytes = file.size()?;
        let mut header = vec![0; HEADER_BYTES];
        let read = file.read_at(&mut header, 0)?;
        let header = Header::decode(&header[..read]).map_err(|error| damaged(&*file, 0, &error))?;
        let header = header.ok_or_else(|| Error::Incompatible {
            path: path.to_owned(),
            reason: "a newer version wrote it; use that one".into(),
        })?;
        Ok(Some(Self {
            file,
            header,
            begun: 0,
            at: HEADER_BYTES as u64,
            bytes,
            prefetched: 0,
        }))
    }

    /// What follows; nothing does after the end.
    pub(crate) fn read_next(&mut self) -> Result<Next> {
        if self.at + AHEAD_BYTES / 2 > self.prefetched && self.prefetched < self.bytes {
            self.file.prefetch(self.prefetched, AHEAD_BYTES);
            self.prefetched += AHEAD_BYTES;
        }
        self.begun = self.at;
        let frame = self.take(FRAME_BYTES)?;
        let mut fields = Reader::new(&frame);
        let fields = fields
            .fixed_u32("length")
            .and_then(|length| Ok((length as usize, fields.fixed_u32("checksum")?)));
        let (length, checksum) = fields.map_err(|error| self.damaged(&error))?;
        if length > SECTION_BYTES_MAX {
            return Err(self.wrong("a section is longer than any can be"));
        }
        let is_end = length == 0;
        self.at += FRAME_BYTES as u64;
        let content = self.take(if is_end { END_BYTES } else { length })?;
        self.at += content.len() as u64;
        if section_checksum(&content, self.begun) != checksum {
            return Err(self.wrong("a section's checksum does not match"));
        }
        if !is_end {
            return Ok(Next::Section(content));
        }
        if self.at != self.bytes {
            return Err(self.wrong("bytes follow its end"));
        }
        let end = End::decode(&content);
        end.map(Next::End).map_err(|error| self.damaged(&error))
    }

    /// The next `length` bytes.
    fn take(&self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let read = self.file.read_at(&mut bytes, self.at)?;
        if read < length {
            return Err(self.wrong("it ends within a section"));
        }
        Ok(bytes)
    }

    /// The error for something in the section that was read last, or in what ought to be one.
    pub(crate) fn damaged(&self, error: &FormatError) -> Error {
        damaged(&*self.file, self.begun, error)
    }

    /// The same.
    pub(crate) fn wrong(&self, reason: &str) -> Error {
        Error::corruption(self.file.path(), self.begun, reason)
    }
}

fn damaged(file: &dyn File, offset: u64, error: &FormatError) -> Error {
    let reason = error.reason().to_owned();
    Error::corruption(file.path(), offset + error.offset(), reason)
}
