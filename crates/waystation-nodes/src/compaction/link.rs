//! An engine's way to a worker.

use super::address::{Address, Stream};
use crate::frame;
use crate::greeting::{Refusal, Token, WORKERS};
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
}

impl WorkerAddress {
    /// The worker that listens at `address` and knows `token`; a worker on a Unix socket may have none.
    pub fn new(address: Address, token: Option<Token>) -> Self {
        Self {
            address,
            token: token.unwrap_or_else(Token::none),
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
        let stream = Stream::connect(address).map_err(unreachable)?;
        stream.set_patience(GREETING).map_err(unreachable)?;
        match WORKERS.greet(&mut &stream, &self.token) {
            Ok(()) => {}
            Err(Refusal::Refused(reason)) => {
                return Err(LinkError::Refused(format!("{address}: {reason}")));
            }
            Err(Refusal::Io(error)) => return Err(broken(&error, GREETING)),
        }
        let clock = OsStorage::new();
        Ok(Box::new(Conversation { stream, clock }))
    }
}

/// A connection, as long as it is about one job.
struct Conversation {
    stream: Stream,
    clock: std::sync::Arc<OsStorage>,
}

impl Session for Conversation {
    fn ask(&mut self, request: &[u8], patience: Duration) -> Result<Vec<u8>, LinkError> {
        let exchange = || -> io::Result<Vec<u8>> {
            self.stream.set_patience(patience)?;
            frame::write(&mut &self.stream, request)?;
            let mut bounded = Bounded {
                conversation: self,
                deadline: self.clock.now() + patience,
            };
            let answer = frame::read(&mut bounded, MESSAGE_BYTES_MAX)?;
            answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        };
        exchange().map_err(|error| broken(&error, patience))
    }
}

/// Reads until a deadline, however little comes at a time.
struct Bounded<'a> {
    conversation: &'a Conversation,
    deadline: Duration,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Conversation { stream, clock } = self.conversation;
        let left = self.deadline.saturating_sub(clock.now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_patience(left)?;
        (&*stream).read(buffer)
    }
}

fn broken(error: &io::Error, patience: Duration) -> LinkError {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => LinkError::Silent(patience),
        _ => LinkError::Broken(error.to_string()),
    }
}
