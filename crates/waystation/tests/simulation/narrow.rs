//! A database with little room: a limit of its own, or a small disk. Devices fill it, settle into it, and depart; the
//! process dies at any moment.
//!
//! Two promises are looked at above all: it opens again with the same settings, always; and devices can depart, always,
//! after which there is room again. Nothing acknowledged is lost meanwhile.

use crate::looks::{Keys, difference, read};
use crate::support::{Content, Random};
use crate::tally::Tally;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, DeviceError, DeviceOptions, Error, Extractor, IterOptions, Options};

const LIVES: usize = 4;
const STEPS: u64 = 90;
const DEVICES: u64 = 6;
/// A departure that is refused so often, at intervals of [`TRIES_APART`], is refused for good: the keeper looks at a full
/// disk every 100 ms.
const TRIES_MAX: u32 = 5_000;
const TRIES_APART: Duration = Duration::from_millis(1);

/// Runs one seed.
pub(crate) fn run(seed: u64, tally: &Tally) {
    let mut random = Random(seed);
    let has_limit = random.one_in(2);
    // More than a new database with these sizes needs; a file system also has room for what is kept beside.
    let least = if has_limit { 5 << 20 } else { 8 << 20 };
    let room = least + (256 << 10) * random.below(9);
    let machine = SimStorage::new(seed);
    machine.set_capacity((!has_limit).then_some(room));
    let residency = Duration::from_millis(10 << random.below(10));
    let mut narrow = Narrow {
        seed,
        options: Options {
            disk_bytes_max: has_limit.then_some(room),
            memtable_bytes: 64 << 10,
            table_bytes: 64 << 10,
            ring_bytes: 256 << 10,
            log_segment_bytes: 256 << 10,
            cache_bytes: 64 << 10,
            devices: Some(DeviceOptions {
                residency,
                ..DeviceOptions::new(Extractor::until(b':'))
            }),
            ..Options::default()
        },
        machine,
        random,
        count: 0,
        written: Content::new(),
        refused: BTreeSet::new(),
    };
    for _ in 0..LIVES {
        narrow.live();
        tally.process_deaths.fetch_add(1, SeqCst);
    }
    let db = narrow.open();
    narrow.depart_all(&db);
}

struct Narrow {
    seed: u64,
    options: Options,
    machine: Arc<SimStorage>,
    random: Random,
    /// Counts puts: each has a key of its own.
    count: u64,
    /// What was acknowledged, of devices that are here.
    written: Content,
    /// Keys whose put was refused, which may be there nevertheless.
    refused: BTreeSet<Vec<u8>>,
}

fn device(number: u64) -> Vec<u8> {
    format!("car{number}").into_bytes()
}

/// Whether the call may go well later.
fn is_for_want_of_room(error: &Error) -> bool {
    error.is_out_of_space() || matches!(error, Error::Suspended { .. })
}

impl Narrow {
    fn fail(&self, told: &str) -> ! {
        let limit = self.options.disk_bytes_max;
        panic!(
            "seed {}, put {} (limit {limit:?}): {told}",
            self.seed, self.count
        )
    }

    /// Opens the database, which holds what it should.
    fn open(&self) -> Db {
        let storage: Arc<dyn Storage> = Arc::clone(&self.machine) as _;
        let db = Db::open_with(storage, Path::new("/db"), self.options.clone());
        let db = db.unwrap_or_else(|error| self.fail(&format!("cannot open again: {error}")));
        let mut found = read(&db, IterOptions::default(), false, Keys::All).expect("iterate");
        found.retain(|key, _| !self.refused.contains(key));
        if found != self.written {
            self.fail(&difference(&found, &self.written));
        }
        db
    }

    fn live(&mut self) {
        let db = self.open();
        for _ in 0..self.random.below(STEPS) {
            match self.random.below(30) {
                0..27 => self.put(&db),
                27 => {
                    let number = self.random.below(DEVICES);
                    self.depart(&db, number);
                }
                28 => drop(db.devices().settle(&device(self.random.below(DEVICES)))),
                _ => drop(db.flush()),
            }
        }
        self.machine = self.machine.crash(self.random.next(), Crash::Process);
    }

    /// Puts a value; if there is no room, a device departs.
    fn put(&mut self, db: &Db) {
        self.count += 1;
        let name = format!(":{:05}", self.count);
        let key = [&device(self.random.below(DEVICES))[..], name.as_bytes()].concat();
        let length = match self.random.below(8) {
            0 => 100_000 + self.random.below(150_000),
            1..4 => 20_000 + self.random.below(40_000),
            _ => self.random.below(4_000),
        };
        let mut noise = Random(self.count);
        let words = (0..length / 8).flat_map(|_| noise.next().to_le_bytes());
        let value: Vec<u8> = words.collect();
        match db.put(&key, &value) {
            Ok(()) => drop(self.written.insert(key, value)),
            Err(error) if is_for_want_of_room(&error) => {
                self.refused.insert(key);
                let number = self.random.below(DEVICES);
                self.depart(db, number);
            }
            Err(error) => self.fail(&format!("put: {error}")),
        }
    }

    /// A device departs, whatever room there is.
    fn depart(&mut self, db: &Db, number: u64) {
        let mut told = None;
        for _ in 0..TRIES_MAX {
            match db.devices().depart(&device(number)) {
                Ok(()) | Err(Error::Device(DeviceError::Unknown { .. })) => {
                    let prefix = [&device(number)[..], b":"].concat();
                    self.written.retain(|key, _| !key.starts_with(&prefix));
                    return;
                }
                Err(error) if is_for_want_of_room(&error) => told = Some(error),
                Err(error) => self.fail(&format!("departure: {error}")),
            }
            std::thread::sleep(TRIES_APART);
        }
        self.fail(&format!("no departure: {told:?}"));
    }

    /// With all devices gone there is room again.
    fn depart_all(&mut self, db: &Db) {
        for number in 0..DEVICES {
            self.depart(db, number);
        }
        for _ in 0..TRIES_MAX {
            match db.put(b"car0:last", b"value") {
                Ok(()) => return,
                Err(error) if is_for_want_of_room(&error) => std::thread::sleep(TRIES_APART),
                Err(error) => self.fail(&format!("put: {error}")),
            }
        }
        self.fail("no room, with all devices gone");
    }
}
