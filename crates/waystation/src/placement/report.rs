//! What users see of the fast tier: what lies there, what that gains, and what other capacities would gain. An open database
//! has it in its statistics, and writes it to the file `PLACEMENT` now and then, for tools.

use super::meters::AreaReads;
use super::table_share::TableShare;
use super::text;
use super::tier::Tier;
use crate::directory::{PLACEMENT_DRAFT, PLACEMENT_NAME};
use crate::error::Result;
use crate::storage::{Area, Storage};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::lock;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use waystation_planner::division::Division;
use waystation_planner::heat::Histogram;

/// What lies in the fast directory, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacementStats {
    /// The fast directory.
    pub directory: PathBuf,
    /// The most bytes that may lie there.
    pub capacity_bytes: u64,
    /// The most that fit there now: less if the directory has no room.
    pub usable_bytes: u64,
    /// The blocks that lie there.
    pub placed_blocks: u64,
    /// The bytes of their places.
    pub placed_bytes: u64,
    /// Why the database goes on without the directory, or has until a moment ago.
    pub failure: Option<String>,
    /// The log's share of it; `None` if segments of the log may not lie there.
    #[serde(default)]
    pub log: Option<LogPlacement>,
    /// The tables there; `None` if tables may not lie there alone.
    #[serde(default)]
    pub tables: Option<TablePlacement>,
    /// Blocks get a place from this heat on: about so many slow reads since the heat was halved.
    pub threshold: u8,
    /// Copies that were not what was written; the main directory was read.
    pub damaged: u64,
    /// Tables and spilled graves.
    pub areas: Vec<AreaPlacement>,
    /// Half the capacity, all of it, and twice as much.
    pub predictions: Vec<PlacementPrediction>,
    /// The last decisions, the oldest first.
    pub decisions: Vec<PlacementDecision>,
}

/// What the log has of a fast directory that is [`durable`](super::FastTier::durable).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LogPlacement {
    /// The most bytes that its segments may take now.
    pub quota_bytes: u64,
    /// The length of the staging ring, if it lies there.
    #[serde(default)]
    pub ring_bytes: u64,
    /// The segments that lie there.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Bytes that were written there since the database was opened.
    pub fast_bytes: u64,
    /// Bytes of the log that were written to the main directory since then.
    pub main_bytes: u64,
    /// How long a mebibyte takes there (seconds); 0 until there was one.
    pub fast_seconds_per_mib: f64,
    /// How long a mebibyte takes in the main directory (seconds); 0 until there was one.
    pub main_seconds_per_mib: f64,
    /// What the segments there have spared (seconds).
    pub saved_seconds: f64,
}

/// The tables that lie in a fast directory which is [`durable`](super::FastTier::durable), and nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePlacement {
    /// The tables that lie there.
    pub tables: u64,
    /// Their bytes.
    pub table_bytes: u64,
    /// Tables that were moved to the main directory since the database was opened.
    pub moved: u64,
}

/// The part of an area, and how its reads went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AreaPlacement {
    /// The area.
    pub area: Area,
    /// Its copies.
    pub placed_blocks: u64,
    /// The files that were read, in all (bytes).
    pub file_bytes: u64,
    /// Reads that the fast directory served.
    pub fast_reads: u64,
    /// Reads of the main directory that its device served: slow ones.
    pub slow_reads: u64,
    /// Reads of the main directory that memory served.
    pub cached_reads: u64,
    /// How long a read of the fast directory takes, on average (microseconds).
    pub fast_us: f64,
    /// How long a slow read takes, on average (microseconds).
    pub slow_us: f64,
    /// What the copies have spared (seconds).
    pub saved_seconds: f64,
}

/// What a capacity is worth for the reads of now.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlacementPrediction {
    /// The capacity.
    pub capacity_bytes: u64,
    /// The share of reads, without the ones that memory serves, that the fast directory would serve, from 0 to 1.
    pub share: f64,
    /// The seconds that a thousand such reads would take.
    pub seconds_per_1000: f64,
}

