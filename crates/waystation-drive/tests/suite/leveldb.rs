//! Tables that LevelDB wrote go through the hardware, and LevelDB reads what comes out.

use crate::common::random::Random;
use crate::common::{self, Keys, Recipe, Values, build, record};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tempfile::tempdir;
use waystation_drive::ip::{
    Engine, Job, MemoryTiming, Output, Settings, TableImage, reference, sizes, table,
};
use waystation_format::filename::{current_content, manifest_name, table_name};
use waystation_format::key::{ValueKind, compare_internal, user_key};
use waystation_format::leveldb_log::{RecordReader, RecordWriter};
use waystation_format::table::decode_block;
use waystation_format::version_edit::{NewFile, VersionEdit};
use waystation_oracle::{LevelDb, Operation};

const TABLE_NUMBER: u64 = 5;

/// Makes a LevelDB directory whose only table is an output.
fn install(path: &Path, output: &Output) {
    let bytes = table::write(output).unwrap();
    fs::write(path.join(table_name(TABLE_NUMBER)), &bytes).unwrap();
    let records = common::records(output);
    let edit = VersionEdit {
        comparator: Some("leveldb.BytewiseComparator".to_owned()),
        log_number: Some(3),
        prev_log_number: Some(0),
        next_file_number: Some(10),
        last_sequence: Some(1 << 40),
        new_files: vec![NewFile {
            level: 2,
            number: TABLE_NUMBER,
            file_bytes: bytes.len() as u64,
            smallest: records[0].0.clone(),
            largest: records[records.len() - 1].0.clone(),
        }],
        ..VersionEdit::default()
    };
    let mut manifest = Vec::new();
    RecordWriter::new(0).append(&edit.to_bytes(), &mut manifest);
    fs::write(path.join(manifest_name(4)), manifest).unwrap();
    fs::write(path.join("CURRENT"), current_content(4)).unwrap();
}

/// What a database must show: of every user key the newest version, unless that is a deletion.
fn visible(output: &Output) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut shown = Vec::new();
    let mut before: Option<Vec<u8>> = None;
    for (key, value) in common::records(output) {
        let user = user_key(&key).to_vec();
        if before.as_ref() != Some(&user) && key[key.len() - 8] == 1 {
            shown.push((user.clone(), value));
        }
        before = Some(user);
    }
    shown
}

/// LevelDB opens the output with paranoid checks, scans it both ways, and finds every key by seeking.
fn leveldb_reads(output: &Output) -> Vec<(Vec<u8>, Vec<u8>)> {
    let directory = tempdir().unwrap();
    install(directory.path(), output);
    let settings = waystation_oracle::Settings {
        snappy: false,
        ..Default::default()
    };
    let db = LevelDb::open(directory.path(), settings).unwrap();
    let entries = db.entries().unwrap();
    let mut backwards = db.entries_backwards().unwrap();
    backwards.reverse();
    assert_eq!(entries, backwards);
    assert_eq!(entries, visible(output));
    for (key, value) in &entries {
        assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
    }
    seeks_find_what_follows(&db, output, &entries);
    for (key, _) in common::records(output) {
        let user = user_key(&key);
        let there = entries
            .binary_search_by(|entry| entry.0.as_slice().cmp(user))
            .is_ok();
        assert_eq!(db.get(user).unwrap().is_some(), there);
    }
    entries
}

/// An iterator, sought to each key, to just before and to just behind it, stands where it should.
fn seeks_find_what_follows(db: &LevelDb, output: &Output, entries: &[(Vec<u8>, Vec<u8>)]) {
    let mut targets = vec![Vec::new()];
    for (key, _) in common::records(output) {
        let user = user_key(&key);
        let mut behind = user.to_vec();
        behind.push(0);
        targets.extend([
            user[..user.len().saturating_sub(1)].to_vec(),
            user.to_vec(),
            behind,
        ]);
    }
    for target in targets {
        let first = entries.partition_point(|entry| entry.0 < target);
        assert_eq!(db.seek(&target).unwrap().as_ref(), entries.get(first));
    }
}

