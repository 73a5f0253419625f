//! The door to the machine: the system's own tools and a few small files. Tests put a scripted machine behind it.

use std::path::Path;
use std::process::{Command, Stdio};

/// What the laboratory asks of the machine.
pub(super) trait System {
    /// Runs a tool to its end; its standard output, or what it said against it.
    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<String, String>;
    /// Writes a (control) file.
    fn write(&mut self, path: &Path, text: &str) -> Result<(), String>;
    /// Reads a (control) file.
    fn read(&mut self, path: &Path) -> Result<String, String>;
}

/// The machine that this runs on.
pub(super) struct Linux;

impl System for Linux {
    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(program)
            .args(arguments)
            .env("PATH", crate::SYSTEM_PATH)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
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

    fn read(&mut self, path: &Path) -> Result<String, String> {
        std::fs::read_to_string(path)
            .map_err(|error| format!("reading {}: {error}", path.display()))
    }
}
