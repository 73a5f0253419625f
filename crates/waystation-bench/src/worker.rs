//! The process that runs one engine and nothing else, so that no engine inherits another's allocator, threads
//! or memory. It is told what to do on its standard input (see [`crate::protocol`]).

use crate::clock;
use crate::engines::{Engine, EngineKind, OpenSettings, Waystation, check_built};
#[cfg(feature = "rivals")]
use crate::engines::{Fjall, LevelDb, RocksDb};
use crate::error::{Error, Result};
use crate::measure::{self, Meter};
use crate::protocol::{Command, Figures, PhaseEnd, Reply, RunCommand};
use crate::workload::{
    self, Benchmark, IotFigures, IotLevels, IotLoad, Load, Outcome, YcsbFigures, YcsbLoad,
    YcsbPhase, count_missing, fill_scattered, run_deletions, run_departure, run_iot, run_offload,
    run_pauses, run_ycsb,
};
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// How the process ends when the parent has gone, or cannot be spoken to.
const EXIT_ORPHANED: i32 = 3;

/// Opens the database that `settings` (JSON) names and does what the parent says.
pub(crate) fn work(settings: &str) -> Result<()> {
    let settings: OpenSettings = serde_json::from_str(settings).map_err(|error| {
        Error::Refused(format!(
            "a worker is started by the program itself: {error}"
        ))
    })?;
    let commands = listen()?;
    let result = dispatch(&settings, &commands);
    if let Err(error) = &result {
        say(&Reply::Failed {
            message: error.to_string(),
        });
        // The parent reads the failure and ends this process; ending first would be taken for a crash.
        while commands
            .recv()
            .is_ok_and(|command| !matches!(command, Command::Quit))
        {}
    }
    result
}

fn dispatch(settings: &OpenSettings, commands: &Receiver<Command>) -> Result<()> {
    check_built(&[settings.engine])?;
    match settings.engine {
        EngineKind::Waystation
        | EngineKind::WaystationTuned
        | EngineKind::WaystationPlain
        | EngineKind::WaystationEarlier => serve::<Waystation>(settings, commands),
        #[cfg(feature = "rivals")]
        EngineKind::LevelDb | EngineKind::LevelDbTuned => serve::<LevelDb>(settings, commands),
        #[cfg(feature = "rivals")]
        EngineKind::RocksDb | EngineKind::RocksDbTuned | EngineKind::RocksDbTombstones => {
            serve::<RocksDb>(settings, commands)
        }
        #[cfg(feature = "rivals")]
        EngineKind::Fjall => serve::<Fjall>(settings, commands),
        #[cfg(not(feature = "rivals"))]
        other => Err(Error::Refused(format!("{other} is not in this build"))),
    }
}

/// Commands as they come in. Ends the process when the parent is gone.
fn listen() -> Result<Receiver<Command>> {
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        for line in io::stdin().lock().lines() {
            let command = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            let Some(command) = command else { break };
            if sender.send(command).is_err() {
                break;
            }
        }
        std::process::exit(EXIT_ORPHANED);
    };
    let thread = thread::Builder::new()
        .name("listener".to_owned())
        .spawn(read);
    thread.map_err(|source| Error::io("start a thread of", "the worker", source))?;
    Ok(receiver)
}

/// One line to the parent.
fn say(reply: &Reply) {
    let mut line = serde_json::to_string(reply).unwrap_or_default();
    line.push('\n');
    let mut out = io::stdout().lock();
    if out
        .write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        std::process::exit(EXIT_ORPHANED);
    }
}

fn serve<E: Engine>(settings: &OpenSettings, commands: &Receiver<Command>) -> Result<()> {
    let started = clock::now();
    let mut engine = E::open(settings)?;
    say(&Reply::Ready {
        open_s: started.elapsed().as_secs_f64(),
    });
    for command in commands {
        let reply = match command {
            Command::Run(command) => {
                if command.benchmark.is_fresh_fill() {
                    engine.close()?;
                    remove(&settings.directory)?;
                    engine = E::open(settings)?;
                }
                Reply::Ran(Box::new(run::<E>(&engine, settings, command)?))
            }
            Command::Pauses(load) => Reply::Paused(run_pauses(&engine, load)?),
            Command::Offload(load) => {
                let progress = |done, total| say(&Reply::Progress { done, total });
                Reply::OffloadRan(Box::new(run_offload(&engine, load, progress)?))
            }
            Command::Iot(load) => Reply::IotRan(Box::new(iot(&engine, &settings.directory, load)?)),
            Command::Departure(load) => Reply::Departed(Box::new(run_departure(&engine, load)?)),
            Command::Ycsb { phase, load, end } => {
                let directory = &settings.directory;
                Reply::YcsbRan(Box::new(ycsb(&engine, directory, phase, load, end)?))
            }
            Command::Deletions(load) => Reply::Deleted(run_deletions::<E>(settings, load)?),
            Command::Fill {
                bytes,
                value_bytes,
                devices,
            } => Reply::Filled {
                entries: fill_scattered(&engine, bytes, value_bytes, devices)?,
            },
            Command::Check {
                entries,
                value_bytes,
                devices,
                every,
            } => Reply::Checked {
                missing: count_missing(&engine, entries, value_bytes, devices, every)?,
            },
            Command::Quit => return engine.close(),
        };
        say(&reply);
    }
    engine.close()
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", directory, source))
        }
        _ => Ok(()),
    }
}

