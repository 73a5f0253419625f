//! A server in this process, and clients that see every byte.

#![allow(unreachable_pub, reason = "the tests see all of it")]

pub mod real;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use waystation::storage::{OsStorage, Storage};
use waystation::{Db, DeviceOptions, Extractor, Options};
use waystation_redis::{Database, Handle, Server, Settings};

/// An answer of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Answer>),
    Map(Vec<(Answer, Answer)>),
    Double(f64),
}

impl Answer {
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) | Self::Error(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Integer(number) => number.to_string(),
            other => panic!("no text: {other:?}"),
        }
    }

    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::Array(parts) => parts.iter().map(Self::text).collect(),
            other => panic!("no array: {other:?}"),
        }
    }
}

/// A server, with the databases `plain` (0) and `fleet` (1), whose devices end with a colon.
pub struct Served {
    pub address: SocketAddr,
    pub handle: Handle,
    pub plain: Arc<Db>,
    pub fleet: Arc<Db>,
    runtime: Option<Runtime>,
    task: Option<JoinHandle<()>>,
}

impl Served {
    pub fn start(directory: &Path) -> Self {
        Self::start_with(directory, |_| {})
    }

    pub fn start_with(directory: &Path, change: impl FnOnce(&mut Settings)) -> Self {
        let storage = OsStorage::new();
        Self::start_on(&storage, directory, (4, &Options::default()), change)
    }

    /// On a storage of the test's, with so many threads for connections.
    pub fn start_on<S: Storage + 'static>(
        storage: &Arc<S>,
        directory: &Path,
        (threads, options): (usize, &Options),
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let devices = DeviceOptions::new(Extractor::until(b':'));
        let fleet_options = Options {
            devices: Some(devices),
            ..options.clone()
        };
        let open = |name, options| {
            let storage = Arc::<S>::clone(storage);
            Arc::new(Db::open_with(storage, directory.join(name), options).unwrap())
        };
        let plain = open("plain", options.clone());
        let fleet = open("fleet", fleet_options);
        let mut settings = Settings::new("127.0.0.1:0".parse().unwrap());
        change(&mut settings);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()
            .unwrap();
        let databases = vec![
            Database {
                name: "plain".to_owned(),
                db: Arc::clone(&plain),
                extractor: None,
            },
            Database {
                name: "fleet".to_owned(),
                db: Arc::clone(&fleet),
                extractor: Some(Extractor::until(b':')),
            },
        ];
        let server = runtime.block_on(Server::bind(settings, databases)).unwrap();
        let (address, handle) = (server.address(), server.handle());
        let task = runtime.spawn(server.run());
        Self {
            address,
            handle,
            plain,
            fleet,
            runtime: Some(runtime),
            task: Some(task),
        }
    }

    /// Has the server stop, and waits until it has.
    pub fn stop_and_wait(&mut self) {
        self.handle.stop();
        if let (Some(runtime), Some(task)) = (&self.runtime, self.task.take()) {
            runtime.block_on(task).unwrap();
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// A client.
pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.stream.write_all(&encode(args)).unwrap();
    }

    pub fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Answer {
        self.send(args);
        self.read()
    }

    /// The answer to a command that is written as words.
    pub fn say(&mut self, words: &str) -> Answer {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.ask(&words)
    }

    pub fn read(&mut self) -> Answer {
        self.try_read().expect("the server answers")
    }

    /// The next answer; `None` if the connection is over.
    pub fn try_read(&mut self) -> Option<Answer> {
        let line = self.line()?;
        let (kind, rest) = (line[0], String::from_utf8_lossy(&line[1..]).into_owned());
        let number = || rest.parse::<i64>().unwrap();
        Some(match kind {
            b'+' => Answer::Simple(rest),
            b'-' => Answer::Error(rest),
            b':' => Answer::Integer(number()),
            b',' => Answer::Double(rest.parse().unwrap()),
            b'_' => Answer::Null,
            b'$' | b'=' | b'*' | b'~' | b'>' if number() < 0 => Answer::Null,
            b'$' | b'=' => {
                let mut bytes = self.take(usize::try_from(number()).unwrap() + 2)?;
                bytes.truncate(bytes.len() - 2);
                Answer::Bulk(bytes)
            }
            b'*' | b'~' | b'>' => {
                let parts = (0..number()).map(|_| self.try_read());
                Answer::Array(parts.collect::<Option<_>>()?)
            }
            b'%' => {
                let mut pairs = Vec::new();
                for _ in 0..number() {
                    pairs.push((self.try_read()?, self.try_read()?));
                }
                Answer::Map(pairs)
            }
            other => panic!("{} {rest}", char::from(other)),
        })
    }

    fn fill(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                self.buffer.extend_from_slice(&piece[..length]);
                true
            }
        }
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|it| it == b"\r\n") {
                let line = self.buffer[..end].to_vec();
                self.buffer.drain(..end + 2);
                return Some(line);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < length {
            if !self.fill() {
                return None;
            }
        }
        Some(self.buffer.drain(..length).collect())
    }
}

/// A command as bytes.
pub fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for argument in args {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
