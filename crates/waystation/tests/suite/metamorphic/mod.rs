//! The same operations under many settings give the same answers.
//!
//! A list of operations that follows from a seed is run under fixed and random settings: sizes of memtables, blocks,
//! tables, ring and segments, compression, filters, direct and buffered transfers, and with devices that stay, settle at
//! once or do not exist at all (a departure is a deletion of every key then). Every answer must be the same. A list on
//! which two settings differ is made smaller until nothing can be left out, and printed.
//!
//! `WAYSTATION_METAMORPHIC_LISTS` is the number of lists (default 6), from `WAYSTATION_METAMORPHIC_FIRST` on;
//! `WAYSTATION_METAMORPHIC_SEED` runs one.

mod operations;
mod reduce;
mod runner;
mod settings;

use operations::{Operation, list};
use runner::history;
use settings::Setting;

const OPERATIONS: usize = 250;

/// The first answer in which a setting differs from the plain one, if any does.
fn difference(operations: &[Operation], setting: &Setting) -> Option<String> {
    let expected = history(operations, &Setting::plain());
    first_difference(&expected, &history(operations, setting), setting)
}

fn first_difference(expected: &[String], found: &[String], setting: &Setting) -> Option<String> {
    let at = (0..expected.len().max(found.len())).find(|&at| expected.get(at) != found.get(at))?;
    Some(format!(
        "answer {at}: {:?} plain, {:?} under {setting:?}",
        expected.get(at),
        found.get(at)
    ))
}

fn check(seed: u64) {
    let operations = list(seed, OPERATIONS);
    let expected = history(&operations, &Setting::plain());
    for setting in settings::all(seed) {
        let found = history(&operations, &setting);
        let Some(seen) = first_difference(&expected, &found, &setting) else {
            continue;
        };
        // One that comes and goes cannot be made smaller.
        let reduced = reduce::reduce(&operations, |fewer| difference(fewer, &setting).is_some());
        let again = difference(&reduced, &setting);
        panic!(
            "seed {seed}: {seen}\nagain: {again:?}\nafter {} operations, of which matter:\n{reduced:#?}\n\
             run again: WAYSTATION_METAMORPHIC_SEED={seed} cargo test -p waystation --test suite metamorphic::",
            operations.len()
        );
    }
}

#[test]
fn settings_change_no_answer() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    if let Some(seed) = number("WAYSTATION_METAMORPHIC_SEED") {
        return check(seed);
    }
    let first = number("WAYSTATION_METAMORPHIC_FIRST").unwrap_or(0);
    let lists = number("WAYSTATION_METAMORPHIC_LISTS").unwrap_or(6);
    let mut histories = 0;
    for seed in first..first + lists {
        check(seed);
        histories += 1 + settings::all(seed).len();
    }
    println!(
        "metamorphic: {lists} lists of {OPERATIONS} operations from {first}, {histories} histories, no difference"
    );
}

/// Runs that differ are found, and their list is made as small as it can be.
#[test]
fn a_difference_is_found_and_reduced() {
    let broken = Setting {
        forgets: Some(b"k07".to_vec()),
        ..Setting::plain()
    };
    let operations = (0..20)
        .map(|seed| list(seed, 80))
        .find(|operations| difference(operations, &broken).is_some())
        .unwrap();
    let reduced = reduce::reduce(&operations, |fewer| difference(fewer, &broken).is_some());
    assert!(reduced.len() <= 2, "{reduced:#?}");
    assert!(difference(&reduced, &broken).is_some());
}
