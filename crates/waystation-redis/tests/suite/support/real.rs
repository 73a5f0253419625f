//! A real Redis, as a process of the test's.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A real Redis.
pub struct Real {
    child: Child,
    pub address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Real {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--bind",
                "127.0.0.1",
            ])
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server runs: scripts/setup-test.sh installs it");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        for _ in 0..200 {
            if TcpStream::connect(address).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Self {
            child,
            address,
            _directory: directory,
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
