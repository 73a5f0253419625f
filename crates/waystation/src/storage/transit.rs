//! Memory for bytes on their way: what a walk reads ahead, and a chunk of what a merge writes.
//!
//! A merge's are pages of their own, which the system has back as soon as they are dropped. The C library's allocator keeps
//! released blocks of this size among smaller ones that stay: the indexes of tables. A reader's walk is often over before
//! fresh pages pay: it takes the allocator's.

use super::resize;
use crate::error::{Error, Result};
use memmap2::MmapMut;
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// A buffer for transfers.
#[derive(Debug)]
pub(crate) enum TransitBuffer {
    /// From the allocator.
    Heap(Vec<u8>),
    /// Mapped, as soon as it is not empty.
    Pages {
        mapped: Option<MmapMut>,
        length: usize,
    },
}

impl TransitBuffer {
    /// An empty buffer in the allocator's memory.
    pub(crate) const fn on_heap() -> Self {
        Self::Heap(Vec::new())
    }

    /// An empty buffer in pages of its own.
    pub(crate) const fn in_pages() -> Self {
        Self::Pages {
            mapped: None,
            length: 0,
        }
    }

    /// Makes the buffer `bytes` long, of any values, for a transfer with the file at `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no memory for it.
    pub(crate) fn resize(&mut self, bytes: usize, path: &Path) -> Result<()> {
        match self {
            Self::Heap(heap) => resize(heap, bytes, path),
            Self::Pages { mapped, length } => {
                *length = 0;
                if mapped.as_ref().is_none_or(|pages| pages.len() < bytes) {
                    // First, so that not both are held.
                    *mapped = None;
                    let fresh = MmapMut::map_anon(bytes);
                    *mapped =
                        Some(fresh.map_err(|error| Error::io("map memory for", path, error))?);
                }
                *length = bytes;
                Ok(())
            }
        }
    }

    /// Leaves no bytes in the buffer, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        match self {
            Self::Heap(heap) => heap.clear(),
            Self::Pages { length, .. } => *length = 0,
        }
    }
}

impl Deref for TransitBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(heap) => heap,
            Self::Pages { mapped, length } => mapped.as_ref().map_or(&[], |it| &it[..*length]),
        }
    }
}

impl DerefMut for TransitBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(heap) => heap,
            Self::Pages { mapped, length } => {
                mapped.as_mut().map_or(&mut [], |it| &mut it[..*length])
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_refused() {
        let path = Path::new("/f");
        for mut buffer in [TransitBuffer::on_heap(), TransitBuffer::in_pages()] {
            buffer.resize(300_000, path).unwrap();
            let refused = buffer.resize(usize::MAX / 2, path).unwrap_err();
            assert!(matches!(refused, Error::Io { .. }), "{refused}");
            buffer.resize(400_000, path).unwrap();
            buffer[399_999] = 7;
            assert_eq!(buffer.len(), 400_000);
            buffer.clear();
            assert!(buffer.is_empty());
        }
    }
}
