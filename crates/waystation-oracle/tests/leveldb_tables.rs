//! Tables and manifests that our formats write, read by LevelDB: forwards, backwards, key by key through the
//! filter, and through a compaction.

use std::fs;
use std::path::Path;
use waystation_format::filename::{CURRENT, current_content, manifest_name, table_name};
use waystation_format::key::{InternalKey, ValueKind};
use waystation_format::leveldb_log::RecordWriter;
use waystation_format::table::{Compression, TableOptions, TableWriter};
use waystation_format::version_edit::{BYTEWISE_COMPARATOR, NewFile, VersionEdit};
use waystation_oracle::{LevelDb, Settings};

const KEYS: u64 = 20_000;

/// Version `sequence` of key `number`; keys of all lengths, one a prefix of the other now and then.
fn internal_key(number: u64, sequence: u64, kind: ValueKind) -> Vec<u8> {
    InternalKey {
        user_key: user_key(number).as_bytes(),
        sequence,
        kind,
    }
    .to_bytes()
}

fn user_key(number: u64) -> String {
    format!("key{:06}{}", number / 3, "x".repeat(number as usize % 3))
}

fn value(number: u64) -> Vec<u8> {
    format!("value {number} ")
        .repeat(number as usize % 9)
        .into_bytes()
}

fn is_deleted(number: u64) -> bool {
    number.is_multiple_of(17)
}

/// The newest of a key's two versions is a deletion for some keys; the older one is always a value.
fn write_table(options: TableOptions, from: u64, to: u64) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut writer = TableWriter::new(options);
    for number in from..to {
        let kind = if is_deleted(number) {
            ValueKind::Deletion
        } else {
            ValueKind::Value
        };
        let newest = if is_deleted(number) {
            Vec::new()
        } else {
            value(number)
        };
        writer
            .add(&internal_key(number, KEYS + number, kind), &newest)
            .expect("keys ascend");
        writer
            .add(&internal_key(number, number + 1, ValueKind::Value), b"old")
            .expect("keys ascend");
    }
    let properties = writer.finish().clone();
    let file = writer.pending().to_vec();
    (file, properties.smallest_key, properties.largest_key)
}

fn write_database(path: &Path, options: &TableOptions) {
    let mut edit = VersionEdit {
        comparator: Some(BYTEWISE_COMPARATOR.into()),
        log_number: Some(0),
        next_file_number: Some(9),
        last_sequence: Some(2 * KEYS),
        ..VersionEdit::default()
    };
    for (number, level, from, to) in [
        (5, 1, 0, 9_000),
        (6, 1, 9_000, 15_000),
        (7, 0, 15_000, KEYS),
    ] {
        let (file, smallest, largest) = write_table(options.clone(), from, to);
        edit.new_files.push(NewFile {
            level,
            number,
            file_bytes: file.len() as u64,
            smallest,
            largest,
        });
        fs::write(path.join(table_name(number)), file).expect("a writable directory");
    }
    let mut manifest = Vec::new();
    RecordWriter::new(0).append(&edit.to_bytes(), &mut manifest);
    fs::write(path.join(manifest_name(1)), manifest).expect("a writable directory");
    fs::write(path.join(CURRENT), current_content(1)).expect("a writable directory");
}

fn check(db: &LevelDb) {
    let expected: Vec<_> = (0..KEYS)
        .filter(|&number| !is_deleted(number))
        .map(|number| (user_key(number).into_bytes(), value(number)))
        .collect();
    assert!(db.entries().expect("reads") == expected);
    let mut backwards = db.entries_backwards().expect("reads");
    backwards.reverse();
    assert!(backwards == expected);
    for number in 0..KEYS {
        let found = db.get(user_key(number).as_bytes()).expect("reads");
        assert_eq!(found, (!is_deleted(number)).then(|| value(number)));
        let missing = format!("{}!", user_key(number));
        assert_eq!(db.get(missing.as_bytes()).expect("reads"), None);
    }
}

#[test]
#[cfg_attr(not(leveldb), ignore = "libleveldb is not installed")]
fn leveldb_reads_our_tables_and_compacts_them() {
    for compression in [Compression::None, Compression::Snappy] {
        for (restart_interval, block_bytes, filter_bits_per_key) in
            [(16, 4096, 10), (1, 500, 14), (7, 60_000, 0)]
        {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let options = TableOptions {
                block_bytes,
                restart_interval,
                compression,
                filter_bits_per_key,
                purged_through: 7,
                ..TableOptions::default()
            };
            write_database(directory.path(), &options);
            for filter_bits_per_key in [0, 10] {
                let settings = Settings {
                    filter_bits_per_key,
                    ..Settings::default()
                };
                let db = LevelDb::open(directory.path(), settings).expect("opens");
                assert_eq!((db.files_at_level(0), db.files_at_level(1)), (1, 2));
                check(&db);
            }
            let db = LevelDb::open(directory.path(), Settings::default()).expect("opens");
            db.compact();
            check(&db);
        }
    }
}
