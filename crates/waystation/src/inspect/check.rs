//! Whether everything is what was written: every file of the database, read in full.
//!
//! A table: each block's checksum, keys strictly ascending, within the bounds that the MANIFEST states and the
//! separators of the index, counts and sequence numbers as its properties say, and no key that its filter
//! would hide. The tree: tables of a level beyond 0 do not overlap. The log: blocks that were durable once are
//! whole, records are sound, sequence numbers ascend, a sealed segment's index names its blocks. An index snapshot:
//! its checksums, and that its versions can be read. And the files against
//! each other: see `cross`. Faults are listed and the check goes on; only
//! input/output errors end it.

use super::cross::{Beginnings, should_be_purged};
use super::index_snapshot::each_part;
use super::log::{LogEvent, operations, walk_leveldb_batches};
use super::table::TableView;
use super::table_walk::TableWalk;
use super::{Inspection, manifest::Manifest, summary::NOTE};
use crate::directory::{CHECKPOINT_NAME, INDEX_SNAPSHOT_NAME, spill_name};

use crate::cemetery::flushed::FlushedGraves;
use crate::devices::checkpoint::Saved;
use crate::error::{Error, Result};
use crate::storage::Area;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use waystation_format::bloom;
use waystation_format::key::{InternalKey, compare_internal, user_key};
use waystation_format::version_edit::NewFile;

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The name of the file.
    pub file: String,
    /// Where in the file.
    pub offset: u64,
    /// What does not hold.
    pub reason: String,
}

/// What was read, and what was wrong.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CheckReport {
    /// Tables read in full.
    pub tables: u64,
    /// Their data blocks.
    pub blocks: u64,
    /// Their entries.
    pub entries: u64,
    /// Bytes of tables.
    pub table_bytes: u64,
    /// Deletions in the file of graves.
    pub graves: u64,
    /// Versions in the index snapshot.
    pub snapshot_versions: u64,
    /// Devices in the device table.
    pub devices: u64,
    /// Records of the log.
    pub log_records: u64,
    /// Bytes of the log's blocks.
    pub log_bytes: u64,
    /// Tables that went away while they waited to be read, because the owner replaced them.
    pub tables_replaced_meanwhile: u64,
    /// The order of keys, where it is a program's own: it was not judged whether keys are in that order, nor what deletions
    /// of ranges hide.
    pub order_not_judged: Option<String>,
    /// The faults. Empty if the database is sound.
    pub problems: Vec<Problem>,
    /// The part that is not included.
    pub note: &'static str,
}

/// How far a check has come.
#[derive(Debug, Clone, Copy)]
pub struct CheckProgress {
    /// Bytes read so far.
    pub done_bytes: u64,
    /// Bytes of all tables and segments together, as known at the start.
    pub total_bytes: u64,
}

impl Inspection {
    /// Reads and verifies everything; `progress` is called now and then.
    pub fn check(&self, progress: &mut dyn FnMut(CheckProgress)) -> Result<CheckReport> {
        let segments = super::log::segments(&*self.storage, &self.dir)?;
        let log_bytes: u64 = segments.iter().map(|segment| segment.source.bytes()).sum();
        let table_bytes: u64 = self.manifest.tables().map(|table| table.file_bytes).sum();
        let mut check = Check {
            report: CheckReport {
                note: NOTE,
                order_not_judged: self.own_order().map(str::to_owned),
                ..CheckReport::default()
            },
            flushed: FlushedGraves::default(),
            done_bytes: 0,
            total_bytes: table_bytes + log_bytes,
            progress,
        };
        // Before the tables: one that is newer may be purged by more.
        check.graves(self)?;
        check.index_snapshot(self)?;
        check.log(self)?;
        check.leveldb_logs(self)?;
        check.report.problems.append(&mut self.check_belonging()?);
        check.tree(&self.manifest);
        let mut read = BTreeSet::new();
        for table in self.manifest.tables() {
            if read.insert(table.number) {
                check.table_or_successors(self, table, &mut read)?;
            }
        }
        Ok(check.report)
    }
}

/// A check under way.
struct Check<'a> {
    report: CheckReport,
    flushed: FlushedGraves,
    done_bytes: u64,
    total_bytes: u64,
    progress: &'a mut dyn FnMut(CheckProgress),
}

