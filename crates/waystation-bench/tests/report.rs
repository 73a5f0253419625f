//! The program as a user runs it, on little data: exactly one row for each engine, workload, threads and value
//! length, under the names that readers of the report rely on.

#![allow(clippy::cast_precision_loss, reason = "counts of a few thousand")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// All but fillsync: on a device that is busy elsewhere, a thousand syncs last.
const BENCHMARKS: &str =
    "fillseq,fillrandom,overwrite,readrandom,readmissing,readseq,readreverse,seekrandom,deleteseq";

/// The engines of this build.
fn engines() -> &'static [&'static str] {
    if cfg!(feature = "rivals") {
        &["waystation", "leveldb"]
    } else {
        &["waystation"]
    }
}

fn run(directory: &Path, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_waystation-bench"))
        .args(arguments.split_whitespace())
        .arg("--data-dir")
        .arg(directory.join("data"))
        .output()
        .expect("the program starts")
}

/// The report of a run that succeeds.
fn report(directory: &Path, arguments: &str) -> Value {
    let path = directory.join("report.json");
    let output = run(directory, &format!("{arguments} --json {}", path.display()));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    let text = std::fs::read_to_string(path).expect("a report");
    let left = std::fs::read_dir(directory.join("data")).expect("the data directory");
    assert_eq!(left.count(), 0, "the data is removed at the end");
    serde_json::from_str(&text).expect("JSON")
}

/// A directory on storage: the one that cargo keeps for the tests.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).expect("a directory")
}

#[test]
fn there_is_one_row_for_each_engine_workload_threads_and_value_length() {
    let directory = directory();
    // LevelDB shows that it is idle by a second of quiet, after every benchmark: one engine is enough.
    let engine = engines()[0];
    let arguments = format!(
        "db --engines {engine} --benchmarks {BENCHMARKS} --num 2000 --threads 1,2 --runs 2 --raw-seconds 0"
    );
    let report = report(directory.path(), &arguments);
    assert!(report["machine"]["cores"].as_u64() >= Some(1));
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), BENCHMARKS.split(',').count() * 2);
    for workload in BENCHMARKS.split(',') {
        for threads in [1, 2] {
            let wanted = |row: &&Value| row["workload"] == workload && row["threads"] == threads;
            let found: Vec<&Value> = rows.iter().filter(wanted).collect();
            assert_eq!(found.len(), 1, "{workload} {threads}");
            assert_eq!(found[0]["engine"], engine);
            check_row(found[0]);
        }
    }
    let counted = |run: &&Value| run["discarded"] == false;
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.iter().filter(counted).count(), rows.len() * 2);
}

fn check_row(row: &Value) {
    let workload = row["workload"].as_str().expect("a name");
    let threads = row["threads"].as_u64().expect("a number");
    let is_write = workload.starts_with("fill") || ["overwrite", "deleteseq"].contains(&workload);
    for field in [
        "ops_per_s",
        "p50_us",
        "p999_us",
        "max_us",
        "cpu_s",
        "peak_rss_mb",
        "disk_mb",
    ] {
        assert!(
            row[field].as_f64() > Some(0.0),
            "{workload} {field}: {}",
            row[field]
        );
    }
    assert_eq!(
        row["write_amplification"].is_number(),
        is_write,
        "{workload}"
    );
    let ops = row["ops"].as_u64().expect("a number");
    let found = row["found"].as_u64();
    match workload {
        "readseq" | "readreverse" => assert_eq!(Some(ops), found),
        _ => assert_eq!(ops, 2000 * threads, "{workload}"),
    }
    match workload {
        "readmissing" => assert_eq!(found, Some(0)),
        // After fillrandom and overwrite, 1 - 1/e^2 of the keys are there, and more with more threads.
        "readrandom" | "seekrandom" | "readseq" => {
            let share = found.expect("reads count") as f64 / (2000 * threads) as f64;
            assert!(share > 0.8 && share <= 1.0, "{workload}: {share}");
        }
        _ => {}
    }
}

