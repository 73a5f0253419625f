//! TLS between host and drive, and between engine and worker: the certificate of the one, and the authorities that the
//! other one trusts.
//!
//! The token tells who may call, with TLS and without; TLS keeps others from reading and changing messages. A host
//! checks the agent's certificate for the address at which it reaches the agent. There is no way to skip the check.

use crate::error::Result;
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// The certificate of an agent or a worker, and its key.
#[derive(Debug, Clone)]
pub struct Identity(Arc<ServerConfig>);

/// The authorities that a host or an engine trusts.
#[derive(Debug, Clone)]
pub struct Authorities(Arc<ClientConfig>);

impl Identity {
    /// Reads a certificate, with its chain, and its key; both are PEM.
    ///
    /// # Errors
    /// [`AgentError::Tls`](crate::AgentError::Tls).
    pub fn read(certificate: &Path, key: &Path) -> Result<Self> {
        let mut config = waystation_tls::server(certificate, key, None)?;
        // A host looks whether something has come before it uses an old connection: nothing may that it did not ask for.
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// Answers a host that begins TLS over `stream`.
    pub(crate) fn accept<S: Read + Write>(
        &self,
        stream: S,
    ) -> io::Result<StreamOwned<ServerConnection, S>> {
        let connection = ServerConnection::new(Arc::clone(&self.0)).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, stream))
    }
}

impl Authorities {
    /// Reads the certificates of authorities in a PEM file.
    ///
    /// # Errors
    /// [`AgentError::Tls`](crate::AgentError::Tls).
    pub fn read(path: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        waystation_tls::add_authorities(&mut roots, path)?;
        Ok(Self(Arc::new(waystation_tls::client(roots))))
    }

    /// Begins TLS with the agent at `address` over `stream`.
    fn begin<S: Read + Write>(&self, address: IpAddr, stream: S) -> io::Result<Stream<S>> {
        let name = ServerName::IpAddress(address.into());
        let connection = ClientConnection::new(Arc::clone(&self.0), name);
        let connection = connection.map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(connection, stream))))
    }
}

/// A connection to an agent or a worker.
pub(crate) enum Stream<S: Read + Write> {
    Plain(S),
    Tls(Box<StreamOwned<ClientConnection, S>>),
}

impl<S: Read + Write> Stream<S> {
    /// The connection `socket` to `address`, with TLS if this side trusts `authorities`.
    pub(crate) fn new(
        socket: S,
        address: IpAddr,
        authorities: Option<&Authorities>,
    ) -> io::Result<Self> {
        match authorities {
            None => Ok(Self::Plain(socket)),
            Some(authorities) => authorities.begin(address, socket),
        }
    }

    pub(crate) fn socket(&self) -> &S {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl<S: Read + Write> Read for Stream<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl<S: Read + Write> Write for Stream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Why TLS did not begin, if that is what `error` tells.
pub(crate) fn refusal(error: &io::Error) -> Option<String> {
    let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(format!(
        "{cause}; trust the authority of its certificate, which has to name its address, or have neither side speak TLS"
    ))
}
