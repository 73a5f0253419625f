//! Mutants: mistakes made on purpose in the engine, one at a time, to see that the tests find them.
//!
//! `waystation-mutants [names]` copies the repository to `target/mutants`, puts the mutants of `mutants.toml` into the
//! copy, builds it once, and runs each mutant's tests: 300 seeds of the simulation (`SEEDS=` other ones) if the list says
//! nothing else. It fails if one survives without a reason in the list, or if the tests fail without any.

mod list;
mod run;
mod tree;

use list::{List, Mutant};
use run::{Found, Tests};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const SEEDS: u64 = 300;

fn main() -> ExitCode {
    match judge_all() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(told) => {
            eprintln!("mutants: {told}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the mutants that are asked for; whether each is found, or survives with a reason.
fn judge_all() -> Result<bool, String> {
    let list = List::read()?;
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = |mutant: &&Mutant| wanted.is_empty() || wanted.contains(&mutant.name);
    let mutants: Vec<_> = list.mutants.iter().filter(is_asked).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let copy = target.join("mutants/tree");
    tree::make(&root, &copy, &list)?;
    let mut asked: Vec<&str> = vec!["simulation"];
    asked.extend(
        mutants
            .iter()
            .flat_map(|mutant| &mutant.tests)
            .map(String::as_str),
    );
    asked.sort_unstable();
    asked.dedup();
    let mut names: Vec<_> = asked
        .iter()
        .filter_map(|test| test.split(' ').next())
        .collect();
    names.dedup();
    let seeds = std::env::var("SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let tests = Tests::build(
        &copy,
        &target.join("mutants/built"),
        &names,
        seeds.unwrap_or(SEEDS),
    )?;
    // One that fails anyway would find every mutant.
    for test in asked {
        let plain = tests.run(test, "")?;
        if plain != Found::Not {
            return Err(format!("{test} fails without any mutant: {plain:?}"));
        }
    }
    let (mut found, mut unexplained) = (0, 0);
    for mutant in &mutants {
        let told = judge(&tests, mutant)?;
        found += usize::from(told.is_some());
        unexplained += usize::from(told.is_none() && mutant.survives.is_none());
        let told = told.unwrap_or_else(|| match &mutant.survives {
            Some(reason) => format!("survives: {reason}"),
            None => "SURVIVES without a reason".to_owned(),
        });
        println!("{:44} {told}", mutant.name);
    }
    println!(
        "{found} of {} mutants found; {unexplained} survive without a reason",
        mutants.len()
    );
    Ok(unexplained == 0)
}

/// Runs the tests of `mutant` until one finds it; says which.
fn judge(tests: &Tests, mutant: &Mutant) -> Result<Option<String>, String> {
    for test in &mutant.tests {
        match tests.run(test, &mutant.name)? {
            Found::Seed(seed) => return Ok(Some(format!("found by {test}, seed {seed}"))),
            Found::Failure => return Ok(Some(format!("found by {test}"))),
            Found::Hang => return Ok(Some(format!("found by {test}, which comes to no end"))),
            Found::Not => {}
        }
    }
    Ok(None)
}
