//! `serve` as a user runs it, on little data and for moments: real servers, and one row for each measurement.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The daemon beside this program. A test of the workspace has built it; a test of this crate alone builds it now.
fn daemon() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_waystation-bench")).with_file_name("waystation");
    if !beside.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "-p", "waystation-cli", "--target-dir"]);
        build.arg(beside.ancestors().nth(2).expect("a target directory"));
        assert!(build.status().expect("cargo runs").success());
    }
    beside
}

/// The rows of a run that succeeds.
fn rows(arguments: &str) -> Vec<Value> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let report = directory.path().join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_waystation-bench"))
        .arg("serve")
        .args(arguments.split_whitespace())
        .args(["--seconds", "0.2", "--runs", "1", "--data-dir"])
        .arg(directory.path().join("data"))
        .arg("--waystation")
        .arg(daemon())
        .arg("--json")
        .arg(&report)
        .output()
        .expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    let left = std::fs::read_dir(directory.path().join("data")).expect("the data directory");
    assert_eq!(left.count(), 0, "the data is removed at the end");
    let text = std::fs::read_to_string(report).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let rows = report["rows"].as_array().expect("rows").clone();
    assert!(rows.iter().all(|row| row["workload"] == "serve"));
    rows
}

fn has(row: &Value, fields: &[&str]) {
    for field in fields {
        assert!(row[field].as_f64() > Some(0.0), "{field}: {row}");
    }
}

#[test]
fn redis_clients_are_measured_on_both_servers() {
    let common = "--engines redis,waystation --keys 1000 --value-bytes 100 --pipelines 4";
    let rows = rows(&format!("--figure redis,always {common}"));
    let mut seen: Vec<(&str, &str, &str)> = Vec::new();
    for row in &rows {
        has(row, &["ops_per_s", "p99_us", "rss_mb", "ops_ratio"]);
        assert_eq!(row["protocol"], "redis");
        assert_eq!(
            (&row["pipeline"], &row["value_bytes"]),
            (&4.into(), &100.into())
        );
        let text = |field: &str| row[field].as_str().expect("text");
        seen.push((text("engine"), text("command"), text("durability")));
    }
    seen.sort_unstable();
    let expected = ["redis", "waystation"].map(|engine| {
        [
            (engine, "GET", "everysec"),
            (engine, "MIX", "everysec"),
            (engine, "SET", "always"),
            (engine, "SET", "everysec"),
        ]
    });
    assert_eq!(seen, expected.concat());
}

#[test]
fn readings_come_through_the_broker() {
    let rows = rows("--figure mqtt");
    for command in ["PUBLISH", "PACED"] {
        for (engine, durability) in [
            ("mosquitto", "none"),
            ("waystation", "process"),
            ("waystation", "power"),
        ] {
            let is_it = |row: &&Value| {
                row["engine"] == engine
                    && row["durability"] == durability
                    && row["command"] == command
            };
            let found: Vec<&Value> = rows.iter().filter(is_it).collect();
            assert_eq!(found.len(), 2, "{engine} {durability} {command}");
            for row in found {
                has(row, &["ops_per_s", "ops_ratio", "pipeline"]);
                assert_eq!(row["p99_us"].is_number(), command == "PACED");
            }
        }
    }
    assert_eq!(rows.len(), 12);
}

#[test]
fn memory_starts_and_a_large_data_set_are_measured() {
    let rows = rows(
        "--figure memory,start,big --engines redis,waystation --connections 20 --gb 0.001 --big-share 0.06",
    );
    let of = |engine: &str, figure: &str| -> Vec<&Value> {
        let is_it = |row: &&Value| row["engine"] == engine && row["figure"] == figure;
        rows.iter().filter(is_it).collect()
    };
    let memory = of("waystation", "memory");
    assert_eq!(memory.len(), 3);
    has(memory[0], &["rss_mb"]);
    has(memory[1], &["rss_mb", "clients"]);
    has(memory[2], &["binary_mb"]);
    assert_eq!(of("redis", "memory").len(), 2);
    let starts = of("waystation", "start");
    assert_eq!(starts.len(), 3);
    for row in starts {
        has(row, &["start_ms"]);
    }
    let large = of("waystation", "big");
    assert_eq!(large.len(), 4);
    for row in large {
        has(row, &["ops_per_s", "p99_us"]);
    }
    let refusal = of("redis", "big")[0]["refusal"].as_str().expect("text");
    assert!(refusal.contains("OOM"), "{refusal}");
}
