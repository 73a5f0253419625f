//! Debian's `redis-server`, and its load generator `redis-benchmark`.

use super::instance::{Cores, Durability};
use super::process::{self, Process, missing};
use super::resp::Client;
use super::whole;
use crate::clock;
use crate::cores::on_core;
use crate::error::{Error, Result};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// A run that took less than this part of its time is repeated with more requests.
const SHORT: f64 = 0.6;
/// The first run of a command: so many requests of each client's pipeline.
const FIRST_ROUNDS: u64 = 10;

/// A port that nothing listens on.
pub(crate) fn free_port() -> Result<u16> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let address = bound.map_err(|source| Error::io("listen on", "127.0.0.1", source))?;
    Ok(address.port())
}

/// Starts `redis-server` in `directory`; `more` are further arguments.
pub(crate) fn start(
    directory: &Path,
    core: Option<usize>,
    durability: Durability,
    more: &[&str],
) -> Result<(Process, u16)> {
    let made = fs::create_dir_all(directory);
    made.map_err(|source| Error::io("make", directory, source))?;
    let port = free_port()?;
    let mut command = Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"])
        .arg(directory)
        .args(["--appendonly", "yes", "--appendfsync", durability.name()])
        .args(["--logfile", "redis.log"])
        .args(more);
    let complaints = directory.with_extension("log");
    let (process, _) = process::start(&mut command, core, "redis-server", &complaints)?;
    let begun = clock::now();
    loop {
        let answer = Client::connect(port).map(|mut it| it.ask(&[b"PING"]));
        if matches!(answer, Ok(Ok(_))) {
            return Ok((process, port));
        }
        if process.has_ended() || begun.elapsed() > PATIENCE {
            return Err(process.failed("does not answer"));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// One command of `redis-benchmark`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// `set` or `get`.
    pub(crate) command: &'static str,
    pub(crate) pipeline: u32,
    pub(crate) value_bytes: u32,
    /// Keys are random numbers below this.
    pub(crate) keys: u32,
    pub(crate) clients: u32,
    /// For about so long.
    pub(crate) seconds: f64,
}

/// What `redis-benchmark` saw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seen {
    pub(crate) requests: u64,
    pub(crate) ops_per_s: f64,
    pub(crate) p99_us: f64,
}

/// Runs `load` against the server on `port`: the last run, which took about as long as it should; `begin` is called before
/// each.
pub(crate) fn benchmark(
    port: u16,
    cores: Cores,
    load: &Load,
    mut begin: impl FnMut(),
) -> Result<Seen> {
    let mut requests = FIRST_ROUNDS * u64::from(load.clients * load.pipeline);
    loop {
        begin();
        let seen = run(port, cores, load, requests)?;
        let wanted = seen.ops_per_s * load.seconds;
        if requests as f64 >= wanted * SHORT {
            return Ok(seen);
        }
        // A short run tells little: at most a hundred times as many at once.
        requests = whole(wanted).min(requests * 100).max(requests + 1);
    }
}

/// Reads random keys, four for each that there is.
pub(crate) fn read_all(port: u16, cores: Cores, keys: u32) -> Result<()> {
    let load = Load {
        command: "get",
        pipeline: 100,
        value_bytes: 1,
        keys,
        clients: 50,
        seconds: 0.0,
    };
    run(port, cores, &load, 4 * u64::from(keys)).map(drop)
}

fn run(port: u16, cores: Cores, load: &Load, requests: u64) -> Result<Seen> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port.to_string(), "-t", load.command, "--csv"]);
    for (flag, value) in [
        ("-c", u64::from(load.clients)),
        ("-P", u64::from(load.pipeline)),
        ("-d", u64::from(load.value_bytes)),
        ("-r", u64::from(load.keys)),
        ("-n", requests),
    ] {
        command.args([flag, &value.to_string()]);
    }
    let output = match cores.load {
        Some(core) => on_core(core, || command.output())?,
        None => command.output(),
    };
    let output = output.map_err(|it| missing("redis-benchmark", "redis-tools", it))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let seen = parse(&text, requests).filter(|_| output.status.success());
    seen.ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let text = format!("{text}{errors}");
        Error::Refused(format!("redis-benchmark failed: {}", text.trim()))
    })
}

/// Reads the table with one row that `--csv` prints.
fn parse(text: &str, requests: u64) -> Option<Seen> {
    if text.contains("Error from server") {
        return None;
    }
    let fields = |line: &str| -> Vec<String> {
        let fields = line.split(',');
        fields.map(|it| it.trim_matches('"').to_owned()).collect()
    };
    let head = text.lines().position(|it| it.starts_with("\"test\""))?;
    let mut lines = text.lines().skip(head);
    let (names, values) = (fields(lines.next()?), fields(lines.next()?));
    let value = |name: &str| -> Option<f64> {
        let at = names.iter().position(|it| it == name)?;
        values.get(at)?.parse().ok()
    };
    Some(Seen {
        requests,
        ops_per_s: value("rps")?,
        p99_us: value("p99_latency_ms")? * 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_redis_benchmark_is_read_and_its_errors_are_noticed() {
        let table = "\"test\",\"rps\",\"avg_latency_ms\",\"p99_latency_ms\"\n\"SET\",\"250.5\",\"2.8\",\"14.407\"\n";
        let seen = parse(table, 7).unwrap();
        assert_eq!((seen.requests, seen.ops_per_s), (7, 250.5));
        assert!((seen.p99_us - 14_407.0).abs() < 1e-6);
        assert_eq!(parse(&format!("Error from server: OOM\n{table}"), 7), None);
        assert_eq!(parse("", 7), None);
    }
}
