//! As much of the Redis protocol as fills a server and asks it something: commands of bulk strings, answers without
//! arrays.

use crate::error::{Error, Result};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a server may say nothing.
const PATIENCE: Duration = Duration::from_secs(300);

/// A connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

/// Appends a command.
pub(crate) fn command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// The length of the answer at the head of `bytes`; `None`: it is not whole. A refusal is an error.
pub(crate) fn answer_length(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = bytes.iter().position(|it| *it == b'\n') else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&bytes[..end]);
    let (kind, rest) = line.trim_end().split_at_checked(1).unwrap_or(("", ""));
    match kind {
        "+" | ":" => Ok(Some(end + 1)),
        "$" => {
            let length: i64 = rest.parse().map_err(|_| nonsense(&line))?;
            // -1 is the answer that there is nothing.
            let Ok(length) = usize::try_from(length) else {
                return Ok(Some(end + 1));
            };
            let whole = end + 1 + length + 2;
            Ok((bytes.len() >= whole).then_some(whole))
        }
        _ => Err(nonsense(&line)),
    }
}

fn nonsense(line: &str) -> Error {
    Error::Refused(format!("the server answered {}", line.trim_end()))
}

impl Client {
    /// Connects to the server on `port`.
    pub(crate) fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::with_capacity(1 << 16, stream),
            out: Vec::new(),
        })
    }

    /// Puts a command behind the commands that wait.
    pub(crate) fn put(&mut self, arguments: &[&[u8]]) {
        command(&mut self.out, arguments);
    }

    /// Sends the commands that wait.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let sent = self.stream.get_mut().write_all(&self.out);
        self.out.clear();
        sent.map_err(|source| lost(&source))
    }

    /// The next answer; a refusal is an error.
    pub(crate) fn answer(&mut self) -> Result<Vec<u8>> {
        let mut line = String::new();
        let read = self
            .stream
            .read_line(&mut line)
            .map_err(|source| lost(&source))?;
        if read == 0 {
            return Err(lost(&io::ErrorKind::UnexpectedEof.into()));
        }
        let Some(length) = line.trim_end().strip_prefix('$') else {
            return answer_length(line.as_bytes())
                .map(|_| line.trim_end().as_bytes()[1..].to_vec());
        };
        let length: i64 = length.parse().map_err(|_| nonsense(&line))?;
        let Ok(length) = usize::try_from(length) else {
            return Ok(Vec::new());
        };
        let mut value = vec![0; length + 2];
        self.stream
            .read_exact(&mut value)
            .map_err(|source| lost(&source))?;
        value.truncate(length);
        Ok(value)
    }

    /// Sends one command and waits for its answer.
    pub(crate) fn ask(&mut self, arguments: &[&[u8]]) -> Result<Vec<u8>> {
        self.put(arguments);
        self.flush()?;
        self.answer()
    }
}

fn lost(source: &io::Error) -> Error {
    Error::Refused(format!("the connection to the server is lost: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_measured_and_refusals_are_errors() {
        assert_eq!(answer_length(b"+OK\r\n+OK\r\n").unwrap(), Some(5));
        assert_eq!(answer_length(b"$3\r\nabc\r\n").unwrap(), Some(9));
        assert_eq!(answer_length(b"$3\r\nabc").unwrap(), None);
        assert_eq!(answer_length(b"$-1\r\n").unwrap(), Some(5));
        assert_eq!(answer_length(b"").unwrap(), None);
        let refused = answer_length(b"-OOM no room\r\n").unwrap_err();
        assert!(refused.to_string().contains("OOM"), "{refused}");
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        command(&mut out, &[b"GET", b"key:1"]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n");
    }
}
