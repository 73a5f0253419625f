//! `waystation serve` with a configuration of the benchmark's.

use super::process::{self, Process};
use crate::error::{Error, Result};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

/// The name of the database.
pub(crate) const DATABASE: &str = "bench";

/// The daemon.
pub(crate) struct Daemon {
    pub(crate) process: Process,
    /// Where Redis clients connect.
    pub(crate) redis_port: u16,
    /// `host:port` of its HTTP interface.
    pub(crate) http: String,
}

/// What the configuration says beside addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config<'a> {
    /// What an acknowledged write of a Redis client survives.
    pub(crate) durability: &'a str,
    /// Keys of `[[database]]`, a line each.
    pub(crate) database: &'a str,
    /// Other sections.
    pub(crate) more: &'a str,
}

impl Daemon {
    /// Starts `program` over `directory`, on `core` or anywhere, and returns when it is ready.
    pub(crate) fn start(
        program: &Path,
        directory: &Path,
        core: Option<usize>,
        config: &Config<'_>,
    ) -> Result<Self> {
        let made = fs::create_dir_all(directory);
        made.map_err(|source| Error::io("make", directory, source))?;
        let file = directory.with_extension("toml");
        let Config {
            durability,
            database,
            more,
        } = config;
        let text = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\n\n[redis]\nlisten = \"127.0.0.1:0\"\ndurability = \"{durability}\"\n\
             clients_max = 20000\n\n[[database]]\nname = \"{DATABASE}\"\n{database}\n{more}"
        );
        fs::write(&file, text).map_err(|source| Error::io("write", &file, source))?;
        let complaints = directory.with_extension("log");
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg("--config")
            .arg(&file)
            .arg(directory);
        let (process, output) = process::start(&mut command, core, "waystation", &complaints)?;
        let (mut redis_port, mut http) = (None, None);
        let mut lines = BufReader::new(output.ok_or_else(|| process.failed("says nothing"))?);
        while redis_port.is_none() || http.is_none() {
            let mut line = String::new();
            let read = lines.read_line(&mut line);
            if read.map_err(|source| Error::io("read from", program, source))? == 0 {
                return Err(process.failed("ended before it listened"));
            }
            let address = line.trim().trim_end_matches('/');
            if let Some((_, address)) = address.split_once("redis://") {
                redis_port = address.rsplit(':').next().and_then(|it| it.parse().ok());
            } else if let Some((_, address)) = address.split_once("http://") {
                http = Some(address.to_owned());
            }
        }
        Ok(Self {
            process,
            redis_port: redis_port.unwrap_or_default(),
            http: http.unwrap_or_default(),
        })
    }
}
