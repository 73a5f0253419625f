//! The measured runs and what the simulator says of them.

use std::path::PathBuf;

use super::*;
use crate::error::Error;

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
    assert!(validation.passes());
    // Variants of kernel settings are named, not forgotten.
    assert_eq!(validation.left_out.len(), 2, "{text}");
}

#[test]
fn a_directory_without_measurements_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(
        validate(directory.path(), &Machine::laboratory(), |_, _| {}),
        Err(Error::Io { .. })
    ));
    std::fs::write(directory.path().join("measured.csv"), "header\na,b,c\n").unwrap();
    let error = validate(directory.path(), &Machine::laboratory(), |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
}

#[test]
fn a_worse_model_does_not_pass() {
    // With a disk that streams everything the journal would look free.
    let mut machine = Machine::laboratory();
    if let crate::simulate::DeviceModel::Disk(disk) = &mut machine.slow {
        disk.rotation_us = 1.0;
    }
    assert!(!validate(&testdata(), &machine, |_, _| {}).unwrap().passes());
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
    let outcome = held_out(&testdata(), &Machine::laboratory(), &grid, |_, _| {}).unwrap();
    let text = outcome.to_text();
    assert_eq!(outcome.folds.len(), 3, "{text}");
    assert_eq!(
        (outcome.whole.len(), outcome.capacity.len()),
        (19, 15),
        "{text}"
    );
    assert!(outcome.passes(), "{text}");
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
    let outcome = held_out(&testdata(), &Machine::laboratory(), &grid, |_, _| {}).unwrap();
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
