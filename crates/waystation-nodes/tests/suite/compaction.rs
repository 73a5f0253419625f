//! Compactions of live databases in a worker: over TCP and Unix sockets, for many databases at once, with a worker that
//! is away, ends in the middle, does not know the token, may not go there, or is none.

use crate::support::certificates::file;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::ops::Bound;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use waystation::offload::{LocalReason, Offload, OffloadSettings, OffloadStats, Verification};
use waystation::{Db, Options};
use waystation_format::checksum::{crc32c, mask};
use waystation_nodes::compaction::{
    Address, CompactionWorker, WorkerAddress, WorkerSettings, WorkerStopper,
};
use waystation_nodes::{AgentError, Authorities, Identity, Token};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn token() -> Token {
    Token::new(TOKEN).expect("a token")
}

fn any_port() -> Address {
    "127.0.0.1:0".parse().expect("an address")
}

/// A worker that runs until it is dropped.
struct Running {
    address: Address,
    stopper: WorkerStopper,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(settings: &WorkerSettings) -> Self {
        let worker = CompactionWorker::bind(settings).expect("a worker");
        let (address, stopper) = (worker.address().clone(), worker.stopper());
        let thread = std::thread::Builder::new().spawn(|| worker.run());
        Self {
            address,
            stopper,
            thread: Some(thread.expect("a thread")),
        }
    }

    fn over_tcp(allowed: &Path) -> Self {
        let allowed = vec![allowed.to_owned()];
        Self::start(&WorkerSettings::new(any_port(), Some(token()), allowed))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the worker ends");
        }
    }
}

fn offload(address: &Address, token: Option<Token>) -> Offload {
    let settings = OffloadSettings {
        verification: Verification::Entries,
        lease: Duration::from_secs(2),
        ..OffloadSettings::default()
    };
    Offload::new(WorkerAddress::new(address.clone(), token), settings)
}

/// A database whose memtables fill soon.
fn open(directory: &Path, offload: &Offload) -> Db {
    let options = Options {
        memtable_bytes: 64 << 10,
        table_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        offload: Some(offload.clone()),
        ..Options::default()
    };
    Db::open(directory, options).expect("a database")
}

fn value(key: u32, round: u32) -> Vec<u8> {
    format!("{key} {round} ").repeat(12).into_bytes()
}

/// Writes every key in each round, and deletes some in the last.
fn fill(db: &Db, rounds: u32) {
    for round in 0..rounds {
        for key in 0..2000_u32 {
            let key = key * 7919 % 2000;
            let name = format!("{key:06}");
            if round + 1 == rounds && key.is_multiple_of(10) {
                db.delete(name.as_bytes()).expect("a deletion");
            } else {
                db.put(name.as_bytes(), &value(key, round)).expect("a put");
            }
        }
    }
}

/// Merges all, and compares every key with what [`fill`] wrote last; what became of the merges.
fn settled(db: &Db, rounds: u32) -> OffloadStats {
    db.flush().expect("a flush");
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .expect("a compaction");
    let mut entries = 0;
    for entry in db.range::<&[u8]>(..) {
        let (name, found) = entry.expect("an entry");
        let key: u32 = std::str::from_utf8(&name)
            .expect("text")
            .parse()
            .expect("a key");
        assert!(!key.is_multiple_of(10), "{key} was deleted");
        assert_eq!(found, value(key, rounds - 1));
        entries += 1;
    }
    assert_eq!(entries, 1800);
    let report = db.check().expect("a check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    db.stats().tree.offload.expect("a database with a worker")
}

fn directories(path: &Path) -> usize {
    let entries = std::fs::read_dir(path).expect("the directory");
    let is_dir = |entry: std::io::Result<std::fs::DirEntry>| {
        entry
            .expect("an entry")
            .file_type()
            .expect("its type")
            .is_dir()
    };
    entries.map(is_dir).filter(|is_dir| *is_dir).count()
}

#[test]
fn a_worker_runs_the_merges_of_several_databases_over_tcp() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = Running::over_tcp(dir.path());
    let offload = offload(&running.address, Some(token()));
    let databases: Vec<Db> = ["one", "two", "three"]
        .map(|name| open(&dir.path().join(name), &offload))
        .into();
    std::thread::scope(|scope| {
        for db in &databases {
            scope.spawn(|| fill(db, 4));
        }
    });
    for (db, name) in databases.iter().zip(["one", "two", "three"]) {
        let stats = settled(db, 4);
        assert!(stats.jobs > 0, "{stats:?}");
        assert_eq!(stats.fall_backs, 0, "{stats:?}");
        assert_eq!((stats.local_jobs, stats.share_percent), (0, 100));
        assert!(stats.run_us > 0 && stats.verify_us > 0 && stats.install_us > 0);
        assert_eq!(directories(&dir.path().join(name)), 0);
    }
}

