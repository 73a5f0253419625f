//! Every setting, however extreme, is refused by its name or works.

use proptest::prelude::*;
use proptest::sample::select;
use std::path::Path;
use std::time::Duration;
use waystation::storage::{SimStorage, Storage};
use waystation::{
    Db, DeviceError, DeviceOptions, Error, Extractor, IterOptions, Options, PutOptions,
};

/// The names of the settings that have limits.
const NAMES: [&str; 11] = [
    "memtable_bytes",
    "block_bytes",
    "table_bytes",
    "filter_bits_per_key",
    "cache_bytes",
    "ring_bytes",
    "log_segment_bytes",
    "background_jobs",
    "max_open_tables",
    "graves_bytes",
    "compaction_bytes_per_second",
];

/// What is within its range takes no more of the simulated machine, whose disk is memory.
const SIMULATED_BYTES_MAX: usize = 8 << 20;

fn small() -> Options {
    Options {
        memtable_bytes: 64 << 10,
        table_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        cache_bytes: 1 << 20,
        devices: Some(DeviceOptions::new(Extractor::until(b':'))),
        ..Options::default()
    }
}

fn extreme() -> impl Strategy<Value = u64> {
    let powers: Vec<u64> = (0..64).map(|bit| 1 << bit).collect();
    prop_oneof![
        4 => select(vec![0, 1, u64::MAX, u64::MAX - 1, u64::MAX / 2]),
        4 => select(powers.clone()),
        1 => select(powers).prop_map(|power| power - 1),
    ]
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        2 => select(vec![Duration::ZERO, Duration::MAX, Duration::from_nanos(1)]),
        1 => Just(Duration::new(u64::MAX, 999_999_998)),
        1 => extreme().prop_map(Duration::from_nanos),
        1 => extreme().prop_map(Duration::from_micros),
        2 => extreme().prop_map(Duration::from_millis),
        2 => extreme().prop_map(Duration::from_secs),
    ]
}

/// Sets the size or count `name`.
fn set(options: &mut Options, name: &str, value: u64) {
    let value = usize::try_from(value).unwrap_or(usize::MAX);
    let on_disk = if value <= 4 << 30 {
        value.min(SIMULATED_BYTES_MAX)
    } else {
        value
    };
    match name {
        "memtable_bytes" => options.memtable_bytes = on_disk,
        "block_bytes" => options.block_bytes = value,
        "table_bytes" => options.table_bytes = value,
        "filter_bits_per_key" => {
            options.filter_bits_per_key = u32::try_from(value).unwrap_or(u32::MAX);
        }
        "cache_bytes" => options.cache_bytes = value,
        "ring_bytes" => options.ring_bytes = on_disk,
        "log_segment_bytes" => options.log_segment_bytes = on_disk,
        "background_jobs" => options.background_jobs = value,
        "max_open_tables" => options.max_open_tables = value,
        "graves_bytes" => options.graves_bytes = value,
        _ => options.compaction_bytes_per_second = value,
    }
}

fn options() -> impl Strategy<Value = Options> {
    let sizes = proptest::collection::vec((select(NAMES.to_vec()), extreme()), 0..3);
    let budgets = proptest::collection::vec((0..4_u8, extreme()), 0..3);
    let durations = (
        duration(),
        proptest::option::of(duration()),
        proptest::option::of(duration()),
    );
    (sizes, budgets, durations).prop_map(|(sizes, budgets, (residency, idle, deadline))| {
        let mut options = small();
        for (name, value) in sizes {
            set(&mut options, name, value);
        }
        options.deletion_deadline = deadline;
        if let Some(devices) = &mut options.devices {
            devices.residency = residency;
            devices.idle_departure = idle;
            for (which, value) in &budgets {
                match which {
                    0 => devices.upper_bytes = Some(*value),
                    1 => devices.index_bytes = *value,
                    2 => devices.replay_bytes = *value,
                    _ => {}
                }
            }
        }
        let limit = budgets.iter().find(|(which, _)| *which == 3);
        options.disk_bytes_max = limit.map(|(_, value)| *value);
        options
    })
}

