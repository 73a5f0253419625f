//! How much an engine had on the fast device at most, as told by its file system.
//!
//! A policy may take a part of the data there. Not every engine keeps to that: RocksDB writes flushed tables to its first path
//! whatever that path's size says.

use crate::error::{Error, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const POLL: Duration = Duration::from_millis(50);

/// A thread that looks at a file system until this is dropped.
pub(crate) struct PeakWatch {
    peak: Arc<Peak>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Peak {
    bytes: AtomicU64,
    is_over: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl PeakWatch {
    /// Watches the file system of `directory`. What it holds now is not counted.
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        let before = used_bytes(directory)?;
        let watched = directory.to_owned();
        let peak = Arc::new(Peak::default());
        let of_thread = Arc::clone(&peak);
        let look = move || {
            while !of_thread.is_over.load(Relaxed) {
                match used_bytes(&watched) {
                    Ok(used) => {
                        let bytes = used.saturating_sub(before);
                        of_thread.bytes.fetch_max(bytes, Relaxed);
                    }
                    Err(error) => {
                        *crate::interrupt::lock(&of_thread.failure) = Some(error);
                        return;
                    }
                }
                thread::park_timeout(POLL);
            }
        };
        let thread = thread::Builder::new()
            .name("peak".to_owned())
            .spawn(look)
            .map_err(|source| Error::io("start a thread to watch", directory, source))?;
        Ok(Self {
            peak,
            thread: Some(thread),
        })
    }

    /// The most bytes since the last call.
    pub(crate) fn take(&self) -> Result<u64> {
        let failure = crate::interrupt::lock(&self.peak.failure).take();
        match failure {
            Some(error) => Err(error),
            None => Ok(self.peak.bytes.swap(0, Relaxed)),
        }
    }
}

impl Drop for PeakWatch {
    fn drop(&mut self) {
        self.peak.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic.
            drop(thread.join());
        }
    }
}

fn used_bytes(directory: &Path) -> Result<u64> {
    let stats = rustix::fs::statvfs(directory)
        .map_err(|source| Error::io("look at the room of", directory, source.into()))?;
    Ok((stats.f_blocks - stats.f_bfree) * stats.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 64 << 20;

    /// What a watch sees of a file of [`BYTES`].
    fn seen_of_a_file(directory: &Path) -> u64 {
        const LOOKS: u32 = 10;
        let watch = PeakWatch::start(directory).expect("a file system");
        let file = directory.join("file");
        std::fs::write(&file, vec![1; BYTES]).expect("room");
        let looks = (0..LOOKS).map(|_| {
            thread::park_timeout(POLL);
            watch.take().expect("it looks")
        });
        let seen = looks.max().unwrap_or(0);
        std::fs::remove_file(&file).expect("it is there");
        seen
    }

    #[test]
    fn a_file_counts_while_it_is_there() {
        let directory = tempfile::tempdir().expect("a directory");
        // Other programs may free as much meanwhile.
        let mut seen = (0..20).map(|_| seen_of_a_file(directory.path()));
        assert!(seen.any(|bytes| bytes >= BYTES as u64 / 2));
        assert!(PeakWatch::start(&directory.path().join("none")).is_err());
    }
}
