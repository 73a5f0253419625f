//! What there is to be repaired: which files are there, which can be read, and the loss with the unreadable ones.
//!
//! - Tables: see `tables`.
//! - Graves belong to the tables if the side file says so. If that is lost, a file of graves that is there is used: at
//!   worst it has graves of which nothing is left.
//! - Of the log only what is behind the writes that are in tables counts: behind what the device table says is over, or
//!   the MANIFEST if there are no devices; all of it, if neither is known. Older parts may be there in chunks.

use super::report::{Loss, Resurrection, damage_of};
use super::tables::FoundTable;
use crate::cemetery::checkpoint::{self as graves, Checkpoint, GravesError};
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::fragments::Fragments;
use crate::cemetery::spilled;
use crate::devices::checkpoint::{self as devices, CheckpointError, Saved};
use crate::directory::{
    CHECKPOINT_NAME, DEVICES_STATE, GRAVES_NAME, GRAVES_STATE, JOURNAL_NAME, SIDE_FILE,
    segment_number, spill_name,
};
use crate::error::{Error, Result};
use crate::inspect::source::Source;
use crate::lsm::version::{Fence, ManifestFile, SideFile, SideFileError, State};
use crate::sst::TableMemory;
use crate::storage::{Area, Storage};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use waystation_format::filename::{self, CURRENT, FileKind, manifest_name};
use waystation_format::log::JournalState;
use waystation_format::order::Order;

/// What there is.
pub(super) struct Survey {
    pub(super) tables: Vec<FoundTable>,
    /// Writes up to here are in tables, and no table holds others, but for those of devices; if a MANIFEST says so.
    pub(super) flushed: Option<u64>,
    /// `LevelDB`'s logs that count, the oldest first.
    pub(super) leveldb_logs: Vec<PathBuf>,
    pub(super) graves: FlushedGraves,
    pub(super) saved: Option<Saved>,
    pub(super) journal: Option<JournalState>,
    /// Whether the log may hold what belongs to other tables.
    pub(super) is_foreign: bool,
    /// Whether a device table is known to be lost.
    pub(super) lacks_devices: bool,
    pub(super) losses: Vec<Loss>,
}

impl Survey {
    /// Writes up to here need not be in the log; `None` if that is not known.
    pub(super) fn needless(&self) -> Option<u64> {
        match &self.saved {
            Some(saved) => Some(saved.directory.released),
            None if self.lacks_devices => None,
            None => self.flushed,
        }
    }
}

/// What the side file says.
enum Belief {
    /// The state beside the tables.
    Believed(State),
    /// There is none, or another program has written since: nothing is beside the tables.
    Foreign,
    /// It is lost.
    Unknown,
}

/// A survey under way.
pub(super) struct Surveyor<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) dir: &'a Path,
    /// The files, with their lengths.
    pub(super) files: BTreeMap<String, u64>,
    pub(super) losses: Vec<Loss>,
}

/// Refuses a directory without any file of a database.
pub(super) fn refuse_nothing(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let is_something = |name: &str| {
        let is_leveldbs = matches!(
            filename::parse(name),
            Some(FileKind::Current | FileKind::Manifest(_) | FileKind::Table(_) | FileKind::Log(_))
        );
        is_leveldbs || segment_number(name).is_some()
    };
    if storage.list(dir)?.iter().any(|it| is_something(&it.name)) {
        return Ok(());
    }
    Err(Error::Incompatible {
        path: dir.to_owned(),
        reason: "it holds no file of a database, so there is nothing to repair".to_owned(),
    })
}

