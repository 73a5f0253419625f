//! Reading the native format, one block at a time.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use waystation_format::checksum;

use super::{BLOCK_ROWS, END_MAGIC, MAGIC, TRAILER_BYTES, column};
use crate::error::{Error, Result};
use crate::event::{Request, TraceInfo};

/// The largest plausible block: rows x the longest row, with room.
const STORED_BYTES_MAX: u32 = 64 << 20;

/// Reads a trace block by block; memory is one block.
pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    at: u64,
    info: TraceInfo,
    stored: Vec<u8>,
    plain: Vec<u8>,
    before_ns: u64,
}

impl Reader {
    /// Opens a trace and reads its index.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::Missing(format!(
                "there is no trace {0}: `waystation place record -o {0}` makes one, or `place import -o {0}` from one of another tool",
                path.display()
            )),
            _ => Error::io("open", path, source),
        })?;
        let mut reader = Self {
            path: path.to_path_buf(),
            file: BufReader::with_capacity(1 << 20, file),
            at: 0,
            info: TraceInfo::default(),
            stored: Vec::new(),
            plain: Vec::new(),
            before_ns: 0,
        };
        reader.read_index()?;
        Ok(reader)
    }

    /// Whether the file begins as a native trace does.
    pub fn recognises(path: &Path) -> bool {
        let mut magic = [0; 8];
        File::open(path)
            .and_then(|mut file| file.read_exact(&mut magic))
            .is_ok()
            && &magic == MAGIC
    }

    /// What is known about the trace.
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// The description, when the rows are no longer needed.
    pub fn into_info(self) -> TraceInfo {
        self.info
    }

    /// Replaces `rows` by the next block; `false` at the end.
    pub fn next_block(&mut self, rows: &mut Vec<Request>) -> Result<bool> {
        let block_at = self.at;
        let count = self.read_stored()?;
        if count == 0 {
            rows.clear();
            return Ok(false);
        }
        if count > BLOCK_ROWS {
            return Err(self.damaged(
                block_at,
                "a block announces more rows than a block may hold",
            ));
        }
        if column::decode(&self.plain, count, rows).is_none() {
            return Err(self.damaged(block_at, "a block's columns do not decode"));
        }
        let areas = self.info.areas.len();
        let comms = self.info.comms.len();
        if rows
            .iter()
            .any(|row| usize::from(row.area) >= areas || row.comm as usize >= comms)
        {
            return Err(self.damaged(
                block_at,
                "a row names an area or command that the index does not have",
            ));
        }
        if rows
            .first()
            .is_some_and(|row| row.issue_ns < self.before_ns)
        {
            return Err(self.damaged(block_at, "the clock goes backwards between two blocks"));
        }
        self.before_ns = rows.last().map_or(0, |row| row.issue_ns);
        Ok(true)
    }

    fn read_index(&mut self) -> Result<()> {
        let bytes = self
            .file
            .seek(SeekFrom::End(0))
            .map_err(|source| Error::io("seek", &self.path, source))?;
        self.file
            .rewind()
            .map_err(|source| Error::io("seek", &self.path, source))?;
        let mut magic = [0; 8];
        if bytes < 8 || self.read(&mut magic).is_err() || &magic != MAGIC {
            return Err(self.damaged(
                0,
                "it does not begin with WSTRACE1; `waystation place import` reads other formats",
            ));
        }
        let mut trailer = [0; TRAILER_BYTES as usize];
        if bytes < 8 + TRAILER_BYTES {
            return Err(self.damaged(
                bytes,
                "it ends without its index: the recording was not finished",
            ));
        }
        self.seek(bytes - TRAILER_BYTES)?;
        self.read(&mut trailer)?;
        let (end_at, magic) = trailer.split_at(8);
        let end_at = u64::from_le_bytes(end_at.try_into().unwrap_or_default());
        if magic != END_MAGIC || end_at < 8 || end_at >= bytes {
            return Err(self.damaged(
                bytes,
                "it ends without its index: the recording was not finished",
            ));
        }
        self.seek(end_at)?;
        if self.read_stored()? != 0 {
            return Err(self.damaged(end_at, "its trailer does not point to the index"));
        }
        self.info = serde_json::from_slice(&self.plain).map_err(|error| {
            self.damaged(end_at, &format!("its index does not parse ({error})"))
        })?;
        self.seek(8)
    }

    /// Reads one stored block into `plain` and returns its row count.
    fn read_stored(&mut self) -> Result<usize> {
        let block_at = self.at;
        let mut head = [0; 12];
        self.read(&mut head)?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (rows, stored_bytes, checksum) = (word(0), word(4), word(8));
        if stored_bytes > STORED_BYTES_MAX {
            return Err(self.damaged(block_at, "a block announces an implausible size"));
        }
        let mut stored = std::mem::take(&mut self.stored);
        stored.resize(stored_bytes as usize, 0);
        self.read(&mut stored)?;
        if checksum::crc32c(&stored) != checksum {
            return Err(self.damaged(block_at, "a block's checksum does not match its bytes"));
        }
        self.plain.clear();
        let mut decoder = zstd::Decoder::new(stored.as_slice())
            .map_err(|source| Error::io("decompress", &self.path, source))?;
        // Bounded, so that a hostile block cannot ask for all memory.
        let plain_max = u64::from(STORED_BYTES_MAX) * 4;
        let read = decoder
            .by_ref()
            .take(plain_max)
            .read_to_end(&mut self.plain);
        drop(decoder);
        self.stored = stored;
        match read {
            Ok(bytes) if (bytes as u64) < plain_max => Ok(rows as usize),
            _ => Err(self.damaged(block_at, "a block does not decompress")),
        }
    }

    fn seek(&mut self, to: u64) -> Result<()> {
        self.at = to;
        self.file
            .seek(SeekFrom::Start(to))
            .map(|_| ())
            .map_err(|source| Error::io("seek", &self.path, source))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        if self.file.read_exact(bytes).is_err() {
            return Err(self.damaged(self.at, "it ends in the middle of a block"));
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn damaged(&self, offset: u64, reason: &str) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            offset,
            reason: reason.to_owned(),
        }
    }
}
