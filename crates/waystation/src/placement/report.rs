//! What users see of the fast tier: what lies there, what that gains, and what other capacities would gain. An open database
//! has it in its statistics, and writes it to the file `PLACEMENT` now and then, for tools.

use super::meters::AreaReads;
use super::tier::Tier;
use crate::directory::{PLACEMENT_DRAFT, PLACEMENT_NAME, read_file};
use crate::error::{Error, Result};
use crate::storage::{Area, OpenMode, Storage, Transfer};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::lock;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use waystation_format::checksum::crc32c;
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
}

impl PlacementStats {
    /// Reads what the database in `directory` wrote last. `None`: it has had no fast tier.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it is damaged, [`Error::Io`].
    pub fn read(storage: &dyn Storage, directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(PLACEMENT_NAME);
        let content = match read_file(storage, &path) {
            Err(error) if error.is_not_found() => return Ok(None),
            content => content?,
        };
        let damaged = |reason: &str| Error::corruption(&path, 0, reason);
        let text = std::str::from_utf8(&content).map_err(|_| damaged("it is no text"))?;
        let mut lines = text.lines();
        let (Some(json), Some(sum)) = (lines.next(), lines.next()) else {
            return Err(damaged("it has no checksum"));
        };
        if u32::from_str_radix(sum, 16) != Ok(crc32c(json.as_bytes())) {
            return Err(damaged("its checksum is wrong"));
        }
        let stats = serde_json::from_str(json);
        stats.map(Some).map_err(|error| damaged(&error.to_string()))
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
            usable_bytes: self.slabs.limit_bytes(),
            placed_blocks,
            placed_bytes,
            failure: self.health.reason(),
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
        let Ok(json) = serde_json::to_string(&self.stats()) else {
            return;
        };
        let content = format!("{json}\n{:08x}\n", crc32c(json.as_bytes()));
        let draft = self.main.join(PLACEMENT_DRAFT);
        let written = self
            .storage
            .open(&draft, OpenMode::Create, Transfer::Buffered, Area::Tables)
            .and_then(|file| {
                file.write_at(content.as_bytes(), 0)
                    .and_then(|()| file.sync())
            })
            .and_then(|()| self.storage.rename(&draft, &self.main.join(PLACEMENT_NAME)));
        if let Err(error) = written {
            log::info!("the report of the fast tier is not written: {error}");
        }
    }
}

fn micros(nanos: Option<u64>) -> f64 {
    nanos.map_or(0.0, |nanos| {
        std::time::Duration::from_nanos(nanos).as_secs_f64() * 1e6
    })
}
