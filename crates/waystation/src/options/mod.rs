//! Settings of a database: plain data, each with its user named.

use crate::background::DiskSizes;
use crate::error::{Error, Result};
use crate::lsm::version::may_be_named;
use crate::storage::Transfer;
use crate::storage::memory_bytes;
use std::time::Duration;
use waystation_format::log::UNIT_BYTES;
use waystation_format::order::Order;
use waystation_format::version_edit::BYTEWISE_COMPARATOR;

mod extractor;

pub use extractor::{Extractor, UnknownExtractor};
pub use waystation_format::table::Compression;

/// The longest key that is accepted (bytes).
pub const KEY_BYTES_MAX: usize = 1 << 20;
/// The longest value that is accepted (bytes).
pub const VALUE_BYTES_MAX: usize = 256 << 20;
/// The longest batch that is accepted, keys, values and framing together (bytes).
pub const BATCH_BYTES_MAX: usize = 512 << 20;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// No cache is larger: its tables are laid out by its size.
const CACHE_BYTES_MAX: usize = 1 << 40;

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

/// How one key is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutOptions {
    /// What the put survives. Default: the death of the process.
    pub durability: Durability,
    /// The time after which the key is gone, unless it is put again: counted in microseconds, rounded up. Default: none,
    /// it stays.
    ///
    /// The time is that of the wall clock when the database was opened; from then on it is counted, whatever the wall
    /// clock is set to. It does not go back for a database that is opened with a clock set back: an expired key that was
    /// purged by then (some seconds later) does not come back. Time in which the database is closed counts, time in
    /// which the machine sleeps with the database open does not. A snapshot's time stands still: it goes on seeing its
    /// keys, and holds back the space of keys that have expired since.
    pub time_to_live: Option<Duration>,
}

impl PutOptions {
    /// For a key that is gone after `time_to_live`.
    pub fn expiring(time_to_live: Duration) -> Self {
        Self {
            time_to_live: Some(time_to_live),
            ..Self::default()
        }
    }
}

