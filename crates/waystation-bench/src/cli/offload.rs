//! `waystation-bench offload` on the command line.

use super::{MAX_NUM, bytes, check_once, value_bytes};
use crate::error::{Error, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use waystation_drive::command::engine::EngineArgs;

/// What runs compactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecutorKind {
    /// The engine's own threads: once on one core, once on both
    Local,
    /// A worker on the second core
    Worker,
    /// The modelled drive, whose processor is the second core
    Drive,
    /// The compaction engine in hardware, simulated on the second core: slow, so give it few --data-bytes
    Rtl,
}

/// `waystation-bench offload`.
#[derive(Debug, Args)]
#[command(
    after_help = "Engine and clients run on one core, and so does what merges for them on another; beside that, the engine alone \
    on one core, which the ratios are of, and on both. Half of the puts fill the tree, the other half count: data many times the \
    memtables, so that merging is a steady part of the work.\n\n\
    Example:\n  waystation-bench offload --executors local,worker --value-bytes 100,1000 --runs 3 --json target/offload.json"
)]
pub(crate) struct OffloadArgs {
    /// What runs compactions, separated by commas; `local` is always among them
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "local,worker"
    )]
    executors: Vec<ExecutorKind>,
    /// Bytes of keys and values that count; as much fills the tree before
    #[arg(long, default_value = "400MB", value_parser = bytes)]
    pub(crate) data_bytes: u64,
    /// The length of every value; several, separated by commas, are run one after the other
    #[arg(long, value_delimiter = ',', default_value = "100,1000", value_parser = value_bytes)]
    value_bytes: Vec<usize>,
    /// The size of a memtable
    #[arg(long, default_value = "4MiB", value_parser = bytes)]
    memtable_bytes: u64,
    /// How often; the median makes the row
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Where the data lies; removed at the end
    #[arg(long, default_value = "target/bench-data")]
    pub(crate) data_dir: PathBuf,
    /// Write the report as JSON to this file (- for the standard output)
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

impl OffloadArgs {
    /// What runs compactions, `local` first.
    pub(crate) fn executors(&self) -> Result<Vec<ExecutorKind>> {
        check_once("--executors", &self.executors)?;
        let others = self.executors.iter().copied();
        let others = others.filter(|executor| *executor != ExecutorKind::Local);
        Ok([ExecutorKind::Local].into_iter().chain(others).collect())
    }

    /// The lengths of values, and how many puts count with each.
    pub(crate) fn loads(&self) -> Result<Vec<(usize, u32)>> {
        check_once("--value-bytes", &self.value_bytes)?;
        let load = |value_bytes: &usize| {
            let record_bytes = (crate::workload::KEY_BYTES + value_bytes) as u64;
            let num = u32::try_from(self.data_bytes / record_bytes).ok();
            let num = num.filter(|num| (1..=MAX_NUM).contains(&i64::from(*num)));
            let refused = || {
                let data_bytes = self.data_bytes;
                Error::Refused(format!(
                    "--data-bytes {data_bytes}: with values of {value_bytes} bytes that is no number of puts that can be run"
                ))
            };
            num.map(|num| (*value_bytes, num)).ok_or_else(refused)
        };
        self.value_bytes.iter().map(load).collect()
    }

    /// The size of a memtable.
    pub(crate) fn memtable_bytes(&self) -> usize {
        usize::try_from(self.memtable_bytes).unwrap_or(usize::MAX)
    }
}

/// What a process is told that merges for an engine.
#[derive(Debug, Args)]
pub(crate) struct MergerArgs {
    /// The socket to listen on
    pub(crate) socket: PathBuf,
    /// Where the databases lie
    pub(crate) allowed: PathBuf,
    /// What merges.
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: OffloadArgs,
    }

    fn args(flags: &[&str]) -> OffloadArgs {
        let flags = ["offload"].iter().chain(flags);
        Program::try_parse_from(flags).unwrap().args
    }

    #[test]
    fn the_engine_alone_is_always_measured_and_first() {
        let local_and = |other| vec![ExecutorKind::Local, other];
        let executors = |flags: &[&str]| args(flags).executors().unwrap();
        assert_eq!(executors(&[]), local_and(ExecutorKind::Worker));
        assert_eq!(
            executors(&["--executors", "rtl"]),
            local_and(ExecutorKind::Rtl)
        );
        let twice = args(&["--executors", "worker,worker"]);
        assert!(twice.executors().is_err());
    }

    #[test]
    fn as_many_puts_count_as_make_up_the_data() {
        let loads = args(&["--data-bytes", "116MB"]).loads().unwrap();
        assert_eq!(loads, [(100, 1_000_000), (1000, 114_173)]);
        for flags in [&["--data-bytes", "10"][..], &["--value-bytes", "100,100"]] {
            assert!(args(flags).loads().is_err(), "{flags:?}");
        }
    }
}
