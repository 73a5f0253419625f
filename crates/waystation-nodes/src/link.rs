//! A host's connections to a drive.
//!
//! A connection carries one call at a time. It goes back to the pool after an answer, and is dropped after anything
//! else. A call that may be repeated is repeated once on a new connection, if an old one turns out to be dead.

use crate::drives::DriveSettings;
use crate::frame::{self, MESSAGE_BYTES_MAX};
use crate::greeting::{DRIVES, Refusal, Token};
use crate::message::{Answer, Call};
use crate::tls::{self, Authorities, Stream};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use waystation_documents::wire::{decode, encode};
use waystation_documents::{Error, NodeFault, Result};

/// How long a connection may take to be made, and each part of the greeting.
const CONNECTING: Duration = Duration::from_secs(5);
/// Connections that wait for the next call.
const IDLE_MAX: usize = 64;

/// A connection.
pub(crate) struct Connection(Stream<TcpStream>);

/// The way to a drive.
pub(crate) struct Link {
    name: String,
    address: SocketAddr,
    token: Token,
    authorities: Option<Authorities>,
    idle: Mutex<Vec<Connection>>,
}

impl Link {
    pub(crate) fn new(settings: DriveSettings) -> Self {
        Self {
            name: settings.name,
            address: settings.address,
            token: settings.token,
            authorities: settings.authorities,
            idle: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of this drive, which `did` something.
    pub(crate) fn fault(&self, fault: NodeFault, did: &str) -> Error {
        let (name, address) = (&self.name, self.address);
        Error::Node {
            fault,
            reason: format!("the drive {name} at {address} {did}"),
        }
    }

    fn broken(&self, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.fault(
                NodeFault::Slow,
                "did not answer in time; look whether it is overloaded, or its storage fails",
            ),
            io::ErrorKind::InvalidData => {
                let did = format!("sent what is no answer: {error}; check its network and version");
                self.fault(NodeFault::Lying, &did)
            }
            io::ErrorKind::InvalidInput => {
                let did = format!("was sent nothing: {error}; split the request");
                self.fault(NodeFault::Refused, &did)
            }
            _ => {
                let did = format!(
                    "broke off the connection: {error}; look whether its agent runs, and at the network"
                );
                self.fault(NodeFault::Broken, &did)
            }
        }
    }

    /// The error of a connection that was not made.
    fn unreached(&self, error: &io::Error) -> Error {
        if error.kind() == io::ErrorKind::InvalidData {
            return self.broken(error);
        }
        let did = format!("cannot be reached: {error}; start its agent, or check the network");
        self.fault(NodeFault::Down, &did)
    }

    fn refused(&self, reason: &str) -> Error {
        let did = format!("and this host do not take each other: {reason}");
        self.fault(NodeFault::Refused, &did)
    }

    fn connect(&self) -> Result<Connection> {
        let greeted = || -> Result<Stream<TcpStream>, Refusal> {
            let socket = TcpStream::connect_timeout(&self.address, CONNECTING)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(CONNECTING))?;
            socket.set_write_timeout(Some(CONNECTING))?;
            let mut stream = Stream::new(socket, self.address.ip(), self.authorities.as_ref())?;
            DRIVES.greet(&mut stream, &self.token)?;
            Ok(stream)
        };
        match greeted() {
            Ok(stream) => Ok(Connection(stream)),
            Err(Refusal::Io(error)) => match tls::refusal(&error) {
                Some(reason) => Err(self.refused(&reason)),
                None => Err(self.unreached(&error)),
            },
            Err(Refusal::Refused(reason)) => Err(self.refused(&reason)),
        }
    }

    /// A connection for one call, and whether it is an old one.
    fn take(&self) -> Result<(Connection, bool)> {
        loop {
            let old = self.idle().pop();
            match old {
                None => return Ok((self.connect()?, false)),
                Some(old) if old.is_quiet() => return Ok((old, true)),
                Some(_) => {}
            }
        }
    }

    /// Keeps `connection` for the next call.
    pub(crate) fn give_back(&self, connection: Connection) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    /// Calls, and returns the answer with the connection on which it came. The drive may take as long as `patience`.
    pub(crate) fn call(
        &self,
        call: &Call,
        patience: Duration,
        is_repeatable: bool,
    ) -> Result<(Answer, Connection)> {
        let message = encode(call);
        let (mut connection, is_old) = self.take()?;
        match connection.exchange(&message, patience) {
            Err(error) if is_old && is_repeatable && is_dead(&error) => {
                // The agent was started anew: the other old connections are dead, too.
                self.idle().clear();
                connection = self.connect()?;
                let answer = connection.exchange(&message, patience);
                Ok((answer.map_err(|error| self.broken(&error))?, connection))
            }
            answer => Ok((answer.map_err(|error| self.broken(&error))?, connection)),
        }
    }

    /// Calls on `connection`, which is for several calls that belong together.
    pub(crate) fn call_on(
        &self,
        connection: &mut Connection,
        call: &Call,
        patience: Duration,
    ) -> Result<Answer> {
        let answer = connection.exchange(&encode(call), patience);
        answer.map_err(|error| self.broken(&error))
    }

    /// The error of an answer to another call.
    pub(crate) fn confused(&self) -> Error {
        let did = "answered another call than it was asked; restart its agent";
        self.fault(NodeFault::Lying, did)
    }
}

/// Whether the connection was dead before the call.
fn is_dead(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected
    )
}

impl Connection {
    /// Whether nothing has come since the last answer, not even the end.
    fn is_quiet(&self) -> bool {
        let socket = self.0.socket();
        let looked = socket.set_nonblocking(true);
        let seen = socket.peek(&mut [0]);
        let is_quiet = matches!(seen, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        looked.is_ok() && is_quiet && socket.set_nonblocking(false).is_ok()
    }

    fn exchange(&mut self, message: &[u8], patience: Duration) -> io::Result<Answer> {
        self.0.socket().set_read_timeout(Some(patience))?;
        self.0.socket().set_write_timeout(Some(patience))?;
        frame::write(&mut self.0, message)?;
        let answer = frame::read(&mut self.0, MESSAGE_BYTES_MAX)?;
        let answer = answer.ok_or(io::ErrorKind::UnexpectedEof)?;
        let reason = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        decode(&answer).map_err(reason)
    }
}
