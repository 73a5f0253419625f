//! Building the copy's tests, and running them with one mutant on.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A run is listened to in rounds of so long.
const ROUND: Duration = Duration::from_secs(1);
/// One that is silent for so many rounds hangs, which is found as well.
const SILENT_ROUNDS_MAX: u32 = 90;

/// How a mutant was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// By this seed of the simulation.
    Seed(u64),
    /// By a test that failed.
    Failure,
    /// By a test that came to no end.
    Hang,
    Not,
}

/// The built tests: of the library, and those that are programs of their own.
pub(crate) struct Tests {
    programs: BTreeMap<String, PathBuf>,
    dir: PathBuf,
    seeds: u64,
}

impl Tests {
    /// Builds the tests called `names` in the copy of the repository at `tree`.
    pub(crate) fn build(
        tree: &Path,
        built: &Path,
        names: &[&str],
        seeds: u64,
    ) -> Result<Self, String> {
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        command.current_dir(tree).env("CARGO_TARGET_DIR", built);
        command.args(["test", "-p", "waystation", "--no-run", "--locked"]);
        command.args(["--message-format", "json-render-diagnostics"]);
        for name in names {
            match *name {
                "lib" => command.arg("--lib"),
                name => command.args(["--test", name]),
            };
        }
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo cannot be run: {error}"))?;
        if !output.status.success() {
            return Err("the copy does not build".to_owned());
        }
        let programs = output.stdout.lines().map_while(Result::ok);
        let programs = programs.filter_map(|line| program(&line)).collect();
        let dir = tree.join("crates/waystation");
        Ok(Self {
            programs,
            dir,
            seeds,
        })
    }

    /// Runs `test`, a test's name and perhaps a filter, with `mutant` on.
    pub(crate) fn run(&self, test: &str, mutant: &str) -> Result<Found, String> {
        let (name, filter) = test.split_once(' ').unwrap_or((test, ""));
        let program = self
            .programs
            .get(name)
            .ok_or_else(|| format!("no test is called {name}"))?;
        let mut child = Command::new(program)
            .args(["--nocapture", filter])
            .current_dir(&self.dir)
            .env("WAYSTATION_MUTANT", mutant)
            .env("WAYSTATION_SEEDS", self.seeds.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let lines = lines(&mut child);
        let found = listen(&lines, &mut child);
        // What it had to say is said; or it hangs.
        let _ = child.kill();
        let _ = child.wait();
        Ok(found)
    }
}

/// What the program says, line by line.
#[expect(
    clippy::disallowed_methods,
    reason = "no engine is here whose threads it could be among"
)]
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

/// Waits until the program has found something, or ends.
fn listen(lines: &Receiver<String>, child: &mut Child) -> Found {
    let mut silent_rounds = 0;
    loop {
        match lines.recv_timeout(ROUND) {
            Ok(line) => {
                silent_rounds = 0;
                let seed = line.split_once("WAYSTATION_SEED=").map(|it| it.1);
                let seed = seed.and_then(|it| it.split(' ').next()?.parse().ok());
                if let Some(seed) = seed.filter(|_| line.starts_with("replay with")) {
                    return Found::Seed(seed);
                }
            }
            Err(RecvTimeoutError::Timeout) if silent_rounds == SILENT_ROUNDS_MAX => {
                return Found::Hang;
            }
            Err(RecvTimeoutError::Timeout) => silent_rounds += u32::from(!is_stopped(child)),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Found::Not,
        _ => Found::Failure,
    }
}

/// Whether the program was stopped by a signal, and goes on by another one: silence says nothing then.
fn is_stopped(child: &Child) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()));
    stat.is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|it| it.starts_with(" T"))
    })
}

/// The name and the path of a test's program, if this line of cargo's tells of one.
fn program(line: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let path = message.get("executable")?.as_str()?;
    let target = message.get("target")?;
    let is_lib = target
        .get("kind")?
        .as_array()?
        .iter()
        .any(|kind| kind == "lib");
    let name = if is_lib {
        "lib"
    } else {
        target.get("name")?.as_str()?
    };
    Some((name.to_owned(), path.into()))
}
