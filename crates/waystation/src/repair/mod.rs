//! Repair: what checks of a database, in a new one; whether it opens or not.
//!
//! Nothing of the engine runs on the damaged files, and nothing is written to them. Files are read as they are, each by
//! itself, so that one that is lost or damaged takes nothing else along: `survey` finds out what there is, `journal`
//! reads the log past holes, `collect` makes sorted runs of it, and `merge` decides by sequence numbers, key by key.
//!
//! **What was deleted** stays so: deletions are in the log, in tables, in `GRAVES` and in `DEVICES`, and each counts by
//! its number. Where one of them is lost, older data may take the place of newer, or of nothing. Such a repair is
//! refused unless it is asked for ([`Resurrection`]).
//!
//! The new database is made beside its place and renamed once all of it is written, synced and checked; until then
//! nothing is there. Its devices arrive in it anew; it is another engine, which knows nothing of hand-offs.

mod collect;
mod cursor;
mod in_place;
mod journal;
mod merge;
mod report;
mod ring;
mod survey;
mod tables;

pub use in_place::{RepairedInPlace, repair_in_place};
pub use report::{Gap, Loss, Repaired, Resurrection};

use crate::db::{Db, WriteBatch};
use crate::directory::{
    FAST_NAME, JOURNAL_NAME, LOCK_NAME, RING_NAME, Unfinished, refuse_used, segment_number,
};
use crate::error::{Error, Result};
use crate::inspect::Inspection;
use crate::inspect::log::walk_leveldb_batches;
use crate::inspect::source::Source;
use crate::options::{DeviceOptions, Durability, Options};
use crate::placement::Spread;
use crate::storage::{Area, Storage, as_micros};
use collect::{Census, Collected};
use journal::{Event, Journal};
use merge::{Input, Merge};
use report::{damage_of, refuse};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use survey::{Survey, refuse_nothing, survey};

/// Entries are written in batches of about this size (bytes).
const BATCH_BYTES: usize = 256 << 10;

/// Writes what can be read of the database in `dir` to the new directory `target`. Nothing in `dir` is changed. Devices
/// are kept apart as there, whatever `options` say. `progress` hears how many entries are written.
///
/// # Errors
/// [`Error::Resurrection`] if more may come back than is `accepted`; [`Error::Locked`] if a process owns `dir`;
/// [`Error::Incompatible`] if there is no file of a database in it, or a newer version made it;
/// what writing meets. Damage is no error: it is in the answer.
pub fn repair(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    target: &Path,
    options: &Options,
    accepted: Resurrection,
    progress: &mut dyn FnMut(u64),
) -> Result<Repaired> {
    for path in [dir, target] {
        if path.as_os_str().is_empty() {
            let reason = "the path is empty; name the database directory";
            return Err(Error::InvalidArgument(reason.to_owned()));
        }
    }
    if !options.order.is_bytewise() {
        let name = options.order.name();
        return Err(Error::InvalidArgument(format!(
            "repair sorts keys by their bytes, and these are to be ordered by {name:?}; restore the database from a copy"
        )));
    }
    refuse_used(&**storage, target)?;
    refuse_nothing(&**storage, dir)?;
    let _lock = match storage.lock(&dir.join(LOCK_NAME)) {
        // No thread writes there.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::ReadOnlyFilesystem => None,
        locked => Some(locked?),
    };
    let (files, missing) = match Spread::look(Arc::clone(storage), dir) {
        Ok(files) => (files, None),
        Err(error) => (Arc::clone(storage), Some(missing_directory(&error))),
    };
    let mut survey = survey(&*files, dir)?;
    survey.losses.extend(missing);
    let unfinished = Unfinished::begin(&**storage, target)?;
    let job = Job {
        storage: &files,
        dir,
        work: unfinished.dir(),
        options,
    };
    let repaired = job.run(survey, accepted, progress)?;
    unfinished.finish()?;
    Ok(repaired)
}

/// The loss of the segments in a fast directory.
fn missing_directory(error: &Error) -> Loss {
    let reason =
        format!("the segments of the log that lie in the fast directory are not there: {error}");
    Loss::of(FAST_NAME, reason, Resurrection::Possible)
}

struct Job<'a> {
    storage: &'a Arc<dyn Storage>,
    dir: &'a Path,
    work: &'a Path,
    options: &'a Options,
}

