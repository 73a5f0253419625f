//! Mosquitto, with queues of any length, so that a subscriber that is slower than the publishers loses nothing.

use super::process::{self, Process};
use super::redis::free_port;
use crate::clock;
use crate::error::{Error, Result};
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How long it may take until it listens.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where Debian has it, which is not in every user's path.
const DEBIAN: &str = "/usr/sbin/mosquitto";

/// Starts Mosquitto on `core` or anywhere. It sends `inflight` messages ahead of their acknowledgements.
pub(crate) fn start(
    directory: &Path,
    core: Option<usize>,
    inflight: u32,
) -> Result<(Process, u16)> {
    fs::create_dir_all(directory).map_err(|source| Error::io("make", directory, source))?;
    let port = free_port()?;
    let file = directory.join("mosquitto.conf");
    let text = format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\nuser root\nmax_queued_messages 0\nmax_inflight_messages {inflight}\n"
    );
    fs::write(&file, text).map_err(|source| Error::io("write", &file, source))?;
    let program = if Path::new(DEBIAN).exists() {
        DEBIAN
    } else {
        "mosquitto"
    };
    let mut command = Command::new(program);
    command.arg("-c").arg(&file);
    let complaints = directory.join("mosquitto.log");
    let (process, _) = process::start(&mut command, core, "mosquitto", &complaints)?;
    let begun = clock::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if process.has_ended() || begun.elapsed() > PATIENCE {
            return Err(process.failed("does not listen"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok((process, port))
}
