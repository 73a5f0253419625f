//! Reading a file that another process may own and be writing: buffered, positional, never past its end.
//!
//! For a repair, what the medium cannot read is read as zeros, unit by unit: then it does not check, like other damage.

use crate::error::{Error, Result};
use crate::storage::{
    Area, File, OpenMode, Storage, Transfer, WHOLE_BYTES_MAX, check_whole, resize,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A part of a file that is given up as a whole if it cannot be read.
const UNREADABLE_BYTES: usize = 4096;

/// A file open for inspection, and its length when it was opened.
pub(crate) struct Source {
    file: Arc<dyn File>,
    path: PathBuf,
    bytes: u64,
    /// Whether what cannot be read is read as zeros.
    is_lenient: bool,
}

impl Source {
    pub(crate) fn open(storage: &dyn Storage, path: &Path, area: Area) -> Result<Self> {
        let file = storage.open(path, OpenMode::Read, Transfer::Buffered, area)?;
        let bytes = file.size()?;
        Ok(Self {
            file,
            path: path.to_owned(),
            bytes,
            is_lenient: false,
        })
    }

    /// The same, where what the medium cannot read is read as zeros.
    pub(crate) fn open_lenient(storage: &dyn Storage, path: &Path, area: Area) -> Result<Self> {
        Ok(Self {
            is_lenient: true,
            ..Self::open(storage, path, area)?
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's name, without its directory.
    pub(crate) fn name(&self) -> String {
        name_of(&self.path)
    }

    /// The file's length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Exactly `length` bytes from `offset`; less is damage.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.read_while_there(offset, length)?.ok_or_else(|| {
            let reason = "the file became shorter while it was read";
            Error::corruption(&self.path, offset, reason)
        })
    }

    /// The same; `None` if the file became shorter since it was opened. The log's owner cuts off what a segment does not
    /// use.
    pub(crate) fn read_while_there(&self, offset: u64, length: usize) -> Result<Option<Vec<u8>>> {
        // Checked before anything is allocated: lengths come from files that may be damaged.
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > self.bytes) {
            let reason = format!(
                "{length} bytes are expected here and the file has only {}",
                self.bytes
            );
            return Err(Error::corruption(&self.path, offset, reason));
        }
        if length as u64 > WHOLE_BYTES_MAX {
            let reason = format!(
                "{length} bytes are expected here in one chunk, and none has more than {WHOLE_BYTES_MAX}"
            );
            return Err(Error::corruption(&self.path, offset, reason));
        }
        let mut buffer = Vec::new();
        resize(&mut buffer, length, &self.path)?;
        let read = match self.file.read_at(&mut buffer, offset) {
            Err(error) if self.is_lenient => {
                log::warn!("a part cannot be read and is taken for damaged: {error}");
                self.read_in_units(&mut buffer, offset);
                length
            }
            read => read?,
        };
        Ok((read == length).then_some(buffer))
    }

    /// Reads what can be read; the rest is zeros.
    fn read_in_units(&self, buffer: &mut [u8], offset: u64) {
        let mut at = 0;
        while at < buffer.len() {
            let from = offset + at as u64;
            let unit = UNREADABLE_BYTES - (from % UNREADABLE_BYTES as u64) as usize;
            let end = buffer.len().min(at + unit);
            let chunk = &mut buffer[at..end];
            if self.file.read_at(chunk, from).is_err() {
                chunk.fill(0);
            }
            at = end;
        }
    }

    /// The whole file, if it is not longer than one of its name can be.
    pub(crate) fn read_all(&self) -> Result<Vec<u8>> {
        self.read(0, check_whole(&self.path, self.bytes)?)
    }
}

/// The last part of a path.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::storage::SimStorage;

    #[test]
    fn a_file_may_become_shorter_while_it_is_read() {
        let storage = SimStorage::new(1) as Arc<dyn Storage>;
        let path = Path::new("/segment");
        let open = |mode| storage.open(path, mode, Transfer::Buffered, Area::Journal);
        let file = open(OpenMode::Create).expect("created");
        file.write_at(&[7; 8192], 0).expect("written");
        let source = Source::open(&*storage, path, Area::Journal).expect("opened");
        file.truncate(4096).expect("cut");
        let read = |offset| source.read_while_there(offset, 512).expect("no damage");
        assert_eq!(read(0), Some(vec![7; 512]));
        assert_eq!(read(4000), None);
        assert_eq!(read(4096), None);
        let error = source
            .read(4096, 512)
            .expect_err("something has to be there");
        assert!(error.to_string().contains("became shorter"), "{error}");
    }
}
