//! Tests of directories that are not as they were left: each damage has its error, and none is overlooked.

use super::set::{Fixture, add};
use crate::directory::SIDE_FILE;
use crate::error::Error;
use crate::lsm::version::manifest::{Numbers, snapshot_edit};
use crate::lsm::version::{Fence, Progress, Version};
use std::path::Path;
use waystation_format::filename::{CURRENT, table_name};
use waystation_format::leveldb_log::{RecordReader, RecordWriter};
use waystation_format::order::Order;

/// A directory with tables 2 and 3 and 4 in level 1, each installed by its own edit.
fn filled() -> Fixture {
    let fixture = Fixture::new();
    let (set, _) = fixture.open().unwrap();
    for (smallest, largest) in [("a", "b"), ("c", "d"), ("e", "f")] {
        let table = fixture.table(set.new_file_number(), smallest, largest);
        set.apply(&add(1, &table), Progress::default()).unwrap();
    }
    fixture
}

/// Where the last edit of its MANIFEST begins: the one that added table 4.
fn last_edit(whole: &[u8]) -> usize {
    let mut reader = RecordReader::new(whole);
    let mut began = 0;
    loop {
        let through = reader.whole_through() as usize;
        if reader.next().unwrap().is_none() {
            return began;
        }
        began = through;
    }
}

fn error_of(fixture: &Fixture) -> Error {
    fixture.open().err().expect("it is damaged")
}

fn corrupt(error: &Error) -> (&Path, u64, &str) {
    match error {
        Error::Corruption {
            path,
            offset,
            reason,
        } => (path, *offset, reason),
        other => panic!("expected damage, found: {other}"),
    }
}

#[test]
fn a_missing_or_short_table_is_named() {
    let fixture = filled();
    std::fs::write(fixture.path(&table_name(3)), [0; 99]).unwrap();
    let error = error_of(&fixture);
    let (path, offset, reason) = corrupt(&error);
    assert_eq!((path, offset), (&*fixture.path(&table_name(3)), 99));
    assert!(reason.contains("100 bytes"), "{reason}");
    std::fs::remove_file(fixture.path(&table_name(3))).unwrap();
    let error = error_of(&fixture);
    assert!(corrupt(&error).2.contains("lists it in level 1"), "{error}");
}

#[test]
fn a_lost_or_wrong_current_is_no_new_database() {
    let fixture = filled();
    std::fs::write(fixture.path(CURRENT), "MANIFEST-000077\n").unwrap();
    let error = error_of(&fixture);
    assert!(
        corrupt(&error)
            .2
            .contains("MANIFEST-000077, which does not exist"),
        "{error}"
    );
    std::fs::write(fixture.path(CURRENT), "MANIFEST-000001").unwrap();
    let error = error_of(&fixture);
    assert!(corrupt(&error).2.contains("newline"), "{error}");
    std::fs::remove_file(fixture.path(CURRENT)).unwrap();
    let error = error_of(&fixture);
    assert!(
        corrupt(&error).2.contains("is missing, although"),
        "{error}"
    );
    assert_eq!(fixture.names().len(), 5, "nothing is removed");
}

