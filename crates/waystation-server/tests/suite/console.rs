//! The console in a real Chromium, driven by `tests/js/console.js`. Screenshots are kept beside the test's program.

use crate::support::{self, Running};
use std::path::Path;
use std::sync::Arc;
use waystation_server::{Events, Gateway};

#[test]
fn the_console_shows_follows_and_asks() {
    let dir = tempfile::tempdir().unwrap();
    let events = Arc::new(Events::default());
    events.add("warn", "a warning of the test");
    let server = Running::start(|settings| {
        settings.gateway = Gateway {
            readings: vec![support::readings(dir.path())],
            backups: Some(dir.path().join("backups")),
            events: Some(events),
            ..Gateway::default()
        };
    });
    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    std::fs::create_dir_all(&shots).unwrap();
    support::node("console.js", &[&server.url(), shots.to_str().unwrap()]);
}
