//! Rows: exactly one for each (engine, workload, threads, value length), and it is a run that happened.

use super::*;
use crate::raw::RawSettings;
use std::time::Duration;

fn run(engine: EngineKind, workload: Benchmark, ops_per_s: f64) -> Run {
    let raw = RawSettings {
        block_bytes: 1 << 18,
        depth: 2,
        span: Duration::from_secs(5),
    };
    Run {
        engine,
        workload,
        threads: 1,
        value_bytes: 100,
        figures: Figures {
            ops: 1000,
            found: None,
            seconds: 1000.0 / ops_per_s,
            ops_per_s,
            mb_per_s: ops_per_s * 116.0 / 1e6,
            p50_us: 1.0,
            p99_us: 2.0,
            p999_us: 3.0,
            max_us: ops_per_s,
            write_amplification: Some(2.0),
            written_mb: 0.2,
            cpu_s: 0.1,
            cpu_until_idle_s: 0.2,
            idle_after_s: 0.0,
            peak_rss_mb: 10.0,
            disk_mb: 1.0,
        },
        raw: RawFigures::default(),
        round: 1,
        attempt: 1,
        discarded: false,
        unstable: false,
        flags: Flags::new(engine, workload, 1000, &raw),
    }
}

#[test]
fn a_row_is_the_median_run_of_those_that_count() {
    let mut runs = Vec::new();
    for speed in [100.0, 300.0, 200.0] {
        runs.push(run(EngineKind::LevelDb, Benchmark::FillSeq, speed));
        runs.push(run(EngineKind::LevelDb, Benchmark::ReadSeq, speed * 10.0));
        runs.push(run(EngineKind::Fjall, Benchmark::FillSeq, speed * 2.0));
    }
    let mut discarded = run(EngineKind::LevelDb, Benchmark::FillSeq, 1.0);
    discarded.discarded = true;
    runs.push(discarded);

    let rows = rows(&runs);
    assert_eq!(rows.len(), 3);
    let first = &rows[0];
    assert_eq!(first.runs, 3);
    assert!((first.median.figures.ops_per_s - 200.0).abs() < 1e-9);
    // Its other figures are its own.
    assert!((first.median.figures.max_us - 200.0).abs() < 1e-9);
    assert!((first.ops_per_s_min - 100.0).abs() < 1e-9);
    assert!((first.ops_per_s_max - 300.0).abs() < 1e-9);
}

#[test]
fn a_row_is_one_flat_object_with_the_fields_that_readers_rely_on() {
    let rows = rows(&[run(EngineKind::LevelDbTuned, Benchmark::FillSeq, 100.0)]);
    let json = serde_json::to_value(&rows[0]).expect("plain data");
    let object = json.as_object().expect("an object");
    for field in [
        "engine",
        "workload",
        "threads",
        "value_bytes",
        "ops_per_s",
        "mb_per_s",
        "p50_us",
        "p99_us",
        "p999_us",
        "max_us",
        "write_amplification",
        "cpu_s",
        "peak_rss_mb",
        "disk_mb",
        "raw_mb_per_s",
        "raw_syncs_per_s",
        "raw_ratio",
        "num",
        "unstable",
    ] {
        assert!(object.contains_key(field), "{field} is missing");
    }
    assert_eq!(json["engine"], "leveldb-tuned");
    assert_eq!(json["workload"], "fillseq");
}

#[test]
fn the_table_has_a_line_for_each_row_and_says_what_was_not_steady() {
    let mut unsteady = run(EngineKind::Fjall, Benchmark::FillSync, 100.0);
    unsteady.unstable = true;
    let rows = rows(&[
        run(EngineKind::LevelDb, Benchmark::FillSeq, 100.0),
        unsteady,
    ]);
    let table = table(&rows);
    assert_eq!(table.lines().count(), 3);
    assert!(table.contains("device not steady"));
}
