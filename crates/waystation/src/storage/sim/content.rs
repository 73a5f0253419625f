//! A simulated file's bytes: what a reader sees, and what the medium holds.
//!
//! ```text
//! newest   |AAAA|BBBB|CCCC|DD    what reads see
//! durable  |AAAA|bbbb|cccc|      what a sync made durable, or write-back since
//! unsettled      x    x    x     sectors that may differ, as far as the newest content goes
//! ```
//! A power cut leaves each unsettled sector old or new, and the length old, new, or at a sector between.
//! Sectors are atomic, as drives promise. Write-back at random moments makes any version a sector ever had,
//! since its last sync, a possible old one.

use super::random::Random;
use std::collections::BTreeSet;
use std::ops::Range;

/// The bytes of a file.
#[derive(Debug, Clone)]
pub(super) struct Content {
    newest: Vec<u8>,
    /// May be longer or shorter than `durable_length`: bytes missing are zeros, bytes behind are unreachable.
    durable: Vec<u8>,
    durable_length: usize,
    unsettled: BTreeSet<usize>,
    sector_bytes: usize,
}

impl Content {
    /// An empty file.
    pub(super) const fn new(sector_bytes: usize) -> Self {
        Self {
            newest: Vec::new(),
            durable: Vec::new(),
            durable_length: 0,
            unsettled: BTreeSet::new(),
            sector_bytes,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.newest.len()
    }

    /// What reads see.
    pub(super) fn newest(&self) -> &[u8] {
        &self.newest
    }

    /// What the medium holds, as far as the newest length goes.
    pub(super) fn durable(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        bytes.resize(self.newest.len(), 0);
        bytes
    }

    pub(super) fn write(&mut self, data: &[u8], offset: usize) {
        let end = offset + data.len();
        if end > self.newest.len() {
            self.extend(end);
        }
        self.newest[offset..end].copy_from_slice(data);
        self.unsettle(offset..end);
    }

    pub(super) fn set_len(&mut self, length: usize) {
        if length > self.newest.len() {
            self.extend(length);
        } else {
            self.newest.truncate(length);
        }
    }

    fn extend(&mut self, length: usize) {
        let old_length = self.newest.len();
        self.newest.resize(length, 0);
        self.unsettle(old_length..length);
    }

    fn unsettle(&mut self, bytes: Range<usize>) {
        if !bytes.is_empty() {
            let sectors = bytes.start / self.sector_bytes..bytes.end.div_ceil(self.sector_bytes);
            self.unsettled.extend(sectors);
        }
    }

    /// Everything reaches the medium.
    pub(super) fn sync(&mut self) {
        for sector in std::mem::take(&mut self.unsettled) {
            self.settle(sector);
        }
        self.durable_length = self.newest.len();
        self.durable.truncate(self.durable_length);
    }

    /// Some sectors reach the medium before a sync asked.
    pub(super) fn write_back(&mut self, random: &mut Random) {
        let chosen: Vec<usize> = self
            .unsettled
            .iter()
            .copied()
            .filter(|_| random.chance(1, 2))
            .collect();
        for sector in chosen {
            self.unsettled.remove(&sector);
            self.settle(sector);
        }
    }

    /// Copies a sector from the newest content to the durable one.
    fn settle(&mut self, sector: usize) {
        let start = sector * self.sector_bytes;
        let end = start + self.sector_bytes;
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        let source = &self.newest[start.min(self.newest.len())..end.min(self.newest.len())];
        self.durable[start..start + source.len()].copy_from_slice(source);
    }

    /// The power fails and comes back: all that is left is durable.
    pub(super) fn cut_power(&mut self, random: &mut Random) {
        let length = self.length_after_cut(random);
        let share = random.share_of_eight();
        for sector in std::mem::take(&mut self.unsettled) {
            if random.chance(share, 8) {
                self.settle(sector);
            }
        }
        self.durable.resize(length, 0);
        self.durable_length = length;
        self.newest.clone_from(&self.durable);
    }

    fn length_after_cut(&self, random: &mut Random) -> usize {
        let (old, new) = (self.durable_length, self.newest.len());
        match random.below(3) {
            0 => old,
            1 => new,
            _ => {
                let sectors = old.abs_diff(new) / self.sector_bytes;
                let length =
                    old.min(new) + self.sector_bytes * random.below(sectors as u64 + 1) as usize;
                (length.next_multiple_of(self.sector_bytes)).min(old.max(new))
            }
        }
    }

    /// Turns one bit over, on the medium and in every copy of it.
    pub(super) fn flip_bit(&mut self, bit: u64) -> bool {
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        if byte >= self.newest.len() {
            return false;
        }
        self.newest[byte] ^= mask;
        if let Some(durable) = self.durable.get_mut(byte) {
            *durable ^= mask;
        }
        true
    }
}
