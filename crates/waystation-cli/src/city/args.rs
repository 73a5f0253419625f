//! What can be said to `waystation city`.

use crate::output::JsonTarget;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// The city and its load.
#[derive(Debug, Args)]
pub(crate) struct City {
    /// Rows `t_s,device,cell,event` (A arrives, L leaves) in order of time, may be gzip [default: an hour of Bologna]
    pub(crate) trace: Option<PathBuf>,
    /// Where the engines work; must be empty, or left by an earlier run
    #[arg(long, default_value = "waystation-city")]
    pub(crate) dir: PathBuf,
    /// What each vehicle sends in a second, from all its sensors
    #[arg(long, value_name = "N", default_value_t = 0.5, value_parser = rate)]
    pub(crate) readings_per_second: f64,
    /// A reading's length, without its key
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    pub(crate) value_bytes: u32,
    /// Sensors of a vehicle
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) sensors: u32,
    /// How often each vehicle is asked about in a second
    #[arg(long, value_name = "N", default_value_t = 0.01, value_parser = share)]
    pub(crate) queries_per_second: f64,
    /// Threads that write, ask and hand over
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// The memory of all engines together
    #[arg(long, value_name = "BYTES", default_value = "512MiB", value_parser = bytes)]
    pub(crate) memory: u64,
    /// Split the trace's cells, so that there are this many in all [default: as many as in the trace]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) cells: Option<u32>,
    /// What a hand-off survives on both sides; readings survive the death of the process
    #[arg(long, value_enum, default_value_t = Survives::PowerLoss)]
    pub(crate) hand_offs_survive: Survives,
    /// Close, reopen and audit all engines after so much of the city's time, and at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 1_800, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) reopen_every: u32,
    /// End after so much of the city's time
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) until: Option<u32>,
    /// Run the same on other engines, one after the other
    #[arg(long, value_name = "ENGINES", value_enum, value_delimiter = ',')]
    pub(crate) against: Vec<Rival>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<JsonTarget>,
    /// Write the report as one HTML page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Leave the engines' directories there
    #[arg(long)]
    pub(crate) keep: bool,
}

/// Another engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rival {
    /// LevelDB 1.23
    #[value(name = "leveldb")]
    LevelDb,
    /// RocksDB
    #[value(name = "rocksdb")]
    RocksDb,
}

/// A crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Survives {
    /// kill -9
    ProcessCrash,
    /// A power cut
    PowerLoss,
}

impl From<Survives> for waystation::Durability {
    fn from(survives: Survives) -> Self {
        match survives {
            Survives::ProcessCrash => Self::ProcessCrash,
            Survives::PowerLoss => Self::PowerLoss,
        }
    }
}

impl fmt::Display for Survives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProcessCrash => "the death of the process",
            Self::PowerLoss => "a power cut",
        })
    }
}

fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let inside = number.filter(|number| (least..=most).contains(number));
    inside.ok_or_else(|| format!("it must be a number from {least} to {most}"))
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, 0.001, 1_000.0)
}

fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1.0)
}

fn bytes(text: &str) -> Result<u64, String> {
    waystation_advisor::units::parse_bytes(text).map_err(|error| error.to_string())
}
