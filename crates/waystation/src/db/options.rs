//! Settings of a database: plain data, each with its user named.

use crate::device::Extractor;
use crate::error::{Error, Result};
use crate::storage::Transfer;
use crate::storage::memory_bytes;
use std::time::Duration;
use waystation_format::log::UNIT_BYTES;

pub use waystation_format::table::Compression;

/// The longest key that is accepted (bytes).
pub const KEY_BYTES_MAX: usize = 1 << 20;
/// The longest value that is accepted (bytes).
pub const VALUE_BYTES_MAX: usize = 256 << 20;
/// The longest batch that is accepted, keys, values and framing together (bytes).
pub const BATCH_BYTES_MAX: usize = 512 << 20;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// What a write survives once it was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The death of the process (kill -9, a panic); not of the machine. The promise of `LevelDB` and `RocksDB`
    /// with sync off.
    #[default]
    ProcessCrash,
    /// A power loss too: the log is synced first, one sync for all that wait.
    PowerLoss,
}

/// How a database keeps the data of devices apart: in the upper level while they stay, in the tree once they have
/// settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Which part of a key names its device. The directory remembers it and is opened with no other.
    pub extractor: Extractor,
    /// How long a device stays in the upper level before it settles into the tree. Default: 5 minutes.
    /// It may be half as long again: devices wait for others to settle with.
    pub residency: Duration,
    /// Bytes of log that the upper level may take; from 80 % on the oldest devices settle early, from 90 % on writers are
    /// slowed down. Default: 8 GiB.
    pub upper_bytes: u64,
    /// Bytes of memory that its indexes may take; from 80 and 90 % on the same is done. Default: 256 MiB.
    pub index_bytes: u64,
    /// Bytes of log that an opening may have to read for the upper level, about; or half of what that needs, if it is more.
    /// Its indexes are saved to the file `INDEXES` as often as it takes. Default: 4 GiB, some four seconds.
    pub replay_bytes: u64,
    /// A device that was not written to for this long departs by itself. Default: none does.
    pub idle_departure: Option<Duration>,
}

impl DeviceOptions {
    /// The defaults for devices that `extractor` names.
    pub fn new(extractor: Extractor) -> Self {
        Self {
            extractor,
            residency: Duration::from_secs(300),
            upper_bytes: 8 << 30,
            index_bytes: 256 << 20,
            replay_bytes: 4 << 30,
            idle_departure: None,
        }
    }
}

/// No deadline is shorter than a few looks of the background threads.
const DEADLINE_MIN: Duration = Duration::from_millis(100);

/// How a database is opened. `Options::default()` suits a small machine with a flash drive.
///
/// ```
/// let options = waystation::Options { memtable_bytes: 8 << 20, ..Default::default() };
/// assert!(options.create_if_missing);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Create the database if there is none. Default: true.
    pub create_if_missing: bool,
    /// Refuse to open a database that exists. Default: false.
    pub error_if_exists: bool,
    /// Writes are gathered in memory up to this size before they become a table. Default: 32 MiB.
    pub memtable_bytes: usize,
    /// The uncompressed size of a table's block, the unit of reading. Default: 4 KiB, as `LevelDB`.
    pub block_bytes: usize,
    /// The size of the tables that compaction writes. Default: 8 MiB.
    pub table_bytes: usize,
    /// How blocks are compressed. Default: snappy.
    pub compression: Compression,
    /// Bits a key in a table's filter; 0 for no filters. Default: 10, about 1 % false positives.
    pub filter_bits_per_key: u32,
    /// Memory for uncompressed blocks. Default: a 64th of what the machine has (or the control group may use),
    /// from 8 to 256 MiB.
    pub cache_bytes: usize,
    /// The staging ring of the log: the end of the log that has not reached its segment. Default: 16 MiB.
    pub ring_bytes: usize,
    /// The size of the log's segment files. Default: 64 MiB.
    pub log_segment_bytes: usize,
    /// Threads that compact. Default: 2.
    pub background_jobs: usize,
    /// Tables kept open. Default: 1,000.
    pub max_open_tables: usize,
    /// Write the log around the page cache where the file system allows it. (Tables go through it: they are read soon.)
    /// Default: true.
    pub direct_io: bool,
    /// Keep the data of devices apart. Default: no, every key lives in the tree.
    pub devices: Option<DeviceOptions>,
    /// How long, at most, something that was deleted may stay in tables and in the part of the log that is needed;
    /// snapshots hold it back. Purging sooner than space and readers ask for costs writing. At least 100 ms. Default:
    /// no limit.
    pub deletion_deadline: Option<Duration>,
    /// What all files of the database together may take (bytes). Nothing passes it: short of it, writers hear
    /// [`Error::DiskFull`], and what leaves goes on. At least the ring and twice what is kept free for that (two
    /// segments, two memtables, and up to 64 MiB to settle in). Default: no limit.
    pub disk_bytes_max: Option<u64>,
    /// Memory for deleted keys that hide something in tables still. Beyond half of it, all of that is purged, however
    /// little of a table it is; what does not fit then, as snapshots hold it back, goes to files, and so do keys with a
    /// time to live beyond an eighth. Default: 64 MiB.
    pub graves_bytes: usize,
    /// What compactions may write per second, all together, where a device is shared with others; flushes are
    /// not held back. 0 for no limit; at least 1 MiB. Too low a limit slows writers down. Default: 0.
    pub compaction_bytes_per_second: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create_if_missing: true,
            error_if_exists: false,
            memtable_bytes: 32 * MIB,
            block_bytes: 4 * KIB,
            table_bytes: 8 * MIB,
            compression: Compression::Snappy,
            filter_bits_per_key: 10,
            cache_bytes: default_cache_bytes(),
            ring_bytes: 16 * MIB,
            log_segment_bytes: 64 * MIB,
            background_jobs: 2,
            max_open_tables: 1000,
            direct_io: true,
            devices: None,
            deletion_deadline: None,
            graves_bytes: 64 * MIB,
            disk_bytes_max: None,
            compaction_bytes_per_second: 0,
        }
    }
}