/// Does a little of everything. A thread of the engine that panics is an error of `close`.
fn use_it(db: &Db, machine: &SimStorage, departs_by_itself: bool) -> Result<(), Error> {
    let written = |key: &[u8]| -> Result<bool, Error> { Ok(db.get(key)?.is_some()) };
    for round in 0..3_u64 {
        for number in 0..40 {
            db.put(format!("car-{}:{number}", number % 4).as_bytes(), &[7; 500])?;
            db.put(format!("plain-{number}").as_bytes(), &[8; 500])?;
        }
        db.put_with(
            b"mortal",
            b"x",
            PutOptions::expiring(Duration::from_secs(3600)),
        )?;
        assert!(written(b"plain-39")? && (written(b"car-1:1")? || departs_by_itself));
        let snapshot = db.snapshot();
        db.delete_prefix(b"plain-1")?;
        for done in [db.devices().settle(b"car-1"), db.devices().depart(b"car-2")] {
            match done {
                Err(Error::Device(DeviceError::Unknown { .. })) if departs_by_itself => {}
                done => done?,
            }
        }
        assert!(db.get_at(b"plain-1", &snapshot)?.is_some());
        drop(snapshot);
        db.flush()?;
        let mut cursor = db.iter(IterOptions::default())?;
        cursor.seek_to_first()?;
        while cursor.valid() {
            cursor.next()?;
        }
        machine.sleep(Duration::from_secs(1 << (6 * round)));
        let _ = db.stats();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn every_setting_is_refused_by_its_name_or_works(options in options()) {
        let machine = SimStorage::new(1);
        let departs_by_itself = options.devices.as_ref().is_some_and(|it| it.idle_departure.is_some());
        for life in 0..2 {
            match Db::open_with(machine.clone(), Path::new("/db"), options.clone()) {
                Ok(db) => {
                    let used = use_it(&db, &machine, departs_by_itself);
                    let is_full = matches!(used, Err(Error::DiskFull { .. }));
                    prop_assert!(used.is_ok() || is_full, "{used:?}");
                    let closed = db.close();
                    let panicked = closed.as_ref().is_err_and(|error| error.to_string().contains("panicked"));
                    prop_assert!(!panicked && (closed.is_ok() || is_full), "{closed:?}");
                    if is_full {
                        break;
                    }
                }
                Err(Error::InvalidArgument(told)) => {
                    let others = ["disk_bytes_max", "deletion_deadline", "idle_departure"];
                    let is_named = NAMES.iter().chain(&others).any(|name| told.starts_with(name));
                    prop_assert!(is_named && life == 0, "{told}");
                    break;
                }
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }
}

/// `Duration::MAX` is the natural way to say "never".
#[test]
fn for_ever_is_a_duration() {
    let mut options = small();
    options.deletion_deadline = Some(Duration::MAX);
    if let Some(devices) = &mut options.devices {
        devices.residency = Duration::MAX;
        devices.idle_departure = Some(Duration::MAX);
    }
    let machine = SimStorage::new(1);
    let db = Db::open_with(machine.clone(), Path::new("/db"), options).expect("opens");
    use_it(&db, &machine, false).expect("works");
    let day = Duration::from_secs(86_400);
    machine.sleep(30 * 365 * day);
    use_it(&db, &machine, false).expect("works");
    db.close().expect("closes");
}

/// A limit that is too small is refused with the least one that is not.
#[test]
fn the_least_disk_limit_is_named() {
    let open = |options: Options| Db::open_with(SimStorage::new(1), Path::new("/db"), options);
    for has_devices in [false, true] {
        for (ring, segment) in [
            (256 << 10, 256 << 10),
            (1 << 20, 1 << 20),
            (4 << 20, 64 << 20),
        ] {
            let limited = |limit: u64| Options {
                ring_bytes: ring,
                log_segment_bytes: segment,
                disk_bytes_max: Some(limit),
                devices: small().devices.filter(|_| has_devices),
                ..small()
            };
            let told = open(limited(1)).err().expect("refused").to_string();
            let named = told.rsplit(' ').next().map(str::parse::<u64>);
            let least = named.and_then(Result::ok).expect(&told);
            assert!(open(limited(least)).is_ok(), "{told}");
            assert!(open(limited(least - 1)).is_err(), "{told}");
        }
    }
}
