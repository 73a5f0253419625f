//! Retiring graves that nothing needs any more, after every change of the tree.

use super::file::GravesFile;
use super::proof::{Needs, Outside, retire};
use super::{BACKOFF_SHARE, GraveStore, Owner, UpperLevel};
use crate::cemetery::flushed::FlushedGraves;
use crate::read_state::ReadState;
use crate::sync::Arc;
use std::time::Duration;

impl GraveStore {
    /// Retires the graves that nothing needs any more, if it is time to look or `always`, and nothing is on its way to
    /// the tree; whether any were.
    pub(crate) fn retire(&self, always: bool, owner: &dyn Owner) -> bool {
        if self.read_state().flushed.is_empty() {
            return false;
        }
        let mut are_some = false;
        owner.while_settled(&mut || {
            // Who flushes now retires, too.
            if let Ok(mut file) = self.file.try_lock() {
                are_some = self.retire_settled(&mut file, always, owner);
            }
        });
        are_some
    }

    fn retire_settled(&self, file: &mut GravesFile, always: bool, owner: &dyn Owner) -> bool {
        let begun = self.now();
        if !always && begun < file.look_at {
            return false;
        }
        let read_state = self.read_state();
        let looked_at = Some(self.looked_at(&read_state));
        if !always && file.looked_at == looked_at {
            return false;
        }
        file.looked_at = looked_at;
        let memtables_from = read_state.memtables_from();
        let retired = retired(&read_state.flushed, &read_state, memtables_from, owner);
        let are_some = retired.is_some();
        if let Some(flushed) = retired {
            self.show(flushed);
            file.is_stale = true;
        }
        let ended = self.now();
        file.look_at = ended + ended.saturating_sub(begun) * BACKOFF_SHARE;
        are_some
    }

    /// Whether everything in the tree has been looked at for graves that it does not need.
    pub(crate) fn has_looked(&self) -> bool {
        self.next_look().is_none()
    }

    /// When graves and spill files are to be looked at again, if not all of them have been since they changed.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        let read_state = self.read_state();
        let Ok(file) = self.file.try_lock() else {
            // Who has it may change them.
            return Some(self.now());
        };
        let has_looked =
            read_state.flushed.is_empty() || file.looked_at == Some(self.looked_at(&read_state));
        let has_maintained = self.has_maintained_spilled(&read_state, &file);
        let graves = (!has_looked).then_some(file.look_at);
        let spilled = (!has_maintained).then(|| self.next_upkeep());
        [graves, spilled].into_iter().flatten().min()
    }
}

/// `flushed` without what nothing in `read_state` needs, memtables holding writes from `memtables_from` on; `None`
/// if all are needed.
pub(super) fn retired(
    flushed: &FlushedGraves,
    read_state: &ReadState,
    memtables_from: u64,
    owner: &dyn Owner,
) -> Option<Arc<FlushedGraves>> {
    let upper_level = owner.upper_level();
    let upper = |start: &[u8], end: Option<&[u8]>, sequence| {
        upper_level.is_some_and(|it| it.may_hold(start, end, sequence))
    };
    let needs = Needs {
        outside: outside(memtables_from, owner),
        upper: &upper,
    };
    retire(flushed, &read_state.version, &needs).map(Arc::new)
}

/// Which deletions hide data that is in no table, memtables holding writes from `memtables_from` on. To be asked with the
/// read state loaded: what left on its way to the tree is known before the deletions of then are flushed.
pub(super) fn outside(memtables_from: u64, owner: &dyn Owner) -> Outside {
    let upper_level = owner.upper_level();
    Outside {
        memtables_from,
        indexes: upper_level.map_or_else(Vec::new, UpperLevel::left_on_the_way),
    }
}
