//! `waystation-bench serve` on the command line.

use crate::serve::Engine;
use clap::Args;
use std::path::PathBuf;

/// `waystation-bench serve`.
#[derive(Debug, Args)]
#[command(
    after_help = "The daemon as a process of its own, beside redis-server and behind mosquitto, with the load of redis-benchmark and of this \
    program. Engines take turns; each server runs on one core and each load on another, unless --both-cores is given. It needs Debian's \
    packages redis-server, redis-tools and mosquitto (`make setup` installs them), and strip for the length of the program.\n\n\
    Figures: redis (SET, GET and a mix of them, appendfsync everysec), always (SET, appendfsync always), get (GET, pipeline 1), big (20 times the \
    memory), mqtt (readings through Mosquitto), memory, start.\n\n\
    Examples:\n  waystation-bench serve --json target/serve.json\n  \
    waystation-bench serve --figure redis --engines waystation,redis --value-bytes 1000 --pipelines 16\n  \
    waystation-bench serve --figure mqtt --seconds 10\n  \
    waystation-bench serve --figure start --gb 10"
)]
pub(crate) struct ServeArgs {
    /// What to measure; several, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    pub(crate) figure: Vec<ServeFigure>,
    /// How long one measurement goes on
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Rounds in which all engines take their turn; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Engines that Redis clients are measured on
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "redis,redis-tuned,waystation,waystation-tuned"
    )]
    pub(crate) engines: Vec<Engine>,
    /// Lengths of values, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "100,1000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) value_bytes: Vec<u32>,
    /// Commands of a client under way at once; several, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,16,100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) pipelines: Vec<u32>,
    /// Keys that servers are filled with and that commands draw from
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    pub(crate) keys: u32,
    /// Connections of a load
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,
    /// Connections that wait, for the figure memory
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=19_000))]
    pub(crate) connections: u32,
    /// Resident data that the daemon starts over, in units of 10^9 bytes
    #[arg(long, default_value_t = 10.0)]
    pub(crate) gb: f64,
    /// The part of the data set of the figure big that is used
    #[arg(long, default_value_t = 1.0)]
    pub(crate) big_share: f64,
    /// Let servers and loads run on any core
    #[arg(long)]
    pub(crate) both_cores: bool,
    /// The command line whose daemon is measured [default: beside this program]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) waystation: Option<PathBuf>,
    /// Where the data lies; removed at the end
    #[arg(long, default_value = "target/bench-data")]
    pub(crate) data_dir: PathBuf,
    /// Write the report as JSON to this file (- for the standard output)
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

/// What `waystation-bench serve` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServeFigure {
    /// SET, GET and a mix of them, written a second later at most
    Redis,
    /// SET, written before the answer
    Always,
    /// GET one by one
    Get,
    /// A data set of 20 times the memory
    Big,
    /// Readings through Mosquitto
    Mqtt,
    /// Memory of an idle server, and of one with idle connections
    Memory,
    /// From the start until ready
    Start,
    /// All of them
    All,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if (0.1..=3_600.0).contains(&seconds) {
        return Ok(seconds);
    }
    Err("a measurement takes from 0.1 to 3600 seconds".to_owned())
}