impl Check<'_> {
    fn advance(&mut self, bytes: u64) {
        self.done_bytes += bytes;
        (self.progress)(CheckProgress {
            done_bytes: self.done_bytes,
            total_bytes: self.total_bytes.max(self.done_bytes),
        });
    }

    fn graves(&mut self, inspection: &Inspection) -> Result<()> {
        match inspection.graves() {
            Err(error) => self.absorb(error),
            Ok(graves) => {
                let (flushed, ranges) = graves.unwrap_or_default();
                self.report.graves = (flushed.len() + ranges) as u64;
                for spill in flushed.spilled().iter() {
                    let label = spill.label();
                    if let Err(error) = spill.verify(&inspection.dir.join(spill_name(label.number)))
                    {
                        self.absorb(error)?;
                    }
                    self.advance(label.file_bytes);
                }
                self.report.graves += flushed.spilled().counting_graves();
                if inspection.manifest.is_bytewise() {
                    self.flushed = flushed;
                }
                Ok(())
            }
        }
    }

    fn problem(&mut self, file: impl Into<String>, offset: u64, reason: impl Into<String>) {
        self.report.problems.push(Problem {
            file: file.into(),
            offset,
            reason: reason.into(),
        });
    }

    /// Damage is a problem and the check goes on; any other error ends it.
    fn absorb(&mut self, error: Error) -> Result<()> {
        match error {
            Error::Corruption {
                path,
                offset,
                reason,
            } => {
                self.problem(super::source::name_of(&path), offset, reason);
                Ok(())
            }
            error => Err(error),
        }
    }

    /// The index snapshot, if there is one.
    fn index_snapshot(&mut self, inspection: &Inspection) -> Result<()> {
        let path = inspection.dir.join(INDEX_SNAPSHOT_NAME);
        let read = each_part(&*inspection.storage, &path, &mut |_| ());
        match read {
            Ok(end) => self.report.snapshot_versions = end.map_or(0, |end| end.versions),
            Err(error) => self.absorb(error)?,
        }
        Ok(())
    }

    /// The device table; nothing if there is none, or if it cannot be read, which is told.
    fn devices(&mut self, inspection: &Inspection) -> Result<Option<Saved>> {
        inspection.saved_devices().or_else(|error| {
            self.absorb(error)?;
            Ok(None)
        })
    }

    fn log(&mut self, inspection: &Inspection) -> Result<()> {
        let before = self.devices(inspection)?;
        let mut beginnings = Beginnings::of(before.as_ref());
        let (mut records, mut bytes, mut last_sequence) = (0, 0, 0);
        let mut problems = Vec::new();
        let walked = inspection.walk_log(&mut |length| bytes += length, &mut |event| {
            match event {
                LogEvent::Problem(problem) => problems.push(problem),
                LogEvent::Record {
                    name,
                    offset,
                    record,
                } => {
                    records += 1;
                    let reason = if !record.is_sound {
                        Some("its checksum does not match".to_owned())
                    } else if record.header.first_sequence <= last_sequence {
                        Some(format!(
                            "its sequence number {} does not ascend",
                            record.header.first_sequence
                        ))
                    } else {
                        last_sequence = record.header.last_sequence();
                        beginnings.record(record);
                        operations(record, &mut |_, _| ()).err().map(str::to_owned)
                    };
                    problems.extend(reason.map(|reason| Problem {
                        file: name.to_owned(),
                        offset,
                        reason: format!("the record at LSN {}: {reason}", record.lsn),
                    }));
                }
            }
            Ok(())
        });
        self.report.log_records = records;
        self.report.log_bytes = bytes;
        self.report.problems.append(&mut problems);
        self.advance(bytes);
        if let Some(before) = before {
            self.report.devices = before.devices.len() as u64;
            let after = inspection.saved_devices()?.unwrap_or(before);
            for reason in beginnings.judge(&after, inspection.manifest.last_sequence) {
                self.problem(CHECKPOINT_NAME, 0, reason);
            }
        }
        walked.or_else(|error| self.absorb(error))
    }

    fn leveldb_logs(&mut self, inspection: &Inspection) -> Result<()> {
        for path in inspection.leveldb_logs()? {
            let Some(source) = inspection.open_if_there(&path, Area::Journal)? else {
                continue;
            };
            walk_leveldb_batches(&source, &mut |batch| {
                if let Err((offset, reason)) = batch {
                    self.problem(source.name(), offset, reason);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Bounds are in order, and tables of a level beyond 0 do not overlap.
    fn tree(&mut self, manifest: &Manifest) {
        for table in manifest.tables() {
            let bounds_are_sound = InternalKey::parse(&table.smallest).is_ok()
                && InternalKey::parse(&table.largest).is_ok()
                && (!manifest.is_bytewise()
                    || compare_internal(&table.smallest, &table.largest) != Ordering::Greater);
            if !bounds_are_sound {
                let reason = format!("the bounds of table {} are no keys in order", table.number);
                self.problem(&manifest.name, 0, reason);
            }
        }
        if !manifest.is_bytewise() {
            return;
        }
        for (level, tables) in manifest.levels.iter().enumerate().skip(1) {
            for pair in tables.windows(2) {
                if compare_internal(&pair[0].largest, &pair[1].smallest) != Ordering::Less {
                    let (a, b) = (pair[0].number, pair[1].number);
                    self.problem(
                        &manifest.name,
                        0,
                        format!("tables {a} and {b} of level {level} overlap"),
                    );
                }
            }
        }
    }

    /// Checks a table. If the owner has compacted it away meanwhile, nothing is wrong with that; if it is still in
    /// force and not there, that is damage.
    fn table_or_successors(
        &mut self,
        inspection: &Inspection,
        table: &NewFile,
        read: &mut BTreeSet<u64>,
    ) -> Result<()> {
        match self.table(inspection, table) {
            Err(error) if error.is_not_found() => {}
            Err(error) => return self.absorb(error),
            Ok(()) => return Ok(()),
        }
        let now = super::manifest::read(&*inspection.storage, &inspection.dir)?;
        if now.tables().any(|other| other.number == table.number) {
            self.problem(
                &now.name,
                0,
                format!("table {} is in force and its file is missing", table.number),
            );
            return Ok(());
        }
        self.report.tables_replaced_meanwhile += 1;
        // What took its place must be read too, once.
        for successor in now.tables() {
            if read.insert(successor.number) {
                match self.table(inspection, successor) {
                    Err(error) if error.is_not_found() => {
                        self.report.tables_replaced_meanwhile += 1;
                    }
                    Err(error) => self.absorb(error)?,
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    fn table(&mut self, inspection: &Inspection, table: &NewFile) -> Result<()> {
        let view = TableView::open(&*inspection.storage, &inspection.dir, table)?;
        self.report.tables += 1;
        self.report.table_bytes += table.file_bytes;
        let mut walk = TableWalk::new(table, inspection.manifest.is_bytewise());
        let filter = view.filter()?;
        let properties = view.properties()?;
        let purged = properties.as_ref().map_or(0, |it| it.purged_through);
        let mut unpurged = None;
        for indexed in view.index()? {
            let block = match view.block(indexed.handle) {
                Ok(block) => block,
                Err(error) => {
                    walk.is_complete = false;
                    self.absorb(error)?;
                    continue;
                }
            };
            self.report.blocks += 1;
            self.advance(indexed.handle.length);
            let offset = indexed.handle.offset;
            let stepped = view.each(&block, &mut |key, _| {
                let hash = bloom::hash(user_key(key));
                let is_hidden = filter
                    .as_ref()
                    .is_some_and(|filter| !filter.may_contain(offset, hash));
                if unpurged.is_none() {
                    // A spill file that cannot be read was told of.
                    let deleted = should_be_purged(&self.flushed, purged, key).unwrap_or_default();
                    unpurged = deleted.map(|deleted| (offset, walk.entries + 1, deleted));
                }
                if let Some(reason) = walk.entry(key, &indexed.separator, is_hidden) {
                    self.report.problems.push(Problem {
                        file: view.name(),
                        offset,
                        reason,
                    });
                }
                true
            });
            if let Err(error) = stepped {
                walk.is_complete = false;
                self.absorb(error)?;
            }
        }
        self.report.entries += walk.entries;
        for reason in walk.finish(properties.as_ref()) {
            self.problem(view.name(), 0, reason);
        }
        if let Some((offset, entry, deleted)) = unpurged {
            let reason = format!(
                "entry {entry} was deleted at {deleted}, and the table says that it is purged through {purged}"
            );
            self.problem(view.name(), offset, reason);
        }
        Ok(())
    }
}