#[test]
fn writes_are_held_against_the_device() {
    let directory = directory();
    let engine = engines()[0];
    let arguments = format!(
        "db --engines {engine} --benchmarks fillseq,fillsync,readseq --num 2000 --runs 1 --raw-seconds 0.05 \
         --raw-block-bytes 64KiB --raw-depth 1"
    );
    let report = report(directory.path(), &arguments);
    let rows = report["rows"].as_array().expect("rows");
    let workloads: Vec<&Value> = rows.iter().map(|row| &row["workload"]).collect();
    assert_eq!(workloads, ["fillseq", "fillsync", "readseq"]);
    assert!(rows[0]["raw_mb_per_s"].as_f64() > Some(0.0));
    assert!(rows[0]["raw_syncs_per_s"].is_null());
    assert!(rows[1]["raw_mb_per_s"].is_null());
    assert!(rows[1]["raw_syncs_per_s"].as_f64() > Some(0.0));
    assert_eq!(rows[1]["ops"], 1000);
    assert_eq!(rows[1]["sync"], true);
    assert!(rows[2]["raw_ratio"].is_null());
    // fillsync had a database of its own: the filled one is what was read.
    assert_eq!(rows[2]["found"], 2000);
    for run in report["runs"].as_array().expect("runs") {
        let attempt = run["attempt"].as_u64();
        assert!(attempt >= Some(1) && attempt <= Some(3), "{run}");
        assert!(run["discarded"] == false || attempt < Some(3), "{run}");
    }
}

#[test]
fn an_interleaved_comparison_gives_a_ratio_for_each_pair() {
    if engines().len() < 2 {
        return;
    }
    let directory = directory();
    let report = report(
        directory.path(),
        "compare --engines waystation,leveldb --benchmarks fillseq,readseq --num 2000 --pairs 3 --raw-seconds 0",
    );
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["ratios"].as_array().map(Vec::len), Some(3));
        assert!(row["ratio_low"].as_f64() <= row["ratio_median"].as_f64());
        assert!(row["ratio_median"].as_f64() <= row["ratio_high"].as_f64());
        assert!(["faster", "level", "below"].contains(&row["verdict"].as_str().unwrap_or("")));
    }
}

#[test]
fn the_longest_put_is_found() {
    let directory = directory();
    let engine = engines()[0];
    let arguments = format!("stalls --engines {engine} --seconds 1 --num 1000 --threads 2");
    let report = report(directory.path(), &arguments);
    let row = &report["rows"][0];
    assert!(row["longest_put_ms"].as_f64() > Some(0.0));
    assert!(row["ops"].as_u64() > Some(0));
    assert_eq!(row["ops_by_second"].as_array().map(Vec::len), Some(1));
}

