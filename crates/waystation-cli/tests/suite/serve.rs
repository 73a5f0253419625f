//! The server as a process: kill -9 in the middle of a bulk load or of a replication loses nothing that was
//! acknowledged, and in the middle of builds leaves no index that disagrees; signals stop it, and it refuses what it
//! should.

use crate::support::Process;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Kills of the server.
const KILLS: usize = 5;
/// Clients that load at once.
const CLIENTS: usize = 3;

struct Served {
    process: Process,
    address: String,
}

impl Served {
    fn start(directory: &Path) -> Self {
        Self::start_at("127.0.0.1:0", directory)
    }

    fn start_at(address: &str, directory: &Path) -> Self {
        let mut child = command(&["--listen", address], directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().rsplit("http://").next().unwrap();
        let address = address.trim_end_matches('/').to_owned();
        Self {
            process: Process(child),
            address,
        }
    }
}

fn command(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waystation"));
    command
        .arg("serve")
        .arg(directory)
        .args(arguments)
        .env_remove("WAYSTATION_ADMIN");
    command
}

/// The answer to a request; `None` if the connection was cut.
fn ask(address: &str, method: &str, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .ok()?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    // A whole answer says how long it is, or where it ends.
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let head = head.to_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n").then_some(answer);
    }
    let length = head
        .split("content-length: ")
        .nth(1)?
        .lines()
        .next()?
        .parse::<usize>()
        .ok()?;
    (body.len() == length).then_some(answer)
}

/// Loads documents until the server is gone; those that were acknowledged are noted.
fn load(address: &str, name: &str, stop: &AtomicBool, acknowledged: &Mutex<BTreeSet<String>>) {
    for batch in 0.. {
        let ids: Vec<String> = (0..20)
            .map(|at| format!("{name}-{batch:05}-{at:02}"))
            .collect();
        let docs = ids
            .iter()
            .map(|id| format!("{{\"_id\":\"{id}\",\"text\":\"{}\"}}", "x".repeat(500)));
        let body = format!("{{\"docs\":[{}]}}", docs.collect::<Vec<_>>().join(","));
        let answer = ask(address, "POST", "/load/_bulk_docs", &body);
        let Some(answer) = answer.filter(|_| !stop.load(Ordering::SeqCst)) else {
            return;
        };
        assert_eq!(answer.matches("\"ok\":true").count(), ids.len(), "{answer}");
        acknowledged.lock().unwrap().extend(ids);
    }
}

#[test]
fn a_kill_in_the_middle_of_a_load_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let acknowledged = Mutex::new(BTreeSet::new());
    for round in 0..KILLS {
        let served = Served::start(directory.path());
        if round == 0 {
            assert!(ask(&served.address, "PUT", "/load", "").is_some());
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let name = format!("{round}-{client}");
                let (address, stop, acknowledged) = (&served.address, &stop, &acknowledged);
                scope.spawn(move || load(address, &name, stop, acknowledged));
            }
            std::thread::sleep(Duration::from_millis(200 + 130 * round as u64));
            served.process.signal("-KILL");
            stop.store(true, Ordering::SeqCst);
        });
        drop(served);
        let served = Served::start(directory.path());
        let acknowledged = acknowledged.lock().unwrap();
        assert!(
            !acknowledged.is_empty(),
            "nothing was loaded before the kill"
        );
        for id in acknowledged.iter() {
            let answer = ask(&served.address, "GET", &format!("/load/{id}"), "");
            let is_there = answer
                .as_ref()
                .is_some_and(|it| it.starts_with("HTTP/1.1 200"));
            assert!(is_there, "{id} was acknowledged and is lost: {answer:?}");
        }
        assert!(count(&served.address, "load").unwrap() >= acknowledged.len());
    }
}

/// The number of documents in the database `name`.
fn count(address: &str, name: &str) -> Option<usize> {
    let info = ask(address, "GET", &format!("/{name}"), "")?;
    let count = info.split("\"doc_count\":").nth(1)?.split(',').next()?;
    count.parse().ok()
}

#[test]
fn kills_of_both_sides_in_the_middle_of_a_replication_lose_nothing() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let acknowledged = Mutex::new(BTreeSet::new());
    let target = Served::start(directories[1].path());
    let address = target.address.clone();
    ask(&address, "PUT", "/load", "").unwrap();
    drop(target);
    for round in 0..KILLS {
        let source = Served::start(directories[0].path());
        let target = Served::start_at(&address, directories[1].path());
        if round == 0 {
            ask(&source.address, "PUT", "/load", "").unwrap();
            let order = format!(
                "{{\"source\":\"load\",\"target\":\"http://{address}/load\",\"continuous\":true,\"checkpoint_interval\":50}}"
            );
            let ordered = ask(&source.address, "PUT", "/_replicator/on", &order).unwrap();
            assert!(ordered.starts_with("HTTP/1.1 201"), "{ordered}");
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (from, stop, acknowledged) = (&source.address, &stop, &acknowledged);
            scope.spawn(move || load(from, &format!("r{round}"), stop, acknowledged));
            std::thread::sleep(Duration::from_millis(400 + 170 * round as u64));
            // Sides take turns in dying first.
            let (first, second) = if round % 2 == 0 {
                (&source, &target)
            } else {
                (&target, &source)
            };
            first.process.signal("-KILL");
            std::thread::sleep(Duration::from_millis(50));
            second.process.signal("-KILL");
            stop.store(true, Ordering::SeqCst);
        });
    }
    let source = Served::start(directories[0].path());
    let target = Served::start_at(&address, directories[1].path());
    let acknowledged = acknowledged.lock().unwrap();
    assert!(!acknowledged.is_empty(), "nothing was loaded");
    let wanted = count(&source.address, "load").unwrap();
    assert!(wanted >= acknowledged.len());
    let arrived = || count(&target.address, "load").unwrap();
    for tries in 0.. {
        if arrived() == wanted {
            break;
        }
        assert!(
            tries < 600,
            "{} of {wanted} documents have arrived",
            arrived()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    for id in acknowledged.iter() {
        let answer = ask(&target.address, "GET", &format!("/load/{id}"), "").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{id} is lost: {answer}");
    }
}

/// The number of documents for which `text` stands in the answer to a request that has to succeed.
fn found(address: &str, method: &str, path: &str, body: &str, text: &str) -> usize {
    let answer = ask(address, method, path, body).unwrap_or_default();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer:.300}");
    answer.matches(text).count()
}

