//! TLS between host and drive: an agent that is trusted, one that is not, and sides that disagree whether they speak it.

use crate::support::certificates::file;
use crate::support::{Running, TOKEN, drive, find, host, weights, write};
use std::path::Path;
use waystation_documents::{Error, NodeFault};
use waystation_nodes::{AgentError, Authorities, DriveSettings, Identity};

fn agent(directory: &Path) -> Running {
    Running::start_with(directory, ([127, 0, 0, 1], 0).into(), |settings| {
        let identity = Identity::read(&file("server.pem"), &file("server.key"));
        settings.tls = Some(identity.expect("a certificate"));
    })
}

fn trusting(running: &Running, authority: &str) -> DriveSettings {
    let authorities = Authorities::read(&file(authority)).expect("an authority");
    DriveSettings {
        authorities: Some(authorities),
        ..drive("one", running.address, TOKEN)
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn a_database_lies_on_a_drive_that_speaks_tls() -> Result<(), Error> {
    let (own, data) = (directory(), directory());
    let running = agent(data.path());
    let catalogue = host(own.path(), vec![trusting(&running, "authority.pem")]);
    let database = catalogue.create("far", 3, Some(&weights(&[("one", 1.0)])))?;
    // More than a record of TLS holds, both ways.
    let pad = "x".repeat(100_000);
    let documents = (0..40).map(|at| format!(r#"{{"_id":"{at:03}","n":{at},"pad":"{pad}"}}"#));
    let written = write(&database, &documents.collect::<Vec<_>>());
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    for _ in 0..3 {
        let (found, _) = find(&database, r#"{"selector":{"n":{"$gte":10}},"limit":100}"#)?;
        assert_eq!(found.len(), 30);
    }
    Ok(())
}

#[test]
fn sides_that_do_not_trust_each_other_say_why() {
    let cases = |trusted: &Running, plain: &Running| {
        [
            (trusting(trusted, "server.pem"), "certificate"),
            (drive("one", trusted.address, TOKEN), "drive one"),
            (trusting(plain, "authority.pem"), "drive one"),
        ]
    };
    let (first, second) = (directory(), directory());
    let (trusted, plain) = (agent(first.path()), Running::start(second.path()));
    for (settings, says) in cases(&trusted, &plain) {
        let own = directory();
        let catalogue = host(own.path(), vec![settings]);
        let created = catalogue.create("far", 1, Some(&weights(&[("one", 1.0)])));
        let error = created.expect_err("no connection");
        assert!(error.to_string().contains(says), "{error}");
        let is_of_connection = matches!(
            error,
            Error::Node {
                fault: NodeFault::Refused | NodeFault::Down | NodeFault::Lying | NodeFault::Broken,
                ..
            }
        );
        assert!(is_of_connection, "{error:?}");
    }
}

#[test]
fn files_that_hold_no_certificates_are_named() {
    let refused = Identity::read(&file("server.key"), &file("server.key"));
    assert!(
        matches!(refused, Err(AgentError::Tls { .. })),
        "{refused:?}"
    );
    let refused = Authorities::read(&file("missing.pem"));
    let refused = refused.expect_err("no file").to_string();
    assert!(refused.contains("missing.pem"), "{refused}");
}
