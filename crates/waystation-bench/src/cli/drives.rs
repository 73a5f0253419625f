//! `waystation-bench drives` on the command line.

use crate::drives::Figure;
use clap::Args;
use std::path::PathBuf;

/// `waystation-bench drives`.
#[derive(Debug, Args)]
#[command(
    after_help = "Filters without an index over a host and three drives, each a process in a control group: the host has 0.85 of a \
    core, the drives on another core about a third of that, calibrated until they take 2.8 to 3.0 times the host's time. It needs \
    two cores and the right to make control groups.\n\n\
    Example:\n  waystation-bench drives --docs 20000 --doc-bytes 8192 --json target/drives.json --html target/drives.html\n  \
    waystation-bench drives --against http://admin:secret@127.0.0.1:5984 --docs 20000 --doc-bytes 8192"
)]
pub(crate) struct DrivesArgs {
    /// Documents of each database
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub(crate) docs: u64,
    /// The length of a document
    #[arg(long, default_value_t = 131_072, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(256..=7_000_000))]
    pub(crate) doc_bytes: u32,
    /// Measure the rows of one figure alone
    #[arg(long, value_enum, default_value_t = Figure::All)]
    pub(crate) figure: Figure,
    /// Scans of each row, at least; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// The scans of a row go on for so long, at least
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(crate) seconds: u32,
    /// Documents of the databases by which the drives are calibrated [default: a twentieth of --docs, at least 1,000]
    #[arg(long, value_name = "N")]
    pub(crate) calibration_docs: Option<u64>,
    /// Measure the rows of one server alone on this one, which speaks CouchDB's interface
    #[arg(long, value_name = "URL")]
    pub(crate) against: Option<String>,
    /// The command line whose server and agents are measured [default: beside this program]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) waystation: Option<PathBuf>,
    /// Where the data lies; removed at the end
    #[arg(long, default_value = "target/bench-data")]
    pub(crate) data_dir: PathBuf,
    /// Write the report as JSON to this file (- for the standard output)
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with the figures to this file
    #[arg(long)]
    pub(crate) html: Option<PathBuf>,
}
