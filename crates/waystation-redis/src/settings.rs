//! What a server is told.

use crate::server::ServerError;
use std::net::SocketAddr;
use std::time::Duration;
use tokio_rustls::TlsAcceptor;
use waystation_access::Users;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The death of the process.
    #[default]
    Process,
    /// The same at once, and a power cut after a second.
    EverySecond,
    /// A power cut.
    Power,
}

impl Durability {
    /// As Redis names it in `appendfsync`.
    pub(crate) fn redis_name(self) -> &'static str {
        match self {
            Self::Process => "no",
            Self::EverySecond => "everysec",
            Self::Power => "always",
        }
    }

    /// What Redis calls so.
    pub(crate) fn of_redis(name: &[u8]) -> Option<Self> {
        [Self::Process, Self::EverySecond, Self::Power]
            .into_iter()
            .find(|it| name.eq_ignore_ascii_case(it.redis_name().as_bytes()))
    }
}

/// What can change while the server runs.
#[derive(Debug, Clone)]
pub struct Live {
    /// Users and their rights. Without users every client may do everything, and the server listens on loopback addresses only.
    pub users: Users,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Connections at once; more are refused.
    pub clients_max: usize,
    /// Commands in a second of one address; a client that sends more is read from later. 0: any number.
    pub commands_per_second: u32,
    /// A connection without a command for so long is ended. Zero: none is.
    pub idle_timeout: Duration,
    /// So long may a client take to send the rest of a command, to take an answer, or to say who it is.
    pub stall_timeout: Duration,
    /// The longest argument (bytes).
    pub bulk_bytes_max: usize,
    /// The longest answer with many parts (bytes).
    pub answer_bytes_max: usize,
    /// What all clients together may have in memory of commands and answers (bytes).
    pub buffers_bytes_max: usize,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            users: Users::default(),
            durability: Durability::Process,
            clients_max: 10_000,
            commands_per_second: 0,
            idle_timeout: Duration::ZERO,
            stall_timeout: Duration::from_secs(60),
            bulk_bytes_max: 64 << 20,
            answer_bytes_max: 64 << 20,
            buffers_bytes_max: 256 << 20,
        }
    }
}

impl Live {
    /// Refuses to serve without a password where other machines reach the server.
    ///
    /// # Errors
    /// [`ServerError::NoPassword`].
    pub fn check(&self, address: SocketAddr) -> Result<(), ServerError> {
        if self.users.is_empty() && !address.ip().is_loopback() {
            return Err(ServerError::NoPassword(address));
        }
        Ok(())
    }
}

/// How a server serves.
#[derive(Clone)]
pub struct Settings {
    /// Where to listen. Port 0: any that is free.
    pub listen: SocketAddr,
    /// Connections speak TLS; `None`: none does.
    pub tls: Option<TlsAcceptor>,
    /// What can change.
    pub live: Live,
    /// How long clients may go on once the server is to stop.
    pub stop_timeout: Duration,
}

impl Settings {
    /// The defaults, on a loopback address.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            tls: None,
            live: Live::default(),
            stop_timeout: Duration::from_secs(10),
        }
    }
}