#[test]
fn nothing_is_missing_after_a_kill() {
    let directory = directory();
    let engine = engines().join(",");
    let arguments = format!("reopen --engines {engine} --log-bytes 4MB --runs 1");
    let report = report(directory.path(), &arguments);
    for row in report["rows"].as_array().expect("rows") {
        assert_eq!(row["missing"], 0, "{row}");
        assert!(row["open_s"].as_f64() > Some(0.0));
        assert_eq!(row["entries"], 3938);
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_a_sentence() {
    let directory = directory();
    let mut refused = vec![
        ("db --benchmarks readseq", "needs a filled database"),
        ("db --raw-block-bytes 1000", "multiple of 4096"),
    ];
    refused.push(("compare --engines waystation", "two engines"));
    if !cfg!(feature = "rivals") {
        refused.push(("db --engines leveldb", "make bench-build"));
    }
    for (arguments, sentence) in refused {
        let output = run(directory.path(), arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments}");
        assert!(message.contains(sentence), "{arguments}: {message}");
    }
}

#[test]
fn devices_come_settle_and_leave() {
    let directory = directory();
    let arguments = "iot --engines waystation --threads 3 --seconds 2 --departing 0.6 --values kit --runs 1 \
                     --raw-seconds 0.05";
    let report = report(directory.path(), arguments);
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(
        (&row["workload"], &row["engine"]),
        (&"iot".into(), &"waystation".into())
    );
    assert_eq!(row["flags"]["threads"], 3);
    for field in [
        "ops_per_s",
        "raw_share",
        "write_amplification",
        "longest_stall_ms",
        "index_bytes_per_record",
        "departures",
        "departed_records",
    ] {
        assert!(row[field].as_f64() > Some(0.0), "{field}: {}", row[field]);
    }
    for field in ["settled_share", "tree_share"] {
        let share = row[field].as_f64().expect("a share");
        assert!((0.0..1.0).contains(&share), "{field}: {share}");
    }
    assert!(row["settled_share"].as_f64() > Some(0.0), "{row}");
}

#[test]
fn devices_by_the_specification_are_asked_for_and_offered_a_rate() {
    let directory = directory();
    let arguments = "iot --engines waystation,waystation-plain --mode spec --devices 60 --threads 3 --seconds 1 \
                     --departing 0.5 --open-loop 0.25 --runs 1 --raw-seconds 0";
    let report = report(directory.path(), arguments);
    let rows = report["rows"].as_array().expect("rows");
    let names: Vec<(&Value, &Value)> = rows
        .iter()
        .map(|row| (&row["workload"], &row["engine"]))
        .collect();
    let expected = [
        ("iot", "waystation"),
        ("iot", "waystation-plain"),
        ("iot-open", "waystation"),
        ("iot-open", "waystation-plain"),
    ];
    let expected = expected.map(|(workload, engine)| (workload.into(), engine.into()));
    let expected: Vec<(&Value, &Value)> = expected.iter().map(|(a, b)| (a, b)).collect();
    assert_eq!(names, expected);
    for (closed, open) in rows[..2].iter().zip(&rows[2..]) {
        for field in [
            "departures",
            "queries",
            "query_rows",
            "query_p99_us",
            "p999_us",
        ] {
            assert!(closed[field].as_f64() > Some(0.0), "{field}: {closed}");
        }
        let offered = open["flags"]["offered_per_s"].as_f64().expect("a rate");
        let most = closed["ops_per_s"].as_f64().expect("a rate");
        assert!((offered / most - 0.25).abs() < 1e-9, "{offered} {most}");
        let taken = open["ops_per_s"].as_f64().expect("a rate");
        assert!(taken < 1.05 * offered, "{taken} {offered}");
        assert_eq!(
            closed["settled_share"].is_null(),
            closed["engine"] == "waystation-plain"
        );
    }
}

#[test]
fn phones_never_leave() {
    let directory = directory();
    let arguments = "iot --engines waystation --devices 60 --threads 2 --seconds 2 --departing 0 --runs 1 --raw-seconds 0";
    let report = report(directory.path(), arguments);
    let row = &report["rows"][0];
    assert_eq!(
        (&row["departures"], &row["departed_records"]),
        (&0.into(), &0.into())
    );
    assert!(row["settled_share"].as_f64() > Some(0.0), "{row}");
}

#[test]
fn a_load_that_cannot_be_is_refused() {
    let directory = directory();
    for (flags, sentence) in [
        ("--departing 1.5", "between 0 and 1"),
        ("--devices 5", "each of the 12 threads"),
        ("--open-loop 0", "more than 0"),
    ] {
        let output = run(
            directory.path(),
            &format!("iot --engines waystation {flags}"),
        );
        assert!(!output.status.success());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(sentence), "{message}");
    }
}

#[test]
fn ycsb_gives_a_row_for_each_workload() {
    let directory = directory();
    let arguments =
        "ycsb --engines waystation --records 3000 --operations 2000 --threads 2 --runs 1";
    let report = report(directory.path(), arguments);
    let rows = report["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["workload"].as_str())
        .collect();
    assert_eq!(names, ["load", "a", "b", "c", "f", "d", "e"]);
    let expected = [
        &[("insert", 3000, 3000)][..],
        &[("read", 900, 1100), ("update", 900, 1100)],
        &[("read", 1850, 1950), ("update", 50, 150)],
        &[("read", 2000, 2000)],
        &[("read", 900, 1100), ("read_modify_write", 900, 1100)],
        &[("read", 1850, 1950), ("insert", 50, 150)],
        &[("insert", 50, 150), ("scan", 1850, 1950)],
    ];
    for (row, expected) in rows.iter().zip(expected) {
        let operations = row["operations"].as_array().expect("operations");
        assert_eq!(operations.len(), expected.len(), "{row}");
        for (operation, (name, least, most)) in operations.iter().zip(expected) {
            assert_eq!(operation["operation"], *name);
            let ops = operation["ops"].as_u64().expect("a number");
            assert!((*least..=*most).contains(&ops), "{name}: {ops}");
        }
    }
    // A scan reads 1 to 100 records, 50.5 on average, less where the keys end.
    let scanned = rows[6]["scanned"].as_u64().expect("a number") as f64;
    assert!((85_000.0..105_000.0).contains(&scanned), "{scanned}");
}

#[test]
fn a_large_device_departs_while_others_write() {
    let directory = directory();
    let arguments = "depart --engines waystation --records 5000 --threads 2 --seconds 2 --open-loop 0.1 --runs 1 \
                     --settled";
    let report = report(directory.path(), arguments);
    let row = &report["rows"][0];
    for field in ["call_us", "p99_before_us", "p99_meanwhile_us", "p99_ratio"] {
        assert!(row[field].as_f64() > Some(0.0), "{field}: {row}");
    }
    assert_eq!(row["p99_us_by_second"].as_array().map(Vec::len), Some(2));
}
