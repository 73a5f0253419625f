//! The flush of graves: those of full memtables, and those of devices that settle, become flushed graves.
//!
//! A flush may fail after `GRAVES` was replaced, and may be found to have succeeded all the same. What it put there
//! stays until a flush has succeeded ([`file`](super::file)); tried again, it promotes what it promoted, and retires
//! nothing.

use super::file::GravesFile;
use super::retire::retired;
use super::{GraveStore, Owner};
use crate::cemetery::active::ActiveGraves;
use crate::cemetery::flushed::FlushedGraves;
use crate::error::Result;
use crate::lsm::compaction::Hidden;
use crate::sync::{Arc, MutexGuard, lock};

/// What becomes of the active graves of a memtable.
pub(crate) struct GraveFlush<'c> {
    file: MutexGuard<'c, GravesFile>,
    /// For the flush of its memtable: all graves.
    pub(crate) hidden: Hidden,
    /// For readers: the graves that they need after it.
    pub(crate) flushed: Arc<FlushedGraves>,
}

impl GraveFlush<'_> {
    /// Ends it, once readers see its flushed graves.
    pub(crate) fn end(mut self) {
        self.file.ahead = None;
        self.file.tried = None;
    }
}

impl GraveStore {
    /// Flushes `active` graves, whose memtables hold the writes up to `through` that no table holds. All readers read at `oldest_snapshot` or later.
    ///
    /// # Errors
    /// Those of spilling graves and of replacing the file. Then readers see what they saw.
    pub(crate) fn flush<'a>(
        &self,
        active: impl Iterator<Item = &'a ActiveGraves> + Clone,
        through: u64,
        oldest_snapshot: u64,
        owner: &dyn Owner,
    ) -> Result<GraveFlush<'_>> {
        let mut file = lock(&self.file);
        let read_state = self.read_state();
        let before = &read_state.flushed;
        let applied = oldest_snapshot.min(through);
        // Tried again, it promotes what it promoted: its table may be there already.
        let tried = file.tried.filter(|tried| tried.0 >= through);
        let time = tried.map_or_else(|| owner.oldest_time(), |tried| tried.1);
        let is_none_due = before.due_from() > time;
        // One before this one failed, and may be found to have succeeded.
        let is_in_doubt = file.ahead.is_some();
        let is_nothing_new = active.clone().all(ActiveGraves::is_empty) && is_none_due;
        if is_nothing_new && !before.is_empty() && !is_in_doubt {
            let hidden = Hidden {
                above: read_state.memtables_from(),
                ..self.hidden_from(&read_state, applied, owner.is_idle())
            };
            let flushed = Arc::clone(before);
            return Ok(GraveFlush {
                file,
                hidden,
                flushed,
            });
        }
        // (A flush goes no further than the last one if there is nothing in memory but a device's departure that was
        // read back, and that tables knew.)
        let purged_through = self.purged_through(before);
        let all = before.with(active, through, oldest_snapshot, time, purged_through);
        let all = Arc::new(all);
        file.tried = Some((through, time));
        // The flush leaves out what these hide; so only data that is in tables already needs them. (What one in doubt did
        // not leave out, as a snapshot was still held, may be in tables as well.)
        let retired = (!is_in_doubt).then(|| retired(&all, &read_state, applied + 1, owner));
        let flushed = retired.flatten().unwrap_or_else(|| Arc::clone(&all));
        file.is_stale |= !Arc::ptr_eq(&flushed, &all);
        let flushed = self.save(&mut file, flushed, owner)?;
        let hidden = Hidden {
            graves: all,
            above: read_state.memtables_from(),
            through: applied,
            ..Hidden::default()
        };
        Ok(GraveFlush {
            file,
            hidden,
            flushed,
        })
    }

    /// Spills what of `flushed` is too much for memory, and replaces the file if there is anything new that it needs.
    /// The graves that are left in memory.
    fn save(
        &self,
        file: &mut GravesFile,
        flushed: Arc<FlushedGraves>,
        owner: &dyn Owner,
    ) -> Result<Arc<FlushedGraves>> {
        let in_memory = Arc::clone(&flushed);
        let flushed = self.spill(file, flushed)?;
        let is_new = flushed.newest().is_some_and(|newest| newest > file.through);
        if is_new || !Arc::ptr_eq(&flushed, &in_memory) {
            file.ahead = Some(Arc::clone(&flushed));
            self.write(file, &flushed, owner)?;
        }
        Ok(flushed)
    }

    /// Deletions of devices that settle, by key, and have switched at `switch` or before. They are durable on return,
    /// and readers see them. Nothing is flushed or retired meanwhile, as stays are pending. `reaches` says how far the
    /// flushed graves go with them: to the last write, if no memtable holds anything; else it returns 0, and has the
    /// flush of the memtable see to it.
    ///
    /// # Errors
    /// Those of replacing the file.
    pub(crate) fn add_settled(
        &self,
        graves: &[(Vec<u8>, u64)],
        switch: u64,
        reaches: impl FnOnce() -> u64,
        owner: &dyn Owner,
    ) -> Result<()> {
        if graves.is_empty() {
            return Ok(());
        }
        let mut file = lock(&self.file);
        let through = reaches();
        let before = Arc::clone(&self.read_state().flushed);
        // Through its switch tables were not purged without these, unless it switched before a restart.
        let number = switch.max(self.purged_through(&before) + 1);
        let flushed = Arc::new(before.with_settled(graves, number, through));
        // What a flush in doubt has put into the file stays there.
        let mut whole = Arc::clone(&flushed);
        if let Some(ahead) = &mut file.ahead {
            *ahead = Arc::new(ahead.with_settled(graves, number, through));
            whole = Arc::clone(ahead);
        }
        self.write(&mut file, &whole, owner)?;
        // Of that, some may have been retired since.
        file.is_stale = file.ahead.is_some();
        self.show(flushed);
        Ok(())
    }
}
