//! One open file of the operating system.

use crate::storage::OpenMode;
use crate::storage::raw::RawFile;
use rustix::fs::{Advice, AtFlags, FallocateFlags, OFlags, StatxFlags};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// An open file of the operating system.
#[derive(Debug)]
pub struct KernelFile {
    descriptor: OwnedFd,
}

impl KernelFile {
    pub(super) fn open(path: &Path, mode: OpenMode, direct: bool) -> io::Result<Self> {
        let flags = match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::ReadWrite => OFlags::RDWR,
            OpenMode::Create => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
        };
        let direct_flag = if direct {
            OFlags::DIRECT
        } else {
            OFlags::empty()
        };
        let descriptor = super::open(path, flags | direct_flag)?;
        Ok(Self { descriptor })
    }
}

impl RawFile for KernelFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.descriptor, buffer, offset)?)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwrite(&self.descriptor, data, offset)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.descriptor)?)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        Ok(rustix::fs::fallocate(
            &self.descriptor,
            FallocateFlags::empty(),
            0,
            bytes,
        )?)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.descriptor, bytes)?)
    }

    fn size(&self) -> io::Result<u64> {
        let meta = rustix::fs::fstat(&self.descriptor)?;
        u64::try_from(meta.st_size).map_err(io::Error::other)
    }

    fn direct_alignment(&self) -> Option<usize> {
        let asked = StatxFlags::DIOALIGN;
        let meta = rustix::fs::statx(&self.descriptor, c"", AtFlags::EMPTY_PATH, asked).ok()?;
        let alignment = meta.stx_dio_offset_align.max(meta.stx_dio_mem_align) as usize;
        let known = StatxFlags::from_bits_retain(meta.stx_mask).contains(asked);
        (known && alignment.is_power_of_two()).then_some(alignment)
    }

    fn leave_direct(&self) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.descriptor)?;
        Ok(rustix::fs::fcntl_setfl(
            &self.descriptor,
            flags - OFlags::DIRECT,
        )?)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if let Some(length) = NonZeroU64::new(length) {
            // Advice only: a refusal changes nothing but speed.
            let _ = rustix::fs::fadvise(&self.descriptor, offset, Some(length), Advice::WillNeed);
        }
    }

    fn expect_scattered_reads(&self) {
        // Advice only, as above.
        let _ = rustix::fs::fadvise(&self.descriptor, 0, None, Advice::Random);
    }

    #[expect(unsafe_code, reason = "a call that only the C library offers")]
    fn write_back(&self, offset: u64, length: u64) {
        let (Ok(offset), Ok(length)) = (offset.try_into(), length.try_into()) else {
            return;
        };
        // SAFETY: the call takes numbers only, and the descriptor is open for as long as `self` is.
        let _ = unsafe {
            // Advice only: what fails on its way to the device, the next sync tells.
            libc::sync_file_range(
                self.descriptor.as_raw_fd(),
                offset,
                length,
                libc::SYNC_FILE_RANGE_WRITE,
            )
        };
    }
}
