//! An engine's way to a worker.

use super::address::{Address, Stream};
use crate::frame;
use crate::greeting::{Refusal, Token, WORKERS};
use crate::tls::{self, Authorities};
use std::io::{self, Read};
use std::time::Duration;
use waystation::offload::{Link, LinkError, Session};
use waystation::storage::{OsStorage, Storage};
use waystation_format::compaction::MESSAGE_BYTES_MAX;

/// A worker has so long to greet.
const GREETING: Duration = Duration::from_secs(5);

/// A worker at an address: what `Options::offload` takes.
///
/// ```
/// use waystation::offload::{Offload, OffloadSettings};
/// use waystation_nodes::Token;
/// use waystation_nodes::compaction::WorkerAddress;
///
/// let token = Token::new("0123456789abcdef0123456789abcdef")?;
/// let worker = WorkerAddress::new("127.0.0.1:5987".parse()?, Some(token));
/// let options = waystation::Options {
///     offload: Some(Offload::new(worker, OffloadSettings::default())),
///     ..Default::default()
/// };
/// # assert!(options.offload.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct WorkerAddress {
    address: Address,
    token: Token,
    authorities: Option<Authorities>,
}

impl WorkerAddress {
    /// The worker that listens at `address` and knows `token`; a worker on a Unix socket may have none.
    pub fn new(address: Address, token: Option<Token>) -> Self {
        Self {
            address,
            token: token.unwrap_or_else(Token::none),
            authorities: None,
        }
    }

    /// The same worker, with TLS: one of `authorities` signed its certificate, which names its IP address. Unix sockets do
    /// without.
    #[must_use]
    pub fn with_tls(self, authorities: Authorities) -> Self {
        Self {
            authorities: Some(authorities),
            ..self
        }
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Link for WorkerAddress {
    fn connect(&self) -> Result<Box<dyn Session>, LinkError> {
        let address = &self.address;
        let unreachable = |error: io::Error| LinkError::Unreachable(format!("{address}: {error}"));
        let socket = Stream::connect(address).map_err(unreachable)?;
        socket.set_patience(GREETING).map_err(unreachable)?;
        let stream = match address {
            Address::Tcp(to) => tls::Stream::new(socket, to.ip(), self.authorities.as_ref()),
            Address::Unix(_) => Ok(tls::Stream::Plain(socket)),
        };
        let mut stream = stream.map_err(unreachable)?;
        let refused = |reason: String| LinkError::Refused(format!("{address}: {reason}"));
        match WORKERS.greet(&mut stream, &self.token) {
            Ok(()) => {}
            Err(Refusal::Refused(reason)) => return Err(refused(reason)),
            Err(Refusal::Io(error)) => {
                return Err(match tls::refusal(&error) {
                    Some(reason) => refused(reason),
                    None => broken(&error, GREETING),
                });
            }
        }
        let clock = OsStorage::new();
        Ok(Box::new(Conversation { stream, clock }))
    }
}

/// A connection, as long as it is about one job.
struct Conversation {
    stream: tls::Stream<Stream>,
    clock: std::sync::Arc<OsStorage>,
}

impl Session for Conversation {
    fn ask(&mut self, request: &[u8], patience: Duration) -> Result<Vec<u8>, LinkError> {
        let answer = self.exchange(request, patience);
        answer.map_err(|error| broken(&error, patience))
    }
}

impl Conversation {
    fn exchange(&mut self, request: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
        self.stream.socket().set_patience(patience)?;
        frame::write(&mut self.stream, request)?;
        let deadline = self.clock.now() + patience;
        let mut bounded = Bounded {
            conversation: self,
            deadline,
        };
        let answer = frame::read(&mut bounded, MESSAGE_BYTES_MAX)?;
        answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Reads until a deadline, however little comes at a time.
struct Bounded<'a> {
    conversation: &'a mut Conversation,
    deadline: Duration,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Conversation { stream, clock } = &mut *self.conversation;
        let left = self.deadline.saturating_sub(clock.now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.socket().set_patience(left)?;
        stream.read(buffer)
    }
}

fn broken(error: &io::Error, patience: Duration) -> LinkError {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => LinkError::Silent(patience),
        _ => LinkError::Broken(error.to_string()),
    }
}
