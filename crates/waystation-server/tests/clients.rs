//! CouchDB's JavaScript clients against the server: `PouchDB` and nano, as npm has them (`scripts/setup-test.sh`).

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is not as it should be"
)]

mod support;

use std::path::Path;
use std::process::Command;
use support::Running;
use waystation_server::Admin;

/// Runs `tests/js/NAME` with the URL of a new server.
fn run(name: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/js");
    assert!(
        directory.join("node_modules").exists(),
        "the clients are not installed: run scripts/setup-test.sh"
    );
    let server = Running::start(|settings| {
        settings.admins = vec![Admin {
            name: "admin".to_owned(),
            password: "secret".to_owned(),
        }];
    });
    let url = server.url().replace("http://", "http://admin:secret@");
    let run = Command::new("node")
        .arg(name)
        .arg(&url)
        .current_dir(directory)
        .output();
    let run = run.expect("node runs: scripts/setup-test.sh installs it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        run.status.success(),
        "{}{}",
        text(&run.stdout),
        text(&run.stderr)
    );
}

#[test]
fn pouchdb_replicates_both_ways_follows_and_queries() {
    run("pouchdb.js");
}

#[test]
fn nano_reads_and_writes() {
    run("nano.js");
}