#[test]
fn a_unix_socket_does_without_a_token() {
    let dir = tempfile::tempdir().expect("a directory");
    let address = Address::Unix(dir.path().join("worker"));
    let allowed = vec![dir.path().to_owned()];
    let running = Running::start(&WorkerSettings::new(address.clone(), None, allowed));
    let db = open(&dir.path().join("db"), &offload(&address, None));
    fill(&db, 3);
    let stats = settled(&db, 3);
    assert!(stats.jobs > 0 && stats.fall_backs == 0, "{stats:?}");
    drop(running);
    // An engine that has one is refused by a worker that has another.
    let running = Running::over_tcp(dir.path());
    let other = Token::new("another token of some length").expect("a token");
    let db = open(
        &dir.path().join("other"),
        &offload(&running.address, Some(other)),
    );
    fill(&db, 3);
    let stats = settled(&db, 3);
    assert_eq!(stats.jobs, 0);
    assert!(stats.local[&LocalReason::Refused] > 0, "{stats:?}");
}

#[test]
fn a_worker_on_a_network_needs_a_token_and_any_needs_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let allowed = vec![dir.path().to_owned()];
    let refused = CompactionWorker::bind(&WorkerSettings::new(any_port(), None, allowed));
    assert!(matches!(refused, Err(AgentError::NoToken(_))));
    let refused = CompactionWorker::bind(&WorkerSettings::new(any_port(), Some(token()), vec![]));
    assert!(matches!(refused, Err(AgentError::NoDirectory)));
    let missing = vec![dir.path().join("missing")];
    let refused = CompactionWorker::bind(&WorkerSettings::new(any_port(), Some(token()), missing));
    assert!(matches!(refused, Err(AgentError::Directory { .. })));
}

#[test]
fn a_worker_stays_in_the_directories_that_it_was_allowed() {
    let (dir, elsewhere) = (tempfile::tempdir(), tempfile::tempdir());
    let (dir, elsewhere) = (dir.expect("a directory"), elsewhere.expect("another"));
    let running = Running::over_tcp(elsewhere.path());
    let offload = offload(&running.address, Some(token()));
    let db = open(&dir.path().join("db"), &offload);
    fill(&db, 3);
    let stats = settled(&db, 3);
    assert_eq!(stats.jobs, 0);
    assert!(stats.local[&LocalReason::Unsupported] > 0, "{stats:?}");
    drop(db);
    // A link leads out of the allowed directory as well.
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).expect("a link");
    let db = open(&link.join("db"), &offload);
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .expect("a compaction");
    fill(&db, 3);
    let stats = settled(&db, 3);
    assert_eq!(stats.jobs, 0, "{stats:?}");
}

/// A worker that sees no database, and takes tables into a spool in `dir`.
fn with_spool(dir: &Path, alter: impl FnOnce(&mut WorkerSettings)) -> Running {
    let mut settings = WorkerSettings::new(any_port(), Some(token()), vec![]);
    settings.spool = Some(dir.join("spool"));
    alter(&mut settings);
    Running::start(&settings)
}

#[test]
fn a_worker_that_does_not_see_the_databases_is_sent_their_tables() {
    let (dir, elsewhere) = (tempfile::tempdir(), tempfile::tempdir());
    let (dir, elsewhere) = (dir.expect("a directory"), elsewhere.expect("another"));
    let running = with_spool(elsewhere.path(), |_| ());
    let offload = offload(&running.address, Some(token()));
    let names = ["one", "two"];
    let databases = names.map(|name| open(&dir.path().join(name), &offload));
    std::thread::scope(|scope| {
        for db in &databases {
            scope.spawn(|| fill(db, 4));
        }
    });
    for (db, name) in databases.iter().zip(names) {
        let stats = settled(db, 4);
        assert!(stats.jobs > 0, "{stats:?}");
        assert_eq!((stats.local_jobs, stats.share_percent), (0, 100));
        assert_eq!(stats.sent_bytes, stats.read_bytes);
        assert_eq!(stats.fetched_bytes, stats.written_bytes);
        assert_eq!(directories(&dir.path().join(name)), 0);
    }
    drop(databases);
    drop(running);
    assert_eq!(directories(&elsewhere.path().join("spool")), 0);
}

