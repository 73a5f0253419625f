//! All databases of a process share a few background threads, and one to which nothing happens wakes none of them. Those that
//! name the same resources share memory and keep to its ceiling.

#[path = "suite/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use support::{options_with_devices, wait_until};
use waystation::{
    Db, DeviceError, DeviceLevel, DeviceOptions, Error, Extractor, MemoryStats, Options, Resources,
};

/// One that keeps time, four that write logs, up to four each that flush, settle and keep. Others compact: one a processor.
const THREADS_BUT_COMPACTION: usize = 17;
/// What was written last is checkpointed within ten seconds; after that there is nothing left to do.
const SECONDS_UNTIL_QUIET: usize = 30;

/// The threads are the process's: tests that count them take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often each background thread of this process was given or taken a processor so far.
fn switches() -> Vec<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux");
    let count = |path: &Path| -> Option<u64> {
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
        let counts = lines.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok());
        name.starts_with("waystation-").then(|| counts.sum())
    };
    tasks.filter_map(|task| count(&task.ok()?.path())).collect()
}

fn small_with_devices() -> Options {
    Options {
        cache_bytes: 64 << 10,
        background_jobs: 1,
        max_open_tables: 16,
        devices: Some(DeviceOptions {
            idle_departure: Some(Duration::from_secs(3600)),
            ..DeviceOptions::new(Extractor::until(b':'))
        }),
        ..options_with_devices(Duration::from_secs(3600))
    }
}

#[test]
fn a_database_to_which_nothing_happens_wakes_no_thread() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("tempdir");
    let databases: Vec<_> = (0..3)
        .map(|number| {
            let path = dir.path().join(number.to_string());
            Db::open(path, small_with_devices()).expect("opens")
        })
        .collect();
    for db in &databases {
        for device in 0..10 {
            for reading in 0..100 {
                let key = format!("car-{device}:{reading:03}");
                db.put(key.as_bytes(), &[7; 100]).expect("put");
            }
        }
        db.devices().depart(b"car-3").expect("departs");
        db.devices().settle(b"car-4").expect("settles");
        db.wait_idle().expect("comes to rest");
    }
    become_quiet();
    // And each goes on when something happens.
    for db in databases {
        db.put(b"car-5:100", b"value").expect("put");
        db.devices().settle(b"car-5").expect("settles");
        let level = || {
            let devices = db.devices().list().expect("devices");
            devices
                .iter()
                .find(|it| it.name == b"car-5")
                .map(|it| it.level)
        };
        wait_until("it does not settle", || level() == Some(DeviceLevel::Tree));
        db.close().expect("closes");
    }
    assert_eq!(switches().len(), 0, "threads are left");
}

/// Waits for a second in which no background thread wakes.
fn become_quiet() {
    let is_quiet = (0..SECONDS_UNTIL_QUIET).any(|_| {
        let before = switches();
        std::thread::sleep(Duration::from_secs(1));
        before == switches()
    });
    assert!(is_quiet, "threads still wake in each second");
}