/// What a round of planning found and decided.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlacementDecision {
    /// When, in seconds since the database was opened.
    pub seconds: f64,
    /// The heat that gets a place from then on.
    pub threshold: u8,
    /// Blocks that had been read slowly, at least once.
    pub warm_blocks: u64,
    /// What had a place then (bytes).
    pub placed_bytes: u64,
    /// The share of reads that the hottest parts within the capacity would serve, from 0 to 1.
    pub expected_share: f64,
    /// The division between log and copies, if this decision changed it.
    #[serde(default)]
    pub division: Option<Division>,
}

impl PlacementStats {
    /// Reads what the database in `directory` wrote last. `None`: it has had no fast tier.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it is damaged, [`Error::Io`].
    pub fn read(storage: &dyn Storage, directory: &Path) -> Result<Option<Self>> {
        text::read(storage, &directory.join(PLACEMENT_NAME))
    }
}

impl Tier {
    /// What lies there now.
    pub(crate) fn stats(&self) -> PlacementStats {
        let planner = lock(&self.planner);
        let (placed_blocks, placed_bytes) = self.slabs.placed();
        let capacity_bytes = self.options.capacity_bytes;
        let capacities = [
            capacity_bytes / 2,
            capacity_bytes,
            capacity_bytes.saturating_mul(2),
        ];
        PlacementStats {
            directory: self.options.directory.clone(),
            capacity_bytes,
            usable_bytes: self.slabs.usable_bytes(),
            placed_blocks,
            placed_bytes,
            failure: self.health.reason(),
            log: self.log_share().map(|it| it.stats(self.ring.length())),
            tables: self.tables().map(TableShare::stats),
            threshold: self.threshold.load(Relaxed),
            damaged: self.damaged.load(Relaxed),
            areas: self.area_stats(),
            predictions: capacities
                .map(|bytes| self.prediction(&planner.histogram, bytes))
                .to_vec(),
            decisions: planner.decisions.iter().copied().collect(),
        }
    }

    fn area_stats(&self) -> Vec<AreaPlacement> {
        let files = self.files();
        let of = |(area, reads): (Area, &AreaReads)| {
            let own = || files.iter().filter(|it| it.area == area);
            AreaPlacement {
                area,
                placed_blocks: own().map(|it| it.placed()).sum(),
                file_bytes: own().map(|it| it.bytes).sum(),
                fast_reads: reads.fast.count(),
                slow_reads: reads.slow.count(),
                cached_reads: reads.cached.count(),
                fast_us: micros(reads.fast.mean_ns()),
                slow_us: micros(reads.slow.mean_ns()),
                saved_seconds: reads.saved_seconds(),
            }
        };
        self.meters.areas().into_iter().map(of).collect()
    }

    fn prediction(&self, histogram: &Histogram, capacity_bytes: u64) -> PlacementPrediction {
        let share = histogram.share(self.capacity_blocks(capacity_bytes));
        let (fast, slow) = (
            micros(self.meters.fast_mean_ns()),
            micros(self.meters.slow_mean_ns()),
        );
        PlacementPrediction {
            capacity_bytes,
            share,
            seconds_per_1000: (share * fast + (1.0 - share) * slow) / 1e3,
        }
    }

    /// Writes the report for tools. A report that cannot be written is not worth an error.
    pub(super) fn write_report(&self) {
        let names = (PLACEMENT_DRAFT, PLACEMENT_NAME);
        if let Err(error) = text::write(&*self.storage, &self.main, names, &self.stats()) {
            log::info!("the report of the fast tier is not written: {error}");
        }
    }
}

fn micros(nanos: Option<u64>) -> f64 {
    nanos.map_or(0.0, |nanos| {
        std::time::Duration::from_nanos(nanos).as_secs_f64() * 1e6
    })
}
