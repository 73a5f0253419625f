//! The compaction worker as a process: it merges for commands, and kill -9 in the middle costs a merge here and nothing
//! that was written.

use std::io::{BufRead, BufReader, Write};
use std::ops::Bound;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use waystation::offload::{Offload, OffloadSettings};
use waystation::{Db, Options};
use waystation_nodes::compaction::WorkerAddress;

const WAYSTATION: &str = env!("CARGO_BIN_EXE_waystation");

/// A worker's process, and where it listens.
struct Worker {
    child: Child,
    address: String,
}

impl Worker {
    fn start(listen: &str, allow: &Path, token: Option<&Path>) -> Self {
        Self::with(listen, allow, token, &[])
    }

    fn with(listen: &str, allow: &Path, token: Option<&Path>, flags: &[&str]) -> Self {
        let mut command = Command::new(WAYSTATION);
        command.args(["compact-worker", "--listen", listen, "--jobs", "1"]);
        command.arg("--allow").arg(allow).stdout(Stdio::piped());
        command.args(flags);
        if let Some(token) = token {
            command.arg("--token-file").arg(token);
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, address }
    }

    fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(WAYSTATION).args(arguments).output().unwrap()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// So many lines for an import: keys come several times, in no order, so that there is something to merge.
fn lines(count: u64) -> impl Iterator<Item = String> {
    let value = "v".repeat(400);
    (0..count).map(move |at| {
        let key = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        format!("{key:08x}\t{at} {value}\n")
    })
}

#[test]
fn a_worker_merges_for_a_command_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let worker = Worker::start("127.0.0.1:0", dir.path(), Some(&token));
    let readings = dir.path().join("readings.tsv");
    std::fs::write(&readings, lines(20_000).collect::<String>()).unwrap();
    let db = dir.path().join("db");
    let [db, readings] = [&db, &readings].map(|path| path.to_str().unwrap());
    for _ in 0..2 {
        succeeded(&run(&["import", db, readings]));
    }
    let known = ["--compact-worker-token-file", token.to_str().unwrap()];
    let compact = ["compact", db, "--compact-worker", &worker.address];
    let told = succeeded(&run(&[&compact[..], &known].concat()));
    assert!(told.contains("100 % of the bytes"), "{told}");
    let check = succeeded(&run(&["check", db]));
    assert!(!check.is_empty());
    // Without the token, and as JSON; there has to be something to merge again.
    succeeded(&run(&["import", db, readings]));
    let refused = run(&[&["--json"], &compact[..]].concat());
    let told = succeeded(&refused);
    assert!(told.contains("\"jobs\": 0,"), "{told}");
    assert!(told.contains("\"refused\":"), "{told}");
    let warned = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(warned.contains("token"), "{warned}");
}

#[test]
fn a_worker_that_is_not_allowed_or_has_no_token_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().to_str().unwrap();
    for arguments in [
        &["compact-worker", "--listen", "127.0.0.1:0"][..],
        &["compact-worker", "--listen", "127.0.0.1:0", "--allow", here],
        &["compact-worker", "--listen", "nowhere", "--allow", here],
        &["compact", here, "--compact-worker", "localhost"],
        &["compact", here, "--compact-worker-token-file", here],
        &["serve", here, "--compact-worker", "localhost"],
        &[
            "compact-worker",
            "--allow",
            here,
            "--engine",
            "drive",
            "--stages",
        ],
        &["compact-worker", "--allow", here, "--decoders", "4"],
        &["compact-worker", "--spool", here, "--tls-cert", here],
        &["compact", here, "--compact-worker-ca", here],
        &[
            "compact-worker",
            "--allow",
            here,
            "--engine",
            "drive",
            "--decoders",
            "14",
        ],
    ] {
        let output = run(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    }
}

/// Imports twice and compacts with the worker at `address` and these flags; what the command says.
fn compacted(dir: &Path, address: &str, flags: &[&str]) -> String {
    let readings = dir.join("readings.tsv");
    std::fs::write(&readings, lines(2000).collect::<String>()).unwrap();
    let db = dir.join("db");
    let [db, readings] = [&db, &readings].map(|path| path.to_str().unwrap());
    for _ in 0..2 {
        succeeded(&run(&["import", db, readings]));
    }
    let compact = ["compact", db, "--compact-worker", address];
    let told = succeeded(&run(&[&compact[..], flags].concat()));
    succeeded(&run(&["check", db]));
    told
}

#[test]
fn a_worker_with_a_modelled_drive_merges() {
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", dir.path().join("worker").display());
    let flags = ["--engine", "drive", "--decoders", "4"];
    let worker = Worker::with(&socket, dir.path(), None, &flags);
    let told = compacted(dir.path(), &worker.address, &[]);
    assert!(told.contains("100 % of the bytes"), "{told}");
}

#[test]
fn a_worker_that_sees_no_directory_is_sent_the_tables_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("../waystation-server/tests/tls");
    let [certificate, key, authority] =
        ["server.pem", "server.key", "authority.pem"].map(|name| tls.join(name));
    let [certificate, key, authority] =
        [&certificate, &key, &authority].map(|path| path.to_str().unwrap());
    let spool = dir.path().join("spool");
    let flags = ["--tls-cert", certificate, "--tls-key", key];
    let flags = [&["--spool", spool.to_str().unwrap()][..], &flags].concat();
    let elsewhere = tempfile::tempdir().unwrap();
    let worker = Worker::with("127.0.0.1:0", elsewhere.path(), Some(&token), &flags);
    let token = token.to_str().unwrap();
    let flags = [
        "--compact-worker-token-file",
        token,
        "--compact-worker-ca",
        authority,
    ];
    let told = compacted(dir.path(), &worker.address, &flags);
    assert!(told.contains("100 % of the bytes"), "{told}");
    assert!(told.contains("MiB were sent"), "{told}");
}