impl Job<'_> {
    fn run(
        &self,
        mut survey: Survey,
        accepted: Resurrection,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Repaired> {
        let mut losses = std::mem::take(&mut survey.losses);
        let census = self.census(&survey, &mut losses)?;
        if census.has_devices && survey.saved.is_none() && !survey.lacks_devices {
            losses.push(survey::without_devices(0, "it is missing"));
            survey.lacks_devices = true;
            // The part of the log that counts is another one.
            losses.retain(|loss| !is_of_log(&loss.file));
            self.census(&survey, &mut losses)?;
        }
        self.leveldb_logs(&survey, &mut |batch| {
            losses.extend(batch.err());
            Ok(())
        })?;
        refuse(self.dir, &losses, accepted)?;
        let has_devices = survey.saved.is_some() || survey.lacks_devices;
        let collected = self.collect(&survey, census, &mut losses)?;
        let now = as_micros(self.storage.wall_clock());
        let (runs, graves, time) = collected.finish(&survey.graves, survey.saved.as_ref(), now)?;
        let of = |is_log| move |table| Input { table, is_log };
        let tables = std::mem::take(&mut survey.tables).into_iter();
        let runs = runs.into_iter().rev().map(of(true));
        let merge = Merge {
            storage: &**self.storage,
            dirs: (self.dir, self.work),
            inputs: runs.chain(tables.map(of(false))).collect(),
            graves: &graves,
            time,
            flushed: survey.flushed.filter(|_| !has_devices),
        };
        let mut repaired = Repaired {
            losses,
            ..Repaired::default()
        };
        self.write(&survey, &merge, &mut repaired, progress)?;
        Ok(repaired)
    }

    fn journal(&self, survey: &Survey) -> Journal<'_> {
        Journal {
            storage: &**self.storage,
            dir: self.dir,
            state: survey.journal,
            needless: survey.needless(),
            empties_at_close: survey.saved.is_none() && !survey.lacks_devices,
        }
    }

    /// Goes through the log once, for their losses.
    fn census(&self, survey: &Survey, losses: &mut Vec<Loss>) -> Result<Census> {
        let mut census = Census::default();
        let needless = survey.needless().unwrap_or(0);
        self.journal(survey).walk(&mut |event| {
            match event {
                Event::Record(record) => census.record(record),
                Event::Loss(loss) => losses.push(loss),
            }
            Ok(())
        })?;
        if survey.is_foreign && census.last_sequence > needless {
            let reason = "its log holds writes that belong to other tables than those in it, as another program has \
                          written to the directory since; which are newer is not known for sure";
            losses.push(Loss {
                writes: Some(census.last_sequence - needless),
                ..Loss::of(JOURNAL_NAME, reason, Resurrection::Possible)
            });
        }
        Ok(census)
    }

    fn collect(
        &self,
        survey: &Survey,
        census: Census,
        losses: &mut Vec<Loss>,
    ) -> Result<Collected> {
        let needless = survey.needless().unwrap_or(0);
        let mut collected = Collected::new(self.storage, self.work.to_owned(), census, needless);
        self.journal(survey).walk(&mut |event| {
            if let Event::Record(record) = event
                && let Err(reason) = collected.record(record)?
            {
                let reason = format!("the record at position {}: {reason}", record.lsn);
                losses.push(Loss {
                    writes: Some(u64::from(record.header.operations)),
                    ..Loss::of(JOURNAL_NAME, reason, Resurrection::Possible)
                });
            }
            Ok(())
        })?;
        self.leveldb_logs(survey, &mut |batch| {
            let Ok(batch) = batch else {
                return Ok(());
            };
            for (sequence, operation) in (batch.sequence()..).zip(batch) {
                collected.operation(sequence, &operation);
            }
            collected.write_if_full()
        })?;
        Ok(collected)
    }

    /// Calls `sink` with each batch in `LevelDB`'s logs, and each loss.
    fn leveldb_logs(
        &self,
        survey: &Survey,
        sink: &mut dyn FnMut(
            std::result::Result<waystation_format::batch::BatchIter<'_>, Loss>,
        ) -> Result<()>,
    ) -> Result<()> {
        for path in &survey.leveldb_logs {
            let source = match Source::open_lenient(&**self.storage, path, Area::Journal) {
                Ok(source) => source,
                Err(error) => {
                    let (_, reason) = damage_of(error)?;
                    let name = crate::inspect::source::name_of(path);
                    sink(Err(Loss::of(name, reason, Resurrection::Possible)))?;
                    continue;
                }
            };
            walk_leveldb_batches(&source, &mut |batch| match batch {
                Ok((_, _, batch)) => sink(Ok(batch)),
                Err((offset, reason)) => {
                    let loss = Loss::of(source.name(), reason, Resurrection::Possible);
                    sink(Err(loss.at(offset, None)))
                }
            })?;
        }
        Ok(())
    }

    /// Writes what `merge` saves to a database, and reads it back.
    fn write(
        &self,
        survey: &Survey,
        merge: &Merge<'_>,
        repaired: &mut Repaired,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let stored = survey.saved.as_ref().map(|it| it.directory.extractor);
        let asked = self.options.devices.clone();
        let devices = match stored {
            Some(stored) => asked
                .filter(|asked| asked.extractor == stored)
                .or_else(|| Some(DeviceOptions::new(stored))),
            None => asked,
        };
        let options = Options {
            create_if_missing: true,
            error_if_exists: true,
            devices,
            // It may hold files of the damaged one.
            fast: None,
            ..self.options.clone()
        };
        let target = Db::open_with(Arc::clone(self.storage), self.work, options)?;
        let mut batch = WriteBatch::new();
        let entries = &mut repaired.entries;
        let gaps = merge.run(&mut |key, value, expiry| {
            match expiry {
                Some(expiry) => batch.put_until(key, value, expiry),
                None => batch.put(key, value),
            }
            *entries += 1;
            if batch.byte_len() >= BATCH_BYTES {
                target.write(&batch, Durability::ProcessCrash)?;
                batch.clear();
                progress(*entries);
            }
            Ok(())
        })?;
        repaired.gaps = gaps;
        target.write(&batch, Durability::ProcessCrash)?;
        progress(repaired.entries);
        target.sync()?;
        target.close()?;
        for entry in self.storage.list(self.work)? {
            if collect::is_run(&entry.name) {
                self.storage.remove(&self.work.join(&entry.name))?;
            }
        }
        self.storage.sync_dir(self.work)?;
        self.read_back()
    }

    fn read_back(&self) -> Result<()> {
        let inspection = Inspection::open(Arc::clone(self.storage), self.work)?;
        match inspection.check(&mut |_| ())?.problems.first() {
            None => Ok(()),
            Some(problem) => {
                let path = self.work.join(&problem.file);
                let reason = format!("what was just written does not check: {}", problem.reason);
                Err(Error::corruption(path, problem.offset, reason))
            }
        }
    }
}

/// Whether losses of this file are found when the log is read.
fn is_of_log(name: &str) -> bool {
    segment_number(name).is_some() || name == RING_NAME
}