/// The numbers of the tables that the MANIFEST lists. (A compaction cut off by closing leaves half a table behind.)
fn live_tables(path: &Path) -> BTreeSet<u64> {
    let current = fs::read_to_string(path.join("CURRENT")).unwrap();
    let manifest = fs::read(path.join(current.trim())).unwrap();
    let mut records = RecordReader::new(&manifest);
    let mut tables = BTreeSet::new();
    while let Some(record) = records.next().unwrap() {
        let edit = VersionEdit::decode(record).unwrap();
        for (_, number) in &edit.deleted_files {
            tables.remove(number);
        }
        tables.extend(edit.new_files.iter().map(|file| file.number));
    }
    tables
}

/// The tables of a LevelDB directory, chained into as few inputs as their ranges allow.
fn chained_tables(path: &Path) -> Vec<Vec<TableImage>> {
    let mut tables: Vec<(Vec<u8>, Vec<u8>, TableImage)> = live_tables(path)
        .into_iter()
        .map(|number| {
            let path = path.join(table_name(number));
            let image = table::read(fs::read(&path).unwrap())
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let edge = |last: bool| {
                let handle = if last {
                    image.blocks[image.blocks.len() - 1]
                } else {
                    image.blocks[0]
                };
                let start = handle.offset as usize;
                let mut scratch = Vec::new();
                let bytes = &image.bytes[start..handle.end().unwrap() as usize];
                let contents = decode_block(bytes, &mut scratch).unwrap();
                let block = waystation_format::block::Block::new(contents).unwrap();
                let mut entries = waystation_format::block::BlockIter::new(block);
                if last {
                    entries.seek_to_last().unwrap();
                } else {
                    entries.seek_to_first().unwrap();
                }
                entries.key().to_vec()
            };
            (edge(false), edge(true), image)
        })
        .collect();
    tables.sort_by(|a, b| compare_internal(&a.0, &b.0));
    let mut inputs: Vec<(Vec<u8>, Vec<TableImage>)> = Vec::new();
    for (first, last, image) in tables {
        match inputs
            .iter_mut()
            .find(|input| compare_internal(&input.0, &first).is_lt())
        {
            Some(input) => {
                input.0 = last;
                input.1.push(image);
            }
            None => inputs.push((last, vec![image])),
        }
    }
    inputs.into_iter().map(|input| input.1).collect()
}

/// Writes a database with overwrites and deletions; its entries. All of it ends in tables, none in the log.
fn write_database(
    path: &Path,
    seed: u64,
    block_bytes: usize,
    restart_interval: i32,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let settings = waystation_oracle::Settings {
        snappy: false,
        block_bytes,
        restart_interval,
        ..Default::default()
    };
    let mut random = Random::new(seed);
    for _ in 0..3 {
        let db = LevelDb::open(path, settings).unwrap();
        for _ in 0..1500 {
            let mut key = format!("{:08}", random.below(2500)).into_bytes();
            key.resize(random.pick(&[8, 8, 16]), 1);
            let operation = if random.below(8) == 0 {
                Operation::Delete(key)
            } else {
                let mut value = vec![0; random.pick(&[0, 100, 33, 700])];
                random.fill(&mut value);
                Operation::Put(key, value)
            };
            db.write(&[operation], false).unwrap();
        }
    }
    LevelDb::open(path, settings).unwrap().entries().unwrap()
}

#[test]
#[cfg_attr(
    not(all(verilator, leveldb)),
    ignore = "verilator or libleveldb is not installed"
)]
fn leveldbs_tables_are_compacted_and_read_back_by_leveldb() {
    for (seed, block_bytes, restart_interval) in [(1, 4096, 16), (2, 1024, 3), (3, 4096, 1)] {
        let source = tempdir().unwrap();
        let expected = write_database(source.path(), seed, block_bytes, restart_interval);
        let inputs = chained_tables(source.path());
        assert!(inputs.len() > 1, "the tables overlap");
        for size in sizes().into_iter().filter(|&size| size >= inputs.len()) {
            let settings = Settings {
                bottom: true,
                ..Settings::default()
            };
            let job = Job {
                inputs: inputs.clone(),
                settings,
            };
            let (output, _) = Engine::new(size).unwrap().run(&job, |_| ()).unwrap();
            assert!(output == reference::run(&job).unwrap());
            assert_eq!(leveldb_reads(&output), expected);
        }
    }
}

