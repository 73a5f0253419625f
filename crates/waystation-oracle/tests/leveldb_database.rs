//! Whole databases that go to and fro: random histories written by LevelDB are opened in place by Waystation, with
//! what LevelDB left in its log, and back; what Waystation exports, LevelDB reads.

#![cfg(leveldb)]

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use waystation::{Compression, Db, Durability, IterOptions, Options, WriteBatch};
use waystation_oracle::{Operation, Settings};

mod told;

use told::{assert_same, open_leveldb, tell_warnings};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// A batch: keys, and values unless they are deleted.
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// Many entries in order, so that several tables and levels come about.
    Fill(u16, u8),
    /// Deletes a run of what was filled.
    Clear(u16, u16),
    /// Merges everything down.
    Compact,
    /// Closes and opens again.
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..400_u32).prop_map(|number| format!("key{number:05}").into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
        1 => prop::collection::vec(Just(0xff), 0..4),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..200),
        1 => (1..40_000_usize, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec((key(), prop::option::weighted(0.7, value())), 1..12).prop_map(Step::Write),
        4 => (0..2_000_u16, any::<u8>()).prop_map(|(from, seed)| Step::Fill(from, seed)),
        2 => (0..2_000_u16, 1..600_u16).prop_map(|(from, count)| Step::Clear(from, count)),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..40)
}

/// The operations of a step.
fn operations(step: &Step) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let key = |number: u16| format!("fill{number:05}").into_bytes();
    match step {
        Step::Write(operations) => operations.clone(),
        Step::Fill(from, seed) => (*from..from + 500)
            .map(|number| {
                let length = 50 + (usize::from(number) * 31 + usize::from(*seed)) % 200;
                // Half of it can be compressed.
                let value = (0..length).map(|at| if at % 2 == 0 { *seed } else { (at * 7) as u8 });
                (key(number), Some(value.collect()))
            })
            .collect(),
        Step::Clear(from, count) => (*from..from + count)
            .map(|number| (key(number), None))
            .collect(),
        Step::Compact | Step::Reopen => Vec::new(),
    }
}

fn note(content: &mut Content, step: &Step) {
    for (key, value) in operations(step) {
        match value {
            Some(value) => content.insert(key, value),
            None => content.remove(&key),
        };
    }
}

/// A directory in memory where there is one: nothing here is about syncing.
fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory")
}

fn write_with_leveldb(path: &Path, settings: Settings, steps: &[Step], content: &mut Content) {
    let mut db = open_leveldb(path, settings);
    for step in steps {
        match step {
            Step::Compact => db.compact(),
            Step::Reopen => {
                drop(db);
                db = open_leveldb(path, settings);
            }
            _ => {
                let batch: Vec<_> = operations(step)
                    .into_iter()
                    .map(|(key, value)| match value {
                        Some(value) => Operation::Put(key, value),
                        None => Operation::Delete(key),
                    })
                    .collect();
                db.write(&batch, false).expect("LevelDB writes");
            }
        }
        note(content, step);
    }
    // What it holds in memory stays in its log.
}

fn options(compression: Compression) -> Options {
    Options {
        memtable_bytes: 64 << 10,
        table_bytes: 64 << 10,
        block_bytes: 1024,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        compression,
        ..Options::default()
    }
}

fn write_with_waystation(
    path: &Path,
    options: &Options,
    steps: &[Step],
    content: &mut Content,
) -> Db {
    let mut db = Db::open(path, options.clone()).expect("opens");
    for step in steps {
        match step {
            Step::Compact => db
                .compact_range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
                .expect("compacts"),
            Step::Reopen => {
                db.close().expect("closes");
                db = Db::open(path, options.clone()).expect("opens again");
            }
            _ => {
                let mut batch = WriteBatch::new();
                for (key, value) in operations(step) {
                    match value {
                        Some(value) => batch.put(&key, &value),
                        None => batch.delete(&key),
                    }
                }
                db.write(&batch, Durability::ProcessCrash).expect("writes");
            }
        }
        note(content, step);
    }
    db
}