/// Looks at the files in `dir`.
pub(super) fn survey(storage: &dyn Storage, dir: &Path) -> Result<Survey> {
    let listed = storage.list(dir)?.into_iter();
    let mut surveyor = Surveyor {
        storage,
        dir,
        files: listed
            .filter(|entry| !entry.is_dir)
            .map(|entry| (entry.name, entry.bytes))
            .collect(),
        losses: Vec::new(),
    };
    let side = surveyor.side()?;
    if let Ok(Some(side)) = &side
        && side.comparator != Order::Bytewise.name()
    {
        let name = &side.comparator;
        return Err(Error::Incompatible {
            path: dir.join(SIDE_FILE),
            reason: format!(
                "the keys are ordered by {name:?}, and repair sorts them by their bytes; restore the database from a copy"
            ),
        });
    }
    let (name, manifest) = surveyor.manifest(side.as_ref().ok().and_then(Option::as_ref))?;
    let belief = surveyor.belief(side, name.as_deref(), manifest.as_ref());
    let graves = surveyor.graves(&belief, manifest.as_ref())?;
    let (saved, lacks_devices) = surveyor.devices(&belief)?;
    let journal = surveyor.journal(&belief)?;
    let released = saved.as_ref().map(|saved| saved.directory.released);
    let manifest = manifest.filter(|it| !surveyor.is_outdated(name.as_deref(), it, released));
    let tables = match &manifest {
        Some(manifest) => surveyor.tables_of(manifest),
        None => surveyor.all_tables(name.as_deref())?,
    };
    let leveldb_logs = surveyor.leveldb_logs(manifest.as_ref());
    Ok(Survey {
        tables,
        flushed: manifest.map(|it| it.numbers.last_sequence),
        leveldb_logs,
        graves,
        saved,
        journal,
        is_foreign: matches!(belief, Belief::Foreign),
        lacks_devices,
        losses: surveyor.losses,
    })
}

