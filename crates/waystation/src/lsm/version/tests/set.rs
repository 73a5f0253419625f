//! Tests of the version set over real files: installed versions are found again, and nothing else stays.

use crate::error::Result;
use crate::lsm::version::manifest::{Manifest, Numbers, snapshot_edit};
use crate::lsm::version::set::Found;
use crate::lsm::version::{Change, Fence, Progress, State, Version, VersionSet};
use crate::sst::TableMeta;
use crate::storage::Storage;
use crate::storage::os::OsStorage;
use crate::sync::Arc;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use waystation_format::filename::{CURRENT, log_name, manifest_name, table_name};
use waystation_format::leveldb_log::RecordWriter;
use waystation_format::order::Order;

pub(super) struct Fixture {
    pub dir: TempDir,
    pub storage: Arc<dyn Storage>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            storage: OsStorage::new(),
        }
    }

    pub(super) fn open(&self) -> Result<(VersionSet, Found)> {
        VersionSet::open(Arc::clone(&self.storage), self.dir.path(), &Order::Bytewise)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A table as far as the version set looks at it: a file of the right length.
    pub(super) fn table(&self, number: u64, smallest: &str, largest: &str) -> Arc<TableMeta> {
        std::fs::write(self.path(&table_name(number)), [0; 100]).unwrap();
        super::table(number, (smallest, 9), (largest, 1))
    }

    pub(super) fn current_manifest(&self) -> PathBuf {
        let name = std::fs::read_to_string(self.path(CURRENT)).unwrap();
        self.path(name.trim_end())
    }

    pub(super) fn read_manifest(&self) -> Manifest {
        Manifest::read(&*self.storage, &self.current_manifest(), &Order::Bytewise).unwrap()
    }

    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// A MANIFEST as LevelDB would have left it, in force.
    pub(super) fn as_leveldb(&self, number: u64, version: &Version, numbers: Numbers) {
        let edit = snapshot_edit(version, numbers, Fence::Open);
        let mut framed = Vec::new();
        RecordWriter::new(0).append(&edit.to_bytes(), &mut framed);
        std::fs::write(self.path(&manifest_name(number)), framed).unwrap();
        std::fs::write(self.path(CURRENT), format!("{}\n", manifest_name(number))).unwrap();
    }
}

pub(super) fn add(level: usize, table: &Arc<TableMeta>) -> Change {
    Change {
        removed: Vec::new(),
        added: vec![(level, Arc::clone(table))],
    }
}

fn listed(version: &Version) -> Vec<(usize, u64)> {
    version
        .tables()
        .map(|(level, table)| (level, table.number))
        .collect()
}

#[test]
fn a_new_database_is_fenced_from_its_first_moment() {
    let fixture = Fixture::new();
    let (set, found) = fixture.open().unwrap();
    assert!(found.foreign_logs.is_empty() && found.state.is_none());
    let manifest = fixture.read_manifest();
    assert_eq!(manifest.fence, Fence::Closed);
    assert_eq!(
        Fence::Closed.comparator(&Order::Bytewise),
        "waystation/1:leveldb.BytewiseComparator"
    );
    assert_eq!(
        fixture.names(),
        ["CURRENT", "MANIFEST-000001", "WAYSTATION"]
    );
    assert_eq!(set.new_file_number(), 2);
    drop(set);

    let (set, found) = fixture.open().unwrap();
    assert_eq!(found.state, Some(State::new()));
    set.remove_garbage(|_| unreachable!("there are no tables"));
    assert_eq!(
        fixture.names(),
        ["CURRENT", "MANIFEST-000002", "WAYSTATION"]
    );
}

#[test]
fn what_is_installed_is_found_again() {
    let fixture = Fixture::new();
    let (set, _) = fixture.open().unwrap();
    let first = fixture.table(set.new_file_number(), "a", "f");
    let second = fixture.table(set.new_file_number(), "c", "z");
    let progress = Progress {
        flushed_through: Some(77),
        log_number: None,
    };
    set.apply(&add(0, &first), progress).unwrap();
    set.apply(
        &add(0, &second),
        Progress {
            flushed_through: Some(99),
            ..progress
        },
    )
    .unwrap();
    let moved = Change {
        removed: vec![(0, first.number)],
        added: vec![(1, Arc::clone(&first))],
    };
    set.apply(&moved, Progress::default()).unwrap();
    let next = set.new_file_number();
    assert_eq!(set.flushed_through(), 99);
    let expected = [(0, second.number), (1, first.number)];
    assert_eq!(listed(&set.current()), expected);
    drop(set);

    let (set, _) = fixture.open().unwrap();
    assert_eq!(listed(&set.current()), expected);
    assert_eq!(set.flushed_through(), 99);
    assert_eq!(*set.current().level(1)[0], *first);
    // A number taken but never installed may be given again: no file has it.
    assert!(set.new_file_number() >= next);
}

