//! Every parser gets hostile bytes for a few seconds.
//!
//! `WAYSTATION_FUZZ_SECONDS` is the time for all targets together (default 20; `make test` takes 60).

use std::time::Duration;
use waystation_fuzz::{drive, targets};

#[test]
fn no_parser_breaks_on_hostile_bytes() {
    let seconds = std::env::var("WAYSTATION_FUZZ_SECONDS");
    let seconds: f64 = seconds.map_or(20.0, |seconds| seconds.parse().unwrap());
    let each = Duration::from_secs_f64(seconds / targets::ALL.len() as f64);
    let mut failures = Vec::new();
    for target in targets::ALL {
        assert!(!(target.seeds)().is_empty(), "{} has no seeds", target.name);
        let ran = drive::run(&target, 1, each);
        println!("{:<18} {:>9} inputs", target.name, ran.inputs);
        failures.extend(ran.failure.map(|(failure, path)| {
            format!(
                "{}: {failure}; replay: cargo run -p waystation-fuzz -- replay {} {}",
                target.name,
                target.name,
                path.display()
            )
        }));
    }
    assert_eq!(failures, Vec::<String>::new());
}

/// The run itself is tested: a parser that breaks is found, and the input is said.
#[test]
fn a_parser_that_breaks_is_found() {
    let broken = targets::Target {
        name: "canary",
        run: |bytes| assert!(bytes.len() < 8 || bytes[3] != 0xff, "the canary sings"),
        seeds: || vec![vec![0; 16]],
    };
    let ran = drive::run(&broken, 1, Duration::from_secs(20));
    let (failure, path) = ran.failure.unwrap();
    assert_eq!(failure, "the canary sings");
    let input = std::fs::read(&path).unwrap();
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert!(drive::try_one(&broken, &input).is_some());
}
