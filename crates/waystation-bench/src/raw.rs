//! What the device gives without an engine: the measure that storage engines are held against.
//!
//! The file is treated as the log treats its segments: preallocated, written through once (a recycled segment
//! has been), then overwritten with direct I/O in blocks of the same size, as many in flight. The sync rate is
//! that of one thread that writes 4 KB directly and syncs (fdatasync). Devices of rented machines change their
//! speed from minute to minute; measured before and after a run, this tells whether the run means anything.

use crate::clock;
use crate::error::{Error, Result};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The length of the file: long enough that a device's write cache does not hold it.
const FILE_BYTES: u64 = 1 << 30;
const SYNC_BYTES: usize = 4096;
/// Direct buffers are aligned to this: a page, which no device exceeds.
const ALIGNMENT: usize = 4096;

/// How the device is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawSettings {
    /// The size of each write.
    pub(crate) block_bytes: usize,
    /// Writes in flight.
    pub(crate) depth: u32,
    /// For how long; zero turns measuring off.
    pub(crate) span: Duration,
}

/// The gauge and its file.
#[derive(Debug)]
pub(crate) struct RawGauge {
    settings: RawSettings,
    path: PathBuf,
    file: Option<File>,
}

/// Bytes with an aligned start.
struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    fn new(length: usize) -> Self {
        // Not zeros: some devices do not store them.
        let memory: Vec<u8> = (0..length + ALIGNMENT)
            .map(|i| (i * 31 + i / 251) as u8)
            .collect();
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self {
            memory,
            start,
            length,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl RawGauge {
    /// A gauge that uses the file `path`, made when it is first needed.
    pub(crate) fn new(settings: RawSettings, path: PathBuf) -> Result<Self> {
        let block_bytes = settings.block_bytes;
        let is_allowed = block_bytes >= ALIGNMENT
            && block_bytes.is_multiple_of(ALIGNMENT)
            && block_bytes as u64 <= FILE_BYTES / 4
            && settings.depth > 0;
        if !is_allowed {
            let message = format!(
                "the raw device is measured in blocks of a multiple of {ALIGNMENT} bytes (at most {}), at least one \
                 in flight; {block_bytes} x {} was asked",
                FILE_BYTES / 4,
                settings.depth
            );
            return Err(Error::Refused(message));
        }
        Ok(Self {
            settings,
            path,
            file: None,
        })
    }

    /// Whether it measures at all.
    pub(crate) fn is_on(&self) -> bool {
        !self.settings.span.is_zero()
    }

    /// The rate of direct writes, in units of 10^6 bytes per second.
    pub(crate) fn mb_per_s(&mut self) -> Result<f64> {
        let settings = self.settings;
        let file = self.file()?;
        let (bytes, elapsed) = write_for(file, settings)
            .map_err(|source| Error::io("write directly to", &self.path, source))?;
        Ok(bytes as f64 / 1e6 / elapsed.as_secs_f64())
    }

    /// The rate of direct writes of 4 KB, each followed by a sync.
    pub(crate) fn syncs_per_s(&mut self) -> Result<f64> {
        let span = self.settings.span;
        let file = self.file()?;
        let (syncs, elapsed) = sync_for(file, span)
            .map_err(|source| Error::io("write directly to, and sync,", &self.path, source))?;
        Ok(f64::from(syncs) / elapsed.as_secs_f64())
    }

    fn file(&mut self) -> Result<&File> {
        if self.file.is_none() {
            self.file = Some(self.make_file()?);
        }
        self.file
            .as_ref()
            .ok_or_else(|| Error::Refused("there is no file to measure".to_owned()))
    }

    fn make_file(&self) -> Result<File> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(flags);
        let file = options
            .open(&self.path)
            .map_err(|source| Error::io("open for direct writes", &self.path, source))?;
        fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)
            .map_err(|error| Error::io("preallocate", &self.path, error.into()))?;
        let buffer = AlignedBuffer::new(1 << 20);
        let fill = || -> std::io::Result<()> {
            for offset in (0..FILE_BYTES).step_by(buffer.length) {
                file.write_all_at(buffer.bytes(), offset)?;
            }
            file.sync_all()
        };
        fill().map_err(|source| Error::io("write directly to", &self.path, source))?;
        Ok(file)
    }
}

fn write_for(file: &File, settings: RawSettings) -> std::io::Result<(u64, Duration)> {
    let block_bytes = settings.block_bytes as u64;
    let blocks = FILE_BYTES / block_bytes;
    let next = AtomicU64::new(0);
    let started = clock::now();
    let write = || -> std::io::Result<u64> {
        let buffer = AlignedBuffer::new(settings.block_bytes);
        let mut bytes = 0;
        while started.elapsed() < settings.span {
            let block = next.fetch_add(1, Ordering::Relaxed) % blocks;
            file.write_all_at(buffer.bytes(), block * block_bytes)?;
            bytes += block_bytes;
        }
        Ok(bytes)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..settings.depth).map(|_| scope.spawn(write)).collect();
        let mut bytes = 0;
        for thread in threads {
            let panicked = || Err(std::io::Error::other("a writer panicked"));
            bytes += thread.join().unwrap_or_else(|_| panicked())?;
        }
        Ok((bytes, started.elapsed()))
    })
}

fn sync_for(file: &File, span: Duration) -> std::io::Result<(u32, Duration)> {
    let buffer = AlignedBuffer::new(SYNC_BYTES);
    let started = clock::now();
    let mut syncs = 0;
    while started.elapsed() < span {
        let offset = u64::from(syncs) * SYNC_BYTES as u64 % FILE_BYTES;
        file.write_all_at(buffer.bytes(), offset)?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok((syncs, started.elapsed()))
}

/// By how much two measures may differ for a run between them to count.
const TOLERANCE: f64 = 0.10;

/// Whether the device was as fast after as before.
pub(crate) fn is_steady(before: f64, after: f64) -> bool {
    (after - before).abs() <= TOLERANCE * before.min(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_not_zero() {
        let buffer = AlignedBuffer::new(8192);
        assert!(buffer.bytes().as_ptr().addr().is_multiple_of(ALIGNMENT));
        assert_eq!(buffer.bytes().len(), 8192);
        assert!(buffer.bytes().iter().any(|byte| *byte != 0));
    }

    #[test]
    fn ten_percent_either_way_is_steady() {
        assert!(is_steady(1000.0, 1099.0) && is_steady(1099.0, 1000.0));
        assert!(!is_steady(1000.0, 1101.0) && !is_steady(1101.0, 1000.0));
    }

    #[test]
    fn blocks_that_direct_writes_cannot_have_are_refused() {
        for block_bytes in [0, 100, 4097, 1 << 30] {
            let settings = RawSettings {
                block_bytes,
                depth: 2,
                span: Duration::ZERO,
            };
            assert!(
                RawGauge::new(settings, PathBuf::new()).is_err(),
                "{block_bytes}"
            );
        }
    }
}
