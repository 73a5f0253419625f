//! The measured runs and what the simulator says of them.

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
        quantile(Validation::unseen(&validation.whole), 0.5) <= 0.05,
        "{text}"
    );
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
