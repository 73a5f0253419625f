//! The console in a real Chromium, driven by `tests/js/console.js`. Screenshots are kept beside the test's program.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is not as it should be"
)]

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use support::Running;
use waystation::{Db, DeviceOptions, Extractor, Options};
use waystation_readings::Readings;
use waystation_server::{Events, Gateway};

#[test]
fn the_console_shows_follows_and_asks() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/js");
    assert!(
        tests.join("node_modules/puppeteer-core").exists(),
        "puppeteer-core is not installed: run scripts/setup-test.sh"
    );
    let dir = tempfile::tempdir().unwrap();
    let extractor = Extractor::until(b':');
    let options = Options {
        devices: Some(DeviceOptions::new(extractor)),
        ..Options::default()
    };
    let db = Db::open(dir.path().join("cars"), options).unwrap();
    let events = Arc::new(Events::default());
    events.add("warn", "a warning of the test");
    let server = Running::start(|settings| {
        settings.gateway = Gateway {
            readings: vec![Readings::new("cars", Arc::new(db), extractor)],
            backups: Some(dir.path().join("backups")),
            events: Some(events),
            ..Gateway::default()
        };
    });
    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    std::fs::create_dir_all(&shots).unwrap();
    let run = Command::new("node")
        .arg("console.js")
        .args([Path::new(&server.url()), &shots])
        .current_dir(tests)
        .output()
        .expect("node runs: scripts/setup-test.sh installs it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        run.status.success(),
        "{}{}",
        text(&run.stdout),
        text(&run.stderr)
    );
}
