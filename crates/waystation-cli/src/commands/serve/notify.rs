//! What the service manager is told: that the daemon is ready, that it lives, that it stops.
//!
//! systemd names a datagram socket in the environment; a daemon without one tells nothing.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager, if there is one.
pub(super) struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that the daemon lives.
    pub(super) watchdog: Option<Duration>,
}

impl Manager {
    /// The manager that the environment names.
    pub(super) fn from_environment() -> Self {
        let address = std::env::var("NOTIFY_SOCKET").ok();
        let address = address.and_then(|it| match it.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(it).ok(),
        });
        let socket = address.and_then(|it| Some((UnixDatagram::unbound().ok()?, it)));
        let micros = std::env::var("WATCHDOG_USEC").ok();
        let micros = micros
            .and_then(|it| it.parse::<u64>().ok())
            .filter(|it| *it > 0);
        let process = std::env::var("WATCHDOG_PID").ok();
        let is_ours = process.is_none_or(|it| it == std::process::id().to_string());
        Self {
            watchdog: micros
                .filter(|_| is_ours && socket.is_some())
                .map(Duration::from_micros),
            socket,
        }
    }

    /// Tells it something.
    pub(super) fn tell(&self, message: &str) {
        let Some((socket, address)) = &self.socket else {
            return;
        };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            log::warn!("the service manager was not told {message}: {error}");
        }
    }
}
