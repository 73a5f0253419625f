//! `waystation-bench depart` on the command line.

use super::{Common, MAX_NUM, value_bytes};
use crate::error::{Error, Result};
use crate::workload::DepartureLoad;
use clap::Args;

/// `waystation-bench depart`.
#[derive(Debug, Args)]
#[command(
    after_help = "A device is filled with records; other devices then write at a rate that is offered whatever the engine does, \
    and in the middle of that the large one departs (or is deleted in the engine's best way). The call is timed, and the others' \
    puts from when they were due: in the seconds before, in the second after the call began, and in the seconds after it.\n\n\
    Example:\n  waystation-bench depart --engines waystation,rocksdb --records 1000000 --threads 4 --seconds 20 --runs 3"
)]
pub(crate) struct DepartArgs {
    /// Engines and place.
    #[command(flatten)]
    pub(crate) common: Common,
    /// Records of the device that departs
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=MAX_NUM))]
    records: u32,
    /// The length of every value
    #[arg(long, default_value = "1000", value_parser = value_bytes)]
    value_bytes: usize,
    /// Threads that write for other devices
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// For how long they write
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=86_400))]
    seconds: u32,
    /// What they offer, of what the engine takes at full speed
    #[arg(long, default_value_t = 0.5, value_name = "F")]
    open_loop: f64,
    /// Let the device settle before
    #[arg(long)]
    settled: bool,
    /// How often; the median run by the length of the call makes the row
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
}

impl DepartArgs {
    /// What each worker is to do.
    pub(crate) fn load(&self) -> Result<DepartureLoad> {
        let share = self.open_loop;
        if !(share > 0.0 && share < 1.0) {
            return Err(Error::Refused(format!(
                "--open-loop {share}: offer more than nothing, and less than all the engine takes"
            )));
        }
        Ok(DepartureLoad {
            records: self.records,
            value_bytes: self.value_bytes,
            threads: self.threads,
            seconds: self.seconds,
            open_loop: share,
            settled: self.settled,
        })
    }
}
