//! What `waystation compact-worker` is told, and what commands are told that have a worker merge.

use clap::Args;
use std::path::PathBuf;
use waystation_drive::command::engine::EngineArgs;
use waystation_nodes::compaction::Address;

pub(super) const EXAMPLES: &str = "\
The worker merges tables for databases that other processes have open, in directories that it sees under the same paths,
or sent to its spool: docs/guides/compaction-worker.md. Worker and engines have to know the same token; on a Unix socket,
which its directory protects, both may go without.

Examples:
  waystation compact-worker --listen unix:/run/waystation/worker --allow /data
  waystation compact-worker --listen 10.0.0.7:5987 --token-file /etc/waystation/token --allow /mnt/shared --jobs 4
  waystation compact-worker --listen 10.0.0.7:5987 --token-file /etc/waystation/token --spool /scratch/waystation \
    --tls-cert worker.pem --tls-key worker.key
  waystation compact-worker --listen unix:/run/waystation/drive --allow /data --engine drive --decoders 4
  waystation import /data/cars readings.tsv --compact-worker unix:/run/waystation/worker";

#[derive(Debug, Args)]
pub(crate) struct CompactWorker {
    /// Where to listen: ADDRESS:PORT (port 0 takes any that is free) or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5987")]
    pub(crate) listen: Address,
    /// A file with the token that engines have to know, 16 bytes or more; a Unix socket needs none
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A directory that holds databases; the worker goes nowhere else
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "spool")]
    pub(crate) allow: Vec<PathBuf>,
    /// Take tables of databases that the worker does not see, and keep them here while they are merged
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) spool: Option<PathBuf>,
    /// Speak TLS with this certificate (PEM, with its chain), which names the address of --listen
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Merges at once; others wait. Default: one for each processor, and two at least
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// What merges.
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// A worker that merges for the database of the command.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "flags stand beside those of the commands that have them"
)]
pub(crate) struct UseWorker {
    /// Have the worker at this address merge tables (ADDRESS:PORT or unix:PATH); where it fails, this process does
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) compact_worker: Option<Address>,
    /// A file with the token that the worker knows
    #[arg(long, value_name = "FILE", requires = "compact_worker")]
    pub(crate) compact_worker_token_file: Option<PathBuf>,
    /// Speak TLS with the worker, whose certificate these authorities (PEM) signed
    #[arg(long, value_name = "FILE", requires = "compact_worker")]
    pub(crate) compact_worker_ca: Option<PathBuf>,
    /// So many percent of the worker's merges run here as well: they are compared, and what was made here stays
    #[arg(long, value_name = "PERCENT", requires = "compact_worker", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) compact_worker_shadow: u8,
}