fn default_cache_bytes() -> usize {
    usize::try_from(memory_bytes() / 64).map_or(256 * MIB, |share| share.clamp(8 * MIB, 256 * MIB))
}

impl Options {
    /// How the log and tables are written.
    pub(crate) fn transfer(&self) -> Transfer {
        if self.direct_io {
            Transfer::Direct
        } else {
            Transfer::Buffered
        }
    }

    /// Checks every field against its documented range.
    pub(crate) fn validate(&self) -> Result<()> {
        let ranges = [
            ("memtable_bytes", self.memtable_bytes, 64 * KIB, 3072 * MIB),
            ("block_bytes", self.block_bytes, KIB, 4 * MIB),
            ("table_bytes", self.table_bytes, 64 * KIB, 1024 * MIB),
            (
                "filter_bits_per_key",
                self.filter_bits_per_key as usize,
                0,
                64,
            ),
            ("ring_bytes", self.ring_bytes, 256 * KIB, 1024 * MIB),
            (
                "log_segment_bytes",
                self.log_segment_bytes,
                256 * KIB,
                4096 * MIB,
            ),
            ("background_jobs", self.background_jobs, 1, 64),
            ("max_open_tables", self.max_open_tables, 16, 1 << 20),
        ];
        let rate = self.compaction_bytes_per_second;
        if (1..MIB).contains(&rate) {
            return Err(Error::InvalidArgument(format!(
                "compaction_bytes_per_second is {rate}; it must be 0 (no limit) or at least {MIB}"
            )));
        }
        if let Some(deadline) = self.deletion_deadline
            && deadline < DEADLINE_MIN
        {
            return Err(Error::InvalidArgument(format!(
                "deletion_deadline is {deadline:?}; it must be at least {DEADLINE_MIN:?}"
            )));
        }
        let needed = self.ring_bytes as u64 + 2 * super::room::kept_bytes(self);
        if let Some(limit) = self.disk_bytes_max.filter(|limit| *limit < needed) {
            return Err(Error::InvalidArgument(format!(
                "disk_bytes_max is {limit}; with these sizes of ring, segments and memtables the engine needs {needed}"
            )));
        }
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(Error::InvalidArgument(format!(
                    "{name} is {value}; it must lie between {low} and {high}"
                )));
            }
        }
        for (name, value) in [
            ("ring_bytes", self.ring_bytes),
            ("log_segment_bytes", self.log_segment_bytes),
        ] {
            if value % UNIT_BYTES != 0 {
                return Err(Error::InvalidArgument(format!(
                    "{name} is {value}; it must be a multiple of {UNIT_BYTES}"
                )));
            }
        }
        Ok(())
    }
}
