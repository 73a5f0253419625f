//! As much HTTP as a benchmark of document servers needs: one request a connection, and its answer whole.

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a server may take nothing, or say nothing.
const PATIENCE: Duration = Duration::from_secs(1800);

/// A document server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// `host:port`.
    authority: String,
    /// The header that names the caller, or nothing.
    authorization: String,
}

impl Server {
    /// The server at `url`: `http://[user:password@]host:port`.
    pub(crate) fn new(url: &str) -> Result<Self> {
        let refused = || Error::Refused(format!("{url} is no http://[user:password@]host:port"));
        let rest = url.strip_prefix("http://").ok_or_else(refused)?;
        let rest = rest.trim_end_matches('/');
        let (user, authority) = match rest.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, rest),
        };
        if !authority.contains(':') || authority.contains('/') {
            return Err(refused());
        }
        let header = |user: &str| format!("Authorization: Basic {}\r\n", STANDARD.encode(user));
        Ok(Self {
            authority: authority.to_owned(),
            authorization: user.map(header).unwrap_or_default(),
        })
    }

    /// Asks, and returns the body of an answer that is no error.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let failed = |message: String| {
            Error::Refused(format!(
                "{method} http://{}{path}: {message}",
                self.authority
            ))
        };
        let answer = self.exchange(method, path, body);
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        let (status, body) =
            parse(&answer).ok_or_else(|| failed("no answer of HTTP".to_owned()))?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let shown = String::from_utf8_lossy(&body).trim().to_owned();
        Err(failed(format!("status {status}, {shown}")))
    }

    fn exchange(&self, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(&self.authority)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(self.head(method, path, body.len()).as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    }

    /// The head of a request with a body of `length` bytes.
    pub(crate) fn head(&self, method: &str, path: &str, length: usize) -> String {
        let (authority, authorization) = (&self.authority, &self.authorization);
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {authority}\r\n{authorization}Connection: close\r\n\
             Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    }

    /// Where it listens: `host:port`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }
}

/// The status and the body of an answer; `None` if it is none, or not whole.
fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end])
        .ok()?
        .to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = &answer[end + 4..];
    if head.contains("transfer-encoding: chunked") {
        return Some((status, unchunked(body)?));
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let is_whole = length.is_none_or(|length| length.trim().parse() == Ok(body.len()));
    is_whole.then(|| (status, body.to_vec()))
}

fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|it| it == b"\r\n")?;
        let length = std::str::from_utf8(&bytes[..end]).ok()?;
        let length = usize::from_str_radix(length.split(';').next()?.trim(), 16).ok()?;
        bytes = &bytes[end + 2..];
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(bytes.get(..length)?);
        bytes = bytes.get(length + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_cuts_are_noticed() {
        let plain = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parse(plain), Some((201, b"{}".to_vec())));
        assert_eq!(parse(&plain[..plain.len() - 1]), None);
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
        assert_eq!(parse(chunked), Some((200, b"abcd".to_vec())));
        assert_eq!(parse(&chunked[..chunked.len() - 9]), None);
    }

    #[test]
    fn urls_name_a_server() {
        assert!(Server::new("http://ann:x@127.0.0.1:5984/").is_ok());
        for url in [
            "127.0.0.1:5984",
            "http://127.0.0.1",
            "http://h:1/db",
            "https://h:1",
        ] {
            assert!(Server::new(url).is_err(), "{url}");
        }
    }
}
