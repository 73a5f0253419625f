//! Compactions of live databases through the simulated hardware and the modelled drive.

use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use waystation::offload::{
    EngineError, EngineTask, JobControl, LocalReason, MergeEngine, Merged, Offload,
    OffloadSettings, OffloadStats, Verification, Worker, check_engine,
};
use waystation::{Compression, Db, Options};
use waystation_drive::ip::sizes;
use waystation_drive::model::Machine;
use waystation_drive::offload::{Hardware, Modelled};
use waystation_nodes::compaction::{
    Address, CompactionWorker, WorkerAddress, WorkerSettings, WorkerStopper,
};

fn modelled(decoders: usize) -> Box<dyn MergeEngine> {
    let machine = Machine::parse(Machine::MODERN).unwrap();
    Box::new(Modelled::new(machine, decoders).unwrap())
}

fn hardware(inputs: usize, stages: bool) -> Box<dyn MergeEngine> {
    Box::new(Hardware::new(inputs, stages).unwrap())
}

#[test]
fn the_modelled_drive_does_what_every_executor_does() {
    check_engine("modelled drive, 9 decoders", || modelled(9));
    // Jobs of the suite have more inputs: they are merged in stages.
    check_engine("modelled drive, 2 decoders", || modelled(2));
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn the_hardware_does_what_every_executor_does() {
    check_engine("hardware, 9 inputs", || hardware(9, false));
    check_engine("hardware, 2 inputs, in stages", || hardware(2, true));
}

/// A worker in this process that runs until it is dropped, and a directory for databases.
struct Running {
    directory: tempfile::TempDir,
    address: Address,
    stopper: WorkerStopper,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(engine: Box<dyn MergeEngine>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = Address::Unix(directory.path().join("worker"));
        let allowed = vec![directory.path().to_owned()];
        let mut settings = WorkerSettings::new(socket, None, allowed);
        settings.jobs_max = 1;
        settings.worker = Arc::new(Worker::default().with_engine(engine));
        let worker = CompactionWorker::bind(&settings).unwrap();
        let (address, stopper) = (worker.address().clone(), worker.stopper());
        let thread = Builder::new().spawn(|| worker.run()).unwrap();
        Self {
            directory,
            address,
            stopper,
            thread: Some(thread),
        }
    }

    /// Has a database with these options merge `rounds` tables of level 0 at the worker; its tables, and what became of the
    /// merges.
    fn merged(&self, options: &Options, rounds: u32) -> (Vec<Vec<u8>>, OffloadStats) {
        let worker = WorkerAddress::new(self.address.clone(), None);
        let settings = OffloadSettings {
            verification: Verification::Entries,
            ..OffloadSettings::default()
        };
        let options = Options {
            offload: Some(Offload::new(worker, settings)),
            ..options.clone()
        };
        let (tables, stats) = merged(&self.directory.path().join("offloaded"), options, rounds);
        (tables, stats.unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Fills a database with `rounds` tables of level 0 whose keys overlap, and merges them by hand.
fn merged(directory: &Path, options: Options, rounds: u32) -> (Vec<Vec<u8>>, Option<OffloadStats>) {
    let db = Db::open(directory, options).unwrap();
    for round in 0..rounds {
        for at in 0..900_u32 {
            let key = format!("{:08}", at * 7919 % 1000);
            if (at + round).is_multiple_of(9) {
                db.delete(key.as_bytes()).unwrap();
            } else {
                let value = format!("{round} {at} ").repeat(1 + (at % 12) as usize);
                db.put(key.as_bytes(), value.as_bytes()).unwrap();
            }
        }
        db.flush().unwrap();
    }
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    let report = db.check().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let stats = db.stats().tree.offload;
    db.close().unwrap();
    (tables(directory), stats)
}

/// The tables of a database, by their names.
fn tables(directory: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "ldb"))
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Few tables of level 0, so that nothing is merged before it is asked for.
fn options(compression: Compression) -> Options {
    Options {
        memtable_bytes: 1 << 20,
        compression,
        ..Options::default()
    }
}

/// Databases whose merges run in `engine` have the tables that they would have without it.
fn is_like_local(engine: impl Fn() -> Box<dyn MergeEngine>) {
    for compression in [Compression::None, Compression::Snappy] {
        let alone = tempfile::tempdir().unwrap();
        let (local, _) = merged(&alone.path().join("db"), options(compression), 5);
        let worker = Running::start(engine());
        let (tables, stats) = worker.merged(&options(compression), 5);
        assert!(stats.jobs > 0 && stats.local_jobs == 0, "{stats:?}");
        assert!(!tables.is_empty());
        assert!(tables == local, "{compression:?}: other bytes");
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn tables_of_the_hardware_are_those_of_the_processor() {
    is_like_local(|| hardware(9, false));
    is_like_local(|| hardware(2, true));
}

#[test]
fn tables_of_the_modelled_drive_are_those_of_the_processor() {
    is_like_local(|| modelled(4));
}

/// Merges of a database like this are refused, counted, and made in its process. How many were not refused.
#[track_caller]
fn taken_of_refused(engine: Box<dyn MergeEngine>, options: &Options, rounds: u32) -> u64 {
    let worker = Running::start(engine);
    let (tables, stats) = worker.merged(options, rounds);
    assert!(!tables.is_empty());
    let kept = stats.local.get(&LocalReason::Unfit).copied();
    assert_eq!(kept, Some(stats.local_jobs), "{stats:?}");
    assert!(stats.local_jobs > 0);
    stats.jobs
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn what_the_hardware_does_not_take_is_merged_by_the_database() {
    let taken = taken_of_refused(hardware(9, true), &options(Compression::Zstd), 5);
    assert_eq!(taken, 0);
    // A merge of one table alone, for graves, it takes.
    let taken = taken_of_refused(hardware(1, false), &options(Compression::None), 5);
    assert!(taken <= 1, "{taken}");
}

/// A table with one key of so many bytes.
fn table_with_key(bytes: usize) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Db::open(&path, options(Compression::None)).unwrap();
    db.put(&vec![b'k'; bytes], b"value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    tables(&path).remove(0)
}

fn merge_one(engine: &dyn MergeEngine, file: Vec<u8>) -> Result<Merged, EngineError> {
    let task = EngineTask {
        inputs: vec![vec![file]],
        ..EngineTask::default()
    };
    engine.merge(&task, &JobControl::default())
}

#[test]
fn long_keys_are_refused_and_damage_is_told() {
    let engine = modelled(9);
    assert_eq!(
        merge_one(&*engine, table_with_key(64))
            .unwrap()
            .blocks
            .len(),
        1
    );
    let refused = merge_one(&*engine, table_with_key(65));
    assert!(matches!(refused, Err(EngineError::Unfit(_))), "{refused:?}");
    let mut damaged = table_with_key(64);
    damaged[10] ^= 1;
    let told = merge_one(&*engine, damaged);
    assert!(matches!(told, Err(EngineError::Inputs(_))), "{told:?}");
    let told = merge_one(&*engine, b"no table".to_vec());
    assert!(matches!(told, Err(EngineError::Inputs(_))), "{told:?}");
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn a_cancelled_job_stops_and_the_hardware_goes_on_with_the_next() {
    let engine = hardware(sizes()[0], false);
    let cancelled = JobControl::default();
    cancelled.cancel();
    let task = EngineTask {
        inputs: vec![vec![big_table()]],
        ..EngineTask::default()
    };
    let stopped = engine.merge(&task, &cancelled);
    assert_eq!(stopped.err(), Some(EngineError::Cancelled));
    assert_eq!(
        merge_one(&*engine, table_with_key(9)).unwrap().blocks.len(),
        1
    );
}

/// One that takes longer than a quarter of a million cycles.
fn big_table() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let options = Options {
        memtable_bytes: 16 << 20,
        ..options(Compression::None)
    };
    let db = Db::open(&path, options).unwrap();
    for key in 0..80_000_u32 {
        db.put(format!("{key:08}").as_bytes(), &[b'v'; 30]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    tables(&path).remove(0)
}
