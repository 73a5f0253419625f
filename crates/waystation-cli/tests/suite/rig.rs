//! The laboratory of `waystation place`, interrupted and killed for real: nothing may stay mounted, swapped on,
//! attached or running. Needs root; without it the tests say "not run".

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const TEST_BYTES: &str = "32MiB";

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let root = status
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    let loops = Path::new("/dev/loop-control").exists();
    if !(root && loops) {
        eprintln!("not run: the laboratory needs root and loop devices");
    }
    root && loops
}

/// What a laboratory of this name has left, in words.
fn left_of(name: &str) -> Vec<String> {
    let mut left = Vec::new();
    for file in ["/proc/mounts", "/proc/swaps"] {
        let text = fs::read_to_string(file).unwrap();
        left.extend(
            text.lines()
                .filter(|line| line.contains(name))
                .map(|line| format!("{file}: {line}")),
        );
    }
    for loop_device in fs::read_dir("/sys/block").unwrap().flatten() {
        let backing = loop_device.path().join("loop/backing_file");
        if let Ok(file) = fs::read_to_string(backing)
            && file.contains(name)
        {
            left.push(format!("attached: {file}"));
        }
    }
    let places = [
        format!("/var/tmp/{name}"),
        format!("/dev/shm/{name}"),
        format!("/sys/fs/cgroup/memory/{name}"),
        format!("/sys/fs/cgroup/{name}"),
        format!("/run/waystation-rig/{name}.json"),
    ];
    left.extend(places.into_iter().filter(|place| Path::new(place).exists()));
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(name) {
            left.push(format!("running: {command}"));
        }
    }
    left
}

/// Starts a laboratory, sends it a signal after `delay_ms`, and waits until all is gone.
fn interrupt(signal: &str, delay_ms: u64, options: &[&str]) {
    let output = tempfile::tempdir().unwrap();
    let mut rig = Command::new(env!("CARGO_BIN_EXE_waystation"))
        .args(["place", "record", "--rig", "--rig-directory", "/var/tmp"])
        .args(["--fs", TEST_BYTES, "--journal", "8MiB", "--swap", "8MiB"])
        .args(options)
        .arg("--output")
        .arg(output.path().join("run.trace"))
        .args(["--", "/bin/sh", "-c", "sync -f .; exec sleep 60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let name = format!("waystation-rig-{}", rig.id());
    sleep(Duration::from_millis(delay_ms));
    let sent = Command::new("kill")
        .args([&format!("-{signal}"), &rig.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success(), "it had ended already");
    rig.wait().unwrap();
    // After a kill the keeper needs a moment.
    let mut left = left_of(&name);
    for _ in 0..600 {
        if left.is_empty() {
            return;
        }
        sleep(Duration::from_millis(50));
        left = left_of(&name);
    }
    panic!("{signal} after {delay_ms} ms, {options:?}: {left:?}");
}

#[test]
fn a_laboratory_that_is_interrupted_or_killed_leaves_nothing() {
    if !is_root() {
        return;
    }
    interrupt("INT", 300, &[]);
    interrupt("KILL", 150, &[]);
    interrupt("KILL", 700, &["--in-memory", "swap"]);
    interrupt("KILL", 900, &["--emulate", "sata-ssd"]);
}

/// Every few milliseconds of building one: some minutes.
#[test]
#[ignore = "takes some minutes; make soak runs it"]
fn a_laboratory_killed_at_any_moment_leaves_nothing() {
    if !is_root() {
        return;
    }
    for options in [&[][..], &["--in-memory", "swap"], &["--emulate", "hdd"]] {
        for step in 0..20 {
            for signal in ["INT", "KILL", "TERM"] {
                interrupt(signal, step * 40, options);
            }
        }
    }
}
