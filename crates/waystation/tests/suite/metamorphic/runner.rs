//! Runs operations under a setting, and writes down every answer.

use super::operations::{Change, Operation};
use super::settings::Setting;
use std::collections::VecDeque;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use waystation::storage::SimStorage;
use waystation::storage::sim::Crash;
use waystation::{Db, DeviceError, Durability, Error, IterOptions, Snapshot, WriteBatch};

const DIR: &str = "/db";
const SCAN: usize = 6;
const SNAPSHOTS: usize = 3;

struct Runner<'a> {
    setting: &'a Setting,
    machine: Arc<SimStorage>,
    db: Option<Db>,
    snapshots: VecDeque<Snapshot>,
    answers: Vec<String>,
}

/// Every answer to `operations` under `setting`.
pub(crate) fn history(operations: &[Operation], setting: &Setting) -> Vec<String> {
    let mut runner = Runner {
        setting,
        machine: SimStorage::new(5),
        db: None,
        snapshots: VecDeque::new(),
        answers: Vec::new(),
    };
    for (at, operation) in operations.iter().enumerate() {
        if let Err(error) = runner.step(at as u64, operation) {
            runner.answers.push(format!("{operation:?}: {error}"));
        }
    }
    let all = runner.scan(IterOptions::default(), usize::MAX);
    runner.answers.push(format!("{all:?}"));
    runner.snapshots.clear();
    runner.answers
}

impl Runner<'_> {
    fn db(&mut self) -> Result<&Db, Error> {
        if self.db.is_none() {
            let options = self.setting.options.clone();
            let storage: Arc<SimStorage> = Arc::clone(&self.machine);
            self.db = Some(Db::open_with(storage, Path::new(DIR), options)?);
        }
        self.db.as_ref().ok_or(Error::Closed("closed"))
    }

    fn step(&mut self, at: u64, operation: &Operation) -> Result<(), Error> {
        match operation {
            Operation::Write(changes, sync) => self.write(changes, *sync)?,
            Operation::DeleteRange(start, end) => self.delete_range(start, end.as_deref())?,
            Operation::Get(key) => {
                let value = self.db()?.get(key)?;
                self.answers.push(told(value.as_deref()));
            }
            Operation::Scan(from, backwards) => self.scan_some(from, *backwards)?,
            Operation::Range(lower, upper) => {
                let range = IterOptions {
                    lower: Some(lower.clone()),
                    upper: Some(upper.clone()),
                    ..IterOptions::default()
                };
                let found = self.scan(range, usize::MAX)?;
                self.answers.push(format!("{found:?}"));
            }
            Operation::TakeSnapshot if self.snapshots.len() < SNAPSHOTS => {
                let snapshot = self.db()?.snapshot();
                self.snapshots.push_back(snapshot);
            }
            Operation::TakeSnapshot => {}
            Operation::ReadSnapshot => {
                let snapshot = self.snapshots.pop_front();
                if snapshot.is_some() {
                    let options = IterOptions {
                        snapshot,
                        ..IterOptions::default()
                    };
                    let found = self.scan(options, usize::MAX)?;
                    self.answers.push(format!("{found:?}"));
                }
            }
            Operation::Depart(device) => self.depart(*device)?,
            Operation::Settle(device) => self.settle(*device)?,
            Operation::Flush => self.db()?.flush()?,
            Operation::Compact => self
                .db()?
                .compact_range(Bound::Unbounded, Bound::Unbounded)?,
            Operation::Reopen => {
                self.snapshots.clear();
                self.db.take().map_or(Ok(()), Db::close)?;
            }
            Operation::Crash => {
                self.snapshots.clear();
                let left = self.machine.crash(at, Crash::Process);
                self.db = None;
                self.machine = left;
            }
        }
        Ok(())
    }

    fn write(&mut self, changes: &[Change], sync: bool) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        for change in changes {
            match change.value {
                _ if self.setting.forgets.as_ref() == Some(&change.key) => {}
                Some((length, byte)) => batch.put(&change.key, &vec![byte; length]),
                None => batch.delete(&change.key),
            }
        }
        let durability = if sync {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        self.db()?.write(&batch, durability)
    }

    /// Lets a device depart; without devices, by deleting all it has.
    fn depart(&mut self, device: u64) -> Result<(), Error> {
        let name = format!("d{device}");
        if self.setting.options.devices.is_some() {
            return match self.db()?.devices().depart(name.as_bytes()) {
                Err(Error::Device(DeviceError::Unknown { .. })) => Ok(()),
                result => result,
            };
        }
        self.delete_all(IterOptions::prefix(format!("{name}:")))
    }

    fn delete_range(&mut self, start: &[u8], end: Option<&[u8]>) -> Result<(), Error> {
        if !self.setting.key_by_key {
            return self.db()?.delete_range(start, end);
        }
        self.delete_all(IterOptions {
            lower: Some(start.to_vec()),
            upper: end.map(<[u8]>::to_vec),
            ..IterOptions::default()
        })
    }

    /// Deletes key by key.
    fn delete_all(&mut self, keys: IterOptions) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        for (key, _) in self.scan(keys, usize::MAX)? {
            batch.delete(&key);
        }
        self.db()?.write(&batch, Durability::ProcessCrash)
    }

    fn settle(&mut self, device: u64) -> Result<(), Error> {
        if self.setting.options.devices.is_none() {
            return Ok(());
        }
        match self.db()?.devices().settle(format!("d{device}").as_bytes()) {
            Err(Error::Device(DeviceError::Unknown { .. })) => Ok(()),
            result => result,
        }
    }

    fn scan_some(&mut self, from: &[u8], backwards: bool) -> Result<(), Error> {
        let mut cursor = self.db()?.iter(IterOptions::default())?;
        let mut found = Vec::new();
        if backwards {
            cursor.seek_for_prev(from)?;
        } else {
            cursor.seek(from)?;
        }
        while cursor.valid() && found.len() < SCAN {
            found.push((cursor.key().to_vec(), told(Some(cursor.value()))));
            if backwards {
                cursor.prev()?;
            } else {
                cursor.next()?;
            }
        }
        drop(cursor);
        self.answers.push(format!("{found:?}"));
        Ok(())
    }

    fn scan(
        &mut self,
        options: IterOptions,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, String)>, Error> {
        let mut cursor = self.db()?.iter(options)?;
        let mut found = Vec::new();
        cursor.seek_to_first()?;
        while cursor.valid() && found.len() < limit {
            found.push((cursor.key().to_vec(), told(Some(cursor.value()))));
            cursor.next()?;
        }
        Ok(found)
    }
}

/// A value in short: its length, and its byte if it is of one.
fn told(value: Option<&[u8]>) -> String {
    match value {
        None => "none".to_owned(),
        Some(value) => {
            let byte = value.first();
            let is_even = value.iter().all(|other| Some(other) == byte);
            format!(
                "{} of {byte:?}{}",
                value.len(),
                if is_even { "" } else { ", mixed" }
            )
        }
    }
}