#[test]
fn a_kill_in_the_middle_of_builds_leaves_indexes_that_agree() {
    const DOCUMENTS: usize = 4000;
    let directory = tempfile::tempdir().unwrap();
    let find = |number: &str| {
        format!("{{\"selector\":{{{number}}},\"fields\":[\"_id\"],\"limit\":100000}}")
    };
    let late = format!("\"n\":{{\"$gte\":{}}}", DOCUMENTS / 2);
    for round in 0..KILLS {
        let served = Served::start(directory.path());
        let address = &served.address;
        if round == 0 {
            ask(address, "PUT", "/built", "").unwrap();
            for first in (0..DOCUMENTS).step_by(500) {
                let docs =
                    (first..first + 500).map(|n| format!("{{\"_id\":\"{n:05}\",\"n\":{n}}}"));
                let body = format!("{{\"docs\":[{}]}}", docs.collect::<Vec<_>>().join(","));
                ask(address, "POST", "/built/_bulk_docs", &body).unwrap();
            }
        }
        let view = format!(
            "{{\"views\":{{\"v\":{{\"map\":\"doc => emit(doc.n, {round})\",\"reduce\":\"_count\"}}}}}}"
        );
        ask(address, "PUT", &format!("/built/_design/v{round}"), &view).unwrap();
        let index =
            format!("{{\"index\":{{\"fields\":[\"n\"]}},\"ddoc\":\"i{round}\",\"name\":\"n\"}}");
        ask(address, "POST", "/built/_index", &index).unwrap();
        let stop = AtomicBool::new(false);
        let view = format!("/built/_design/v{round}/_view/v");
        std::thread::scope(|scope| {
            // Builds are begun by the first queries; updates go on meanwhile.
            scope.spawn(|| ask(address, "GET", &view, ""));
            scope.spawn(|| ask(address, "POST", "/built/_find", &find(&late)));
            scope.spawn(|| {
                for n in (0..DOCUMENTS).take_while(|_| !stop.load(Ordering::SeqCst)) {
                    let body = format!("{{\"n\":{}}}", DOCUMENTS + n);
                    ask(address, "PUT", &format!("/built/new-{round}-{n}"), &body);
                }
            });
            std::thread::sleep(Duration::from_millis(30 + 60 * round as u64));
            served.process.signal("-KILL");
            stop.store(true, Ordering::SeqCst);
        });
        drop(served);
        let served = Served::start(directory.path());
        let address = &served.address;
        let documents = count(address, "built").unwrap() - 2 * (round + 1);
        for design in 0..=round {
            let path = format!("/built/_design/v{design}/_view/v?reduce=false");
            assert_eq!(found(address, "GET", &path, "", "\"value\""), documents);
        }
        // No index serves a query that documents without the field may match.
        let unindexed = format!("\"$or\":[{{{late}}},{{\"none\":1}}]");
        let scanned = found(
            address,
            "POST",
            "/built/_find",
            &find(&unindexed),
            "\"_id\"",
        );
        for design in 0..=round {
            let body =
                find(&late).replacen('{', &format!("{{\"use_index\":[\"i{design}\",\"n\"],"), 1);
            assert_eq!(
                found(address, "POST", "/built/_find", &body, "\"_id\""),
                scanned
            );
        }
    }
}

#[test]
fn the_first_signal_lets_requests_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = Served::start(directory.path());
    ask(&served.address, "PUT", "/cars", "").unwrap();
    let mut feed = TcpStream::connect(&served.address).unwrap();
    feed.write_all(b"GET /cars/_changes?feed=continuous HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    served.process.signal("-TERM");
    let mut answer = String::new();
    feed.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("last_seq"), "{answer}");
    assert_eq!(served.process.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_that_cannot_serve_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], code: i32, reason: &str| {
        let output = command(arguments, directory.path()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(reason), "{error}");
    };
    refused(&["--listen", "0.0.0.0:0"], 2, "no administrator");
    refused(&["--admin", "ann"], 2, "NAME:PASSWORD");
    refused(&["--admin-file", "/nowhere/admins"], 3, "/nowhere/admins");
    refused(&["--jwt-file", "/nowhere/keys"], 3, "/nowhere/keys");
    refused(&["--tls-cert", "/nowhere/cert"], 2, "--tls-key");
    let files = ["--tls-cert", "/nowhere/cert", "--tls-key", "/nowhere/key"];
    refused(&files, 2, "/nowhere/cert");
    let served = Served::start(directory.path());
    refused(&["--listen", &served.address], 3, "cannot listen");
    refused(&["--listen", "127.0.0.1:0"], 3, "catalogue");
}
