//! The directory lock: `fcntl` against other processes, a set of files against this one.
//!
//! `fcntl` locks belong to the process: a second lock within it succeeds, and closing *any* descriptor of the
//! file gives the lock up. So the set is asked before the file is opened, and it names files by device and
//! inode: another path to the same file is the same lock.

use crate::storage::DirectoryLock;
use rustix::fs::{FlockOperation, OFlags, Stat};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

type FileId = (u64, u64);

/// The lock files this process holds. Locked during every acquisition and release.
static HELD: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());

/// A held lock file; dropping it gives the lock back.
pub(super) struct LockFile {
    id: FileId,
    descriptor: Option<OwnedFd>,
}

impl DirectoryLock for LockFile {}

impl Drop for LockFile {
    fn drop(&mut self) {
        let mut held = held();
        drop(self.descriptor.take());
        held.remove(&self.id);
    }
}

/// Takes the lock file `path`, created if missing; `WouldBlock` when another process has it.
pub(super) fn acquire(path: &Path) -> io::Result<LockFile> {
    let mut held = held();
    loop {
        match rustix::fs::stat(path) {
            Ok(meta) if held.contains(&id(&meta)) => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(_) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let descriptor = super::open(path, OFlags::RDWR | OFlags::CREATE)?;
        match rustix::fs::fcntl_lock(&descriptor, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            outcome => outcome?,
        }
        // The previous owner may have removed the file between our opening and locking it.
        let id_locked = id(&rustix::fs::fstat(&descriptor)?);
        if rustix::fs::stat(path).is_ok_and(|meta| id(&meta) == id_locked) {
            held.insert(id_locked);
            return Ok(LockFile {
                id: id_locked,
                descriptor: Some(descriptor),
            });
        }
    }
}

fn held() -> MutexGuard<'static, BTreeSet<FileId>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn id(meta: &Stat) -> FileId {
    (meta.st_dev, meta.st_ino)
}
