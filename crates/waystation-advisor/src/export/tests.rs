//! Every format written reads back as the same events.

use std::path::PathBuf;

use super::*;
use crate::import::{self, AreaRules, ImportSettings, import};
use crate::native::{Trace, Writer};

fn read(format: import::Format, file: PathBuf) -> Trace {
    let mut trace = Trace::default();
    let settings = ImportSettings {
        files: vec![file],
        format,
        rules: AreaRules::default(),
        columns: None,
    };
    let rejections = import(&settings, &mut trace).unwrap();
    assert!(rejections.is_empty(), "{rejections}");
    trace
}

/// A recorded trace in the native format.
fn native(directory: &Path) -> (Trace, PathBuf) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/db-sqlite-del.ordered.allHDD.csv.gz");
    let trace = read(import::Format::Csv, file);
    let path = directory.join("native");
    let info = TraceInfo {
        areas: trace.info.areas.clone(),
        comms: trace.info.comms.clone(),
        ..TraceInfo::default()
    };
    let mut writer = Writer::create(&path, info).unwrap();
    for request in &trace.requests {
        writer.push(*request).unwrap();
    }
    writer.finish().unwrap();
    (trace, path)
}

#[test]
fn csv_comes_back_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, path) = native(directory.path());
    let csv = directory.path().join("out.csv");
    let written = export(&path, Format::Csv, &csv).unwrap();
    assert_eq!(written.records, trace.info.requests);
    let again = read(import::Format::Csv, csv);
    assert_eq!(again.requests, trace.requests);
}

#[test]
fn blktrace_comes_back_with_its_times_and_flushes() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, path) = native(directory.path());
    let file = directory.path().join("out.blktrace.0");
    export(&path, Format::Blktrace, &file).unwrap();
    let again = read(import::Format::Blktrace, file);
    assert_eq!(again.requests.len(), trace.requests.len());
    assert_eq!(again.info.completed, trace.info.completed);
    assert_eq!(again.info.flushes, trace.info.flushes);
    let sum = |trace: &Trace| {
        trace
            .requests
            .iter()
            .filter_map(Request::latency_ns)
            .sum::<u64>()
    };
    assert_eq!(sum(&again), sum(&trace));
}

#[test]
fn oracle_general_names_the_next_use() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, path) = native(directory.path());
    let file = directory.path().join("out.oracle");
    let written = export(&path, Format::OracleGeneral, &file).unwrap();
    let blocks: u64 = trace
        .requests
        .iter()
        .filter(|request| request.moves_data())
        .map(|request| request.blocks().count() as u64)
        .sum();
    assert_eq!(written.records, blocks);
    let bytes = std::fs::read(&file).unwrap();
    let records: Vec<(u64, i64)> = bytes
        .chunks_exact(24)
        .map(|record| {
            (
                u64::from_le_bytes(record[4..12].try_into().unwrap()),
                i64::from_le_bytes(record[16..24].try_into().unwrap()),
            )
        })
        .collect();
    for (index, (object, next)) in records.iter().enumerate() {
        if *next >= 0 {
            let next = *next as usize;
            assert_eq!(records[next].0, *object);
            assert!(
                !records[index + 1..next]
                    .iter()
                    .any(|(other, _)| other == object)
            );
        }
    }
}

#[test]
fn a_trace_is_not_written_over_itself() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, path) = native(directory.path());
    let link = directory.path().join("link");
    std::fs::hard_link(&path, &link).unwrap();
    for to in [&path, &link] {
        let error = export(&path, Format::Csv, to).unwrap_err();
        assert!(error.to_string().contains("is the trace itself"), "{error}");
    }
    assert_eq!(
        crate::native::load(&path).unwrap().requests.len(),
        trace.requests.len()
    );
}
