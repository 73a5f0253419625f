//! `waystation-bench iot` on the command line.

use super::{Common, RawArgs};
use crate::error::{Error, Result};
use crate::workload::{IotLoad, IotMode, IotValues};
use clap::Args;

/// More than anybody offers of what an engine can take.
const MAX_OPEN_LOOP: f64 = 4.0;

/// `waystation-bench iot`.
#[derive(Debug, Args)]
#[command(
    after_help = "12,000 devices (the client of a key, its bytes before the first ':') write 1,000-byte readings, all at \
    the same rate, as fast as the engine takes them. Residency T is a fifth of the run. Devices that leave dwell 0.1 to \
    0.9 T and are deleted at once by the client that wrote for them; the others write for 1.5 T and are not deleted.\n\n\
    --mode kit: 160 sensors, timestamps that count, two range queries with every 20,000 inserts. --mode spec: 200 sensors, \
    timestamps by the clock, five queries of two windows with every 10,000 inserts, half of them for devices that have \
    settled. The specification's 20 readings a second and sensor are there with so many devices that each gets 4,000 inserts \
    a second (--devices 96 for 384,000).\n\n\
    --open-loop F: after each run at full speed another one, that offers F times what the first one took; latency runs \
    from the time at which an insert was due. It has a row of its own.\n\n\
    Example:\n  waystation-bench iot --engines waystation,leveldb,rocksdb --threads 12 --seconds 20 --departing 0.9 \
    --runs 3 --json target/iot.json"
)]
pub(crate) struct IotArgs {
    /// Engines and place.
    #[command(flatten)]
    pub(crate) common: Common,
    /// Whose keys, sensors and queries
    #[arg(long, value_enum, default_value_t = IotMode::Kit)]
    mode: IotMode,
    /// What the values are
    #[arg(long, value_enum, default_value_t = IotValues::Random)]
    values: IotValues,
    /// Devices that are there at any time
    #[arg(long, default_value_t = 12_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    devices: u32,
    /// Client threads
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// For how long inserts go on; a fifth of it is the residency
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// The share of the devices that leave before they settle
    #[arg(long, default_value_t = 0.9)]
    departing: f64,
    /// Whether an insert is acknowledged only when it survives a power cut
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set)]
    sync: bool,
    /// After each run also offer so many times its inserts per second, whatever the engine takes
    #[arg(long, value_name = "F")]
    pub(crate) open_loop: Option<f64>,
    /// Records of one device that a client writes at once, as one batch; each client writes for one device after the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// How often; the median run makes the row
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// How the raw device is measured.
    #[command(flatten)]
    pub(crate) raw: RawArgs,
}

impl IotArgs {
    /// What each worker is to do at full speed.
    pub(crate) fn load(&self) -> Result<IotLoad> {
        let refused = |message: String| Err(Error::Refused(message));
        if !(0.0..=1.0).contains(&self.departing) {
            let departing = self.departing;
            return refused(format!(
                "--departing {departing}: a share lies between 0 and 1"
            ));
        }
        if self.devices < self.threads {
            let (devices, threads) = (self.devices, self.threads);
            return refused(format!(
                "--devices {devices}: each of the {threads} threads needs one of its own"
            ));
        }
        if let Some(share) = self.open_loop
            && !(share > 0.0 && share <= MAX_OPEN_LOOP)
        {
            return refused(format!(
                "--open-loop {share}: offer more than 0 and at most {MAX_OPEN_LOOP} times the maximum"
            ));
        }
        Ok(IotLoad {
            mode: self.mode,
            values: self.values,
            devices: self.devices,
            threads: self.threads,
            seconds: self.seconds,
            departing: self.departing,
            sync: self.sync,
            offered_per_s: None,
            batch: self.batch,
        })
    }
}
