//! `waystation-fuzz run [SECONDS] [TARGET]...` feeds hostile bytes for so long each, from a new seed;
//! `waystation-fuzz replay TARGET FILE` one input again; `waystation-fuzz corpus DIRECTORY` writes the seeds for a fuzzing engine.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use waystation_fuzz::targets::{self, Target};
use waystation_fuzz::{drive, mutate};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["run", ref rest @ ..] => run(rest),
        ["replay", name, file] => replay(name, Path::new(file)),
        ["corpus", directory] => corpus(Path::new(directory)),
        _ => Err("usage: waystation-fuzz run [SECONDS] [TARGET]... | replay TARGET FILE | corpus DIRECTORY".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("waystation-fuzz: {message}");
            ExitCode::FAILURE
        }
    }
}

fn named(name: &str) -> Result<Target, String> {
    let known = || targets::ALL.map(|target| target.name).join(", ");
    targets::named(name).ok_or_else(|| format!("there is no target {name}; there are {}", known()))
}

fn run(words: &[&str]) -> Result<(), String> {
    let (seconds, names) = match words
        .split_first()
        .map(|(first, rest)| (first.parse(), rest))
    {
        Some((Ok(seconds), rest)) => (seconds, rest),
        _ => (10, words),
    };
    let chosen: Vec<Target> = if names.is_empty() {
        targets::ALL.to_vec()
    } else {
        names
            .iter()
            .map(|name| named(name))
            .collect::<Result<_, _>>()?
    };
    let clock = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u64);
    let seed = mutate::Random::new(clock).number();
    for target in chosen {
        let ran = drive::run(&target, seed, Duration::from_secs(seconds));
        println!(
            "{:<18} {:>9} inputs from seed {seed}",
            target.name, ran.inputs
        );
        if let Some((failure, path)) = ran.failure {
            let path = path.display();
            return Err(format!(
                "{}: {failure}\nreplay: cargo run -p waystation-fuzz -- replay {} {path}",
                target.name, target.name
            ));
        }
    }
    Ok(())
}

fn replay(name: &str, file: &Path) -> Result<(), String> {
    let target = named(name)?;
    let input = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    drive::try_one(&target, &input).map_or(Ok(()), Err)
}

fn corpus(directory: &Path) -> Result<(), String> {
    for target in targets::ALL {
        let dir = directory.join(target.name);
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&dir)?;
            for (at, seed) in (target.seeds)()
                .iter()
                .chain(&drive::corpus(&target))
                .enumerate()
            {
                std::fs::write(dir.join(format!("seed-{at:03}")), seed)?;
            }
            Ok(())
        };
        write().map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    Ok(())
}
