//! The door to the machine: the system's own tools and a few small files. Tests put a scripted machine behind it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the laboratory asks of the machine.
pub(super) trait System {
    /// Runs a tool to its end; its standard output, or what it said against it.
    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<String, String>;
    /// Writes a (control) file.
    fn write(&mut self, path: &Path, text: &str) -> Result<(), String>;
    /// Writes a file so that a reader finds the old text or the new one, never a part.
    fn replace(&mut self, path: &Path, text: &str) -> Result<(), String>;
    /// Reads a (control) file.
    fn read(&mut self, path: &Path) -> Result<String, String>;
}

/// The machine that this runs on.
///
/// A tool outlives its caller: if this process is killed while `swapon` runs, swap is on a moment later. So every tool
/// holds the pipe to the keeper open as its standard input, and the keeper begins only when the last one has ended.
#[derive(Default)]
pub(super) struct Linux {
    /// The pipe to the keeper, where there is one.
    pub(super) keeper: Option<OwnedFd>,
}

impl System for Linux {
    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let stdin = match &self.keeper {
            Some(pipe) => Stdio::from(
                pipe.try_clone()
                    .map_err(|error| format!("the pipe to the keeper: {error}"))?,
            ),
            None => Stdio::null(),
        };
        let output = Command::new(program)
            .args(arguments)
            .env("PATH", crate::SYSTEM_PATH)
            .env("LC_ALL", "C")
            .stdin(stdin)
            .output()
            .map_err(|error| format!("{program} cannot be started: {error}"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!(
                "{program} {}: {}",
                arguments.join(" "),
                said.trim()
            ))
        }
    }

    fn write(&mut self, path: &Path, text: &str) -> Result<(), String> {
        std::fs::write(path, text).map_err(|error| format!("writing {}: {error}", path.display()))
    }

    fn replace(&mut self, path: &Path, text: &str) -> Result<(), String> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        std::fs::write(&name, text)
            .and_then(|()| std::fs::rename(&name, path))
            .map_err(|error| format!("writing {}: {error}", path.display()))
    }

    fn read(&mut self, path: &Path) -> Result<String, String> {
        std::fs::read_to_string(path)
            .map_err(|error| format!("reading {}: {error}", path.display()))
    }
}