#[test]
fn a_refused_change_leaves_everything_as_it_was() {
    let fixture = Fixture::new();
    let (set, _) = fixture.open().unwrap();
    let first = fixture.table(set.new_file_number(), "a", "f");
    let second = fixture.table(set.new_file_number(), "c", "z");
    set.apply(&add(1, &first), Progress::default()).unwrap();
    let error = set
        .apply(&add(1, &second), Progress::default())
        .unwrap_err();
    assert!(error.to_string().contains("overlap in level 1"), "{error}");
    assert_eq!(listed(&set.current()), [(1, first.number)]);
    set.remove_garbage(|_| {});
    assert!(
        !fixture.path(&table_name(second.number)).exists(),
        "its table is given up"
    );
    drop(set);
    assert_eq!(
        listed(&fixture.open().unwrap().0.current()),
        [(1, first.number)]
    );
}

#[test]
fn a_table_goes_when_nobody_holds_it() {
    let fixture = Fixture::new();
    let (set, _) = fixture.open().unwrap();
    let number = set.new_file_number();
    set.apply(
        &add(1, &fixture.table(number, "a", "f")),
        Progress::default(),
    )
    .unwrap();
    let reader = set.current();
    let gone = Change {
        removed: vec![(1, number)],
        added: Vec::new(),
    };
    set.apply(&gone, Progress::default()).unwrap();
    set.remove_garbage(|_| unreachable!("a reader holds it"));
    assert_eq!(set.held_tables(), (1, 100));
    assert!(fixture.path(&table_name(number)).exists());
    drop(reader);
    let mut evicted = Vec::new();
    set.remove_garbage(|number| evicted.push(number));
    assert_eq!(evicted, [number]);
    assert!(!fixture.path(&table_name(number)).exists());
    assert_eq!(set.held_tables(), (0, 0));
}

#[test]
fn leftovers_go_at_open_and_foreign_files_stay() {
    let fixture = Fixture::new();
    let (set, _) = fixture.open().unwrap();
    let kept = fixture.table(set.new_file_number(), "a", "f");
    set.apply(
        &add(1, &kept),
        Progress {
            flushed_through: None,
            log_number: Some(50),
        },
    )
    .unwrap();
    drop(set);
    for name in [
        "000900.ldb",
        "000901.sst",
        "000902.dbtmp",
        "MANIFEST-000903",
        "000004.log",
    ] {
        std::fs::write(fixture.path(name), "left over").unwrap();
    }
    for name in ["notes.txt", "wal-000007.log", "LOG", "000060.log"] {
        std::fs::write(fixture.path(name), "not ours").unwrap();
    }
    let (set, found) = fixture.open().unwrap();
    assert_eq!(found.foreign_logs, [60]);
    set.remove_garbage(|_| {});
    assert_eq!(
        set.new_file_number(),
        905,
        "no number of any file is given again"
    );
    let mut expected = vec![
        "000060.log",
        "CURRENT",
        "LOG",
        "MANIFEST-000904",
        "WAYSTATION",
    ];
    let table = table_name(kept.number);
    expected.extend([&table, "notes.txt", "wal-000007.log"]);
    expected.sort_unstable();
    assert_eq!(fixture.names(), expected);
    set.apply(
        &Change::default(),
        Progress {
            flushed_through: None,
            log_number: Some(61),
        },
    )
    .unwrap();
    set.discard_logs(&[60]);
    set.remove_garbage(|_| {});
    assert!(!fixture.path(&log_name(60)).exists());
}

#[test]
fn a_long_manifest_is_written_anew() {
    let fixture = Fixture::new();
    let (set, _) = fixture.open().unwrap();
    let table = fixture.table(set.new_file_number(), &"a".repeat(2000), "f");
    set.apply(&add(1, &table), Progress::default()).unwrap();
    let first = fixture.current_manifest();
    let mut level = 1;
    while fixture.current_manifest() == first {
        let target = if level == 1 { 2 } else { 1 };
        let moved = Change {
            removed: vec![(level, table.number)],
            added: vec![(target, Arc::clone(&table))],
        };
        set.apply(&moved, Progress::default()).unwrap();
        level = target;
    }
    assert!(std::fs::metadata(&first).unwrap().len() > 60_000);
    assert!(std::fs::metadata(fixture.current_manifest()).unwrap().len() < 4_000);
    set.remove_garbage(|_| {});
    assert!(!first.exists());
    drop(set);
    let (set, found) = fixture.open().unwrap();
    assert_eq!(listed(&set.current()), [(level, table.number)]);
    assert!(found.state.is_some());
}