#[test]
fn a_thousand_databases_share_a_few_threads() {
    const DATABASES: usize = 1000;
    let _turn = turn();
    allow_many_files();
    let dir = memory_dir();
    let path = |number: usize| dir.path().join(number.to_string());
    let resources = Resources::new(512 << 20, 64 << 20).expect("shared");
    let options = Options {
        resources: Some(resources.clone()),
        ..small_with_devices()
    };
    let open = |number| Db::open(path(number), options.clone()).expect("opens");
    let databases: Vec<_> = (0..DATABASES).map(open).collect();
    for (number, db) in databases.iter().enumerate() {
        for device in ["stays", "leaves"] {
            for reading in 0..20 {
                let key = format!("{device}:{reading:02}");
                db.put(key.as_bytes(), &(number as u64).to_le_bytes())
                    .expect("put");
            }
        }
        db.devices().depart(b"leaves").expect("departs");
    }
    let threads = switches().len();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(
        threads <= THREADS_BUT_COMPACTION + processors,
        "{threads} threads"
    );
    for (number, db) in databases.iter().enumerate() {
        let found = db.get(b"stays:19").expect("get");
        assert_eq!(found.as_deref(), Some(&(number as u64).to_le_bytes()[..]));
        assert!(db.get(b"leaves:19").expect("get").is_none());
        let again = db.devices().depart(b"leaves");
        assert!(matches!(
            again,
            Err(Error::Device(DeviceError::Unknown { .. }))
        ));
    }
    let shared = resources.stats();
    assert_eq!(shared.databases.len(), DATABASES);
    assert!(shared.taken_bytes < 512 << 20, "{}", shared.taken_bytes);
    // All at once they are idle, and a thousand of them wake no thread in a second.
    become_quiet();
    for db in databases {
        db.close().expect("closes");
    }
    assert_eq!(switches().len(), 0, "threads are left");
    assert_eq!(resources.stats().taken_bytes, 0);
    let db = open(DATABASES / 2);
    assert!(db.get(b"stays:00").expect("get").is_some());
    assert!(db.get(b"leaves:00").expect("get").is_none());
}

/// What all databases of `resources` take, by parts.
fn sum(resources: &Resources, part: fn(&MemoryStats) -> u64) -> u64 {
    let stats = resources.stats();
    stats.databases.iter().map(|it| part(&it.memory)).sum()
}

#[test]
fn databases_that_share_memory_keep_to_its_ceiling() {
    const CEILING: u64 = 16 << 20;
    const DATABASES: usize = 20;
    const KEYS: usize = 4_000;
    let _turn = turn();
    let dir = memory_dir();
    let resources = Resources::new(CEILING, CEILING / 4).expect("shared");
    // Their memtables have room for all that is written: only the ceiling has them flushed.
    let options = Options {
        resources: Some(resources.clone()),
        memtable_bytes: 32 << 20,
        devices: None,
        ..small_with_devices()
    };
    let open = |number: usize| Db::open(dir.path().join(number.to_string()), options.clone());
    let databases: Vec<Db> = (0..DATABASES).map(|it| open(it).expect("opens")).collect();
    let key = |number: usize| format!("{number:06}").into_bytes();
    let mut most = 0;
    for number in 0..KEYS {
        for db in &databases {
            db.put(&key(number), &[number as u8; 1000]).expect("put");
        }
        most = most.max(resources.stats().taken_bytes);
    }
    assert!(most < CEILING, "{most} bytes were taken of {CEILING}");
    assert!(most > CEILING / 2, "{most} bytes are too few to tell");
    let flushes = |db: &Db| db.stats().tree.flushes.jobs;
    assert!(databases.iter().all(|db| flushes(db) > 0));
    for (at, db) in databases.iter().enumerate() {
        for number in (at..KEYS).step_by(7) {
            let value = db.get(&key(number)).expect("get");
            assert_eq!(value.as_deref(), Some(&[number as u8; 1000][..]));
        }
    }
    let cached = sum(&resources, |it| it.cached_bytes);
    assert!(cached <= CEILING / 4, "{cached} bytes are cached");
    let rings = sum(&resources, |it| it.ring_bytes);
    assert_eq!(rings, (DATABASES * options.ring_bytes) as u64);
    // One more ring than half of the memory has room for.
    let too_large = Options {
        ring_bytes: 8 << 20,
        ..options.clone()
    };
    let refused = Db::open(dir.path().join("large"), too_large).map(|_| ());
    assert!(refused.is_err_and(|error| error.to_string().contains("ring_bytes is 8388608")));
    for db in databases {
        db.close().expect("closes");
    }
    assert_eq!(resources.stats().databases.len(), 0);
}

/// Each database has some files open.
fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("up to the hard limit");
}

/// A directory in memory, if there is such a file system: what is tested is no device.
fn memory_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().expect("tempdir"))
}
