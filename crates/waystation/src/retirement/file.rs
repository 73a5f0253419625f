//! The file of graves and the spill files that it names: reading them, and replacing the file.
//!
//! The file is replaced before the MANIFEST tells of the flush that it was written for. Between the two, and for longer
//! if the flush fails, a restart may find the tables from before the flush or those from after it, and the file must do
//! for both. So:
//!
//! - it has whatever the tables of the flush in doubt need, until a flush has succeeded: no other code replaces it by
//!   less, and a flush that is tried again retires nothing;
//! - the log is durable through whatever graves were retired for: else a power cut takes a departure back, and leaves
//!   the device without the graves that hid some of its data;
//! - and through the newest grave in it, as the tables of the flush may not be found;
//! - of graves that are newer than the tables it is not known whether they are all there: see
//!   [`known_through`](FlushedGraves::known_through);
//! - a spill file is durable before a file names it, and removed once no file names it that a restart could find: while
//!   it is unknown which file is in force, no spill file is removed, and no other is written.

use super::spill::SpillFiles;
use super::{GraveStore, LookedAt, Owner};
use crate::cemetery::checkpoint::{self, Checkpoint, GravesError};
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::fragments::Fragments;
use crate::cemetery::spilled::{self, SpillDirectory, SpilledGraves};
use crate::directory::{GRAVES_DRAFT, GRAVES_NAME, GRAVES_STATE, read_file, replace_file};
use crate::error::{Error, Result};
use crate::lsm::tree::Tree;
use crate::lsm::version::State;
use crate::storage::Storage;
use crate::sync::Arc;
use std::path::Path;
use std::time::Duration;
use waystation_format::order::Order;

/// The known state of the file `GRAVES`, and of the spill files beside it.
pub(crate) struct GravesFile {
    /// Whether there is a file, and the tree's state says so.
    pub(super) is_there: bool,
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

impl GravesFile {
    /// As `flushed` was read from the file, if it is there.
    fn new(flushed: &FlushedGraves, is_there: bool) -> Self {
        Self {
            is_there,
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
        self.is_there || self.spilled.is_in_doubt
    }
}

/// Reads the graves of the directory, which belong to the tables if `state` says so, and `flushed_through` is what
/// these go through; and the known state of their file. Spill files that it does not name are removed: the tree has been
/// opened, which makes the directory durable, so no other file of graves will be found.
///
/// # Errors
/// [`Error::Corruption`] if a file is missing or damaged, [`Error::Incompatible`] if a newer version wrote it.
pub(crate) fn read_graves(
    directory: &SpillDirectory,
    state: &State,
    flushed_through: u64,
) -> Result<(FlushedGraves, GravesFile)> {
    let (storage, order) = (&*directory.storage, &directory.settings.order);
    if !state.contains_key(GRAVES_STATE) {
        remove_file(storage, &directory.dir)?;
        spilled::remove_others(directory, &[])?;
        let none = FlushedGraves::new(flushed_through, Fragments::new(order));
        let file = GravesFile::new(&none, false);
        return Ok((none, file));
    }
    let Checkpoint {
        flushed, labels, ..
    } = read_checkpoint(storage, &directory.dir.join(GRAVES_NAME), order)?;
    let mut spilled = Vec::new();
    for label in labels {
        let path = directory.path(label.number);
        match directory.open(label) {
            Err(error) if error.is_not_found() => return Err(missing(&path)),
            spill => spilled.push(Arc::new(spill?)),
        }
    }
    // It may have been written for a flush that did not come to its end, and lacks what hides nothing but versions
    // that this flush would have left out. Now those may reach a table, if memory is divided in another way.
    let flushed = flushed.known_through(flushed_through);
    let flushed = flushed.with_spilled(SpilledGraves::new(spilled));
    let file = GravesFile::new(&flushed, true);
    spilled::remove_others(directory, &file.spilled.named)?;
    Ok((flushed, file))
}

fn read_checkpoint(storage: &dyn Storage, path: &Path, order: &Order) -> Result<Checkpoint> {
    let content = match read_file(storage, path) {
        Err(error) if error.is_not_found() => return Err(missing(path)),
        content => content?,
    };
    checkpoint::decode_in(order, &content).map_err(|error| match error {
        GravesError::Damaged(offset, reason) => Error::corruption(path, offset, reason),
        GravesError::Newer(format) => Error::Incompatible {
            path: path.to_owned(),
            reason: format!(
                "it has format {format}; use the version that wrote it, or a newer one"
            ),
        },
    })
}

fn missing(path: &Path) -> Error {
    let reason = "it is missing, although deletions are in it alone; restore it from a copy";
    Error::corruption(path, 0, reason)
}

/// Writes the graves of a copy of the database in `dir`.
pub(crate) fn write_file(storage: &dyn Storage, dir: &Path, flushed: &FlushedGraves) -> Result<()> {
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

impl GraveStore {
    /// Replaces the file by one with `flushed`, whose spill files are durable; spill files that it does not name are removed.
    /// It is refused while the file holds more for a flush in doubt.
    pub(super) fn write(
        &self,
        file: &mut GravesFile,
        flushed: &Arc<FlushedGraves>,
        owner: &dyn Owner,
    ) -> Result<()> {
        // They can be swept if this fails.
        file.spilled.note(flushed.spilled());
        if let Some(ahead) = &file.ahead
            && !Arc::ptr_eq(ahead, flushed)
        {
            let told = owner.flush_failure();
            let cause = told.unwrap_or_else(|| "the flush of a memtable failed".into());
            return Err(Error::Suspended { cause });
        }
        // Graves of what only a device in the upper level needed were retired when it departed; it must not be back. And a
        // deletion must not survive a power cut that a write before it does not.
        self.parts.log.sync_all()?;
        // If it fails, either of the two files may be found.
        file.spilled.is_in_doubt = true;
        file.is_stale = true;
        let directory = &self.parts.directory;
        write_file(&*directory.storage, &directory.dir, flushed)?;
        if !file.is_there {
            note_file(&self.parts.tree, true)?;
            file.is_there = true;
        }
        file.spilled.is_in_doubt = false;
        file.spilled.named = flushed.spilled().labels().map(|it| it.number).collect();
        file.spilled.sweep(directory);
        file.through = flushed.through();
        file.graves = flushed.count();
        file.is_stale = false;
        Ok(())
    }

    /// Removes the file and its spill files: there are no graves.
    pub(super) fn remove(&self, file: &mut GravesFile) -> Result<()> {
        let directory = &self.parts.directory;
        note_file(&self.parts.tree, false)?;
        remove_file(&*directory.storage, &directory.dir)?;
        file.is_there = false;
        file.spilled.named.clear();
        file.spilled.is_in_doubt = false;
        file.spilled.sweep(directory);
        Ok(())
    }
}
