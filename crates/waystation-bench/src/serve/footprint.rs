//! What a server takes while it does nothing, and how long it takes until it is ready.

use super::daemon::{Config, DATABASE, Daemon};
use super::instance::{Durability, Engine, Rig};
use super::load::{Filling, fill};
use super::process::missing;
use super::resp::Client;
use super::rows::ServeRow;
use crate::clock;
use crate::error::{Error, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How long a server is left alone before its memory is read.
const CALM: Duration = Duration::from_secs(2);
/// Files that a process has open beside connections.
const OTHER_FILES: u64 = 200;
/// Devices that resident data belongs to.
const DEVICES: u64 = 10_000;
const VALUE_BYTES: u32 = 1_000;

/// Memory of each engine: idle, and with `connections` that wait; the length of the daemon's program.
pub(crate) fn memory_rows(
    rig: &Rig<'_>,
    engines: &[Engine],
    connections: u32,
    step: &mut dyn FnMut(&str),
) -> Result<Vec<ServeRow>> {
    raise_limit(u64::from(connections) + OTHER_FILES)?;
    let mut rows = Vec::new();
    for engine in engines {
        step(&format!("{} idle", engine.name()));
        let instance = match engine {
            Engine::Redis => rig.redis(Durability::EverySecond, &["--maxclients", "20000"])?,
            Engine::RedisTuned => continue,
            _ => rig.instance(*engine, Durability::EverySecond)?,
        };
        thread::sleep(CALM);
        let row = |command: &str, clients| ServeRow {
            protocol: Some("redis".to_owned()),
            clients,
            durability: Durability::EverySecond.name().to_owned(),
            rss_mb: Some(instance.process.rss_mb()),
            ..ServeRow::new(engine.name(), "memory", command, 1)
        };
        rows.push(row("idle", 0));
        step(&format!("{} with {connections} connections", engine.name()));
        let mut clients = Vec::new();
        for _ in 0..connections {
            let client = Client::connect(instance.port);
            let mut client = client
                .map_err(|source| Error::io("connect to", instance.port.to_string(), source))?;
            client.ask(&[b"PING"])?;
            clients.push(client);
        }
        thread::sleep(CALM);
        rows.push(row("connections", connections));
    }
    rows.push(ServeRow {
        binary_mb: Some(stripped_mb(rig)?),
        ..ServeRow::new("waystation", "memory", "binary", 1)
    });
    rig.clear()?;
    Ok(rows)
}

/// Lets this process and its children have so many files open.
fn raise_limit(files: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|it| it >= files) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(files),
        maximum: limit.maximum.map(|it| it.max(files)),
    };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        Error::Refused(format!(
            "{files} open files are not allowed to this process ({error}): raise `ulimit -Hn`, or ask for fewer --connections"
        ))
    })
}

/// The length of the program without symbols (10^6 bytes).
fn stripped_mb(rig: &Rig<'_>) -> Result<f64> {
    let stripped = rig.place.path("stripped");
    let mut command = Command::new("strip");
    let status = command.arg("-o").arg(&stripped).arg(rig.program).status();
    let status = status.map_err(|source| missing("strip", "binutils", source))?;
    if !status.success() {
        return Err(Error::Refused(format!("strip ended with {status}")));
    }
    let length = fs::metadata(&stripped).map(|it| it.len());
    let length = length.map_err(|source| Error::io("look at", &stripped, source))?;
    fs::remove_file(&stripped).map_err(|source| Error::io("remove", &stripped, source))?;
    Ok(length as f64 / 1e6)
}

/// How long the daemon takes until it is ready: over nothing, and over `bytes` of devices that are in the upper level.
pub(crate) fn start_rows(
    rig: &Rig<'_>,
    bytes: u64,
    runs: u32,
    step: &mut dyn FnMut(&str),
) -> Result<Vec<ServeRow>> {
    let mut rows = Vec::new();
    let plain = Config {
        durability: Durability::EverySecond.of_daemon(),
        database: "",
        more: "",
    };
    for round in 1..=runs {
        step("start, empty");
        rig.clear()?;
        let (daemon, start_ms) = started(rig, &plain)?;
        rows.push(row("empty", 0, start_ms, &daemon, round));
    }
    let database = format!(
        "extractor = \"until/3a\"\nresidency = \"7d\"\nupper_bytes = {}\nindex_bytes = {}\n",
        2 * bytes + (1 << 30),
        bytes + (1 << 30)
    );
    let resident = Config {
        database: &database,
        ..plain
    };
    step("filling devices");
    let daemon = rig.daemon(&resident)?;
    let filling = Filling {
        keys: bytes / u64::from(VALUE_BYTES),
        value_bytes: VALUE_BYTES,
        devices: DEVICES,
    };
    fill(daemon.redis_port, rig.cores.load, &filling)?;
    let mut last = daemon;
    for (command, is_killed) in [("after stop", false), ("after kill", true)] {
        for round in 1..=runs {
            step(&format!("start over {} MB, {command}", bytes / 1_000_000));
            if is_killed {
                drop(last);
            } else {
                last.process.stop()?;
            }
            let (daemon, start_ms) = started(rig, &resident)?;
            check(&daemon, &filling)?;
            rows.push(row(command, bytes, start_ms, &daemon, round));
            last = daemon;
        }
    }
    drop(last);
    rig.clear()?;
    Ok(rows)
}

fn started(rig: &Rig<'_>, config: &Config<'_>) -> Result<(Daemon, f64)> {
    let begun = clock::now();
    let daemon = rig.daemon_again(config)?;
    Ok((daemon, begun.elapsed().as_secs_f64() * 1e3))
}

/// The last key must be there.
fn check(daemon: &Daemon, filling: &Filling) -> Result<()> {
    let client = Client::connect(daemon.redis_port);
    let mut client = client.map_err(|source| Error::io("connect to", DATABASE, source))?;
    for number in [0, filling.keys.saturating_sub(1)] {
        let key = filling.key(number);
        let value = client.ask(&[b"GET", &key])?;
        if value.len() != filling.value_bytes as usize {
            let key = String::from_utf8_lossy(&key);
            return Err(Error::Refused(format!(
                "{key} is lost: the start measures nothing"
            )));
        }
    }
    Ok(())
}

fn row(command: &str, bytes: u64, start_ms: f64, daemon: &Daemon, round: u32) -> ServeRow {
    ServeRow {
        durability: Durability::EverySecond.name().to_owned(),
        setting: format!("{} MB resident", bytes / 1_000_000),
        start_ms: Some(start_ms),
        rss_mb: Some(daemon.process.rss_mb()),
        ..ServeRow::new("waystation", "start", command, round)
    }
}
