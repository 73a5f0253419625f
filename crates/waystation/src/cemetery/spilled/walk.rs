//! Key after key: a cursor over each spill file goes along with a caller that asks for covering sequences in order.

use super::file::target;
use super::{SpillFile, SpilledGraves};
use crate::error::Result;
use crate::sst::InternalIterator;
use crate::sst::{LookupKey, TableIterator};
use crate::sync::Arc;
use waystation_format::key;

/// So many graves are passed one by one before a cursor is sent further at once.
const STEPS: usize = 8;

/// Finds the covering sequences of keys, which ascend mostly, in spill files.
pub(crate) struct SpillCursors {
    walkers: Vec<Walker>,
    snapshot: u64,
}

/// A cursor over a spill file, and where it is.
struct Walker {
    spill: Arc<SpillFile>,
    cursor: TableIterator,
    /// It stands on the first grave from this key on, but for later ones of this key.
    from: Option<Vec<u8>>,
}

impl SpillCursors {
    /// For a reader at `snapshot`.
    pub(crate) fn for_reader(spilled: &SpilledGraves, snapshot: u64) -> Self {
        Self::new(spilled, snapshot, SpillFile::cursor)
    }

    /// For a merge of versions from `above` on that leaves out what deletions up to `through` hide.
    pub(crate) fn for_merge(spilled: &SpilledGraves, above: u64, through: u64) -> Self {
        let mut walk = Self::new(spilled, through, SpillFile::scan);
        let is_later = |walker: &Walker| walker.spill.label().sequences.1 > above;
        walk.walkers.retain(is_later);
        walk
    }

    fn new(
        spilled: &SpilledGraves,
        snapshot: u64,
        cursor: impl Fn(&SpillFile) -> TableIterator,
    ) -> Self {
        let walker = |spill: &Arc<SpillFile>| Walker {
            cursor: cursor(spill),
            spill: Arc::clone(spill),
            from: None,
        };
        Self {
            walkers: spilled.counting().map(walker).collect(),
            snapshot,
        }
    }

    /// Whether there is no spill file.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.walkers.is_empty()
    }

    /// The next key may be anywhere.
    pub(crate) fn forget(&mut self) {
        for walker in &mut self.walkers {
            walker.from = None;
        }
    }

    /// The latest deletion of `key`; 0 if there is none.
    pub(crate) fn covering(&mut self, key: &[u8]) -> Result<u64> {
        let mut covering = 0;
        for walker in &mut self.walkers {
            let found = walker.covering(key, self.snapshot);
            if found.is_err() {
                walker.from = None;
            }
            covering = covering.max(found?);
        }
        Ok(covering)
    }
}

impl Walker {
    fn covering(&mut self, key: &[u8], snapshot: u64) -> Result<u64> {
        if !self.spill.label().spans(key) {
            return Ok(0);
        }
        match &mut self.from {
            Some(from) if **from > *key => {
                return self
                    .spill
                    .covering(key, &LookupKey::new(key, snapshot), snapshot);
            }
            Some(from) => {
                from.clear();
                from.extend_from_slice(key);
                let mut steps = 0;
                while self.cursor.valid() && key::user_key(self.cursor.key()) < key {
                    if steps == STEPS {
                        self.cursor.seek(&target(key, snapshot))?;
                        break;
                    }
                    self.cursor.next()?;
                    steps += 1;
                }
            }
            none => {
                self.cursor.seek(&target(key, snapshot))?;
                *none = Some(key.to_vec());
            }
        }
        while self.cursor.valid() && key::user_key(self.cursor.key()) == key {
            let sequence = key::trailer(self.cursor.key()) >> 8;
            if sequence <= snapshot {
                return Ok(sequence);
            }
            self.cursor.next()?;
        }
        Ok(0)
    }
}
