//! Where a worker listens: TCP or a Unix socket, and the connections of both.

use crate::connections::Close;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What an address begins with that is a Unix socket's.
const UNIX: &str = "unix:";
/// A worker that cannot be reached in this time is taken for away.
const CONNECT: Duration = Duration::from_secs(2);

/// Where a worker listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `ADDRESS:PORT`.
    Tcp(SocketAddr),
    /// `unix:PATH`.
    Unix(PathBuf),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix(UNIX) {
            Some("") => Err("write the path of the socket behind unix:".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                format!("{text} is neither ADDRESS:PORT, as 127.0.0.1:5987, nor unix:PATH")
            }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// What listens.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens at `address`. A socket that a process left is replaced, one on which a process listens is not.
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpListener::bind(address).map(Self::Tcp),
            Address::Unix(path) => match UnixListener::bind(path) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    let is_left = matches!(
                        UnixStream::connect(path),
                        Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused
                    );
                    if !is_left {
                        return Err(error);
                    }
                    std::fs::remove_file(path)?;
                    UnixListener::bind(path)
                }
                bound => bound,
            }
            .map(|listener| Self::Unix(listener, path.clone())),
        }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(_, path) => Ok(Address::Unix(path.clone())),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Self::Unix(listener, _) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // A later one replaces it if it stays.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT)?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
        }
    }

    /// Has small messages leave at once, on either side.
    pub(super) fn hurry(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        }
    }

    /// Reads and writes wait so long, at least a millisecond.
    pub(super) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        let patience = Some(patience.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(stream) => stream
                .set_read_timeout(patience)
                .and_then(|()| stream.set_write_timeout(patience)),
            Self::Unix(stream) => stream
                .set_read_timeout(patience)
                .and_then(|()| stream.set_write_timeout(patience)),
        }
    }
}

impl Close for Stream {
    fn close(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.close(),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(buffer),
            Stream::Unix(stream) => (&*stream).read(buffer),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write(bytes),
            Stream::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_shown() {
        for text in ["127.0.0.1:5987", "[::1]:80", "unix:/run/waystation/worker"] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        for text in ["", "unix:", "localhost", "127.0.0.1", "/run/worker"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_socket_that_was_left_is_replaced_and_a_living_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let address = Address::Unix(dir.path().join("socket"));
        let Address::Unix(path) = &address else {
            unreachable!("it is one");
        };
        let living = Listener::bind(&address).expect("a socket");
        assert!(Listener::bind(&address).is_err());
        drop(living);
        drop(UnixListener::bind(path).expect("it is free"));
        assert!(path.exists(), "nothing removed it");
        Listener::bind(&address).expect("it is replaced");
        assert!(!path.exists());
    }
}
