//! What several tests of whole databases need.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod disks;
pub(crate) mod failing;
pub(crate) mod kills;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::{SimStorage, Storage};
use waystation::{Compression, Db, DeviceOptions, Extractor, IterOptions, Options, WriteBatch};

/// Numbers that follow from a seed (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Devices named before a colon, which settle after `residency`; and little of everything, so that a short history
/// makes many tables and segments.
pub(crate) fn options_with_devices(residency: Duration) -> Options {
    Options {
        memtable_bytes: 64 << 10,
        table_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        cache_bytes: 1 << 20,
        devices: Some(DeviceOptions {
            residency,
            // Images of the indexes are drawn all the time.
            replay_bytes: 16 << 10,
            ..DeviceOptions::new(Extractor::until(b':'))
        }),
        ..Options::default()
    }
}

/// The same, where nothing settles by itself.
pub(crate) fn options_with_resting_devices() -> Options {
    options_with_devices(Duration::from_secs(1_000_000))
}

/// Small memtables, tables and segments, nothing compressed, no devices.
pub(crate) fn small_options() -> Options {
    Options {
        memtable_bytes: 256 << 10,
        table_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        compression: Compression::None,
        ..Options::default()
    }
}

/// The database of a simulated machine.
pub(crate) fn open_simulated(
    machine: &Arc<SimStorage>,
    options: Options,
) -> waystation::Result<Db> {
    Db::open_with(Arc::clone(machine) as Arc<dyn Storage>, "/db", options)
}

/// A database with devices that was filled by `fill` before it knew any.
pub(crate) fn open_older(machine: &Arc<SimStorage>, fill: impl FnOnce(&Db)) -> Db {
    let options = options_with_resting_devices();
    let plain = Options {
        devices: None,
        ..options.clone()
    };
    let db = open_simulated(machine, plain).expect("open");
    fill(&db);
    db.close().expect("close");
    open_simulated(machine, options).expect("open")
}

/// The names of the files in `dir` that hold graves beyond their memory.
pub(crate) fn spill_files(storage: &dyn Storage, dir: &str) -> Vec<String> {
    let entries = storage.list(Path::new(dir)).expect("works");
    let names = entries.into_iter().map(|it| it.name);
    names.filter(|name| is_spill_file(name)).collect()
}

/// Whether a file called so holds graves beyond their memory.
pub(crate) fn is_spill_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|it| it == "vault")
}

/// Waits, in real time, until `is_so`: background threads have to come to it.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what}");
}

/// Keys with their values.
pub(crate) type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// All that `db` holds, as a cursor finds it.
pub(crate) fn content(db: &Db) -> Content {
    content_by(db, IterOptions::default())
}

/// What a cursor with `options` finds, each key once.
pub(crate) fn content_by(db: &Db, options: IterOptions) -> Content {
    let mut cursor = db.iter(options).expect("iterate");
    let mut found = Content::new();
    cursor.seek_to_first().expect("seek");
    while cursor.valid() {
        let again = found.insert(cursor.key().to_vec(), cursor.value().to_vec());
        assert_eq!(again, None, "each key once");
        cursor.next().expect("next");
    }
    found
}

/// Adds puts (`Some`) and deletions (`None`).
pub(crate) fn add_changes(batch: &mut WriteBatch, changes: &[(Vec<u8>, Option<Vec<u8>>)]) {
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
    }
}

/// Copies the files in `source` to the directory `target`.
pub(crate) fn copy_files(source: &Path, target: &Path) {
    for entry in std::fs::read_dir(source).expect("list") {
        let entry = entry.expect("entry");
        std::fs::copy(entry.path(), target.join(entry.file_name())).expect("copy");
    }
}
