//! The columnar format: round trips, and damage noticed.

use super::*;
use crate::error::Error;
use crate::event::{Area, Flags, NOT_COMPLETED, Op, Role};
use proptest::prelude::*;

fn info() -> TraceInfo {
    let area = |name: &str| Area {
        name: name.to_owned(),
        device: name.to_owned(),
        role: Role::of_name(name),
        extent_bytes: 0,
    };
    TraceInfo {
        areas: vec![area("fs"), area("journal")],
        comms: vec!["a".to_owned(), "b".to_owned()],
        ..TraceInfo::default()
    }
}

fn request() -> impl Strategy<Value = (u32, Option<u32>, u64, u32, u32, bool, bool, u8, u8)> {
    (
        0..1_000_000_u32,
        prop::option::of(any::<u32>()),
        any::<u64>(),
        any::<u32>(),
        any::<u32>(),
        any::<bool>(),
        any::<bool>(),
        0..4_u8,
        0..32_u8,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_is_read(rows in prop::collection::vec(request(), 0..300)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let mut writer = Writer::create(&path, info()).unwrap();
        let mut time = 0;
        let mut expected = Vec::new();
        for (gap, latency, offset, length, pid, area, comm, op, flags) in rows {
            time += u64::from(gap);
            let request = Request {
                issue_ns: time,
                complete_ns: latency.map_or(NOT_COMPLETED, |latency| time + u64::from(latency)),
                offset,
                length,
                pid,
                comm: u32::from(comm),
                area: u8::from(area),
                op: Op::from_code(op).unwrap(),
                flags: Flags(flags),
            };
            writer.push(request).unwrap();
            expected.push(request);
        }
        writer.finish().unwrap();
        prop_assert_eq!(load(&path).unwrap().requests, expected);
    }

    #[test]
    fn a_changed_byte_is_noticed(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        write_some(&path, 500);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        std::fs::write(&path, &bytes).unwrap();
        // The row count of a block is not under its checksum, but then the columns do not come out even.
        let damaged = matches!(load(&path), Err(Error::Damaged { .. }));
        prop_assert!(damaged);
    }
}

fn write_some(path: &Path, rows: u64) {
    let mut writer = Writer::create(path, info()).unwrap();
    for row in 0..rows {
        writer
            .push(Request {
                issue_ns: row * 1000,
                complete_ns: row * 1000 + 77,
                offset: row * 8192,
                length: 4096,
                pid: 1,
                comm: 0,
                area: (row % 2) as u8,
                op: Op::Write,
                flags: Flags::SYNC,
            })
            .unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn a_cut_file_is_refused_as_unfinished() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    write_some(&path, 1000);
    let bytes = std::fs::read(&path).unwrap();
    for keep in [0, 7, 8, 20, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..keep]).unwrap();
        let error = load(&path).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{keep}: {error}");
    }
}

#[test]
fn an_unfinished_writer_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    drop(Writer::create(&path, info()).unwrap());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn many_blocks_come_back_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    write_some(&path, BLOCK_ROWS as u64 * 2 + 5);
    let trace = load(&path).unwrap();
    assert_eq!(trace.requests.len(), BLOCK_ROWS * 2 + 5);
    assert_eq!(trace.info.completed, trace.info.requests);
    assert!(trace.requests.is_sorted_by_key(|request| request.issue_ns));
}
