//! Writing the native format.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use waystation_format::checksum;

use super::{BLOCK_ROWS, END_MAGIC, MAGIC, column};
use crate::error::{Error, Result};
use crate::event::{Request, TraceInfo};

/// Fast to write, and within a few percent of the higher levels on these columns.
const ZSTD_LEVEL: i32 = 3;

/// Writes a trace row by row. Nothing appears under the final name before [`Writer::finish`]; a writer that is
/// dropped earlier takes its unfinished file away.
pub struct Writer {
    path: PathBuf,
    unfinished: PathBuf,
    file: BufWriter<File>,
    written: u64,
    rows: Vec<Request>,
    columns: Vec<u8>,
    info: TraceInfo,
    finished: bool,
}

impl Writer {
    /// Creates the file; `info` carries what is known before the first row.
    pub fn create(path: &Path, info: TraceInfo) -> Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".unfinished");
        let unfinished = PathBuf::from(name);
        let file =
            File::create(&unfinished).map_err(|source| Error::io("create", &unfinished, source))?;
        let mut writer = Self {
            path: path.to_path_buf(),
            unfinished,
            file: BufWriter::with_capacity(1 << 20, file),
            written: 0,
            rows: Vec::with_capacity(BLOCK_ROWS),
            columns: Vec::new(),
            info,
            finished: false,
        };
        writer.put(MAGIC)?;
        Ok(writer)
    }

    /// The file until it is finished.
    pub(crate) fn unfinished(&self) -> &Path {
        &self.unfinished
    }

    /// What is known so far; areas and command names may be added while writing.
    pub fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    /// Appends one request, which must not be issued before the last one.
    pub fn push(&mut self, request: Request) -> Result<()> {
        if self
            .rows
            .last()
            .is_some_and(|last| last.issue_ns > request.issue_ns)
        {
            return Err(Error::Usage(format!(
                "the rows of a trace are written in order of issue, and {} ns comes after a later one",
                request.issue_ns
            )));
        }
        self.info.note(&request);
        self.rows.push(request);
        if self.rows.len() == BLOCK_ROWS {
            self.flush_block()?;
        }
        Ok(())
    }

    /// Writes the index and moves the file to its name.
    pub fn finish(mut self) -> Result<TraceInfo> {
        self.flush_block()?;
        let end_at = self.written;
        let json = serde_json::to_vec(&self.info)
            .map_err(|error| Error::io("describe", &self.path, error.into()))?;
        self.put_stored(0, &json)?;
        self.put(&end_at.to_le_bytes())?;
        self.put(END_MAGIC)?;
        self.file
            .flush()
            .map_err(|source| Error::io("write", &self.unfinished, source))?;
        std::fs::rename(&self.unfinished, &self.path)
            .map_err(|source| Error::io("rename", &self.unfinished, source))?;
        self.finished = true;
        Ok(std::mem::take(&mut self.info))
    }

    fn flush_block(&mut self) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut columns = std::mem::take(&mut self.columns);
        columns.clear();
        column::encode(&self.rows, &mut columns);
        self.put_stored(self.rows.len() as u32, &columns)?;
        self.columns = columns;
        self.rows.clear();
        Ok(())
    }

    fn put_stored(&mut self, rows: u32, plain: &[u8]) -> Result<()> {
        let stored = zstd::bulk::compress(plain, ZSTD_LEVEL)
            .map_err(|source| Error::io("compress", &self.path, source))?;
        self.put(&rows.to_le_bytes())?;
        self.put(&(stored.len() as u32).to_le_bytes())?;
        self.put(&checksum::crc32c(&stored).to_le_bytes())?;
        self.put(&stored)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        self.file
            .write_all(bytes)
            .map_err(|source| Error::io("write", &self.unfinished, source))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            // Nothing depends on it: a file of this name is never read.
            let _ = std::fs::remove_file(&self.unfinished);
        }
    }
}