/// How a database keeps the data of devices apart: in the upper level while they stay, in the tree once they have
/// settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Which part of a key names its device. The directory remembers it and is opened with no other.
    pub extractor: Extractor,
    /// How long a device stays in the upper level before it settles into the tree. Default: 5 minutes.
    /// It may be half as long again: devices wait for others to settle with. From 100 years on: until a budget presses.
    pub residency: Duration,
    /// Bytes of log that the upper level may take; from 80 % on the oldest devices settle early, from 90 % on writers are
    /// slowed down. Default: 8 GiB.
    pub upper_bytes: u64,
    /// Bytes of memory that its indexes may take; from 80 and 90 % on the same is done. Default: 256 MiB.
    pub index_bytes: u64,
    /// Bytes of log that an opening may have to read for the upper level, about; or half of what that needs, if it is more.
    /// Its indexes are saved to the file `INDEXES` as often as it takes. Default: 4 GiB, some four seconds.
    pub replay_bytes: u64,
    /// A device that was not written to for this long departs by itself. At least 100 ms; from 100 years on, none does.
    /// Default: none does.
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
/// Longer durations are taken for this one: for ever, and still a number in every unit, alone or added to the time.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

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
    /// Writes are gathered in memory up to this size before they become a table. 64 KiB to 3 GiB. Default: 32 MiB.
    pub memtable_bytes: usize,
    /// The uncompressed size of a table's block, the unit of reading. 1 KiB to 4 MiB. Default: 4 KiB, as `LevelDB`.
    pub block_bytes: usize,
    /// The size of the tables that compaction writes. 64 KiB to 1 GiB. Default: 8 MiB.
    pub table_bytes: usize,
    /// How blocks are compressed. Default: snappy.
    pub compression: Compression,
    /// Bits a key in a table's filter, up to 64; 0 for no filters. Default: 10, about 1 % false positives.
    pub filter_bits_per_key: u32,
    /// Memory for uncompressed blocks. Default: a 64th of what the machine has (or the control group may use),
    /// from 8 to 256 MiB; at most 1 TiB.
    pub cache_bytes: usize,
    /// The staging ring of the log: the end of the log that has not reached its segment. 256 KiB to 1 GiB, a multiple of
    /// 4 KiB. Default: 16 MiB.
    pub ring_bytes: usize,
    /// The size of the log's segment files. 256 KiB to 4 GiB, a multiple of 4 KiB. Default: 64 MiB.
    pub log_segment_bytes: usize,
    /// Compactions at once, 1 to 64. All databases of a process share the threads: as many as the one that asks for most, or one a
    /// processor. Default: 2.
    pub background_jobs: usize,
    /// Tables kept open, 16 to 1,048,576. Default: 1,000.
    pub max_open_tables: usize,
    /// Write the log around the page cache where the file system allows it. (Tables go through it: they are read soon.)
    /// Default: true.
    pub direct_io: bool,
    /// How keys are ordered: by their bytes, or as a program says. The directory remembers the name of the order and is
    /// opened with no other. In a program's own order there are neither devices nor times to live nor prefixes, as all of
    /// these are of bytes; nor filters, which could tell keys apart that compare equal; nor a `deletion_deadline`, as keys
    /// are deleted by entries of tables. Default: by their bytes.
    pub order: Order,
    /// Keep the data of devices apart. Default: no, every key lives in the tree.
    pub devices: Option<DeviceOptions>,
    /// How long, at most, something that was deleted may stay in tables and in the part of the log that is needed;
    /// snapshots hold it back. Purging sooner than space and readers ask for costs writing. At least 100 ms; from 100
    /// years on, and by default, there is no limit.
    pub deletion_deadline: Option<Duration>,
    /// What all files of the database together may take (bytes). Nothing passes it: short of it, writers hear
    /// [`Error::DiskFull`], and what leaves goes on. A new database is refused that has no room to work in: about five
    /// times the ring, two memtables, nine short segments (a 16th of a segment, at least 256 KiB) and, with devices, up to 64
    /// MiB to settle in; the error names the number. A write of more than half a ring needs its bytes twice. Default: no limit.
    pub disk_bytes_max: Option<u64>,
    /// Memory for deleted keys that hide something in tables still. Beyond half of it, all of that is purged, however
    /// little of a table it is; what does not fit then, as snapshots hold it back, goes to files, and so do keys with a
    /// time to live beyond an eighth. At most 2 GiB. Default: 64 MiB.
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
            order: Order::Bytewise,
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

    /// What the disk reserve is measured by.
    pub(crate) fn disk_sizes(&self) -> DiskSizes {
        DiskSizes {
            memtable_bytes: self.memtable_bytes as u64,
            ring_bytes: self.ring_bytes as u64,
            segment_bytes: self.log_segment_bytes as u64,
            limit: self.disk_bytes_max.unwrap_or(u64::MAX),
            has_devices: self.devices.is_some(),
        }
    }

    /// The same, every field within its documented range.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a field that is not and cannot be taken for one that is.
    pub(crate) fn checked(mut self) -> Result<Self> {
        self.validate()?;
        self.deletion_deadline = self.deletion_deadline.map(|it| it.min(FOR_EVER));
        if let Some(devices) = &mut self.devices {
            devices.residency = devices.residency.min(FOR_EVER);
            devices.idle_departure = devices.idle_departure.map(|it| it.min(FOR_EVER));
        }
        Ok(self)
    }

    /// Checks the order of keys, and what is not asked for beside it.
    fn validate_order(&self) -> Result<()> {
        if self.order.is_bytewise() {
            return Ok(());
        }
        let name = self.order.name();
        let refuse = |reason: &str| {
            let reason = format!("the keys are to be ordered by {name:?}, {reason}");
            Err(Error::InvalidArgument(reason))
        };
        if name == BYTEWISE_COMPARATOR {
            return refuse("which is the name of the order of bytes; give the comparator another");
        }
        if !may_be_named(name) {
            return refuse("which is no name for a comparator: it is empty, or the engine's own");
        }
        if self.devices.is_some() {
            return refuse(
                "but a device's keys are those with its prefix, in the order of bytes; open the database without devices",
            );
        }
        if self.deletion_deadline.is_some() {
            return refuse("in which deletions are entries of tables, and have no deadline");
        }
        Ok(())
    }

    /// Checks every field against its documented range.
    fn validate(&self) -> Result<()> {
        self.check_sizes()?;
        self.validate_order()?;
        let rate = self.compaction_bytes_per_second;
        if (1..MIB).contains(&rate) {
            return Err(Error::InvalidArgument(format!(
                "compaction_bytes_per_second is {rate}; it must be 0 (no limit) or at least {MIB}"
            )));
        }
        let idle = self.devices.as_ref().and_then(|it| it.idle_departure);
        for (name, duration) in [
            ("deletion_deadline", self.deletion_deadline),
            ("idle_departure", idle),
        ] {
            if let Some(duration) = duration.filter(|it| *it < DEADLINE_MIN) {
                return Err(Error::InvalidArgument(format!(
                    "{name} is {duration:?}; it must be at least {DEADLINE_MIN:?}"
                )));
            }
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<()> {
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
            ("cache_bytes", self.cache_bytes, 0, CACHE_BYTES_MAX),
            ("graves_bytes", self.graves_bytes, 0, 2048 * MIB),
        ];
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
