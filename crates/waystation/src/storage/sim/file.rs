//! One open file of a simulated machine.

use super::tree::{Body, NodeId};
use super::{Disk, Machine};
use crate::storage::OpenMode;
use crate::storage::raw::RawFile;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// What direct transfers are aligned to, as on a drive with small sectors.
const DIRECT_ALIGNMENT: usize = 512;

/// An open file of a simulated machine.
pub struct SimFile {
    machine: Machine,
    node: NodeId,
    writable: bool,
    direct: AtomicBool,
}

impl SimFile {
    pub(super) fn new(machine: Machine, node: NodeId, mode: OpenMode, direct: bool) -> Self {
        let writable = mode != OpenMode::Read;
        Self {
            machine,
            node,
            writable,
            direct: AtomicBool::new(direct),
        }
    }

    /// Refuses an unaligned direct transfer, as a kernel does.
    fn check_direct(&self, buffer: &[u8], offset: u64) -> Result<(), Errno> {
        let aligned = buffer.as_ptr().addr().is_multiple_of(DIRECT_ALIGNMENT)
            && buffer.len().is_multiple_of(DIRECT_ALIGNMENT)
            && offset.is_multiple_of(DIRECT_ALIGNMENT as u64);
        if aligned || !self.direct.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(Errno::INVAL)
        }
    }

    /// What a write cut short by a full disk is a multiple of.
    fn unit(&self) -> usize {
        if self.direct.load(Ordering::Acquire) {
            DIRECT_ALIGNMENT
        } else {
            1
        }
    }

    /// Sets the length, which may be refused for want of room.
    fn resize(&self, disk: &mut Disk, length: usize) -> Result<(), Errno> {
        if !self.writable {
            return Err(Errno::BADF);
        }
        let grown = length.saturating_sub(disk.tree.file(self.node)?.body.len());
        disk.reserve(grown as u64)?;
        match &mut disk.tree.file_mut(self.node)?.body {
            Body::Bytes(content) => content.set_len(length),
            Body::Ring(_) => return Err(Errno::TXTBSY),
        }
        Ok(())
    }
}

impl RawFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.machine.on_disk(|disk| {
            self.check_direct(buffer, offset)?;
            let mut copy_from = |bytes: &[u8]| {
                let start = usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
                let count = buffer.len().min(bytes.len() - start);
                buffer[..count].copy_from_slice(&bytes[start..start + count]);
                count
            };
            Ok(match &disk.tree.file(self.node)?.body {
                Body::Bytes(content) => copy_from(content.newest()),
                Body::Ring(ring) => copy_from(&ring.newest()),
            })
        })
    }

    /// Writes what fits on the disk, and fails when nothing does.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        self.machine.on_disk(|disk| {
            if !self.writable {
                return Err(Errno::BADF);
            }
            self.check_direct(data, offset)?;
            let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
            let room = disk.free_bytes() as usize + disk.tree.file(self.node)?.body.len();
            let count = data.len().min(room.saturating_sub(start)) / self.unit() * self.unit();
            if count == 0 && !data.is_empty() {
                return Err(Errno::NOSPC);
            }
            match &mut disk.tree.file_mut(self.node)?.body {
                Body::Bytes(content) => content.write(&data[..count], start),
                Body::Ring(_) => return Err(Errno::TXTBSY),
            }
            disk.write_back();
            Ok(count)
        })
    }

    /// Takes its time, in which others write: that is not synced.
    fn sync(&self) -> io::Result<()> {
        let synced = self.machine.on_disk(|disk| {
            disk.tree.file_mut(self.node)?.body.sync();
            disk.write_back();
            Ok(())
        });
        // Under a model checker the wrapper of the storage says where other threads go on.
        #[cfg(not(any(loom, shuttle)))]
        std::thread::yield_now();
        synced
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.machine.on_disk(|disk| {
            let length = usize::try_from(bytes).map_err(|_| Errno::FBIG)?;
            let old_length = disk.tree.file(self.node)?.body.len();
            self.resize(disk, length.max(old_length))
        })
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.machine.on_disk(|disk| {
            let length = usize::try_from(bytes).map_err(|_| Errno::FBIG)?;
            self.resize(disk, length)
        })
    }

    fn size(&self) -> io::Result<u64> {
        self.machine
            .on_disk(|disk| Ok(disk.tree.file(self.node)?.body.len() as u64))
    }

    fn direct_alignment(&self) -> Option<usize> {
        Some(DIRECT_ALIGNMENT)
    }

    fn leave_direct(&self) -> io::Result<()> {
        self.direct.store(false, Ordering::Release);
        Ok(())
    }

    fn prefetch(&self, _offset: u64, _length: u64) {}

    fn write_back(&self, _offset: u64, _length: u64) {}
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut disk = self.machine.disk();
        if let Ok(file) = disk.tree.file_mut(self.node) {
            file.opens -= 1;
            if file.opens == 0 {
                disk.tree.forget_unreachable();
            }
        }
    }
}
