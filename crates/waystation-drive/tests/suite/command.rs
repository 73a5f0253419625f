//! `waystation ip run`, called as the command line calls it.

use crate::common::{self, record};
use clap::Parser;
use std::fs;
use std::path::Path;
use tempfile::{TempDir, tempdir};
use waystation_drive::command::{CommandError, IpCommand, Report};
use waystation_drive::ip::{FailureKind, sizes, table};
use waystation_format::key::ValueKind;

/// Stands in for the command line that mounts it.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    ip: IpCommand,
}

/// Two tables `a` and `b` of one key in common, and `c`, which follows `a`.
fn directory() -> TempDir {
    let directory = tempdir().unwrap();
    let write = |name: &str, keys: &[&str], sequence: u64| {
        let records: Vec<_> = keys
            .iter()
            .map(|key| record(key.as_bytes(), sequence, ValueKind::Value, b"value"))
            .collect();
        let image = common::build(&records, 4096, 16);
        fs::write(directory.path().join(name), image.bytes).unwrap();
    };
    write("a", &["k1", "k2"], 1);
    write("b", &["k2", "k4"], 2);
    write("c", &["k5"], 3);
    directory
}

/// Runs `ip run` with these words; those that name a file of the directory are made to.
fn run(directory: &Path, words: &[&str]) -> Result<Report, CommandError> {
    let place = |name: &str| directory.join(name).display().to_string();
    let arguments = ["ip", "run"].into_iter().map(str::to_owned);
    let words = words.iter().map(|word| {
        if word.starts_with('-') || word.parse::<u32>().is_ok() {
            (*word).to_owned()
        } else {
            word.split(',').map(place).collect::<Vec<_>>().join(",")
        }
    });
    let line = Line::try_parse_from(arguments.chain(words)).unwrap();
    line.ip.run(true)
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn tables_become_one_and_the_report_counts_them() {
    let directory = directory();
    let size = sizes().into_iter().find(|&size| size >= 2).unwrap();
    let inputs = size.to_string();
    let words = ["-N", &inputs, "a,c", "b", "--verify", "-o", "out"];
    let report = run(directory.path(), &words).unwrap();
    let counters = report.counters;
    assert_eq!((counters.records_in, counters.records_out), (5, 4));
    assert_eq!(counters.shadowed, 1);
    assert!(report.verified && report.cycles_per_byte_in > 0.0);
    let text = report.to_string();
    assert!(
        text.contains("5 in = 4 out + 1 shadowed + 0 vanished"),
        "{text}"
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["inputs"], size);
    assert_eq!(json["counters"]["records_in"], 5);
    assert_eq!(json["traffic"]["violations"], 0);
    assert_eq!(json["tables"][0].as_array().unwrap().len(), 2);
    let written = table::read(fs::read(directory.path().join("out")).unwrap()).unwrap();
    assert_eq!(written.blocks.len(), 1);
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn what_cannot_be_done_is_said_and_leaves_no_file() {
    let directory = directory();
    let path = directory.path();
    let size = sizes()[0].to_string();
    let sentence = |words: &[&str]| run(path, words).unwrap_err().to_string();

    let missing = sentence(&["-N", &size, "nothing", "-o", "out"]);
    assert!(missing.contains("nothing: No such file"), "{missing}");
    std::os::unix::fs::symlink("/dev/zero", directory.path().join("endless")).unwrap();
    let endless = sentence(&["-N", &size, "endless", "-o", "out"]);
    assert!(endless.contains("not a regular file"), "{endless}");
    let many = sentence(&["-N", "1", "a", "b"]);
    assert!(
        many.starts_with("2 inputs for an engine of 1: put tables"),
        "{many}"
    );
    let size_missing = sentence(&["-N", "77", "a"]);
    assert!(size_missing.contains("no engine with 77"), "{size_missing}");
    let existing = sentence(&["-N", &size, "a", "-o", "b"]);
    assert!(existing.contains("b: File exists"), "{existing}");
    fs::write(
        path.join("text"),
        "this is no table at all, though it is long enough",
    )
    .unwrap();
    let foreign = sentence(&["-N", &size, "text", "-o", "out"]);
    assert!(
        foreign.contains("text: a table cannot be read"),
        "{foreign}"
    );

    // Tables of one input that do not follow each other: the engine notices, and the tables are named.
    match run(path, &["-N", &size, "c,a", "-o", "out"]).unwrap_err() {
        CommandError::Input { tables, failure } => {
            assert!(tables.ends_with("/a"), "{tables}");
            assert_eq!(failure.kind, FailureKind::Order);
        }
        other => panic!("{other}"),
    }
    assert!(!path.join("out").exists());
}

/// The engine checks data blocks; footer, index, metaindex, filter and properties are checked before it begins.
#[test]
fn every_flipped_bit_that_the_engine_does_not_see_is_noticed() {
    let records: Vec<_> = (0..50)
        .map(|number| {
            record(
                format!("key{number:02}").as_bytes(),
                1,
                ValueKind::Value,
                b"v",
            )
        })
        .collect();
    let image = common::build(&records, 128, 16);
    assert!(image.blocks.len() > 3);
    let end = image.blocks.last().unwrap().end().unwrap() as usize;
    assert!(end + 100 < image.bytes.len(), "there is a filter");
    let mut named = std::collections::BTreeSet::new();
    for at in end..image.bytes.len() {
        for bit in 0..8 {
            let mut bytes = image.bytes.clone();
            bytes[at] ^= 1 << bit;
            match table::read(bytes) {
                Ok(_) => panic!("bit {bit} of byte {at} of {}", image.bytes.len()),
                Err(error) => named.insert(error.to_string()),
            };
        }
    }
    for part in ["footer", "index", "metaindex", "filter", "properties"] {
        let sentence = format!("its {part} is damaged");
        assert!(named.iter().any(|said| said.contains(&sentence)), "{part}");
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn a_table_with_a_damaged_filter_is_refused_by_name() {
    let directory = directory();
    let path = directory.path().join("a");
    let mut bytes = fs::read(&path).unwrap();
    let end = table::read(bytes.clone()).unwrap().blocks[0].end().unwrap();
    bytes[end as usize] ^= 1;
    fs::write(&path, bytes).unwrap();
    let size = sizes()[0].to_string();
    let said = run(directory.path(), &["-N", &size, "a"])
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("a: a table cannot be read: its filter is damaged"),
        "{said}"
    );
}