#[test]
fn a_directory_of_leveldb_opens_in_place() {
    let fixture = Fixture::new();
    let mut change = add(2, &fixture.table(5, "a", "f"));
    // An old LevelDB named its tables otherwise.
    std::fs::rename(fixture.path("000005.ldb"), fixture.path("000005.sst")).unwrap();
    change.added.push((0, fixture.table(8, "a", "z")));
    let version = Version::empty(&Order::Bytewise).with(&change).unwrap();
    let numbers = Numbers {
        log_number: 7,
        next_file: 10,
        last_sequence: 1234,
    };
    fixture.as_leveldb(4, &version, numbers);
    for number in [3, 7, 9] {
        std::fs::write(fixture.path(&log_name(number)), "").unwrap();
    }
    let (set, found) = fixture.open().unwrap();
    assert_eq!(found.foreign_logs, [7, 9]);
    assert!(found.state.is_none());
    assert_eq!(listed(&set.current()), [(0, 8), (2, 5)]);
    assert_eq!(set.flushed_through(), 1234);
    assert_eq!(fixture.read_manifest().fence, Fence::Closed);
    set.remove_garbage(|_| unreachable!("all tables are listed"));
    assert!(!fixture.path("000003.log").exists() && fixture.path("000007.log").exists());
    let gone = Change {
        removed: vec![(2, 5)],
        added: Vec::new(),
    };
    set.apply(&gone, Progress::default()).unwrap();
    set.remove_garbage(|_| {});
    assert!(!fixture.path("000005.sst").exists());
}

#[test]
fn the_state_is_kept_until_leveldb_writes_to_the_directory() {
    let state = State::from([("log".to_owned(), b"incarnation 3".to_vec())]);
    let fixture = Fixture::new();
    let (set, _) = fixture.open().unwrap();
    set.set_state(state.clone()).unwrap();
    let table = fixture.table(set.new_file_number(), "a", "f");
    set.apply(&add(1, &table), Progress::default()).unwrap();
    drop(set);
    let (set, found) = fixture.open().unwrap();
    assert_eq!(found.state.as_ref(), Some(&state), "after a crash");
    set.open_fence().unwrap();
    drop(set);
    assert_eq!(fixture.read_manifest().fence, Fence::Open);
    let (set, found) = fixture.open().unwrap();
    assert_eq!(found.state.as_ref(), Some(&state), "after a clean close");
    assert_eq!(set.state(), state);
    set.open_fence().unwrap();
    drop(set);

    // LevelDB goes on in the same MANIFEST ...
    let path = fixture.current_manifest();
    let mut content = std::fs::read(&path).unwrap();
    let clean = content.clone();
    RecordWriter::new(content.len() as u64).append(&[4, 200, 1], &mut content);
    std::fs::write(&path, content).unwrap();
    assert_eq!(fixture.open().unwrap().1.state, None);

    // ... or in another one.
    std::fs::write(fixture.path("MANIFEST-009999"), clean).unwrap();
    std::fs::write(fixture.path(CURRENT), "MANIFEST-009999\n").unwrap();
    assert_eq!(fixture.open().unwrap().1.state, None);
}

#[test]
fn reading_writes_nothing() {
    use crate::lsm::version::recover::{Listing, recover};
    let fixture = Fixture::new();
    let path: &Path = fixture.dir.path();
    let read = || {
        recover(
            &*fixture.storage,
            path,
            &Listing::read(&*fixture.storage, path).unwrap(),
            &Order::Bytewise,
        )
    };
    assert!(read().unwrap().is_none());
    let (set, _) = fixture.open().unwrap();
    let table = fixture.table(set.new_file_number(), "a", "f");
    set.apply(
        &add(1, &table),
        Progress {
            flushed_through: Some(5),
            log_number: None,
        },
    )
    .unwrap();
    let before = fixture.names();
    let recovered = read().unwrap().unwrap();
    assert_eq!(listed(&recovered.version), [(1, table.number)]);
    assert_eq!(recovered.numbers.last_sequence, 5);
    assert_eq!(fixture.names(), before);
}
