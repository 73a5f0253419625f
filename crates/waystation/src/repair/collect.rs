//! What logs hold, made ready to be merged with tables: versions in sorted runs, which are tables in the directory at
//! work, and deletions of ranges and times among the graves.
//!
//! A deletion of a key is a version among others here, whichever way the engine would take it: what counts is its number.
//! So is what belongs to a device; that it departed is the deletion of its range.

use super::tables::FoundTable;
use crate::cemetery::active::ActiveGraves;
use crate::cemetery::flushed::FlushedGraves;
use crate::devices::checkpoint::Saved;
use crate::devices::record::DeviceEvent;
use crate::error::Result;
use crate::inspect::log::operations;
use crate::inspect::stream::Record;
use crate::sst::{TableBuilder, TableSettings};
use crate::storage::Storage;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use waystation_format::batch::{Operation, Time, prefix_end};
use waystation_format::key::{MAX_SEQUENCE, TRAILER_BYTES, append, compare_internal};
use waystation_format::log::RecordKind;

/// A run is written once it has so many bytes.
const RUN_BYTES: usize = 32 << 20;

/// What a first look at the log finds out.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// The first parts of devices that were admitted in parts.
    admitted: BTreeSet<u64>,
    /// What graves with a date take.
    dated_bytes: usize,
    /// Whether it tells of devices.
    pub(super) has_devices: bool,
    /// The last write.
    pub(super) last_sequence: u64,
}

impl Census {
    pub(super) fn record(&mut self, record: &Record<'_>) {
        self.last_sequence = self.last_sequence.max(record.header.last_sequence());
        if record.header.kind == RecordKind::Devices {
            self.has_devices = true;
            if let Ok(DeviceEvent::Admitted(admitted)) = DeviceEvent::decode(record.payload) {
                self.admitted.insert(admitted.stage);
            }
        }
        // One that cannot be read is told when it is taken in.
        let _ = operations(record, &mut |_, operation| {
            if matches!(operation.time, Some(Time::Expiry(_))) {
                self.dated_bytes += ActiveGraves::dated_bytes(operation.key.len());
            }
        });
    }
}

/// The content of logs.
pub(super) struct Collected {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    census: Census,
    needless: u64,
    graves: ActiveGraves,
    /// The latest time that the log says was reached.
    time: u64,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    runs: Vec<FoundTable>,
}

impl Collected {
    /// Takes in the writes behind `needless`; runs are written to `dir`.
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        dir: PathBuf,
        census: Census,
        needless: u64,
    ) -> Self {
        Self {
            storage: Arc::clone(storage),
            dir,
            graves: ActiveGraves::new(census.dated_bytes),
            census,
            needless,
            time: 0,
            entries: Vec::new(),
            bytes: 0,
            runs: Vec::new(),
        }
    }

    /// Takes in a record of the log that checks, or says why it cannot be read.
    pub(super) fn record(&mut self, record: &Record<'_>) -> Result<Result<(), &'static str>> {
        if record.header.last_sequence() <= self.needless {
            return Ok(Ok(()));
        }
        if record.header.kind == RecordKind::Devices {
            let sequence = record.header.first_sequence;
            match DeviceEvent::decode(record.payload) {
                Err(error) => return Ok(Err(error.reason())),
                Ok(DeviceEvent::Departed(prefix) | DeviceEvent::HandedOn { prefix, .. }) => {
                    let end = prefix_end(prefix);
                    self.graves.delete_range(prefix, end.as_deref(), sequence);
                }
                // No reader ever saw what was not admitted.
                Ok(DeviceEvent::Staged { stage, .. })
                    if !self.census.admitted.contains(&if stage == 0 {
                        sequence
                    } else {
                        stage
                    }) =>
                {
                    return Ok(Ok(()));
                }
                Ok(_) => {}
            }
        }
        let taken = operations(record, &mut |sequence, operation| {
            self.operation(sequence, &operation);
        });
        self.write_if_full()?;
        Ok(taken)
    }

    /// Takes in one operation. [`write_if_full`](Self::write_if_full) is to be called now and then.
    pub(super) fn operation(&mut self, sequence: u64, operation: &Operation<'_>) {
        if sequence <= self.needless || sequence > MAX_SEQUENCE {
            return;
        }
        if let Some(end) = operation.range() {
            return self.graves.delete_range(operation.key, end, sequence);
        }
        match operation.time {
            Some(Time::Reached(time)) => self.time = self.time.max(time),
            Some(Time::Expiry(date)) => self.graves.expire(operation.key, sequence, date),
            // There is none in a log.
            Some(Time::Lifetime(_)) => {}
            None => {
                let mut key = Vec::with_capacity(operation.key.len() + TRAILER_BYTES);
                append(&mut key, operation.key, sequence, operation.kind());
                let value = operation.value.unwrap_or_default().to_vec();
                self.bytes += key.len() + value.len();
                self.entries.push((key, value));
            }
        }
    }

    /// Writes a run, if there is enough for one.
    pub(super) fn write_if_full(&mut self) -> Result<()> {
        if self.bytes < RUN_BYTES {
            return Ok(());
        }
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        self.bytes = 0;
        entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
        // One that was laid out anew is there twice.
        entries.dedup_by(|a, b| a.0 == b.0);
        let number = self.runs.len() as u64;
        let name = run_name(number);
        let path = self.dir.join(&name);
        let settings = TableSettings::default();
        let mut builder = TableBuilder::create(&self.storage, &path, number, settings)?;
        for (key, value) in &entries {
            builder.add(key, value)?;
        }
        let written = builder.finish()?;
        self.runs.push(FoundTable {
            name,
            number,
            bytes: written.file_bytes,
            smallest: written.smallest,
            largest: written.largest,
            level: None,
            smallest_sequence: None,
        });
        Ok(())
    }

    /// All runs, and `flushed` with what the logs and the device table say was deleted, as it is at time `now`; and the
    /// time then.
    pub(super) fn finish(
        mut self,
        flushed: &FlushedGraves,
        saved: Option<&Saved>,
        now: u64,
    ) -> Result<(Vec<FoundTable>, FlushedGraves, u64)> {
        if !self.entries.is_empty() {
            self.write()?;
        }
        for device in saved.into_iter().flat_map(|saved| &saved.devices) {
            let end = prefix_end(&device.prefix);
            for departure in device.covering.as_slice() {
                self.graves
                    .delete_range(&device.prefix, end.as_deref(), *departure);
            }
        }
        let time = now.max(self.time).max(flushed.time());
        let through = flushed.through().max(self.census.last_sequence);
        // All tables are written anew.
        let flushed = flushed.with([&self.graves], through, MAX_SEQUENCE, time, 0);
        Ok((self.runs, flushed, time))
    }
}

/// The name of a run in the directory at work.
fn run_name(number: u64) -> String {
    format!("repair-{number}.run")
}

/// Whether `name` is that of a run.
pub(super) fn is_run(name: &str) -> bool {
    name.starts_with("repair-")
        && std::path::Path::new(name)
            .extension()
            .is_some_and(|it| it == "run")
}
