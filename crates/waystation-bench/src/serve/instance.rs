//! A server for Redis clients, of either kind, in its default and in its best-known configuration.

use super::daemon::{Config, Daemon};
use super::process::Process;
use super::redis;
use crate::cores::two_cores;
use crate::error::Result;
use crate::place::Place;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Where server and load run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cores {
    /// `None`: anywhere.
    pub(crate) server: Option<usize>,
    /// `None`: anywhere.
    pub(crate) load: Option<usize>,
}

impl Cores {
    /// A core for each, or both cores for both.
    pub(crate) fn new(is_shared: bool) -> Result<Self> {
        if is_shared {
            return Ok(Self {
                server: None,
                load: None,
            });
        }
        let [server, load] = two_cores()?;
        Ok(Self {
            server: Some(server),
            load: Some(load),
        })
    }

    /// In words.
    pub(crate) fn summary(self) -> String {
        match (self.server, self.load) {
            (Some(server), Some(load)) => {
                format!("every server on core {server}, every load on core {load}")
            }
            _ => "servers and loads on any core".to_owned(),
        }
    }
}

/// What is measured.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Engine {
    /// `waystation serve` as it comes
    Waystation,
    /// With memtables of 128 MiB and a ring of 64 MiB
    WaystationTuned,
    /// `redis-server` as it comes
    Redis,
    /// Without snapshots, and with --both-cores with two threads for input and output
    RedisTuned,
}

/// When a write is on storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Durability {
    /// A second after its answer, at most.
    #[serde(rename = "everysec")]
    EverySecond,
    /// Before its answer.
    #[serde(rename = "always")]
    Always,
}

impl Durability {
    /// Redis' word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::EverySecond => "everysec",
            Self::Always => "always",
        }
    }

    /// The daemon's word for it.
    pub(crate) fn of_daemon(self) -> &'static str {
        match self {
            Self::EverySecond => "everysecond",
            Self::Always => "power",
        }
    }
}

impl Engine {
    /// The name in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Waystation => "waystation",
            Self::WaystationTuned => "waystation-tuned",
            Self::Redis => "redis",
            Self::RedisTuned => "redis-tuned",
        }
    }

    /// Whether it is the daemon.
    pub(crate) fn is_daemon(self) -> bool {
        matches!(self, Self::Waystation | Self::WaystationTuned)
    }
}

/// What all measurements have in common.
pub(crate) struct Rig<'a> {
    /// `waystation`.
    pub(crate) program: &'a Path,
    pub(crate) place: &'a Place,
    pub(crate) cores: Cores,
    /// How long one measurement goes on.
    pub(crate) seconds: f64,
    /// Connections of a load.
    pub(crate) clients: u32,
}

/// A server that answers Redis clients.
pub(crate) struct Instance {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

/// The directory of the server that is measured.
const DIRECTORY: &str = "serve";

impl Rig<'_> {
    /// Starts `engine` over nothing.
    pub(crate) fn instance(&self, engine: Engine, durability: Durability) -> Result<Instance> {
        if engine.is_daemon() {
            let database = match engine {
                Engine::WaystationTuned => "memtable_bytes = \"128 MiB\"\nring_bytes = \"64 MiB\"",
                _ => "",
            };
            let daemon = self.daemon(&Config {
                durability: durability.of_daemon(),
                database,
                more: "",
            })?;
            return Ok(Instance {
                process: daemon.process,
                port: daemon.redis_port,
            });
        }
        let more: &[&str] = match engine {
            // A second thread helps where it has a core.
            Engine::RedisTuned if self.cores.server.is_none() => {
                &["--save", "", "--io-threads", "2"]
            }
            Engine::RedisTuned => &["--save", ""],
            _ => &[],
        };
        self.redis(durability, more)
    }

    /// Starts `redis-server` over nothing.
    pub(crate) fn redis(&self, durability: Durability, more: &[&str]) -> Result<Instance> {
        self.place.clear(DIRECTORY)?;
        let directory = self.place.path(DIRECTORY);
        let (process, port) = redis::start(&directory, self.cores.server, durability, more)?;
        Ok(Instance { process, port })
    }

    /// Starts the daemon over nothing.
    pub(crate) fn daemon(&self, config: &Config<'_>) -> Result<Daemon> {
        self.place.clear(DIRECTORY)?;
        self.daemon_again(config)
    }

    /// Starts the daemon over what the last one left.
    pub(crate) fn daemon_again(&self, config: &Config<'_>) -> Result<Daemon> {
        let directory = self.place.path(DIRECTORY);
        Daemon::start(self.program, &directory, self.cores.server, config)
    }

    /// Removes what the last server left.
    pub(crate) fn clear(&self) -> Result<()> {
        self.place.clear(DIRECTORY)
    }
}
