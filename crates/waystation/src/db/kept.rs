//! The file of graves and the spill files that it names: reading them, and replacing the file.
//!
//! The file is replaced before the MANIFEST tells of the flush that it was written for. Between the two, and for longer
//! if the flush fails, a restart may find the tables from before the flush or those from after it, and the file must do
//! for both. So:
//!
//! - it has whatever the tables of the flush in doubt need, until a flush has succeeded: nobody else replaces it by
//!   less, and a flush that is tried again retires nothing;
//! - the log is durable through whatever graves were retired for: else a power cut takes a departure back, and leaves
//!   the device without the graves that hid some of its data;
//! - of graves that are newer than the tables it is not known whether they are all there: see
//!   [`known_through`](FlushedGraves::known_through);
//! - a spill file is durable before a file names it, and removed once no file names it that a restart could find: while
//!   it is unknown which file is in force, no spill file is removed, and no other is written.

use super::Core;
use super::graves::LookedAt;
use super::spilled::SpillFiles;
use crate::cemetery::checkpoint::{self, Checkpoint, GravesError};
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::fragments::Fragments;
use crate::cemetery::spilled::{self, SpillDirectory, SpilledGraves};
use crate::directory::{GRAVES_DRAFT, GRAVES_NAME, GRAVES_STATE, read_file, replace_file};
use crate::error::{Error, Result};
use crate::lsm::tree::Tree;
use crate::lsm::version::State;
use crate::storage::Storage;
use crate::sync::{Arc, lock};
use std::path::Path;
use std::time::Duration;

/// What the file says.
pub(super) struct Kept {
    /// Whether there is a file, and the tree's state says so.
    pub(super) has_file: bool,
    /// All graves up to here that anything needs are in it.
    pub(super) through: u64,
    /// How many graves it holds.
    pub(super) graves: usize,
    /// Whether there are graves in it that were retired, or may be.
    pub(super) is_stale: bool,
    /// What it holds, if that is more than the flushed graves that readers see: its memtable was not flushed yet, or
    /// for all that is known. (When a flush fails, a restart may still find that it did not.)
    pub(super) ahead: Option<Arc<FlushedGraves>>,
    /// How far the flush that is being tried goes, and the time at which what had expired was promoted for it.
    pub(super) tried: Option<(u64, u64)>,
    /// The spill files that are there.
    pub(super) spilled: SpillFiles,
    /// When to look again for graves to retire.
    pub(super) look_at: Duration,
    /// What was looked at last.
    pub(super) looked_at: Option<LookedAt>,
}

impl Kept {
    /// As `flushed` was read from the file, if there is one.
    pub(super) fn new(flushed: &FlushedGraves, has_file: bool) -> Self {
        Self {
            has_file,
            through: flushed.through(),
            graves: flushed.count(),
            is_stale: false,
            ahead: None,
            tried: None,
            spilled: SpillFiles::of(flushed.spilled()),
            look_at: Duration::ZERO,
            looked_at: None,
        }
    }

    /// Whether a restart finds a file, or may.
    pub(super) fn may_be_found(&self) -> bool {
        self.has_file || self.spilled.is_in_doubt
    }
}

