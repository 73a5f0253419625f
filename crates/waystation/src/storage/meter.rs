//! Counting what moves, by area.
//!
//! Counters only grow and order nothing, so relaxed atomics suffice. Bytes are counted as
//! they pass the raw calls: an unaligned read of a direct file counts the whole units it had to fetch, and a
//! failed write counts what went through before it failed.

use super::{Area, AreaMeter};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// All areas, in the order of [`Meters`]' counters.
const AREAS: [Area; 4] = [Area::Journal, Area::Tables, Area::Spill, Area::Copies];

/// The counters of one area.
#[derive(Debug, Default)]
pub(super) struct Counters {
    read_bytes: AtomicU64,
    reads: AtomicU64,
    written_bytes: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    direct_fallbacks: AtomicU64,
}

impl Counters {
    pub(super) fn count_read(&self, bytes: usize) {
        self.read_bytes.fetch_add(bytes as u64, Relaxed);
        self.reads.fetch_add(1, Relaxed);
    }

    pub(super) fn count_write(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Relaxed);
        self.writes.fetch_add(1, Relaxed);
    }

    pub(super) fn count_sync(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    pub(super) fn count_direct_fallback(&self) {
        self.direct_fallbacks.fetch_add(1, Relaxed);
    }

    fn snapshot(&self) -> AreaMeter {
        AreaMeter {
            read_bytes: self.read_bytes.load(Relaxed),
            reads: self.reads.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            direct_fallbacks: self.direct_fallbacks.load(Relaxed),
        }
    }
}

/// The counters of all areas.
#[derive(Debug, Default)]
pub(super) struct Meters {
    areas: [Counters; AREAS.len()],
}

impl Meters {
    pub(super) fn area(&self, area: Area) -> &Counters {
        match area {
            Area::Journal => &self.areas[0],
            Area::Tables => &self.areas[1],
            Area::Spill => &self.areas[2],
            Area::Copies => &self.areas[3],
        }
    }

    pub(super) fn snapshot(&self) -> Vec<(Area, AreaMeter)> {
        AREAS
            .into_iter()
            .map(|area| (area, self.area(area).snapshot()))
            .collect()
    }
}
