//! Addresses for files, as a file system would give them: chunks of one length, the lowest free one first.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is given at once (bytes).
pub(super) const CHUNK_BYTES: u64 = 256 << 10;

/// Which chunks of each area are free, and which files have the others.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    files: Mutex<HashMap<PathBuf, Arc<Place>>>,
    areas: Arc<Mutex<[Free; super::AREAS.len()]>>,
}

/// The free chunks of one area.
#[derive(Debug, Default)]
struct Free {
    given_back: BTreeSet<u64>,
    next: u64,
}

/// Where one file lies.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) area: u8,
    /// By the number of the chunk in the file, from 0.
    chunks: Mutex<HashMap<u64, u64>>,
    areas: Arc<Mutex<[Free; super::AREAS.len()]>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Addresses {
    /// The place of the file `path`, which is in `area`.
    pub(super) fn of(&self, path: &Path, area: u8) -> Arc<Place> {
        let mut files = lock(&self.files);
        let place = files.entry(path.to_owned()).or_insert_with(|| {
            Arc::new(Place {
                area,
                chunks: Mutex::default(),
                areas: Arc::clone(&self.areas),
            })
        });
        Arc::clone(place)
    }

    /// The file `source` has the name `target` from now on.
    pub(super) fn rename(&self, source: &Path, target: &Path) {
        self.remove(target);
        let mut files = lock(&self.files);
        if let Some(place) = files.remove(source) {
            files.insert(target.to_owned(), place);
        }
    }

    /// Gives the addresses of a file back. Returns them, with the area.
    pub(super) fn remove(&self, path: &Path) -> Vec<(u8, u64)> {
        let Some(place) = lock(&self.files).remove(path) else {
            return Vec::new();
        };
        // A file that is open still keeps its own until it is closed.
        let chunks = lock(&place.chunks).clone();
        let mut areas = lock(&self.areas);
        let free = &mut areas[usize::from(place.area)].given_back;
        free.extend(chunks.values());
        let offset = |chunk: u64| (place.area, chunk * CHUNK_BYTES);
        chunks.into_values().map(offset).collect()
    }
}

impl Place {
    /// The addresses of `length` bytes at `offset`: ranges with offset and length, in order.
    pub(super) fn addresses(&self, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let end = offset.saturating_add(length);
        let mut at = offset;
        while at < end {
            let within = at % CHUNK_BYTES;
            let part = (CHUNK_BYTES - within).min(end - at);
            let address = self.chunk(at / CHUNK_BYTES) * CHUNK_BYTES + within;
            match ranges.last_mut() {
                Some(last) if last.0 + last.1 == address => last.1 += part,
                _ => ranges.push((address, part)),
            }
            at += part;
        }
        ranges
    }

    fn chunk(&self, number: u64) -> u64 {
        *lock(&self.chunks).entry(number).or_insert_with(|| {
            let free = &mut lock(&self.areas)[usize::from(self.area)];
            free.given_back.pop_first().unwrap_or_else(|| {
                free.next += 1;
                free.next - 1
            })
        })
    }
}