/// Reads the graves of the directory, which belong to the tables if `state` says so, and `flushed_through` is what
/// these go through. Returns whether there is a file. Spill files that it does not name are removed: the tree has been
/// opened, which makes the directory durable, so no other file of graves will be found.
pub(super) fn read_graves(
    site: &SpillDirectory,
    state: &State,
    flushed_through: u64,
) -> Result<(FlushedGraves, bool)> {
    let (storage, dir, order) = (&*site.storage, &site.dir, &site.settings.order);
    if !state.contains_key(GRAVES_STATE) {
        remove_file(storage, dir)?;
        spilled::remove_others(site, &[])?;
        return Ok((
            FlushedGraves::new(flushed_through, Fragments::new(order)),
            false,
        ));
    }
    let missing = |path| {
        let reason = "it is missing, although deletions are in it alone; restore it from a copy";
        Error::corruption(path, 0, reason)
    };
    let path = dir.join(GRAVES_NAME);
    let content = match read_file(storage, &path) {
        Err(error) if error.is_not_found() => return Err(missing(path)),
        content => content?,
    };
    let Checkpoint {
        flushed, labels, ..
    } = match checkpoint::decode_in(order, &content) {
        Ok(read) => read,
        Err(GravesError::Damaged(offset, reason)) => {
            return Err(Error::corruption(path, offset, reason));
        }
        Err(GravesError::Newer(format)) => {
            return Err(Error::Incompatible {
                path,
                reason: format!(
                    "it has format {format}; use the version that wrote it, or a newer one"
                ),
            });
        }
    };
    let mut spilled = Vec::new();
    for label in labels {
        let path = site.path(label.number);
        match site.open(label) {
            Err(error) if error.is_not_found() => return Err(missing(path)),
            spill => spilled.push(Arc::new(spill?)),
        }
    }
    // It may have been written for a flush that did not come to its end, and lacks what hides nothing but versions
    // that this flush would have left out. Now those may reach a table, if memory is divided in another way.
    let flushed = flushed.known_through(flushed_through);
    let flushed = flushed.with_spilled(SpilledGraves::new(spilled));
    let named: Vec<u64> = flushed.spilled().labels().map(|it| it.number).collect();
    spilled::remove_others(site, &named)?;
    Ok((flushed, true))
}

/// Writes the graves of a copy of the database in `dir`.
pub(super) fn write_file(storage: &dyn Storage, dir: &Path, flushed: &FlushedGraves) -> Result<()> {
    let content = checkpoint::encode(flushed);
    replace_file(storage, dir, GRAVES_DRAFT, GRAVES_NAME, &content)
}

fn remove_file(storage: &dyn Storage, dir: &Path) -> Result<()> {
    match storage.remove(&dir.join(GRAVES_NAME)) {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Notes in `tree` that the file is there.
fn note_file(tree: &Tree, is_there: bool) -> Result<()> {
    let mut state = tree.state();
    if is_there {
        state.insert(GRAVES_STATE.to_owned(), Vec::new());
    } else {
        state.remove(GRAVES_STATE);
    }
    tree.set_state(state)
}

impl Core {
    /// Replaces the file by one with `flushed`, whose spill files are durable; those that it does not name are removed.
    /// It is refused while the file holds more for a flush in doubt.
    pub(super) fn write_graves(&self, kept: &mut Kept, flushed: &Arc<FlushedGraves>) -> Result<()> {
        // They can be swept if this fails.
        kept.spilled.note(flushed.spilled());
        if let Some(ahead) = &kept.ahead
            && !Arc::ptr_eq(ahead, flushed)
        {
            let told = lock(&self.background).flush_failure.clone();
            let cause = told.unwrap_or_else(|| "the flush of a memtable failed".into());
            return Err(Error::Suspended { cause });
        }
        // Graves of what only a device in the upper level needed were retired when it departed; it must not be back.
        self.log.sync_all()?;
        // If it fails, either of the two files may be found.
        kept.spilled.is_in_doubt = true;
        kept.is_stale = true;
        write_file(&*self.storage, &self.dir, flushed)?;
        if !kept.has_file {
            note_file(&self.tree, true)?;
            kept.has_file = true;
        }
        kept.spilled.is_in_doubt = false;
        kept.spilled.named = flushed.spilled().labels().map(|it| it.number).collect();
        self.sweep_spilled(kept);
        kept.through = flushed.through();
        kept.graves = flushed.count();
        kept.is_stale = false;
        Ok(())
    }

    /// Removes the file and its spill files: there are no graves.
    pub(super) fn remove_graves(&self, kept: &mut Kept) -> Result<()> {
        note_file(&self.tree, false)?;
        remove_file(&*self.storage, &self.dir)?;
        kept.has_file = false;
        kept.spilled.named.clear();
        kept.spilled.is_in_doubt = false;
        self.sweep_spilled(kept);
        Ok(())
    }
}
