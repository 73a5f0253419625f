//! A server in this process, and a client that knows no more of HTTP than the tests need.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use waystation::{Db, DeviceOptions, Extractor, Options};
use waystation_readings::Readings;
use waystation_server::{Server, Settings, Stopper};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The database of readings `cars` in `directory`.
pub(crate) fn readings(directory: &Path) -> Readings {
    let extractor = Extractor::until(b':');
    let options = Options {
        devices: Some(DeviceOptions::new(extractor)),
        ..Options::default()
    };
    let db = Db::open(directory.join("cars"), options).unwrap();
    Readings::new("cars", Arc::new(db), extractor)
}

/// Runs `tests/js/NAME` with arguments; what it wrote if it failed.
pub(crate) fn node(name: &str, arguments: &[&str]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/js");
    assert!(
        directory.join("node_modules").exists(),
        "the clients are not installed: run scripts/setup-test.sh"
    );
    let run = Command::new("node")
        .arg(name)
        .args(arguments)
        .current_dir(directory)
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

/// A server that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
    directory_kept: Option<tempfile::TempDir>,
}

impl Running {
    /// A server over a new directory.
    pub(crate) fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut running = Self::start_in(directory.path(), change);
        running.directory_kept = Some(directory);
        running
    }

    /// A server over a new directory, with the settings that it has by itself.
    pub(crate) fn plain() -> Self {
        Self::start(|_| {})
    }

    /// Creates a document; its revision.
    pub(crate) fn put(&self, path: &str, body: &str) -> String {
        let reply = self.json("PUT", path, body);
        assert_eq!(reply.status, 201, "{path}: {}", reply.text());
        reply.value()["rev"].as_str().unwrap().to_owned()
    }

    /// A server over the databases in `directory`.
    pub(crate) fn start_in(directory: &Path, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(directory);
        settings.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        settings.password_iterations = 2;
        settings.stop_timeout = Duration::from_secs(2);
        change(&mut settings);
        let (send, receive) = mpsc::channel();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let server = Server::bind(settings).await.unwrap();
                send.send((server.address(), server.stopper())).unwrap();
                server.run().await;
            });
        };
        let thread = std::thread::Builder::new().spawn(serve).unwrap();
        let (address, stopper) = receive.recv().unwrap();
        Self {
            address,
            stopper,
            thread: Some(thread),
            directory_kept: None,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Asks for `path` with JSON.
    pub(crate) fn json(&self, method: &str, path: &str, body: &str) -> Reply {
        self.ask(
            method,
            path,
            &["Content-Type: application/json"],
            body.as_bytes(),
        )
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Reply {
        let mut stream = self.send(method, path, headers, body);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Reply::read(&bytes, method)
    }

    /// Sends a request; its answer is still to be read.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &[u8],
    ) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        for header in headers {
            head.extend([header, "\r\n"]);
        }
        head.extend(["Content-Length: ", &body.len().to_string(), "\r\n\r\n"]);
        stream.write_all(head.as_bytes()).unwrap();
        // The server may refuse a body before it has read it.
        let _ = stream.write_all(body);
        stream
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    fn read(bytes: &[u8], method: &str) -> Self {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let mut reply = Self {
            status,
            headers,
            body: bytes[end + 4..].to_vec(),
        };
        if reply.header("transfer-encoding") == "chunked" && method != "HEAD" {
            reply.body = unchunked(&reply.body);
        }
        reply
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map_or("", |(_, value)| value)
    }

    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Its status, and of an error its word and reason.
    pub(crate) fn error(&self) -> (u16, String, String) {
        let value = self.value();
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        (self.status, text("error"), text("reason"))
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = bytes
            .windows(2)
            .position(|it| it == b"\r\n")
            .expect("a chunk has a length");
        let length =
            usize::from_str_radix(std::str::from_utf8(&bytes[..line]).unwrap(), 16).unwrap();
        if length == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[line + 2..line + 2 + length]);
        bytes = &bytes[line + 4 + length..];
    }
}
