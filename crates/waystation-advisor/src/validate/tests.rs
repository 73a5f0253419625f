//! The measured runs and what the simulator says of them.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::*;

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

#[test]
fn the_measured_runs_are_predicted_within_the_goals() {
    let validation = validate(&testdata(), &Machine::laboratory(), |_, _| {}).unwrap();
    let text = validation.to_text();
    assert_eq!(
        (validation.whole.len(), validation.capacity.len()),
        (19, 15),
        "{text}"
    );
    assert!(quantile(&validation.whole, 0.5) <= 0.05, "{text}");
    assert!(quantile(&validation.capacity, 0.5) <= 0.05, "{text}");
    assert!(
        validation
            .choices
            .iter()
            .all(|choice| choice.regret <= REGRET_MAX),
        "{text}"
    );
    let (split, single) = validation.split_s.unwrap();
    assert!(single >= 2.0 * split, "{text}");
    assert_eq!(validation.misses(), [""; 0]);
    // Variants of kernel settings are named, not forgotten.
    assert_eq!(validation.left_out.len(), 2, "{text}");
}

/// What `validate` says of a directory with these files.
fn said(files: &[(&str, &str)]) -> String {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    validate(directory.path(), &Machine::laboratory(), |_, _| {})
        .unwrap_err()
        .to_string()
}

const COLUMNS: &str = "application,ext4_data_mode,fast_area,fast_mb,seconds_min,seconds_max\n";

#[test]
fn what_a_directory_lacks_is_said_with_what_to_do() {
    let none = said(&[]);
    assert!(
        none.contains("measured.csv") && none.contains("--data"),
        "{none}"
    );
    let other = said(&[("measured.csv", "header\na,b,c\n")]);
    assert!(
        other.contains("line 1: the columns must be application,"),
        "{other}"
    );
    let empty = said(&[("measured.csv", COLUMNS)]);
    assert!(empty.contains("no measured run"), "{empty}");
    for (row, reason) in [
        ("a,b,c", "too few columns"),
        ("a,b,fs,some,1,2", "fast_mb"),
        ("a,b,fs,all,0,2", "seconds"),
        ("a,b,fs,all,1,NaN", "seconds"),
    ] {
        let text = format!("{COLUMNS}{row}\n");
        let wrong = said(&[("measured.csv", &text)]);
        assert!(
            wrong.contains("line 2") && wrong.contains(reason),
            "{wrong}"
        );
    }
    let text = format!("{COLUMNS}kvs,ordered,allHDD,0,1.5,2\n");
    let missing = said(&[("measured.csv", &text)]);
    assert!(
        missing.contains("\"kvs\" with data=ordered")
            && missing.contains("kvs.ordered.allHDD.csv.gz"),
        "{missing}"
    );
}

/// Another program, with areas of its own, on devices of its own.
#[test]
fn any_data_set_is_validated() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let mut trace =
        "t_issue_us,t_complete_us,area,rwbs,offset_bytes,length_bytes,pid,comm\n".to_owned();
    for number in 0..100 {
        let at = number * 12_000;
        let area = if number % 4 == 0 { "wal" } else { "data" };
        let offset = number * 7_919 % 1_000 * 1_048_576;
        writeln!(trace, "{at},{},{area},RS,{offset},4096,1,kvs", at + 10_000).unwrap();
    }
    std::fs::write(file("kvs.ordered.allHDD.csv"), trace).unwrap();
    let table = format!(
        "\u{feff}{COLUMNS}kvs,ordered,allHDD,0,1.2,1.3\r\nkvs,ordered,data,all,0.45,0.6\r\n\
         kvs,ordered,wal,all,0.9,1.0\r\nkvs,ordered,data-ft,1,0.45,1.0\r\nkvs,ordered,floppy,all,1,1\r\n"
    );
    std::fs::write(file("measured.csv"), table).unwrap();
    let machine = "[slow]\nkind = \"flash\"\nread_us = 10000\nwrite_us = 10000\nflush_us = 0\n\
                   read_bandwidth = \"10GB\"\nwrite_bandwidth = \"10GB\"\nchannels = 1\npath_us = 0\n\
                   path_bandwidth = \"10GB\"\n";
    let fast = machine.replace("[slow]", "[fast]").replace("10000", "1");
    std::fs::write(file("machine.toml"), machine.to_owned() + &fast).unwrap();
    let machine = machine_of(directory.path()).unwrap();
    assert_ne!(machine, Machine::laboratory());
    let validation = validate(directory.path(), &machine, |_, _| {}).unwrap();
    let text = validation.to_text();
    assert_eq!(
        (validation.whole.len(), validation.capacity.len()),
        (3, 1),
        "{text}"
    );
    assert!(validation.whole[0].error.abs() < 0.02, "{text}");
    assert_eq!(validation.choices[0].advised, "data", "{text}");
    assert!(
        validation.left_out[0].contains("its areas are wal, data"),
        "{text}"
    );
    assert_eq!(validation.misses(), [""; 0], "{text}");
    // One application alone leaves nothing to fit on.
    let grid = Grid::default();
    assert!(
        held_out(directory.path(), &machine, &grid, |_, _| {})
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_worse_model_does_not_pass() {
    // With a disk that streams everything the journal would look free.
    let mut machine = Machine::laboratory();
    if let crate::simulate::DeviceModel::Disk(disk) = &mut machine.slow {
        disk.rotation_us = 1.0;
    }
    let misses = validate(&testdata(), &machine, |_, _| {}).unwrap().misses();
    assert!(misses.iter().any(|miss| miss.contains('%')), "{misses:?}");
}

#[test]
fn an_application_that_nothing_was_fitted_on_is_predicted_within_the_floors() {
    // A part of the whole grid, which the command searches.
    let grid = Grid {
        path_us: vec![100.0, 200.0],
        command_us: vec![0.0, 150.0, 300.0],
        fast_path_us: vec![130.0],
        write_back_causes: vec![false],
    };
    let outcome = held_out(&testdata(), &Machine::laboratory(), &grid, |_, _| {})
        .unwrap()
        .unwrap();
    let text = outcome.to_text();
    assert_eq!(outcome.folds.len(), 3, "{text}");
    assert_eq!(
        (outcome.whole.len(), outcome.capacity.len()),
        (19, 15),
        "{text}"
    );
    assert_eq!(outcome.misses(), [""; 0], "{text}");
}

#[test]
fn a_fit_sees_nothing_of_the_application_held_out() {
    // One point of the grid is absurd for all: it is chosen by none, whatever is held out.
    let grid = Grid {
        path_us: vec![180.0, 50_000.0],
        command_us: vec![150.0],
        fast_path_us: vec![130.0],
        write_back_causes: vec![false],
    };
    let outcome = held_out(&testdata(), &Machine::laboratory(), &grid, |_, _| {})
        .unwrap()
        .unwrap();
    assert!(outcome.folds.iter().all(|fold| fold.path_us < 200.0));
    // The error over the others does not count the application's own cells.
    let alone = validate(&testdata(), &Machine::laboratory(), |_, _| {}).unwrap();
    for fold in &outcome.folds {
        let others: Vec<f64> = alone
            .whole
            .iter()
            .chain(&alone.capacity)
            .filter(|cell| cell.application != fold.application)
            .map(|cell| cell.error.abs())
            .collect();
        let mean = others.iter().sum::<f64>() / others.len() as f64;
        assert!((fold.others_error - mean).abs() < 1e-9);
    }
}
