//! Server and agents as processes, killed with kill -9 while shards move: each shard is in service once, and nothing that
//! was acknowledged is lost.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
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

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Machine {
    directory: tempfile::TempDir,
    drives: Vec<Started>,
    server: Started,
}

impl Machine {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let token = directory.path().join("token");
        std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
        let drives: Vec<Started> = (0..2)
            .map(|at| drive(directory.path(), at, "127.0.0.1:0"))
            .collect();
        let server = serve(directory.path(), &drives);
        Self {
            directory,
            drives,
            server,
        }
    }

    fn restart_server(&mut self) {
        self.server.kill();
        self.server = serve(self.directory.path(), &self.drives);
    }

    fn restart_drive(&mut self, at: usize) {
        self.drives[at].kill();
        let address = self.drives[at].address.clone();
        self.drives[at] = drive(self.directory.path(), at, &address);
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.server.address).unwrap();
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

    /// Writes documents, and returns whether all of them are there: these, or what an earlier try left.
    fn load(&self, ids: std::ops::Range<usize>) -> bool {
        let pad = "x".repeat(4000);
        let docs = ids.map(|at| format!("{{\"_id\":\"{at:06}\",\"n\":{at},\"pad\":\"{pad}\"}}"));
        let docs = format!("{{\"docs\":[{}]}}", docs.collect::<Vec<_>>().join(","));
        let loaded = self.ask("POST", "/cars/_bulk_docs", &docs);
        let errors = loaded.matches("\"error\"").count();
        let conflicts = loaded.matches("\"error\":\"conflict\"").count();
        loaded.starts_with("HTTP/1.1 201") && errors == conflicts
    }

    fn rebalance(&self, weights: &str) {
        let body = format!("{{\"weights\":{weights}}}");
        let begun = self.ask("POST", "/_rebalance", &body);
        assert!(begun.starts_with("HTTP/1.1 202"), "{begun}");
    }

    /// Waits until nothing moves any more, and returns the shards.
    fn settle(&self) -> String {
        for _ in 0..1200 {
            let shards = self.ask("GET", "/cars/_shards", "");
            if shards.contains("\"moving\":{}") {
                return shards;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{}", self.ask("GET", "/_active_tasks", ""));
    }

    /// Waits until a copy is being filled.
    fn wait_for_move(&self) {
        for _ in 0..600 {
            if self.ask("GET", "/_active_tasks", "").contains("shard_copy") {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("nothing moves");
    }

    fn check(&self, documents: usize) {
        let info = self.ask("GET", "/cars", "");
        assert!(
            info.contains(&format!("\"doc_count\":{documents},")),
            "{info}"
        );
        let all = self.ask("GET", "/cars/_all_docs", "");
        assert_eq!(all.matches("\"rev\"").count(), documents);
        let query = r#"{"selector":{"n":{"$gte":0}},"fields":["_id"],"limit":1000000}"#;
        let found = self.ask("POST", "/cars/_find", query);
        assert_eq!(found.matches("\"_id\"").count(), documents);
        let changes = self.ask("GET", "/cars/_changes", "");
        assert_eq!(changes.matches("\"changes\"").count(), documents);
    }

    /// The directories of the database's shards on all nodes, by their ranges.
    fn directories(&self) -> Vec<String> {
        let mut found = Vec::new();
        for name in ["host/databases", "drive-0", "drive-1"] {
            for database in directories_in(&self.path(name)) {
                let ranges = directories_in(&database).into_iter();
                let names = ranges.map(|it| it.file_name().unwrap().to_string_lossy().into_owned());
                // Databases of the server have one shard each.
                found.extend(names.filter(|range| range != "00000000-ffffffff"));
            }
        }
        found.sort();
        found
    }

    /// Checks that each shard lies on one node, once what moved away is removed.
    fn check_directories(&self, shards: &str) {
        let ranges: Vec<String> = [
            "00000000-3fffffff",
            "40000000-7fffffff",
            "80000000-bfffffff",
            "c0000000-ffffffff",
        ]
        .map(ToOwned::to_owned)
        .into();
        for _ in 0..300 {
            if self.directories() == ranges {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{:?} {shards}", self.directories());
    }
}

fn directories_in(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_dir()).collect()
}

fn drive(directory: &Path, at: usize, listen: &str) -> Started {
    let data = directory.join(format!("drive-{at}"));
    let token = directory.join("token");
    let [data, token] = [&data, &token].map(|path| path.to_str().unwrap());
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

fn serve(directory: &Path, drives: &[Started]) -> Started {
    let (host, token) = (directory.join("host"), directory.join("token"));
    let named: Vec<String> = drives
        .iter()
        .enumerate()
        .map(|(at, drive)| format!("d{at}={}", drive.address))
        .collect();
    let mut arguments = vec!["serve", host.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    for named in &named {
        arguments.extend(["--drive", named]);
    }
    arguments.extend(["--drive-token-file", token.to_str().unwrap()]);
    arguments.extend(["--copy-rate", "8"]);
    Started::start(&arguments)
}

#[test]
fn a_killed_server_or_drive_goes_on_with_its_moves() {
    let mut machine = Machine::new();
    let created = machine.ask("PUT", "/cars?q=4&placement=_local:1", "");
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let mut acknowledged = 0;
    while acknowledged < 4000 {
        assert!(machine.load(acknowledged..acknowledged + 200));
        acknowledged += 200;
    }
    let targets = [
        r#"{"d0":1,"d1":1}"#,
        r#"{"_local":1,"d1":3}"#,
        r#"{"_local":1}"#,
        r#"{"d0":1}"#,
    ];
    for (round, weights) in targets.iter().enumerate() {
        machine.rebalance(weights);
        machine.wait_for_move();
        // What is not acknowledged may be there: the next try writes the same.
        let more = |machine: &Machine, acknowledged: &mut usize| {
            if machine.load(*acknowledged..*acknowledged + 50) {
                *acknowledged += 50;
            }
        };
        more(&machine, &mut acknowledged);
        machine.restart_server();
        more(&machine, &mut acknowledged);
        machine.wait_for_move();
        machine.restart_drive(round % 2);
        more(&machine, &mut acknowledged);
        machine.restart_server();
        let shards = machine.settle();
        let settled = acknowledged + 50;
        while acknowledged < settled {
            more(&machine, &mut acknowledged);
        }
        machine.check(settled);
        machine.check_directories(&shards);
    }
    let shards = machine.settle();
    assert_eq!(shards.matches("[\"d0\"]").count(), 4, "{shards}");
}