#[test]
fn tables_travel_over_tls_to_a_worker_that_the_engine_trusts() {
    let dir = tempfile::tempdir().expect("a directory");
    let speak_tls = |settings: &mut WorkerSettings| {
        let identity = Identity::read(&file("server.pem"), &file("server.key"));
        settings.tls = Some(identity.expect("a certificate"));
    };
    let running = with_spool(dir.path(), speak_tls);
    let worker = || WorkerAddress::new(running.address.clone(), Some(token()));
    let trusting = |name: &str| {
        let authorities = Authorities::read(&file(name)).expect("authorities");
        worker().with_tls(authorities)
    };
    let merged = |name: &str, worker: WorkerAddress| {
        let offload = Offload::new(worker, OffloadSettings::default());
        let db = open(&dir.path().join(name), &offload);
        fill(&db, 3);
        settled(&db, 3)
    };
    let stats = merged("trusted", trusting("authority.pem"));
    assert!(stats.sent_bytes > 0 && stats.local_jobs == 0, "{stats:?}");
    let stats = merged("strange", trusting("server.pem"));
    assert_eq!(stats.jobs, 0);
    assert!(stats.local[&LocalReason::Refused] > 0, "{stats:?}");
    let stats = merged("plain", worker());
    assert_eq!(stats.jobs, 0, "{stats:?}");
}

#[test]
fn a_worker_that_goes_away_comes_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let mut running = Running::over_tcp(dir.path());
    let address = running.address.clone();
    let db = open(&path, &offload(&address, Some(token())));
    for _ in 0..2 {
        fill(&db, 2);
        drop(running);
        fill(&db, 2);
        let before = settled(&db, 2).jobs;
        let allowed = vec![dir.path().to_owned()];
        let settings = WorkerSettings::new(address.clone(), Some(token()), allowed);
        running = Running::start(&settings);
        // After a failure the worker is left alone for a second, and then for twice as long each time.
        let is_back = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            fill(&db, 2);
            settled(&db, 2).jobs > before
        });
        assert!(is_back, "{:?}", settled(&db, 2));
    }
    assert_eq!(directories(&path), 0);
    db.close().expect("closed");
}

/// What listens in a worker's place, and does this with each connection.
fn impostor(act: fn(&mut std::net::TcpStream)) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    std::thread::Builder::new()
        .spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                act(&mut stream);
            }
        })
        .expect("a thread");
    address.into()
}

fn frame(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u32).to_le_bytes();
    [&length[..], &mask(crc32c(message)).to_le_bytes(), message].concat()
}

/// What answers in place of a worker.
type Impostor = fn(&mut std::net::TcpStream);

#[test]
fn what_is_no_worker_costs_a_merge_here_and_nothing_else() {
    let impostors: [(Impostor, LocalReason); 4] = [
        (
            |stream| {
                let said = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                said.expect("an answer");
                let _ = stream.read(&mut [0; 100]);
            },
            LocalReason::Broken,
        ),
        (|_| (), LocalReason::Broken),
        (
            |stream| {
                let refusal = [&[1, 2, 0, 0, 0][..], b"update the older one"].concat();
                stream.write_all(&frame(&refusal)).expect("an answer");
                let _ = stream.read(&mut [0; 100]);
            },
            LocalReason::Refused,
        ),
        (
            // It welcomes without knowing the token.
            |stream| {
                let welcome = [&[0, 1, 0, 0, 0][..], &[7; 64]].concat();
                stream.write_all(&frame(&welcome)).expect("an answer");
                let _ = stream.read(&mut [0; 100]);
            },
            LocalReason::Refused,
        ),
    ];
    for (act, reason) in impostors {
        let dir = tempfile::tempdir().expect("a directory");
        let db = open(dir.path(), &offload(&impostor(act), Some(token())));
        fill(&db, 3);
        let stats = settled(&db, 3);
        assert_eq!(stats.jobs, 0);
        let kept = stats.local.get(&reason);
        assert!(kept.is_some_and(|kept| *kept > 0), "{reason:?}: {stats:?}");
        assert_eq!(directories(dir.path()), 0);
    }
}

#[test]
fn an_engine_that_does_not_know_the_worker_is_told_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = Running::over_tcp(dir.path());
    let Address::Tcp(address) = running.address else {
        panic!("it listens on TCP");
    };
    let said = |hello: &[u8]| {
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        stream.write_all(&frame(hello)).expect("a greeting");
        let mut answer = Vec::new();
        // It may be reset behind the answer.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let later = [&b"WAYMERGE"[..], &9_u32.to_le_bytes(), &[0; 32]].concat();
    let answer = said(&later);
    assert!(answer.contains("the engine version 9"), "{answer}");
    let drive = [&b"WAYDRIVE"[..], &1_u32.to_le_bytes(), &[0; 32]].concat();
    assert_eq!(said(&drive), "");
}
