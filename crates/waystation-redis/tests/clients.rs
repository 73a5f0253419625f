//! Clients of Redis that do not know of this server: node-redis and ioredis, as npm has them, and Redis' own tools
//! (`scripts/setup-test.sh`).

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is not as it should be"
)]

mod support;

use std::path::Path;
use std::process::{Command, Output};
use support::Served;

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn javascript_clients_work() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/js");
    assert!(
        directory.join("node_modules").exists(),
        "the clients are not installed: run scripts/setup-test.sh"
    );
    let databases = tempfile::tempdir().unwrap();
    let served = Served::start(databases.path());
    let run = Command::new("node")
        .args(["clients.js", &served.address.port().to_string()])
        .current_dir(directory)
        .output()
        .expect("node runs: scripts/setup-test.sh installs it");
    assert!(run.status.success(), "{}", text(&run));
}

#[test]
fn the_tools_of_redis_work() {
    let databases = tempfile::tempdir().unwrap();
    let served = Served::start(databases.path());
    let port = served.address.port().to_string();
    let cli = |args: &[&str]| {
        let run = Command::new("redis-cli")
            .args(["-p", &port])
            .args(args)
            .output();
        text(&run.expect("redis-cli runs: scripts/setup-test.sh installs it"))
    };
    assert_eq!(cli(&["SET", "a", "1"]).trim(), "OK");
    assert_eq!(cli(&["-3", "HSET", "h", "f", "v"]).trim(), "1");
    assert!(cli(&["-3", "HGETALL", "h"]).contains('v'));
    assert!(cli(&["--scan"]).contains('a'));
    let bench = Command::new("redis-benchmark")
        .args(["-p", &port, "-n", "2000", "-P", "16", "-c", "10", "-q"])
        .args(["-t", "ping,set,get,incr,hset,mset,zadd"])
        .output()
        .unwrap();
    let printed = text(&bench);
    assert!(
        bench.status.success() && printed.matches("requests per second").count() >= 7,
        "{printed}"
    );
    assert!(!printed.contains("ERR"), "{printed}");
}
