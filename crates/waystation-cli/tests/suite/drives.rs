//! The server with a drive as a process: kill -9 of the drive costs its databases alone, and nothing that was written.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that has said where it listens.
struct Started {
    child: Child,
    address: String,
}

impl Started {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_waystation"))
            .args(arguments)
            .env_remove("WAYSTATION_ADMIN")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap();
        let address = address.trim_start_matches("http://").trim_end_matches('/');
        Self {
            address: address.to_owned(),
            child,
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drive(listen: &str, data: &Path, token: &Path) -> Started {
    let [data, token] = [data, token].map(|path| path.to_str().unwrap());
    Started::start(&[
        "drive",
        "--listen",
        listen,
        "--dir",
        data,
        "--token-file",
        token,
    ])
}

fn ask(server: &Started, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_killed_drive_costs_its_databases_alone_and_nothing_that_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let data = directory.path().join("drive");
    let mut first = drive("127.0.0.1:0", &data, &token);
    let host = directory.path().join("host");
    let named = format!("one={}", first.address);
    let server = Started::start(&[
        "serve",
        host.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--drive",
        &named,
        "--drive-token-file",
        token.to_str().unwrap(),
    ]);
    let created = ask(&server, "PUT", "/far?q=3&placement=_local:1,one:2", "");
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    assert!(ask(&server, "PUT", "/near?placement=_local:1", "").starts_with("HTTP/1.1 201"));
    let shards = ask(&server, "GET", "/far/_shards", "");
    assert_eq!(shards.matches("[\"one\"]").count(), 2, "{shards}");
    assert_eq!(shards.matches("[\"nonode@nohost\"]").count(), 1, "{shards}");
    let docs = (0..500).map(|at| format!("{{\"_id\":\"{at:03}\",\"n\":{at}}}"));
    let docs = format!("{{\"docs\":[{}]}}", docs.collect::<Vec<_>>().join(","));
    for name in ["far", "near"] {
        let loaded = ask(&server, "POST", &format!("/{name}/_bulk_docs"), &docs);
        assert!(loaded.starts_with("HTTP/1.1 201"), "{loaded}");
    }
    let query = r#"{"selector":{"n":{"$gte":490}},"fields":["_id"]}"#;
    let found = |name: &str| ask(&server, "POST", &format!("/{name}/_find"), query);
    assert_eq!(found("far").matches("\"_id\"").count(), 10);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let refused = found("far");
    assert!(refused.starts_with("HTTP/1.1 412"), "{refused}");
    assert!(refused.contains("\"error\":\"nodedown\""), "{refused}");
    assert_eq!(found("near").matches("\"_id\"").count(), 10);
    let _second = drive(&first.address, &data, &token);
    assert_eq!(found("far").matches("\"_id\"").count(), 10);
    let all = ask(&server, "GET", "/far", "");
    assert!(all.contains("\"doc_count\":500"), "{all}");
    let nodes = ask(&server, "GET", "/_membership", "");
    assert!(
        nodes.contains("\"all_nodes\":[\"nonode@nohost\",\"one\"]"),
        "{nodes}"
    );
    let unknown = ask(&server, "PUT", "/x?placement=two:1", "");
    assert!(unknown.starts_with("HTTP/1.1 400"), "{unknown}");
    assert!(unknown.contains("There is no node two."), "{unknown}");
}

#[test]
fn a_write_on_too_few_copies_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let data = directory.path().join("drive");
    let mut first = drive("127.0.0.1:0", &data, &token);
    let server = Started::start(&[
        "serve",
        directory.path().join("host").to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--drive",
        &format!("one={}", first.address),
        "--drive-token-file",
        token.to_str().unwrap(),
    ]);
    let created = ask(&server, "PUT", "/pair?q=1&n=2", "");
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let put = |path: &str| ask(&server, "PUT", path, "{}");
    assert!(put("/pair/a").starts_with("HTTP/1.1 201"));
    assert!(put("/pair/b?w=3").starts_with("HTTP/1.1 202"));
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    // A majority of two is two.
    let few = put("/pair/c");
    assert!(few.starts_with("HTTP/1.1 202"), "{few}");
    assert!(
        few.contains("\"ok\":true") && few.contains("\"rev\":\"1-"),
        "{few}"
    );
    assert!(put("/pair/d?w=1").starts_with("HTTP/1.1 201"));
    let some = ask(
        &server,
        "POST",
        "/pair/_bulk_docs",
        r#"{"docs":[{"_id":"e"}]}"#,
    );
    assert!(some.starts_with("HTTP/1.1 202"), "{some}");
    assert!(some.contains("\"accepted\":true"), "{some}");
    let revision = few.split("\"rev\":\"").nth(1).unwrap();
    let revision = revision.split('"').next().unwrap();
    let gone = ask(&server, "DELETE", &format!("/pair/c?rev={revision}"), "");
    assert!(gone.starts_with("HTTP/1.1 202"), "{gone}");
    let _second = drive(&first.address, &data, &token);
    let is_refilled = (0..200).any(|at| {
        std::thread::sleep(Duration::from_millis(100));
        put(&format!("/pair/again-{at}")).starts_with("HTTP/1.1 201")
    });
    assert!(is_refilled, "the drive was not filled again");
}
