//! The staging ring: a file mapped shared, so that its bytes survive the process.
//!
//! The file is written in full and synced under another name before it gets its own, so that a file with the
//! right name and size has all its blocks: a full disk fails here, not as a fatal signal at some later store.
//! (On a copy-on-write file system a full disk can still refuse a page later; such a file system should not
//! carry the ring.) No `msync` is needed: the pages are in the page cache, which outlives the process.
//!
//! The file begins short, and the mapping is as long as it can become: pages behind the file's end are memory as soon as
//! the file reaches them. It grows by blocks that are reserved first, behind its end, and then by its length in one step.

use crate::storage::Ring;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use waystation_format::log::ring_file_lengths;

/// How much is written at once while a ring file is made. The page cache then holds it in units of this size, and Linux
/// walks over all of a unit's blocks at the first store to each of its pages: with 1 MiB that takes 5 us, with this 1.2.
const FILL_BYTES: usize = 64 << 10;

/// A shared mapping of a file and of the room behind it.
pub(super) struct MappedRing {
    pointer: NonNull<u8>,
    length: usize,
    file_bytes: usize,
}

/// Maps the ring file, made anew if it is missing or has a size that is none of a ring; says whether it was there.
pub(super) fn map(path: &Path, bytes: usize) -> io::Result<(MappedRing, bool)> {
    if bytes == 0 || !bytes.is_multiple_of(rustix::param::page_size()) {
        let reason = "the ring's size is not a positive multiple of the page size";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let found = match fs::metadata(path) {
        Ok(meta) => ring_file_lengths(bytes as u64).find(|it| meta.is_file() && meta.len() == *it),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let file_bytes = match found {
        Some(length) => length as usize,
        None => create(path, bytes)?,
    };
    let descriptor = super::open(path, OFlags::RDWR)?;
    let ring = MappedRing::new(&descriptor, bytes, file_bytes)?;
    Ok((ring, found.is_some()))
}

/// Gives the file of a mapped ring another length.
pub(super) fn resize(path: &Path, bytes: usize) -> io::Result<()> {
    let descriptor = super::open(path, OFlags::RDWR)?;
    reserve(&descriptor, bytes)?;
    Ok(rustix::fs::ftruncate(&descriptor, bytes as u64)?)
}

/// Reserves the first `bytes` of the file, and leaves its length as it is. Stores to them find room from then on.
fn reserve(descriptor: impl AsFd, bytes: usize) -> io::Result<()> {
    let reserved = rustix::fs::fallocate(descriptor, FallocateFlags::KEEP_SIZE, 0, bytes as u64);
    Ok(reserved?)
}

/// Makes the file of a ring that can grow to `bytes`; returns its length.
fn create(path: &Path, bytes: usize) -> io::Result<usize> {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(".new");
    let unfinished = path.with_file_name(name);
    let outcome = fill(&unfinished, bytes).and_then(|length| {
        fs::rename(&unfinished, path)?;
        Ok(length)
    });
    if outcome.is_err() {
        // The space must come back; if even that fails, the first failure is the one to tell.
        let _ = fs::remove_file(&unfinished);
    }
    outcome
}

fn fill(path: &Path, bytes: usize) -> io::Result<usize> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    let mut file = File::from(super::open(path, flags)?);
    let shortest = ring_file_lengths(bytes as u64).last();
    let length = match shortest.map(|it| reserve(&file, it as usize).map(|()| it as usize)) {
        // What cannot be reserved could not grow.
        Some(Err(error)) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => bytes,
        Some(reserved) => reserved?,
        None => bytes,
    };
    let zeros = vec![0; FILL_BYTES.min(length)];
    let mut rest = length;
    while rest > 0 {
        let count = rest.min(zeros.len());
        file.write_all(&zeros[..count])?;
        rest -= count;
    }
    file.sync_all()?;
    Ok(length)
}

impl MappedRing {
    #[expect(unsafe_code, reason = "maps the ring file")]
    fn new(descriptor: &OwnedFd, length: usize, file_bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the address is left to the kernel, so no existing memory is touched; the file is open for
        // reads and writes, as the protection asks. The mapping is ours alone until `drop` unmaps it.
        let address = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                length,
                protection,
                flags,
                descriptor.as_fd(),
                0,
            )?
        };
        let pointer = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| io::Error::other("the ring was mapped at address zero"))?;
        Ok(Self {
            pointer,
            length,
            file_bytes,
        })
    }
}

impl Ring for MappedRing {
    fn as_ptr(&self) -> *const u8 {
        self.pointer.as_ptr()
    }

    #[expect(unsafe_code, reason = "raw copy into the mapping")]
    unsafe fn store(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: within the mapped file, no other thread's at this moment, and not where `bytes` lie, by the contract of this
        // function.
        unsafe {
            let target = self.pointer.as_ptr().add(offset);
            ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }

    #[expect(unsafe_code, reason = "advice about the mapping")]
    fn prepare(&self, offset: usize, len: usize) {
        let page = rustix::param::page_size();
        let start = offset / page * page;
        let end = (offset + len).min(self.length);
        if start < end {
            // SAFETY: the range is a part of the mapping, and the advice lets its pages take stores without a word to
            // their content. One that an old system does not know, or behind the file's end, changes nothing.
            let _ = unsafe {
                let from = self.pointer.as_ptr().add(start).cast();
                rustix::mm::madvise(from, end - start, Advice::LinuxPopulateWrite)
            };
        }
    }

    fn len(&self) -> usize {
        self.length
    }

    fn file_bytes(&self) -> usize {
        self.file_bytes
    }
}

impl Drop for MappedRing {
    #[expect(unsafe_code, reason = "unmaps the ring file")]
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, once; every user of the pointer holds the ring.
        // A failure would leave the range mapped: harmless, and no caller could act on it.
        let _ = unsafe { rustix::mm::munmap(self.pointer.as_ptr().cast(), self.length) };
    }
}

#[expect(unsafe_code, reason = "a mapping is not bound to a thread")]
// SAFETY: the mapping stays in place until `drop`, whichever thread that runs in, and nothing here reads or
// writes through the pointer: the callers that take it see to the order of accesses.
unsafe impl Send for MappedRing {}

#[expect(unsafe_code, reason = "a mapping is not bound to a thread")]
// SAFETY: as for `Send`; the methods only hand out the address and the length.
unsafe impl Sync for MappedRing {}
