//! A bounded run of one target without a fuzzing engine: seeds and changed seeds, by numbers that follow from the run's
//! own seed. What fails is kept as a file, and a later run replays it first.

use crate::mutate::{Random, mutate};
use crate::targets::Target;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A single input may take so long.
const SLOW: Duration = Duration::from_secs(2);

/// How a run ended.
#[derive(Debug)]
pub struct Ran {
    /// Inputs that were tried.
    pub inputs: u64,
    /// What failed, and the file with the bytes.
    pub failure: Option<(String, PathBuf)>,
}

/// Inputs that failed once, or that a fuzzer found worth keeping.
pub fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let dir = corpus_dir(target.name);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .collect()
}

fn corpus_dir(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target)
}

/// Replays the corpus and the seeds, then changes them until `time` is over.
#[expect(clippy::disallowed_methods, reason = "a run is bounded by the clock")]
pub fn run(target: &Target, seed: u64, time: Duration) -> Ran {
    let start = Instant::now();
    let mut pool = corpus(target);
    pool.extend((target.seeds)());
    pool.push(Vec::new());
    let mut random = Random::new(seed);
    let mut inputs = 0;
    for input in &pool {
        inputs += 1;
        if let Some(failure) = try_one(target, input) {
            return failed(target, inputs, failure, input);
        }
    }
    while start.elapsed() < time {
        let mut input = pool[random.below(pool.len())].clone();
        let other = &pool[random.below(pool.len())];
        mutate(&mut input, other, &mut random);
        inputs += 1;
        if let Some(failure) = try_one(target, &input) {
            return failed(target, inputs, failure, &input);
        }
    }
    Ran {
        inputs,
        failure: None,
    }
}

/// What went wrong with one input, if anything did.
#[expect(
    clippy::disallowed_methods,
    reason = "an input that takes too long is a failure"
)]
pub fn try_one(target: &Target, input: &[u8]) -> Option<String> {
    let start = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    match outcome {
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(text.unwrap_or_else(|| "it panicked".to_owned()))
        }
        Ok(()) => (start.elapsed() > SLOW).then(|| format!("it took {:?}", start.elapsed())),
    }
}

fn failed(target: &Target, inputs: u64, failure: String, input: &[u8]) -> Ran {
    let dir = corpus_dir(target.name);
    let sum = waystation_format::checksum::crc32c(input);
    let path = dir.join(format!("failed-{sum:08x}"));
    let kept = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&path, input));
    let failure = match kept {
        Ok(()) => failure,
        Err(error) => format!("{failure} (and the input could not be kept: {error})"),
    };
    Ran {
        inputs,
        failure: Some((failure, path)),
    }
}
