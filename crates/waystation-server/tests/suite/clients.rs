//! Clients in JavaScript against the server, as npm has them (`scripts/setup-test.sh`): `PouchDB` and nano, which speak
//! with CouchDB, and hyparquet, which reads Parquet.

use crate::support::{self, Running};
use waystation_server::{Admin, Gateway};

/// Runs `tests/js/NAME` with the URL of a new server.
fn run(name: &str) {
    let server = Running::start(|settings| {
        settings.admins = vec![Admin {
            name: "admin".to_owned(),
            password: "secret".to_owned(),
        }];
    });
    let url = server.url().replace("http://", "http://admin:secret@");
    support::node(name, &[&url]);
}

#[test]
fn pouchdb_replicates_both_ways_follows_and_queries() {
    run("pouchdb.js");
}

#[test]
fn nano_reads_and_writes() {
    run("nano.js");
}

#[test]
fn hyparquet_reads_readings_and_windows() {
    let dir = tempfile::tempdir().unwrap();
    let readings = vec![support::readings(dir.path())];
    let server = Running::start(|settings| {
        settings.gateway = Gateway {
            readings,
            ..Gateway::default()
        };
    });
    support::node("parquet.mjs", &[&server.url()]);
}