#[test]
fn merges_that_run_twice_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", dir.path().join("worker").display());
    let worker = Worker::start(&socket, dir.path(), None);
    let told = compacted(
        dir.path(),
        &worker.address,
        &["--compact-worker-shadow", "100"],
    );
    let compared = "ran here as well, 0 of them with another result";
    assert!(told.contains(compared), "{told}");
}

/// Kills the worker again and again while an import goes on, at moments that differ from round to round.
#[test]
fn a_worker_that_is_killed_in_mid_merge_costs_nothing_that_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", dir.path().join("worker").display());
    let db = dir.path().join("db");
    let db = db.to_str().unwrap();
    let mut import = Command::new(WAYSTATION)
        .args(["--json", "import", db, "-", "--compact-worker", &socket])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = import.stdin.take().unwrap();
    let written = std::thread::Builder::new().spawn(move || {
        for line in lines(600_000) {
            input.write_all(line.as_bytes()).unwrap();
        }
    });
    let written = written.unwrap();
    let mut kills = 0;
    while !written.is_finished() {
        let mut worker = Worker::start(&socket, dir.path(), None);
        std::thread::sleep(Duration::from_millis(300 + 170 * (kills % 7)));
        worker.kill();
        kills += 1;
    }
    written.join().unwrap();
    let output = import.wait_with_output().unwrap();
    let told = succeeded(&output);
    assert!(told.contains("\"lines\": 600000"), "{told}");
    assert!(kills > 2, "the import was too short: {kills}");
    let check = run(&["check", db]);
    succeeded(&check);
    let all = succeeded(&run(&["scan", db, "--keys-only"]));
    let mut expected: Vec<String> = lines(600_000).map(|line| line[..8].to_owned()).collect();
    expected.sort_unstable();
    expected.dedup();
    assert!(all.lines().eq(expected.iter().map(String::as_str)));
    let entries = std::fs::read_dir(db).unwrap();
    let left = entries.filter(|it| it.as_ref().unwrap().file_type().unwrap().is_dir());
    assert_eq!(left.count(), 0);
}

/// The value of `key` in this round, which no compression makes shorter.
fn noise(key: u64, round: u64) -> Vec<u8> {
    let word = |part: u64| {
        let seed = (round << 48 | key << 16 | part).wrapping_add(1);
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    (0..128).flat_map(|part| word(part).to_le_bytes()).collect()
}

/// How many tables the merges that run in `db` have begun.
fn begun_tables(db: &Path) -> usize {
    let entries = std::fs::read_dir(db).unwrap().filter_map(Result::ok);
    let rooms = entries.filter(|it| {
        let name = it.file_name();
        name.to_string_lossy().starts_with("compaction-")
    });
    // A directory may go while it is looked at.
    let tables = rooms.filter_map(|it| std::fs::read_dir(it.path()).ok());
    tables.map(Iterator::count).sum()
}

/// Kills `worker` once it has made tables, unless all `is_over` before.
fn kill_in_mid_merge(worker: &mut Worker, db: &Path, is_over: &AtomicBool) {
    while begun_tables(db) < 8 && !is_over.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(2));
    }
    // The engine hears of them within a tenth of a second.
    std::thread::sleep(Duration::from_millis(150));
    worker.kill();
}

#[test]
fn what_a_killed_worker_has_made_is_kept() {
    const KEYS: u64 = 120_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let socket = format!("unix:{}", dir.path().join("worker").display());
    let address = WorkerAddress::new(socket.parse().unwrap(), None);
    let options = Options {
        memtable_bytes: 32 << 20,
        table_bytes: 1 << 20,
        offload: Some(Offload::new(address, OffloadSettings::default())),
        ..Options::default()
    };
    let db = Db::open(&path, options).unwrap();
    // A merge may end before the kill, though it takes a second.
    for round in 0..8 {
        let mut worker = Worker::start(&socket, dir.path(), None);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| kill_in_mid_merge(&mut worker, &path, &is_over));
            for at in 0..KEYS {
                let key = at * 7919 % KEYS;
                db.put(&key.to_le_bytes(), &noise(key, round)).unwrap();
            }
            db.flush().unwrap();
            db.compact_range(Bound::Unbounded, Bound::Unbounded)
                .unwrap();
            is_over.store(true, SeqCst);
        });
        for key in (0..KEYS).step_by(7) {
            let found = db.get(&key.to_le_bytes()).unwrap();
            assert_eq!(found, Some(noise(key, round)), "{key}");
        }
        let report = db.check().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        assert_eq!(begun_tables(&path), 0);
        let stats = db.stats().tree.offload.unwrap();
        if stats.resumed > 0 {
            assert!(stats.kept_bytes >= 1 << 20, "{stats:?}");
            return;
        }
    }
    panic!("no kill met a merge: {:?}", db.stats().tree.offload);
}
