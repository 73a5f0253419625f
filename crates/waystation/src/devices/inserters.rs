//! Versions on their way into the indexes of devices, while an opening reads the log or an index snapshot back.

use super::index::{Entry, Window};
use super::index_snapshot::unpack;
use super::residency::Residency;
use crate::error::Result;
use crate::log::{CHUNK_BYTES, Chunk, Inserters};
use crate::sync::Arc;
use std::ops::Range;

/// Versions for the indexes of residencies.
#[derive(Default)]
pub(crate) struct Versions {
    /// The keys, without the prefixes, one after the other.
    keys: Vec<u8>,
    /// Where each of them ends.
    entries: Vec<(Arc<Residency>, usize, Entry)>,
}

impl Chunk for Versions {
    fn insert_all(&self) {
        let mut start = 0;
        for (residency, end, entry) in &self.entries {
            residency.insert(&self.keys[start..*end], entry);
            start = *end;
        }
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }
}

/// Parts of residencies, as a section of an index snapshot has them.
#[derive(Default)]
pub(crate) struct Parts {
    section: Vec<u8>,
    /// For whom, where they are, and how many versions.
    parts: Vec<(Arc<Residency>, Range<usize>, u64)>,
}

impl Chunk for Parts {
    /// Of a part that makes no sense nothing is inserted: the check of the number of versions misses them.
    fn insert_all(&self) {
        let mut window = Window::default();
        for (residency, bytes, versions) in &self.parts {
            if unpack(&self.section[bytes.clone()], *versions, &mut window).is_ok() {
                residency.restore(&window);
            }
        }
    }

    fn clear(&mut self) {
        self.section = Vec::new();
        self.parts.clear();
    }
}

impl Inserters<Versions> {
    /// Has a version of `key`, which is without the prefix, put into the index of `residency`.
    pub(crate) fn insert(
        &mut self,
        residency: Arc<Residency>,
        key: &[u8],
        entry: Entry,
    ) -> Result<()> {
        let chunk = &mut self.filling;
        chunk.keys.extend_from_slice(key);
        chunk.entries.push((residency, chunk.keys.len(), entry));
        if chunk.keys.len() + chunk.entries.len() * size_of::<Entry>() >= CHUNK_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }
}

impl Inserters<Parts> {
    /// Has `parts` of `section` put into the indexes of their residencies.
    pub(crate) fn insert(
        &mut self,
        section: Vec<u8>,
        parts: Vec<(Arc<Residency>, Range<usize>, u64)>,
    ) -> Result<()> {
        if !self.filling.parts.is_empty() {
            self.hand_over()?;
        }
        self.filling = Parts { section, parts };
        Ok(())
    }
}
