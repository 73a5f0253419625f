//! Lines and bytes of a file, through gzip or zstd when it begins like one, or of standard input ("-").

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A line longer than this is not a trace.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Opens a file for reading, unpacked.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufReader::with_capacity(
            1 << 18,
            std::io::stdin(),
        )));
    }
    let file = File::open(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::Missing(format!(
            "{} is not there: `place import` needs the trace of another tool (\"-\" reads standard input)",
            path.display()
        )),
        _ => Error::io("open", path, source),
    })?;
    let mut plain = BufReader::with_capacity(1 << 18, file);
    let head = plain
        .fill_buf()
        .map_err(|source| Error::io("read", path, source))?;
    if head.starts_with(&[0x1f, 0x8b]) {
        let unpacked = flate2::bufread::MultiGzDecoder::new(plain);
        return Ok(Box::new(BufReader::with_capacity(1 << 18, unpacked)));
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let unpacked = zstd::Decoder::with_buffer(plain)
            .map_err(|source| Error::io("decompress", path, source))?;
        return Ok(Box::new(BufReader::with_capacity(1 << 18, unpacked)));
    }
    Ok(Box::new(plain))
}

/// Numbered lines.
pub(super) struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    bytes: Vec<u8>,
    text: String,
    number: u64,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            path: path.to_path_buf(),
            reader: open(path)?,
            bytes: Vec::new(),
            text: String::new(),
            number: 0,
        })
    }

    /// The next line; bytes that are not UTF-8 become the replacement character.
    pub(super) fn next_line(&mut self) -> Result<Option<&str>> {
        self.bytes.clear();
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX);
        let read = limited
            .read_until(b'\n', &mut self.bytes)
            .map_err(|source| Error::io("read", &self.path, source))?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if read as u64 == LINE_BYTES_MAX {
            return Err(Error::Malformed(format!(
                "{}, line {}: longer than {LINE_BYTES_MAX} bytes, so this is not a text trace",
                self.path.display(),
                self.number
            )));
        }
        while matches!(self.bytes.last(), Some(b'\n' | b'\r')) {
            self.bytes.pop();
        }
        self.text.clear();
        self.text.push_str(&String::from_utf8_lossy(&self.bytes));
        Ok(Some(&self.text))
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }
}
