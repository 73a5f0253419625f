//! Clients of Redis that do not know of this server: node-redis and ioredis, as npm has them, redis-py as Debian has it,
//! go-redis and redigo, and Redis' own tools (`scripts/setup-test.sh`).

use crate::support::Served;
use crate::support::real::Real;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

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
fn the_python_client_works() {
    let databases = tempfile::tempdir().unwrap();
    let served = Served::start(databases.path());
    // Another Python in the path would not have Debian's module.
    let run = Command::new("/usr/bin/python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/py/clients.py"))
        .arg(served.address.port().to_string())
        .output()
        .expect("Python runs: scripts/setup-test.sh installs it");
    assert!(run.status.success(), "{}", text(&run));
}

/// The clients in Go, built once.
fn go_clients() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-clients");
        let built = Command::new("go")
            .args(["build", "-mod=readonly", "-buildvcs=false", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go"))
            .output()
            .expect("go runs: scripts/setup-test.sh installs it");
        assert!(built.status.success(), "{}", text(&built));
        program
    })
}

fn go_client(name: &str, port: u16) -> String {
    let run = Command::new(go_clients())
        .args([name, &port.to_string()])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", text(&run));
    text(&run)
}

#[test]
fn the_go_client_works() {
    let databases = tempfile::tempdir().unwrap();
    let served = Served::start(databases.path());
    go_client("go-redis", served.address.port());
}

/// The commands that the services of `EdgeX` Foundry 3 give have the answers of a real Redis.
#[test]
fn services_of_an_edge_platform_are_answered_as_redis_answers_them() {
    let databases = tempfile::tempdir().unwrap();
    let served = Served::start(databases.path());
    let real = Real::start();
    let expected = go_client("edgex", real.address.port());
    let answered = go_client("edgex", served.address.port());
    assert!(expected.lines().count() > 40, "{expected}");
    for (answered, expected) in answered.lines().zip(expected.lines()) {
        assert_eq!(answered, expected);
    }
    assert_eq!(answered.lines().count(), expected.lines().count());
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
