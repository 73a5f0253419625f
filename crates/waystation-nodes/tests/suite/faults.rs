//! What drives do wrong: they are away, do not know the token, speak another version, have lost a shard. Each costs the
//! databases that lie on the drive, with a typed error, and no other one.

use crate::support::{self, Running, TOKEN, drive, find, host, weights, write};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use waystation_documents::{Catalogue, Error, NodeFault};
use waystation_nodes::{Agent, AgentError, AgentSettings, Token};

const ALL: &str = r#"{"selector":{},"limit":1000,"fields":["_id"]}"#;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn fault<T: std::fmt::Debug>(outcome: Result<T, Error>) -> (NodeFault, String) {
    match outcome {
        Err(Error::Node { fault, reason }) => (fault, reason),
        other => panic!("expected a node's fault, got {other:?}"),
    }
}

/// A database `far` on the drive `one`, with ten documents, and a database `near` here.
fn fill(catalogue: &Catalogue) -> Result<(), Error> {
    for (name, node) in [("far", "one"), ("near", "nonode@nohost")] {
        let database = catalogue.create(name, 2, Some(&weights(&[(node, 1.0)])))?;
        let documents: Vec<String> = (0..10).map(|at| format!(r#"{{"_id":"{at}"}}"#)).collect();
        assert!(write(&database, &documents).iter().all(Result::is_ok));
    }
    Ok(())
}

#[test]
fn a_drive_that_goes_away_comes_back_with_all_it_had() -> Result<(), Error> {
    let (own, data) = (directory(), directory());
    let running = Running::start(data.path());
    let address = running.address;
    let catalogue = host(own.path(), vec![drive("one", address, TOKEN)]);
    fill(&catalogue)?;
    let (far, near) = (catalogue.get("far")?, catalogue.get("near")?);
    assert_eq!(find(&far, ALL)?.0.len(), 10);
    drop(running);
    let (kind, reason) = fault(find(&far, ALL));
    assert_eq!(kind, NodeFault::Down);
    assert!(reason.contains("the drive one at 127.0.0.1"), "{reason}");
    assert_eq!(fault(far.open_winner("1")).0, NodeFault::Down);
    assert_eq!(find(&near, ALL)?.0.len(), 10);
    let running = Running::start_at(data.path(), address);
    assert_eq!(find(&far, ALL)?.0.len(), 10);
    assert!(write(&far, &[r#"{"_id":"more"}"#.to_owned()])[0].is_ok());
    drop((far, near, catalogue));
    // The host starts anew, and knows the shards by its catalogue.
    let catalogue = host(own.path(), vec![drive("one", address, TOKEN)]);
    let far = catalogue.get("far")?;
    assert!(write(&far, &[r#"{"_id":"again"}"#.to_owned()])[0].is_ok());
    assert_eq!(find(&far, ALL)?.0.len(), 12);
    assert_eq!(far.update_sequence()?.number(), 12);
    drop(running);
    Ok(())
}

#[test]
fn a_host_starts_without_its_drives_and_names_those_it_lacks() -> Result<(), Error> {
    let (own, data) = (directory(), directory());
    let running = Running::start(data.path());
    let catalogue = host(own.path(), vec![drive("one", running.address, TOKEN)]);
    fill(&catalogue)?;
    drop((catalogue, running));
    let catalogue = host(own.path(), Vec::new());
    assert_eq!(find(&*catalogue.get("near")?, ALL)?.0.len(), 10);
    let (kind, reason) = fault(find(&*catalogue.get("far")?, ALL));
    assert_eq!(kind, NodeFault::Down);
    assert!(reason.contains("--drive one=ADDRESS"), "{reason}");
    let refused = catalogue.create("x", 2, Some(&weights(&[("two", 1.0)])));
    assert_eq!(
        refused.expect_err("no such node").to_string(),
        "There is no node two."
    );
    Ok(())
}

#[test]
fn tokens_versions_and_lost_shards_are_noticed() -> Result<(), Error> {
    let (own, data) = (directory(), directory());
    let running = Running::start(data.path());
    let address = running.address;
    let catalogue = host(own.path(), vec![drive("one", address, TOKEN)]);
    fill(&catalogue)?;
    drop(catalogue);
    let wrong = drive("one", address, "another token of some length");
    let catalogue = host(own.path(), vec![wrong]);
    let (kind, reason) = fault(find(&*catalogue.get("far")?, ALL));
    assert_eq!(kind, NodeFault::Refused);
    assert!(reason.contains("token"), "{reason}");
    assert_eq!(find(&*catalogue.get("near")?, ALL)?.0.len(), 10);
    drop((catalogue, running));
    // An agent with another directory: the shard is missing, and is not made anew.
    let other = directory();
    let running = Running::start(other.path());
    let catalogue = host(own.path(), vec![drive("one", running.address, TOKEN)]);
    let (kind, reason) = fault(find(&*catalogue.get("far")?, ALL));
    assert_eq!(kind, NodeFault::Refused);
    assert!(reason.contains("has no shard"), "{reason}");
    let mut stream = TcpStream::connect(running.address).expect("a connection");
    let hello = [&b"WAYDRIVE"[..], &99_u32.to_le_bytes(), &[0; 32]].concat();
    let frame = [
        &(hello.len() as u32).to_le_bytes()[..],
        &waystation_format::checksum::mask(waystation_format::checksum::crc32c(&hello))
            .to_le_bytes(),
        &hello,
    ]
    .concat();
    stream.write_all(&frame).expect("a greeting");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("the host version 99"), "{answer}");
    Ok(())
}

#[test]
fn what_is_no_drive_is_noticed() {
    let own = directory();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let web = std::thread::Builder::new().spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .expect("an answer");
    });
    let catalogue = host(own.path(), vec![drive("one", address, TOKEN)]);
    let refused = catalogue.create("far", 1, Some(&weights(&[("one", 1.0)])));
    assert_eq!(fault(refused.map(drop)).0, NodeFault::Lying);
    assert!(catalogue.get("far").is_err());
    web.expect("a thread").join().expect("it ends");
}

#[test]
fn shards_of_deleted_databases_are_removed_when_their_drive_is_back() -> Result<(), Error> {
    let (own, data) = (directory(), directory());
    let running = Running::start(data.path());
    let address = running.address;
    let catalogue = host(own.path(), vec![drive("one", address, TOKEN)]);
    fill(&catalogue)?;
    let uuid = catalogue.get("far")?.uuid().to_owned();
    assert!(data.path().join(&uuid).is_dir());
    drop(running);
    catalogue.delete("far")?;
    assert!(catalogue.get("far").is_err());
    drop(catalogue);
    let running = Running::start_at(data.path(), address);
    drop(host(own.path(), vec![drive("one", address, TOKEN)]));
    assert!(!data.path().join(&uuid).exists());
    drop(running);
    Ok(())
}

#[test]
fn two_agents_do_not_share_a_directory_and_tokens_are_secrets() {
    let data = directory();
    let _running = Running::start(data.path());
    let listen = ([127, 0, 0, 1], 0).into();
    let settings = AgentSettings::new(data.path(), listen, support::token(TOKEN));
    assert!(matches!(Agent::bind(&settings), Err(AgentError::Locked(_))));
    assert!(matches!(Token::new(" short "), Err(AgentError::Token(5))));
}
