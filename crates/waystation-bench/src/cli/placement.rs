//! `waystation-bench placement` on the command line.

use super::{Common, check_once};
use crate::engines::EngineKind;
use crate::error::{Error, Result};
use crate::tiers::{Backing, Policy, RigSettings, SlowDevice, Throttle};
use crate::workload::{IotLoad, IotMode, IotValues, YcsbLoad, YcsbWorkload};
use clap::Args;
use waystation_advisor::simulate::DeviceModel;

/// Devices that are there at any time, and the share of them that leave before they settle.
const DEVICES: u32 = 1_000;
const DEPARTING: f64 = 0.9;

/// `waystation-bench placement`.
#[derive(Debug, Args)]
#[command(
    after_help = "The slow device is a loop device that the kernel throttles, the fast one is zram; both are made for the run \
    and taken down after it, which needs root, and control groups of version 1. With --emulate the slow device answers as a \
    model of one would. The engine's process has little memory. Records of 1 kB are loaded (ingest), then workloads of YCSB \
    follow on them, or devices write in their place.\n\n\
    Example:\n  waystation-bench placement --engines waystation,rocksdb --shares 0.05,0.2 --json target/placement.json"
)]
pub(crate) struct PlacementArgs {
    /// Engines and place.
    #[command(flatten)]
    pub(crate) common: Common,
    /// What lies on the fast device, separated by commas; RocksDB has none, journal and levels
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "none,own,durable,journal,tables,levels,cache"
    )]
    policies: Vec<Policy>,
    /// Parts of the data that may lie on the fast device, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "0.01,0.05,0.2")]
    shares: Vec<f64>,
    /// Workloads after the load, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "c,a")]
    workloads: Vec<YcsbWorkload>,
    /// After the workloads, delete all records; give the sum of all loads as a row of its own
    #[arg(long)]
    pub(crate) phases: bool,
    /// After the workloads, delete nine in ten records below a cursor from before, and scan what is left
    #[arg(long, conflicts_with = "phases")]
    pub(crate) graves: bool,
    /// In place of records and workloads: devices that come, settle or leave for so many seconds, as `iot` has them. The row's
    /// seconds are those of as many inserts as there would be --records
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["workloads", "phases", "graves"],
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    devices: Option<u32>,
    /// Leave no more room on the fast device than the part of the data. An engine that does not keep to its part finds the device
    /// full, which may end the run
    #[arg(long)]
    pub(crate) confined: bool,
    /// Records that are loaded
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(10_000..=100_000_000))]
    records: u32,
    /// Operations of each workload
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000_000))]
    operations: u32,
    /// Reads, and writes, that the slow device does in a second
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    slow_iops: u32,
    /// Megabytes that it reads, and writes, in a second
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    slow_mb: u32,
    /// Where the throttled device's content lies
    #[arg(long, value_enum, default_value = "disk", conflicts_with = "emulate")]
    slow_on: Backing,
    /// In place of the throttled device, emulate one: a preset of `waystation place` (hdd, sata-ssd, ...), or a file that
    /// describes a machine; its data lies in memory
    #[arg(long, conflicts_with_all = ["slow_iops", "slow_mb"])]
    emulate: Option<String>,
    /// Megabytes of memory of the engine's process, the page cache for its files included
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(64..=100_000))]
    memory_mb: u32,
    /// Repeat a run, three times at most, if the hypervisor took away more than this part of the processors' time during one of
    /// its loads
    #[arg(long, value_name = "PART", default_value_t = 0.05, value_parser = part)]
    pub(crate) stolen_max: f64,
    /// How often; the median run makes the row
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("a part is from 0 to 1, e.g. 0.05".to_owned()),
    }
}

impl PlacementArgs {
    /// The engines: the ones named, or all that use two devices.
    pub(crate) fn engines(&self) -> Result<Vec<EngineKind>> {
        let mut engines = self.common.engines()?;
        if !self.common.names_engines() {
            engines.retain(|engine| engine.knows_tiers());
        }
        match engines.iter().find(|engine| !engine.knows_tiers()) {
            Some(engine) => Err(Error::Refused(format!(
                "--engines: {engine} knows one directory alone; name waystation or rocksdb"
            ))),
            None => Ok(engines),
        }
    }

    /// What lies on the fast device.
    pub(crate) fn policies(&self) -> Result<&[Policy]> {
        check_once("--policies", &self.policies)?;
        Ok(&self.policies)
    }

    /// The parts of the data.
    pub(crate) fn shares(&self) -> Result<&[f64]> {
        if self
            .shares
            .iter()
            .all(|share| (0.001..=1.0).contains(share))
        {
            return Ok(&self.shares);
        }
        Err(Error::Refused(
            "--shares has one that is not between 0.001 and 1".to_owned(),
        ))
    }

    /// The workloads, in YCSB's order.
    pub(crate) fn workloads(&self) -> Result<Vec<YcsbWorkload>> {
        check_once("--workloads", &self.workloads)?;
        if self.workloads.iter().any(|it| it.needs_fresh_records()) {
            return Err(Error::Refused(
                "--workloads: scans need records of their own; name others".to_owned(),
            ));
        }
        Ok(self.workloads.clone())
    }

    /// How much is done.
    pub(crate) fn load(&self) -> YcsbLoad {
        YcsbLoad {
            records: self.records,
            operations: self.operations,
            threads: 1,
        }
    }

    /// The devices that write, if they do.
    pub(crate) fn devices(&self) -> Option<IotLoad> {
        self.devices.map(|seconds| IotLoad {
            mode: IotMode::Kit,
            values: IotValues::Random,
            devices: DEVICES,
            threads: 1,
            seconds,
            departing: DEPARTING,
            sync: false,
            offered_per_s: None,
            batch: 1,
        })
    }

    /// The bytes that the records take, about.
    pub(crate) fn data_bytes(&self) -> u64 {
        u64::from(self.records) * crate::workload::YCSB_RECORD_BYTES as u64
    }

    /// The devices.
    pub(crate) fn rig(&self) -> Result<RigSettings> {
        let throttle = Throttle {
            iops: self.slow_iops,
            bytes_per_s: u64::from(self.slow_mb) * 1_000_000,
        };
        let slow = match &self.emulate {
            None => SlowDevice::Throttled(throttle, self.slow_on),
            Some(name) => {
                let model = DeviceModel::named(name);
                SlowDevice::Emulated(model.map_err(|error| Error::Refused(error.to_string()))?)
            }
        };
        // What devices may write in their time, twice.
        let by_devices = 2 * throttle.bytes_per_s * u64::from(self.devices.unwrap_or_default());
        Ok(RigSettings {
            slow_bytes: self.data_bytes() * 5 + by_devices + (1 << 30),
            fast_bytes: self.data_bytes() + (256 << 20),
            slow,
            memory_bytes: u64::from(self.memory_mb) << 20,
        })
    }
}
