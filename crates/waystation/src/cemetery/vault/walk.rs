//! Key after key: a cursor over each vault goes along with whoever asks for floors in order.

use super::file::target;
use super::{Vault, Vaults};
use crate::error::Result;
use crate::sst::InternalIterator;
use crate::sst::{LookupKey, TableIterator};
use crate::sync::Arc;
use waystation_format::key;

/// So many graves are passed one by one before a cursor is sent further at once.
const STEPS: usize = 8;

/// Finds the floors of keys, which ascend mostly, in vaults.
pub(crate) struct Walk {
    walkers: Vec<Walker>,
    snapshot: u64,
}

/// A cursor over a vault, and where it is.
struct Walker {
    vault: Arc<Vault>,
    cursor: TableIterator,
    /// It stands on the first grave from this key on, but for later ones of this key.
    from: Option<Vec<u8>>,
}

impl Walk {
    /// For a reader at `snapshot`.
    pub(crate) fn for_reader(vaults: &Vaults, snapshot: u64) -> Self {
        Self::new(vaults, snapshot, Vault::cursor)
    }

    /// For a merge of versions from `above` on that leaves out what deletions up to `through` hide.
    pub(crate) fn for_merge(vaults: &Vaults, above: u64, through: u64) -> Self {
        let mut walk = Self::new(vaults, through, Vault::scan);
        let is_later = |walker: &Walker| walker.vault.label().sequences.1 > above;
        walk.walkers.retain(is_later);
        walk
    }

    fn new(vaults: &Vaults, snapshot: u64, cursor: impl Fn(&Vault) -> TableIterator) -> Self {
        let walker = |vault: &Arc<Vault>| Walker {
            cursor: cursor(vault),
            vault: Arc::clone(vault),
            from: None,
        };
        Self {
            walkers: vaults.counting().map(walker).collect(),
            snapshot,
        }
    }

    /// Whether there is no vault.
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
    pub(crate) fn floor(&mut self, key: &[u8]) -> Result<u64> {
        let mut floor = 0;
        for walker in &mut self.walkers {
            let found = walker.floor(key, self.snapshot);
            if found.is_err() {
                walker.from = None;
            }
            floor = floor.max(found?);
        }
        Ok(floor)
    }
}

impl Walker {
    fn floor(&mut self, key: &[u8], snapshot: u64) -> Result<u64> {
        if !self.vault.label().spans(key) {
            return Ok(0);
        }
        match &mut self.from {
            Some(from) if **from > *key => {
                return self
                    .vault
                    .floor(key, &LookupKey::new(key, snapshot), snapshot);
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
