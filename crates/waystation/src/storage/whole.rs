//! Files that are read whole, and memory for what a file says it holds.
//!
//! A length that a file has, or names, is no reason to take as much memory: a damaged or hostile one of 8 TiB may hold
//! nothing. So a file is read whole only up to what one of its name can have, what is written whole keeps to the same
//! limit, and memory for either is asked for in a way that can be refused.

use super::{Area, OpenMode, Storage, Transfer};
use crate::error::{Error, Result};
use std::io;
use std::path::Path;

/// No file that is read whole is longer, and no part of one (bytes): lengths within them are 32 bits wide.
pub(crate) const WHOLE_BYTES_MAX: u64 = 4 << 30;
/// Some are much shorter (bytes): a name, eight numbers, and a handful of each.
const SHORT_FILES: [(&str, u64); 3] = [
    ("CURRENT", 4 << 10),
    ("JOURNAL", 4 << 10),
    ("WAYSTATION", 1 << 20),
];
/// Memory is filled in chunks of this length, so that a file that became shorter costs no more than it has.
const CHUNK_BYTES: usize = 8 << 20;

/// The whole content of the file at `path`.
///
/// # Errors
/// [`Error::Corruption`] if it is longer than any file of its name; [`Error::Io`] also if there is no memory for it.
pub(crate) fn read_whole(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>> {
    let file = storage.open(path, OpenMode::Read, Transfer::Buffered, Area::Tables)?;
    let bytes = check_whole(path, file.size()?)?;
    let mut content = Vec::new();
    reserve(&mut content, bytes, path)?;
    while content.len() < bytes {
        let start = content.len();
        let end = bytes.min(start + CHUNK_BYTES);
        content.resize(end, 0);
        let read = file.read_at(&mut content[start..], start as u64)?;
        if start + read < end {
            content.truncate(start + read);
            break;
        }
    }
    Ok(content)
}

/// The length `bytes` of the file at `path`, if one of its name can have it.
///
/// # Errors
/// [`Error::Corruption`] otherwise.
pub(crate) fn check_whole(path: &Path, bytes: u64) -> Result<usize> {
    let is_named = |name: &str| path.file_name().is_some_and(|it| it == name);
    let short = SHORT_FILES.iter().find(|(name, _)| is_named(name));
    let limit = short.map_or(WHOLE_BYTES_MAX, |(_, limit)| *limit);
    match usize::try_from(bytes) {
        Ok(length) if bytes <= limit => Ok(length),
        _ => {
            let reason = format!("it has {bytes} bytes, and such a file has at most {limit}");
            Err(Error::corruption(path, limit, reason))
        }
    }
}

/// Makes `bytes` as long as `length`, for a part of the file at `path`.
///
/// # Errors
/// [`Error::Io`] if there is no memory for it.
#[inline]
pub(crate) fn resize(bytes: &mut Vec<u8>, length: usize, path: &Path) -> Result<()> {
    if length > bytes.capacity() {
        reserve(bytes, length - bytes.len(), path)?;
    }
    bytes.resize(length, 0);
    Ok(())
}

#[cold]
fn reserve(bytes: &mut Vec<u8>, additional: usize, path: &Path) -> Result<()> {
    bytes.try_reserve_exact(additional).map_err(|_| {
        let reason = format!("{additional} bytes of memory are not to be had");
        let refused = io::Error::new(io::ErrorKind::OutOfMemory, reason);
        Error::io("read", path, refused)
    })
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::storage::{OsStorage, SimStorage};
    use std::fs::File;

    #[test]
    fn a_file_is_read_up_to_what_its_name_can_have() {
        let dir = tempfile::tempdir().unwrap();
        for (name, limit) in SHORT_FILES
            .into_iter()
            .chain([("DEVICES", WHOLE_BYTES_MAX)])
        {
            let path = dir.path().join(name);
            File::create(&path).unwrap().set_len(limit + 1).unwrap();
            let error = read_whole(&*OsStorage::new(), &path).unwrap_err();
            let told = error.to_string();
            assert!(matches!(error, Error::Corruption { .. }), "{told}");
            for part in [name, &limit.to_string(), &(limit + 1).to_string()] {
                assert!(told.contains(part), "{told}");
            }
        }
    }

    #[test]
    fn a_file_of_several_chunks_is_read_whole() {
        let storage = SimStorage::new(1);
        let path = Path::new("/MANIFEST-000001");
        let content: Vec<u8> = (0..CHUNK_BYTES * 2 + 7).map(|at| at as u8).collect();
        let file = storage.open(path, OpenMode::Create, Transfer::Buffered, Area::Tables);
        file.unwrap().write_at(&content, 0).unwrap();
        assert!(read_whole(&*storage, path).unwrap() == content);
    }

    #[test]
    fn memory_that_is_not_there_is_refused() {
        let mut bytes = vec![7];
        let refused = resize(&mut bytes, usize::MAX / 2, Path::new("/f")).unwrap_err();
        assert!(matches!(refused, Error::Io { .. }), "{refused}");
        assert_eq!(bytes, [7]);
    }
}
