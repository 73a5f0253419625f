//! Clients that wait for changes, each with a connection of its own.

use crate::drives::Server;
use crate::error::{Error, Result};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a feed may say nothing once there is a change.
const PATIENCE: Duration = Duration::from_secs(60);

/// Feeds that wait.
pub(crate) struct Feeds(Vec<TcpStream>);

impl Feeds {
    /// Has `count` clients wait for the next change of `database`.
    pub(crate) fn begin(server: &Server, database: &str, count: u32) -> Result<Self> {
        let path = format!("/{database}/_changes?feed=longpoll&since=now&heartbeat=30000");
        let begin = || -> std::io::Result<TcpStream> {
            let mut stream = TcpStream::connect(server.authority())?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(server.head("GET", &path, 0).as_bytes())?;
            Ok(stream)
        };
        let streams = (0..count).map(|_| begin());
        let streams = streams.collect::<std::io::Result<Vec<TcpStream>>>();
        streams
            .map(Self)
            .map_err(|source| Error::io("open a feed of", path, source))
    }

    /// Reads the answers of all of them, which a change has ended; how many told of `id`.
    pub(crate) fn told_of(self, id: &str) -> usize {
        let told = |mut stream: TcpStream| {
            let mut answer = Vec::new();
            // A feed that breaks off has told of nothing.
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).contains(id)
        };
        self.0
            .into_iter()
            .map(told)
            .filter(|is_told| *is_told)
            .count()
    }
}
