//! `waystation-bench ycsb` on the command line.

use super::{Common, check_once};
use crate::error::Result;
use crate::workload::{YcsbLoad, YcsbWorkload};
use clap::Args;

/// `waystation-bench ycsb`.
#[derive(Debug, Args)]
#[command(
    after_help = "YCSB's core workloads: a (half updates), b (5 % updates), c (reads), d (reads of the latest), e (scans), \
    f (read-modify-writes), after a load of all records. Keys are `user` and a hash, records have ten fields of 100 bytes and \
    are one value, so that an update reads the record first. Workloads are run in YCSB's order, a b c f d, and e after a load \
    of its own.\n\n\
    Example:\n  waystation-bench ycsb --engines waystation,leveldb,rocksdb --workloads a,b,c,d,e,f --records 1000000 \
    --operations 1000000 --threads 1 --runs 3 --json target/ycsb.json"
)]
pub(crate) struct YcsbArgs {
    /// Engines and place.
    #[command(flatten)]
    pub(crate) common: Common,
    /// Workloads, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "a,b,c,d,e,f")]
    workloads: Vec<YcsbWorkload>,
    /// Records that are loaded
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(2..=1_000_000_000))]
    records: u32,
    /// Operations of each workload, by all threads
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    operations: u32,
    /// Threads, which share the operations
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// How often; the median run makes the row
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
}

impl YcsbArgs {
    /// The workloads, in the order in which they are run.
    pub(crate) fn workloads(&self) -> Result<Vec<YcsbWorkload>> {
        check_once("--workloads", &self.workloads)?;
        let wanted = |workload: &YcsbWorkload| self.workloads.contains(workload);
        Ok(YcsbWorkload::IN_ORDER.into_iter().filter(wanted).collect())
    }

    /// How much is done.
    pub(crate) fn load(&self) -> YcsbLoad {
        YcsbLoad {
            records: self.records,
            operations: self.operations,
            threads: self.threads,
        }
    }
}
