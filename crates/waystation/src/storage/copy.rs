//! Copies of files.

use super::File;
use crate::error::{Error, Result};

/// Bytes that are copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Copies the first `bytes` bytes of `source`, which are read once. Durable when `target` is synced.
///
/// # Errors
/// [`Error::Corruption`] if `source` ends before; [`Error::Io`].
pub(crate) fn copy_bytes(source: &dyn File, target: &dyn File, bytes: u64) -> Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let length = usize::try_from(bytes - offset).map_or(CHUNK_BYTES, |it| it.min(CHUNK_BYTES));
        let read = source.read_window(&mut chunk[..length], offset)?;
        if read == 0 {
            return Err(Error::corruption(source.path(), offset, "it ends here"));
        }
        target.write_at(&chunk[..read], offset)?;
        offset += read as u64;
    }
    Ok(())
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::storage::{Area, OpenMode, SimStorage, Storage, Transfer};
    use std::path::Path;

    #[test]
    fn a_copy_is_whole_or_refused() {
        let machine = SimStorage::new(1);
        let create = |path| {
            let (mode, transfer) = (OpenMode::Create, Transfer::Buffered);
            machine
                .open(Path::new(path), mode, transfer, Area::Tables)
                .unwrap()
        };
        let (source, target) = (create("/source"), create("/target"));
        let content: Vec<u8> = (0..CHUNK_BYTES + 77).map(|at| at as u8).collect();
        source.write_at(&content, 0).unwrap();
        let bytes = content.len() as u64;
        copy_bytes(&*source, &*target, bytes).unwrap();
        let mut copied = vec![0; content.len()];
        assert_eq!(target.read_at(&mut copied, 0).unwrap(), content.len());
        assert!(copied == content && target.size().unwrap() == bytes);
        let error = copy_bytes(&*source, &*target, bytes + 1).unwrap_err();
        assert!(
            matches!(error, Error::Corruption { offset, .. } if offset == bytes),
            "{error}"
        );
    }
}