impl Surveyor<'_> {
    fn lose(&mut self, file: &str, reason: impl Into<String>, resurrection: Resurrection) {
        self.losses.push(Loss::of(file, reason, resurrection));
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// The content of a small file.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>> {
        Source::open_lenient(self.storage, &self.dir.join(name), Area::Tables)?.read_all()
    }

    pub(super) fn numbers(&self, kind: impl Fn(FileKind) -> Option<u64>) -> BTreeSet<u64> {
        let names = self.files.keys();
        names
            .filter_map(|name| kind(filename::parse(name)?))
            .collect()
    }

    /// The side file: `Ok(None)` if there is none, the error if it is damaged.
    fn side(&self) -> Result<Result<Option<SideFile>, String>> {
        let bytes = match self.read(SIDE_FILE) {
            Err(error) if error.is_not_found() => return Ok(Ok(None)),
            Err(error) => return Ok(Err(damage_of(error)?.1)),
            Ok(bytes) => bytes,
        };
        match SideFile::decode(&bytes) {
            Ok(side) => Ok(Ok(Some(side))),
            Err(SideFileError::Damaged(_, reason)) => Ok(Err(reason.to_owned())),
            Err(SideFileError::Newer(format)) => Err(self.newer(SIDE_FILE, format)),
        }
    }

    fn newer(&self, name: &str, format: impl std::fmt::Display) -> Error {
        Error::Incompatible {
            path: self.dir.join(name),
            reason: format!(
                "it has format {format}; use the version that wrote it, or a newer one"
            ),
        }
    }

    /// The MANIFEST in force, and its name.
    fn manifest(
        &mut self,
        side: Option<&SideFile>,
    ) -> Result<(Option<String>, Option<ManifestFile>)> {
        let current = self.read(CURRENT).and_then(|content| {
            let name = filename::parse_current(&content);
            name.map(str::to_owned)
                .map_err(|error| Error::corruption(CURRENT, error.offset(), error.reason()))
        });
        let name = match current {
            Ok(name) => name,
            Err(error) => {
                let (offset, reason) = damage_of(error)?;
                let Some(number) = self.likely_manifest(side) else {
                    let reason = format!("{reason}, and so is the MANIFEST");
                    self.lose(CURRENT, reason, Resurrection::Impossible);
                    self.losses
                        .push(without_manifest("MANIFEST", 0, "it is missing"));
                    return Ok((None, None));
                };
                let name = manifest_name(number);
                let reason = format!("{reason}; {name} is taken for the MANIFEST in force");
                let loss = Loss::of(CURRENT, reason, Resurrection::Impossible);
                self.losses.push(loss.at(offset, None));
                name
            }
        };
        match ManifestFile::read(self.storage, &self.dir.join(&name), &Order::Bytewise) {
            Ok(manifest) => Ok((Some(name), Some(manifest))),
            Err(error) => {
                let (offset, reason) = damage_of(error)?;
                self.losses.push(without_manifest(&name, offset, &reason));
                Ok((Some(name), None))
            }
        }
    }

    /// The MANIFEST that `CURRENT` named, if it is lost: one that the side file belongs to, or the newest. Never an
    /// older one in the place of one that is damaged.
    fn likely_manifest(&self, side: Option<&SideFile>) -> Option<u64> {
        let there = self.numbers(|kind| match kind {
            FileKind::Manifest(number) => Some(number),
            _ => None,
        });
        let pinned = side.into_iter().flat_map(|side| &side.pins);
        let mut pinned: Vec<u64> = pinned.map(|pin| pin.manifest).collect();
        pinned.sort_unstable();
        // While CURRENT changes hands two are pinned, and the newer one may not be whole yet: both say the same.
        let whole = |number: &&u64| {
            there.contains(number)
                && ManifestFile::read(
                    self.storage,
                    &self.dir.join(manifest_name(**number)),
                    &Order::Bytewise,
                )
                .is_ok()
        };
        let pinned = pinned.iter().rev().find(whole).copied();
        pinned.or_else(|| there.last().copied())
    }

    fn belief(
        &mut self,
        side: Result<Option<SideFile>, String>,
        name: Option<&str>,
        manifest: Option<&ManifestFile>,
    ) -> Belief {
        let number = name.and_then(|name| match filename::parse(name) {
            Some(FileKind::Manifest(number)) => Some(number),
            _ => None,
        });
        let is_fenced = manifest.map(|it| it.fence == Fence::Closed);
        let is_ours = is_fenced.unwrap_or(false) || self.has(JOURNAL_NAME);
        let lost = match side {
            Ok(None) if !is_ours => return Belief::Foreign,
            Ok(None) => "it is missing".to_owned(),
            Err(reason) => reason,
            Ok(Some(side)) => {
                let fits = match (manifest, number) {
                    (Some(manifest), Some(number)) => side
                        .pins
                        .iter()
                        .any(|pin| pin.matches(number, &manifest.content)),
                    (None, Some(number)) => side.pins.iter().any(|pin| pin.manifest == number),
                    (_, None) => manifest.is_none(),
                };
                if fits {
                    return Belief::Believed(side.state);
                }
                if is_fenced != Some(true) {
                    return Belief::Foreign;
                }
                "it belongs to another MANIFEST than the one in force".to_owned()
            }
        };
        // Without a fence nothing was outside of the tables. Graves that are there say that there were some.
        let (reason, resurrection) = if is_fenced == Some(false) || self.has(GRAVES_NAME) {
            (lost, Resurrection::Impossible)
        } else {
            let reason = format!("{lost}; whether there was a file of graves is unknown");
            (reason, Resurrection::Possible)
        };
        self.lose(SIDE_FILE, reason, resurrection);
        Belief::Unknown
    }

    fn graves(
        &mut self,
        belief: &Belief,
        manifest: Option<&ManifestFile>,
    ) -> Result<FlushedGraves> {
        let flushed = manifest.map_or(0, |it| it.numbers.last_sequence);
        let none = || FlushedGraves::new(flushed, Fragments::default());
        let is_expected = match belief {
            Belief::Believed(state) if !state.contains_key(GRAVES_STATE) => return Ok(none()),
            Belief::Believed(_) => true,
            Belief::Foreign | Belief::Unknown => false,
        };
        let read = self.read(GRAVES_NAME);
        let lost = match read.map(|bytes| graves::decode(&bytes)) {
            Err(error) if error.is_not_found() && !is_expected => return Ok(none()),
            Err(error) => damage_of(error)?,
            Ok(Ok(read)) if matches!(belief, Belief::Foreign) => {
                if !read.flushed.is_empty() || !read.labels.is_empty() {
                    let reason = "another program has written to the directory since, so that the deletions in it \
                                  are not used";
                    self.lose(GRAVES_NAME, reason, Resurrection::Likely);
                }
                return Ok(none());
            }
            Ok(Ok(read)) => return self.with_spilled(read),
            Ok(Err(GravesError::Damaged(offset, reason))) => (offset, reason.to_owned()),
            Ok(Err(GravesError::Newer(format))) => return Err(self.newer(GRAVES_NAME, format)),
        };
        let reason = format!("{}; what was deleted comes back", lost.1);
        let loss = Loss::of(GRAVES_NAME, reason, Resurrection::Likely);
        self.losses.push(loss.at(lost.0, None));
        Ok(none())
    }

    /// What `read` says, with the graves of the spill files it names in memory, as far as they can be read.
    fn with_spilled(&mut self, read: Checkpoint) -> Result<FlushedGraves> {
        let memory = TableMemory::own(self.dir, 0);
        let (mut counting, mut dated) = (Vec::new(), Vec::new());
        for label in read.labels {
            let (name, counts) = (spill_name(label.number), label.counts());
            let graves = if counts { &mut counting } else { &mut dated };
            let opened = spilled::open(self.storage, self.dir, label, &memory);
            if let Err(error) = opened.and_then(|spill| spill.read_into(graves)) {
                let (_, reason) = damage_of(error)?;
                let reason = format!("{reason}; what was deleted comes back");
                self.lose(&name, reason, Resurrection::Likely);
            }
        }
        Ok(read.flushed.with_all_of(counting, dated))
    }

    /// The device table, and whether it is lost.
    fn devices(&mut self, belief: &Belief) -> Result<(Option<Saved>, bool)> {
        let is_expected =
            matches!(belief, Belief::Believed(state) if state.contains_key(DEVICES_STATE));
        let read = self.read(CHECKPOINT_NAME);
        let lost = match read.map(|bytes| devices::decode(&bytes)) {
            Err(error) if error.is_not_found() && !is_expected => return Ok((None, false)),
            Err(error) => damage_of(error)?,
            Ok(Ok(saved)) => {
                if matches!(belief, Belief::Foreign) {
                    let reason = "another program has written to the directory since; which writes are newer is \
                                  not known for sure";
                    self.lose(CHECKPOINT_NAME, reason, Resurrection::Possible);
                }
                return Ok((Some(saved), false));
            }
            Ok(Err(CheckpointError::Damaged(offset, reason))) => (offset, reason.to_owned()),
            Ok(Err(CheckpointError::Newer(what))) => {
                return Err(Error::Incompatible {
                    path: self.dir.join(CHECKPOINT_NAME),
                    reason: format!("{what}; use the version that wrote it, or a newer one"),
                });
            }
        };
        self.losses.push(without_devices(lost.0, &lost.1));
        Ok((None, true))
    }

    fn journal(&mut self, belief: &Belief) -> Result<Option<JournalState>> {
        let is_expected = self.files.keys().any(|name| segment_number(name).is_some())
            && !matches!(belief, Belief::Foreign);
        let lost = match self.read(JOURNAL_NAME) {
            Err(error) if error.is_not_found() && !is_expected => return Ok(None),
            Err(error) => damage_of(error)?.1,
            Ok(bytes) if JournalState::is_newer(&bytes) => {
                return Err(self.newer(JOURNAL_NAME, "of a newer version"));
            }
            Ok(bytes) => match JournalState::decode(&bytes) {
                Ok(journal) => return Ok(Some(journal)),
                Err(reason) => reason.to_owned(),
            },
        };
        let reason = format!("{lost}; without it a lost end of the log goes unnoticed");
        self.lose(JOURNAL_NAME, reason, Resurrection::Impossible);
        Ok(None)
    }

    fn leveldb_logs(&self, manifest: Option<&ManifestFile>) -> Vec<PathBuf> {
        let logs = self.numbers(|kind| match kind {
            FileKind::Log(number) => Some(number),
            _ => None,
        });
        let needed = logs.into_iter().filter(|number| {
            manifest.is_none_or(|it| {
                *number >= it.numbers.log_number || (*number > 0 && *number == it.prev_log_number)
            })
        });
        needed
            .map(|number| self.dir.join(filename::log_name(number)))
            .collect()
    }
}

/// What it means that the MANIFEST cannot be read, or not be believed.
pub(super) fn without_manifest(name: &str, offset: u64, reason: &str) -> Loss {
    let reason = format!(
        "{reason}; all tables that are there are read, also such as were replaced already, and one that is missing is \
         not missed"
    );
    Loss::of(name, reason, Resurrection::Possible).at(offset, None)
}

/// What it means that the device table cannot be read.
pub(super) fn without_devices(offset: u64, reason: &str) -> Loss {
    let reason = format!(
        "{reason}; which devices departed or were handed on is not known any more, nor that there are devices: all \
         entries go to the tree"
    );
    Loss::of(CHECKPOINT_NAME, reason, Resurrection::Likely).at(offset, None)
}
