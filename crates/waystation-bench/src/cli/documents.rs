//! `waystation-bench documents` on the command line.

use clap::Args;
use std::path::PathBuf;

/// `waystation-bench documents`.
#[derive(Debug, Args)]
#[command(
    after_help = "The document server on one machine, as its clients see it: `waystation serve` runs as a process of its own, and this \
    program speaks HTTP with it. Filters without an index over documents of one long string and of many fields, of 8 KB and of 116 KB; loads \
    of documents by one and two connections; memory while the server is idle, scans, and has feeds.\n\n\
    Example:\n  waystation-bench documents --json target/documents.json\n  \
    waystation-bench documents --measure memory --scan-docs 100000 --scan-doc-bytes 131072 --json target/memory.json\n  \
    waystation-bench documents --against http://admin:secret@127.0.0.1:5984 --measure find"
)]
pub(crate) struct DocumentsArgs {
    /// What to measure; all, if nothing is named
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) measure: Vec<DocumentsMeasure>,
    /// Documents of 8 KB that a filter goes through, and that a load writes
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub(crate) docs: u64,
    /// Documents of 116 KB that a filter goes through
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub(crate) large_docs: u64,
    /// Takes of each figure; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Documents of the database whose scan shows the memory
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub(crate) scan_docs: u64,
    /// The length of those
    #[arg(long, default_value_t = 131_072, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(256..=7_000_000))]
    pub(crate) scan_doc_bytes: u32,
    /// Clients that wait for changes at once
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) feeds: u32,
    /// Shards of each database
    #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) q: u32,
    /// Measure a server that runs already and speaks CouchDB's interface; its processor time and memory are not seen
    #[arg(long, value_name = "URL")]
    pub(crate) against: Option<String>,
    /// The command line whose server is measured [default: beside this program]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) waystation: Option<PathBuf>,
    /// Where the data lies; removed at the end
    #[arg(long, default_value = "target/bench-data")]
    pub(crate) data_dir: PathBuf,
    /// Write the report as JSON to this file (- for the standard output)
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

/// What `waystation-bench documents` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DocumentsMeasure {
    /// Filters without an index
    Find,
    /// `_bulk_docs`
    Load,
    /// The server's memory: idle, during a scan, with feeds
    Memory,
}
