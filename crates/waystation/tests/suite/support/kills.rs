//! kill -9: a child process whose threads tell how far they came, and who listens.
//!
//! The child is the test binary started again, with the test's name and what it needs to know in a variable of the
//! environment. It shares no memory with the parent.

use super::Random;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;
use waystation::{DeviceOptions, Extractor, Options};

/// Small, so that segments roll, memtables flush and tables compact many times a second.
pub(crate) fn options(devices: bool) -> Options {
    Options {
        memtable_bytes: 512 << 10,
        table_bytes: 256 << 10,
        ring_bytes: 512 << 10,
        log_segment_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        devices: devices.then(|| DeviceOptions {
            residency: Duration::from_millis(60),
            replay_bytes: 128 << 10,
            ..DeviceOptions::new(Extractor::until(b'/'))
        }),
        ..Options::default()
    }
}

/// `WAYSTATION_KILLS`, the number of cycles, and `WAYSTATION_SEED`.
pub(crate) fn cycles_and_seed() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).map(|text| text.parse().expect("a number"));
    let fresh = || {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
        u64::from(std::process::id()) ^ u64::from(since.map_or(0, |it| it.subsec_nanos())) << 20
    };
    let kills = number("WAYSTATION_KILLS").unwrap_or(100);
    let seed = number("WAYSTATION_SEED").unwrap_or_else(|_| fresh());
    println!("{kills} cycles, WAYSTATION_SEED={seed}");
    (kills, seed)
}

/// Says that `thread` has done so much. One write call a line, so that a kill cannot tear what was told.
pub(crate) fn tell(thread: u64, done: u64) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{thread} {done}\n").as_bytes())
        .expect("tell");
    out.flush().expect("tell");
}

/// The name by which this program runs the test `test` of `module`, which is `module_path!()`.
pub(crate) fn test_name(module: &str, test: &str) -> String {
    let within = module.split_once("::").expect("a module of a program").1;
    format!("{within}::{test}")
}

/// Starts the test `test` again with `variable` set to `value`, kills it within a quarter of a second, and returns how
/// far its threads told that they were; before, they were where `done` says.
pub(crate) fn one_life(
    test: &str,
    (variable, value): (&str, &str),
    done: &[u64],
    random: &mut Random,
) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().expect("own path"))
        .args([test, "--exact", "--nocapture"])
        .env(variable, value)
        .stdout(Stdio::piped())
        .spawn()
        .expect("start child");
    let mut pipe = child.stdout.take().expect("pipe");
    let told = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut told = Vec::new();
            pipe.read_to_end(&mut told).expect("read pipe");
            told
        });
        std::thread::sleep(Duration::from_millis(20 + random.below(250)));
        child.kill().expect("kill");
        child.wait().expect("wait");
        reader.join().expect("reader")
    });
    assert!(!told.starts_with(b"\nrunning 0 tests"), "no test {test}");
    let mut acknowledged = done.to_vec();
    for line in BufReader::new(&told[..]).lines().map_while(Result::ok) {
        let Some((thread, index)) = line.split_once(' ') else {
            continue;
        };
        if let (Ok(thread), Ok(index)) = (thread.parse::<usize>(), index.parse()) {
            acknowledged[thread] = index;
        }
    }
    acknowledged
}