/// Runs one benchmark: `fillsync` in a database of its own, all others in the open one.
fn run<E: Engine>(engine: &E, settings: &OpenSettings, command: RunCommand) -> Result<Figures> {
    if command.benchmark != Benchmark::FillSync {
        return measured(engine, &settings.directory, command);
    }
    let mut own = settings.clone();
    own.directory = own_directory(&settings.directory);
    remove(&own.directory)?;
    let synced = E::open(&own)?;
    let figures = measured(&synced, &own.directory, command)?;
    synced.close()?;
    remove(&own.directory)?;
    Ok(figures)
}

fn own_directory(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push("-fillsync");
    PathBuf::from(name)
}

fn measured<E: Engine>(engine: &E, directory: &Path, command: RunCommand) -> Result<Figures> {
    let load = Load {
        num: command.num,
        value_bytes: command.value_bytes,
        threads: command.threads,
        threads_before: command.threads_before,
    };
    let progress = |done, total| {
        if command.wants_progress {
            say(&Reply::Progress { done, total });
        }
    };
    let (outcome, meter) = workload::run(engine, command.benchmark, load, progress)?;
    let cpu_s = meter.cpu_s();
    let finished = clock::now();
    let quiet = engine.wait_idle()?;
    let idle_after = finished.elapsed().saturating_sub(quiet);
    let rest = Rest {
        cpu_s,
        idle_after,
        meter,
    };
    figures(command.benchmark.is_write(), &outcome, &rest, directory)
}

/// Runs devices, and asks the engine where their records are.
fn iot<E: Engine>(engine: &E, directory: &Path, load: IotLoad) -> Result<IotFigures> {
    let (seen, meter) = run_iot(engine, load)?;
    let rest = Rest {
        cpu_s: meter.cpu_s(),
        idle_after: Duration::ZERO,
        meter,
    };
    let read_mb = meter.read_bytes()? as f64 / 1e6;
    let at_end = engine.levels()?;
    let finished = clock::now();
    let quiet = engine.wait_idle()?;
    let rest = Rest {
        idle_after: finished.elapsed().saturating_sub(quiet),
        ..rest
    };
    let figures = figures(true, &seen.outcome, &rest, directory)?;
    let levels = IotLevels::of(
        at_end,
        engine.levels()?,
        seen.outcome.ops,
        seen.outcome.bytes,
    );
    Ok(seen.figures(figures, levels, read_mb))
}

/// Runs a phase of YCSB. Write amplification is over what was put, for most of the bytes are read.
fn ycsb<E: Engine>(
    engine: &E,
    directory: &Path,
    phase: YcsbPhase,
    load: YcsbLoad,
    end: PhaseEnd,
) -> Result<YcsbFigures> {
    let (done, meter) = run_ycsb(engine, phase, load)?;
    let cpu_s = meter.cpu_s();
    let finished = clock::now();
    let quiet = match end {
        PhaseEnd::AtRest => engine.wait_idle()?,
        PhaseEnd::NothingDue => engine.wait_while_due()?,
    };
    let rest = Rest {
        cpu_s,
        idle_after: finished.elapsed().saturating_sub(quiet),
        meter,
    };
    let mut common = figures(false, &done.outcome, &rest, directory)?;
    let put = done.put_bytes;
    common.write_amplification = (put > 0).then(|| common.written_mb * 1e6 / put as f64);
    Ok(done.figures(common))
}

/// What is measured around the operations.
struct Rest {
    cpu_s: f64,
    idle_after: Duration,
    meter: Meter,
}

fn figures(is_write: bool, outcome: &Outcome, rest: &Rest, directory: &Path) -> Result<Figures> {
    let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
    let written_bytes = rest.meter.written_bytes()?;
    let latencies = &outcome.latencies;
    Ok(Figures {
        ops: outcome.ops,
        found: (!is_write).then_some(outcome.found),
        seconds,
        ops_per_s: outcome.ops as f64 / seconds,
        mb_per_s: outcome.bytes as f64 / 1e6 / seconds,
        p50_us: latencies.quantile_us(0.5),
        p99_us: latencies.quantile_us(0.99),
        p999_us: latencies.quantile_us(0.999),
        max_us: latencies.max_us(),
        write_amplification: is_write.then(|| written_bytes as f64 / outcome.bytes.max(1) as f64),
        written_mb: written_bytes as f64 / 1e6,
        cpu_s: rest.cpu_s,
        cpu_until_idle_s: rest.meter.cpu_s(),
        idle_after_s: rest.idle_after.as_secs_f64(),
        peak_rss_mb: measure::peak_rss_mb()?,
        disk_mb: measure::disk_mb(directory),
    })
}