/// Every size, each input full of LevelDB's tables, with and without a memory that hesitates.
#[test]
#[cfg_attr(
    not(all(verilator, leveldb)),
    ignore = "verilator or libleveldb is not installed"
)]
fn leveldbs_tables_on_every_input_are_merged_bit_for_bit() {
    for size in sizes() {
        let mut engine = Engine::new(size).unwrap();
        let inputs = (0..size)
            .map(|input| {
                let directory = tempdir().unwrap();
                let (block_bytes, interval) = [(4096, 16), (1024, 3), (700, 1)][input % 3];
                write_database(directory.path(), 100 + input as u64, block_bytes, interval);
                chained_tables(directory.path()).swap_remove(0)
            })
            .collect();
        let mut job = Job {
            inputs,
            settings: Settings::default(),
        };
        for (bottom, smallest_snapshot) in [(true, u64::MAX >> 8), (false, 2000)] {
            job.settings.bottom = bottom;
            job.settings.smallest_snapshot = smallest_snapshot;
            let expected = reference::run(&job).unwrap();
            for hesitations in [[0; 4], [128, 60, 0, 0], [0, 0, 60, 160], [90; 4]] {
                engine.set_timing(MemoryTiming {
                    hesitations,
                    seed: size as u64,
                    ..MemoryTiming::default()
                });
                let (output, traffic) = engine.run(&job, |_| ()).unwrap();
                assert!(output == expected, "{size} inputs, {hesitations:?}");
                assert_eq!(traffic.violations, 0);
            }
            leveldb_reads(&expected);
        }
    }
}

#[test]
#[cfg_attr(
    not(all(verilator, leveldb)),
    ignore = "verilator or libleveldb is not installed"
)]
fn leveldb_reads_random_outputs() {
    for size in sizes() {
        let mut engine = Engine::new(size).unwrap();
        for (number, keys) in [Keys::Digits, Keys::Tricky, Keys::Long]
            .into_iter()
            .enumerate()
        {
            let recipe = Recipe {
                seed: number as u64,
                inputs: size,
                records: 1500,
                keys,
                values: Values::Mixed,
                deletions: 20,
                chains: false,
                block_bytes: 1024,
                restart_interval: 16,
                settings: Settings {
                    smallest_snapshot: 700,
                    block_bytes: 512,
                    ..Settings::default()
                },
            };
            let job = recipe.job();
            let (output, _) = engine.run(&job, |_| ()).unwrap();
            leveldb_reads(&output);
        }
    }
}

/// The index entry of the first block has an empty user key: a scan never looks at it, a seek does.
#[test]
#[cfg_attr(
    not(all(verilator, leveldb)),
    ignore = "verilator or libleveldb is not installed"
)]
fn leveldb_seeks_past_an_empty_index_key() {
    for size in sizes() {
        let mut records: Vec<_> = (1..=40)
            .rev()
            .map(|version| record(b"", version, ValueKind::Value, b"of nothing"))
            .collect();
        records.push(record(b"", 41, ValueKind::Value, b"newest"));
        records.sort_by(|a, b| compare_internal(&a.0, &b.0));
        for number in 0..40u8 {
            records.push(record(&[number], 100, ValueKind::Value, b"of one byte"));
        }
        let settings = Settings {
            smallest_snapshot: 0,
            block_bytes: 300,
            ..Settings::default()
        };
        let job = Job {
            inputs: vec![vec![build(&records, 4096, 16)]],
            settings,
        };
        let (output, _) = Engine::new(size).unwrap().run(&job, |_| ()).unwrap();
        assert_eq!(output.blocks[0].last_key.len(), 8);
        let entries = leveldb_reads(&output);
        assert_eq!(entries[0], (Vec::new(), b"newest".to_vec()));
        assert_eq!(entries.len(), 41);
    }
}