/// Reads everything in both directions and key by key.
fn assert_holds(db: &Db, content: &Content) {
    let mut cursor = db.iter(IterOptions::default()).expect("a cursor");
    for backwards in [false, true] {
        let mut found = Vec::new();
        if backwards {
            cursor.seek_to_last().expect("seeks");
        } else {
            cursor.seek_to_first().expect("seeks");
        }
        while cursor.valid() {
            found.push((cursor.key().to_vec(), cursor.value().to_vec()));
            if backwards {
                cursor.prev().expect("steps");
            } else {
                cursor.next().expect("steps");
            }
        }
        if backwards {
            found.reverse();
        }
        assert_same(
            &format!("Waystation, backwards: {backwards}"),
            &found,
            content,
        );
    }
    for (key, value) in content {
        assert_eq!(db.get(key).expect("gets").as_ref(), Some(value), "{key:?}");
    }
    for number in (0..2_700_u16).step_by(7) {
        let key = format!("fill{number:05}").into_bytes();
        let found = db.get(&key).expect("gets");
        assert_eq!(found.as_ref(), content.get(&key), "fill{number:05}");
    }
    let report = db.check().expect("checks");
    assert!(report.problems.is_empty(), "{report:?}");
}

fn assert_leveldb_holds(path: &Path, settings: Settings, content: &Content) {
    let db = open_leveldb(path, settings);
    assert_same("LevelDB", &db.entries().expect("reads"), content);
    let mut backwards = db.entries_backwards().expect("reads backwards");
    backwards.reverse();
    assert_same("LevelDB, backwards", &backwards, content);
    for (key, value) in content.iter().step_by(5) {
        assert_eq!(db.get(key).expect("gets").as_ref(), Some(value), "{key:?}");
    }
}

fn settings(snappy: bool, filters: bool) -> Settings {
    Settings {
        snappy,
        filter_bits_per_key: if filters { 10 } else { 0 },
        ..Settings::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn a_directory_of_leveldb_opens_in_place_and_goes_back(
        first in history(), second in history(), third in history(), snappy: bool, filters: bool,
    ) {
        tell_warnings();
        let dir = quick_dir();
        let settings = settings(snappy, filters);
        let compression = if snappy { Compression::Snappy } else { Compression::None };
        let mut content = Content::new();
        write_with_leveldb(dir.path(), settings, &first, &mut content);

        let db = Db::open(dir.path(), options(compression)).expect("opens in place");
        assert_holds(&db, &content);
        db.close().expect("closes");

        let db = write_with_waystation(dir.path(), &options(compression), &second, &mut content);
        assert_holds(&db, &content);
        db.close().expect("closes");
        assert_leveldb_holds(dir.path(), settings, &content);

        write_with_leveldb(dir.path(), settings, &third, &mut content);
        let db = Db::open(dir.path(), options(compression)).expect("opens in place again");
        assert_holds(&db, &content);
    }

    #[test]
    fn what_is_exported_leveldb_reads(steps in history(), snappy: bool, zstd: bool) {
        tell_warnings();
        let dir = quick_dir();
        let (source, target) = (dir.path().join("source"), dir.path().join("target"));
        let own = if zstd { Compression::Zstd } else { Compression::Snappy };
        let mut content = Content::new();
        let db = write_with_waystation(&source, &options(own), &steps, &mut content);
        let compression = if snappy { Compression::Snappy } else { Compression::None };
        let exported = db.export_leveldb(&target, compression, &mut |_| ()).expect("exports");
        prop_assert_eq!(exported.entries, content.len() as u64);
        for name in std::fs::read_dir(&target).expect("lists") {
            let name = name.expect("an entry").file_name().into_string().expect("text");
            let known = waystation_format::filename::parse(&name).is_some();
            prop_assert!(known, "{} is strange to LevelDB", name);
        }
        assert_leveldb_holds(&target, settings(snappy, true), &content);
        // The source is none the worse for it.
        assert_holds(&db, &content);
    }
}