#[test]
fn comparators_are_told_apart() {
    let cases = [
        ("my.own.comparator", "ordered by \"my.own.comparator\""),
        ("waystation/1:my.own", "ordered by \"my.own\""),
        (
            "waystation/2:leveldb.BytewiseComparator",
            "directory format 2",
        ),
        (
            "waystation/x:leveldb.BytewiseComparator",
            "which no version writes",
        ),
        ("waystation/1", "which no version writes"),
    ];
    for (name, expected) in cases {
        let fixture = Fixture::new();
        let numbers = Numbers {
            log_number: 2,
            next_file: 3,
            last_sequence: 0,
        };
        let mut edit = snapshot_edit(&Version::empty(&Order::Bytewise), numbers, Fence::Open);
        edit.comparator = Some(name.to_owned());
        let mut framed = Vec::new();
        RecordWriter::new(0).append(&edit.to_bytes(), &mut framed);
        std::fs::write(fixture.path("MANIFEST-000001"), framed).unwrap();
        std::fs::write(fixture.path(CURRENT), "MANIFEST-000001\n").unwrap();
        let error = error_of(&fixture);
        assert!(matches!(error, Error::Incompatible { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn behind_the_fence_the_side_file_has_to_be_there() {
    let fixture = filled();
    let path = fixture.path(SIDE_FILE);
    let content = std::fs::read(&path).unwrap();
    let mut flipped = content.clone();
    flipped[20] ^= 1;
    std::fs::write(&path, flipped).unwrap();
    let error = error_of(&fixture);
    assert!(corrupt(&error).2.contains("checksum"), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = error_of(&fixture);
    assert!(corrupt(&error).2.contains("is missing"), "{error}");
    std::fs::write(&path, content).unwrap();
    fixture.open().unwrap();
}

#[test]
fn a_torn_last_edit_is_cut_off_wherever_it_tore() {
    let fixture = filled();
    let path = fixture.current_manifest();
    let whole = std::fs::read(&path).unwrap();
    let (set, _) = fixture.open().unwrap();
    drop(set);
    // The second manifest begins with all three tables; the first one ended with the edit that added table 4.
    std::fs::write(fixture.path(CURRENT), "MANIFEST-000001\n").unwrap();
    std::fs::write(&path, &whole).unwrap();
    let last = last_edit(&whole);
    for length in last + 1..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let manifest = fixture.read_manifest();
        assert_eq!(manifest.version.level(1).len(), 2, "at {length}");
    }
}

#[test]
fn sectors_that_never_arrived_are_cut_off_too() {
    let fixture = Fixture::new();
    let (set, _) = fixture.open().unwrap();
    let key = |number: u64| format!("{number:06}{}", "k".repeat(900));
    let mut whole_edits = Vec::new();
    for number in 1..20 {
        let table = fixture.table(
            set.new_file_number(),
            &key(number * 2),
            &key(number * 2 + 1),
        );
        whole_edits.push(std::fs::metadata(fixture.current_manifest()).unwrap().len() as usize);
        set.apply(&add(1, &table), Progress::default()).unwrap();
    }
    let path = fixture.current_manifest();
    let whole = std::fs::read(&path).unwrap();
    let last = *whole_edits.last().unwrap();
    for sector in last / 512..=(whole.len() - 1) / 512 {
        // As the sector was before the edit was written.
        let mut torn = whole.clone();
        let end = (sector * 512 + 512).min(torn.len());
        torn[last.max(sector * 512)..end].fill(0);
        std::fs::write(&path, &torn).unwrap();
        assert_eq!(
            fixture.read_manifest().version.level(1).len(),
            18,
            "sector {sector}"
        );
    }
}

#[test]
fn a_flipped_bit_in_the_last_edit_is_no_torn_write() {
    let fixture = filled();
    let path = fixture.current_manifest();
    let whole = std::fs::read(&path).unwrap();
    for bit in last_edit(&whole) * 8..whole.len() * 8 {
        let mut content = whole.clone();
        content[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, content).unwrap();
        let error = error_of(&fixture);
        assert!(
            matches!(error, Error::Corruption { .. }),
            "bit {bit}: {error}"
        );
    }
}

#[test]
fn a_flipped_bit_before_the_last_edit_is_damage() {
    let fixture = filled();
    let path = fixture.current_manifest();
    let whole = std::fs::read(&path).unwrap();
    for bit in 0..last_edit(&whole) * 8 {
        let mut content = whole.clone();
        content[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, content).unwrap();
        let error = error_of(&fixture);
        assert!(
            matches!(error, Error::Corruption { .. }),
            "bit {bit}: {error}"
        );
    }
}
