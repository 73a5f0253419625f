//! Settings of a database: plain data, each with its user named.

use crate::background::DiskSizes;
use crate::error::{Error, Result};
use crate::lsm::compaction::offload::Offload;
use crate::lsm::version::may_be_named;
use crate::placement::FastTier;
use crate::storage::Transfer;
use crate::storage::memory_bytes;
use std::ops::RangeInclusive;
use std::time::Duration;
use unit::{GiB, KiB, MiB, TiB};
use waystation_format::log::UNIT_BYTES;
use waystation_format::order::Order;
use waystation_format::version_edit::BYTEWISE_COMPARATOR;

mod extractor;
mod resources;

pub use extractor::{Extractor, UnknownExtractor};
pub use resources::{DatabaseMemory, MemoryStats, ResourceStats, Resources};
pub use waystation_format::table::Compression;

/// The longest key that is accepted (bytes).
pub const KEY_BYTES_MAX: usize = 1 << 20;
/// The longest value that is accepted (bytes).
pub const VALUE_BYTES_MAX: usize = 256 << 20;
/// The longest batch that is accepted, keys, values and framing together (bytes).
pub const BATCH_BYTES_MAX: usize = 512 << 20;

/// The units of the table of settings, named as people write them.
#[expect(non_upper_case_globals, reason = "the documentation shows the names")]
mod unit {
    pub(super) const KiB: usize = 1 << 10;
    pub(super) const MiB: usize = 1 << 20;
    pub(super) const GiB: usize = 1 << 30;
    pub(super) const TiB: usize = 1 << 40;
}

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
    /// The part of a key that names its device. The directory stores it; no other extractor opens the directory.
    pub extractor: Extractor,
    /// The time after which a device settles into the tree. It may be half as long again, because devices wait for others
    /// to settle with. From 100 years on: until a budget presses. Default: 5 minutes.
    pub residency: Duration,
    /// Budget for the log of the upper level, in bytes. Above 80 % the oldest devices settle early; above 90 % writers slow
    /// down. Default: a third of the room that the file system has for the directory when it is opened, from 8 to 64 GiB; with
    /// `disk_bytes_max` or `resources` 8 GiB.
    pub upper_bytes: Option<u64>,
    /// Budget for the memory of the upper level's indexes, in bytes; above 80 % and 90 % as for `upper_bytes`.
    /// Default: 256 MiB.
    pub index_bytes: u64,
    /// The bytes of log that an opening reads for the upper level, about; or eight times the memory of the indexes, if that is
    /// more. The engine saves the indexes to the file `INDEXES` as often as that takes. Default: 4 GiB, some four seconds.
    pub replay_bytes: u64,
    /// A device without writes for this long departs by itself. At least 100 ms; from 100 years on, none does.
    /// Default: none does.
    pub idle_departure: Option<Duration>,
}

impl DeviceOptions {
    /// The defaults for devices that `extractor` names.
    pub fn new(extractor: Extractor) -> Self {
        Self {
            extractor,
            residency: Duration::from_secs(300),
            upper_bytes: None,
            index_bytes: 256 << 20,
            replay_bytes: 4 << 30,
            idle_departure: None,
        }
    }

    /// The budget for the log of the upper level, in bytes.
    pub(crate) fn upper_budget(&self) -> u64 {
        self.upper_bytes.unwrap_or(*UPPER_BYTES.start())
    }
}

/// No deadline is shorter than a few looks of the background threads.
const DEADLINE_MIN: Duration = Duration::from_millis(100);
/// Longer durations are taken for this one: for ever, and still a number in every unit, alone or added to the time.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// One table for the settings of a database: from it come the fields of [`Options`] with their documentation, the defaults,
/// the check of ranges, and the table in docs/reference/options.md.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct Options {
            $(
                $(#[doc = $text:literal])+
                $name:ident: $type:ty = $default:expr, $shown:literal
                $(, $low:literal $($low_unit:ident)? ..= $high:literal $($high_unit:ident)?)?;
            )+
        }
    ) => {
        $(#[$about])*
        pub struct Options {
            $(
                $(#[doc = $text])+
                #[doc = concat!("\n", $("Range: ", $low, $(" ", stringify!($low_unit),)? " to ", $high,
                    $(" ", stringify!($high_unit),)? ". ",)? "Default: ", $shown, ".")]
                pub $name: $type,
            )+
        }

        impl Default for Options {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        /// The settings that have a lowest and a highest value.
        #[expect(clippy::cast_lossless, reason = "settings have several types, and all fit")]
        const RANGES: &[Range] = &[$($(
            Range {
                name: stringify!($name),
                low: $low $(* $low_unit as u64)?,
                high: $high $(* $high_unit as u64)?,
                value: |options| options.$name as u64,
            },
        )?)+];

        /// The rows of docs/reference/options.md: name, default, range, meaning.
        #[cfg(test)]
        const ROWS: &[[&str; 4]] = &[$([
            stringify!($name),
            $shown,
            concat!("", $($low, $(" ", stringify!($low_unit),)? " to ", $high, $(" ", stringify!($high_unit),)?)?),
            concat!($($text),+),
        ],)+];
    };
}

/// The values that a setting may have.
struct Range {
    name: &'static str,
    low: u64,
    high: u64,
    value: fn(&Options) -> u64,
}

settings! {
    /// How a database is opened. `Options::default()` suits a small machine with a flash drive. Opening refuses a value out
    /// of its range with [`Error::InvalidArgument`], by its name.
    ///
    /// ```
    /// let options = waystation::Options { memtable_bytes: 8 << 20, ..Default::default() };
    /// assert!(options.create_if_missing);
    /// ```
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Options {
        /// Create the database if there is none.
        create_if_missing: bool = true, "true";
        /// Refuse to open a database that exists.
        error_if_exists: bool = false, "false";
        /// The size of a memtable. Writes gather there before they become a table.
        memtable_bytes: usize = 32 * MiB, "32 MiB", 64 KiB ..= 3 GiB;
        /// The uncompressed size of a table's block, the unit of reading.
        block_bytes: usize = 4 * KiB, "4 KiB", 1 KiB ..= 4 MiB;
        /// The size of the tables that compaction writes.
        table_bytes: usize = 8 * MiB, "8 MiB", 64 KiB ..= 1 GiB;
        /// The compression of blocks.
        compression: Compression = Compression::Snappy, "snappy";
        /// Bits for each key in a table's filter; 10 give about 1 % false positives, 0 leaves filters out. Tables of level 0,
        /// which has few keys and many tables to ask, have twice as many.
        filter_bits_per_key: u32 = 10, "10", 0 ..= 64;
        /// Memory for uncompressed blocks.
        cache_bytes: usize = default_cache_bytes(),
            "a 64th of the memory of the machine or control group, from 8 to 256 MiB", 0 ..= 1 TiB;
        /// Memory that the database shares with others of the process, and their cache in place of `cache_bytes`; see
        /// `Resources`.
        resources: Option<Resources> = None, "none: memory of its own";
        /// The size of the staging ring, the end of the log that has not reached its segment. A multiple of 4 KiB. Its file
        /// is short at first, is doubled while writers fill it within 1.1 seconds or would wait for room, and becomes short
        /// again two seconds after the last write, half a second with a durable fast directory. Without `devices`, or with such
        /// a directory, it becomes shorter while writers are slow. If it holds two memtables or more, most records reach a
        /// table before the log has to write them, and it does not. With `devices`, `disk_bytes_max` or `resources`, or where
        /// the file system has less room than for 32 of it, no more than 16 MiB are used.
        ring_bytes: usize = 64 * MiB, "64 MiB", 256 KiB ..= 1 GiB;
        /// The size of the log's segment files. The first one after an opening has 256 KiB, and each of the next ones
        /// four times as much as the one before. A multiple of 4 KiB.
        log_segment_bytes: usize = 64 * MiB, "64 MiB", 256 KiB ..= 4 GiB;
        /// Concurrent compactions. All databases of a process share the threads: as many as the largest setting, or one for
        /// each processor.
        background_jobs: usize = 2, "2", 1 ..= 64;
        /// Tables kept open.
        max_open_tables: usize = 1000, "1000", 16 ..= 1_048_576;
        /// Write the log around the page cache where the file system allows it. Tables go through the page cache, because they
        /// are read soon.
        direct_io: bool = true, "true";
        /// The order of keys: that of their bytes, or a program's own. The directory stores the order's name; no other order
        /// opens it. A program's own order excludes devices, times to live, prefixes and `deletion_deadline`, and its tables
        /// have no filters, because the order may call two keys equal whose bytes differ.
        order: Order = Order::Bytewise, "the order of bytes";
        /// Keep the data of devices apart.
        devices: Option<DeviceOptions> = None, "none: every key lives in the tree";
        /// The longest time that deleted data may stay in tables and in the needed part of the log. Snapshots hold it back. A
        /// short deadline costs writing. At least 100 ms; 100 years and more mean no limit.
        deletion_deadline: Option<Duration> = None, "no limit";
        /// Memory budget for graves, in bytes. Above 50 %, compaction purges every table that they cover. Graves still pinned by
        /// snapshots spill to disk, and so do keys with a time to live above an eighth of the budget.
        graves_bytes: usize = 64 * MiB, "64 MiB", 0 ..= 2 GiB;
        /// The most bytes that all files of the database take together. No file passes it: short of it, writes return
        /// [`Error::DiskFull`], and deletions and departures go on. A new database needs about six rings, two memtables, nine
        /// sixteenths of a segment (at least 256 KiB each) and, with devices, up to 64 MiB to settle in; the error names the
        /// number. A write of more than half a ring needs its bytes twice.
        disk_bytes_max: Option<u64> = None, "no limit";
        /// The most bytes that all compactions together write per second, where other programs use the drive too. Flushes are
        /// not held back. 0 for no limit, or at least 1 MiB; a low limit slows writers down.
        compaction_bytes_per_second: usize = 0, "0";
        /// Have a worker in another process run merges; see `offload::Offload`. A limit on the rate of compactions keeps them
        /// here.
        offload: Option<Offload> = None, "none: merges run in this process";
        /// Keep copies of what is read most in a directory on a faster device; see `FastTier`.
        fast: Option<FastTier> = None, "none";
    }
}

/// The ring is no longer where the log writes everything at once.
const RING_BYTES_AT_ONCE: usize = 16 * MiB;
/// A longer one is for a file system that has room for so many.
const RINGS_OF_ROOM: u64 = 32;
/// The log of the upper level may take this part of the room, from so much to so much: the later devices settle, the more of
/// them have left.
const UPPER_PART: u64 = 3;
const UPPER_BYTES: RangeInclusive<u64> = 8 << 30..=64 << 30;

fn default_cache_bytes() -> usize {
    usize::try_from(memory_bytes() / 64).map_or(256 * MiB, |share| share.clamp(8 * MiB, 256 * MiB))
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

    /// The same for a directory on a file system with `free_bytes`, in which a log takes `log_bytes`: a long ring is there only
    /// where the log can defer its writes, and the log of the upper level has its budget.
    pub(crate) fn for_room(mut self, free_bytes: u64, log_bytes: u64) -> Self {
        let is_shared = self.disk_bytes_max.is_some() || self.resources.is_some();
        let has_room = free_bytes / RINGS_OF_ROOM >= self.ring_bytes as u64;
        if self.devices.is_some() || is_shared || !has_room {
            self.ring_bytes = self.ring_bytes.min(RING_BYTES_AT_ONCE);
        }
        if let Some(devices) = &mut self.devices {
            // Databases that share limits leave each other room.
            let room = if is_shared {
                0
            } else {
                free_bytes.saturating_add(log_bytes)
            };
            let share = (room / UPPER_PART).clamp(*UPPER_BYTES.start(), *UPPER_BYTES.end());
            devices.upper_bytes.get_or_insert(share);
        }
        self
    }

    /// Whether every record goes to a table with its memtable, and the ring keeps it until then: the log need not write it.
    pub(crate) fn defers_log(&self) -> bool {
        self.devices.is_none()
            && self.disk_bytes_max.is_none()
            && self.ring_bytes >= 2 * self.memtable_bytes
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

    /// Checks the order of keys, and that nothing is asked for that excludes it.
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

    /// Checks every field against its documented range, as opening does.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a field outside of it, or for settings that exclude each other.
    pub fn validate(&self) -> Result<()> {
        self.check_sizes()?;
        self.validate_order()?;
        self.fast.as_ref().map_or(Ok(()), FastTier::validate)?;
        let rate = self.compaction_bytes_per_second;
        if (1..MiB).contains(&rate) {
            return Err(Error::InvalidArgument(format!(
                "compaction_bytes_per_second is {rate}; it must be 0 (no limit) or at least {MiB}"
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
        for range in RANGES {
            let value = (range.value)(self);
            let Range {
                name, low, high, ..
            } = range;
            if !(low..=high).contains(&&value) {
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

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::{DeviceOptions, Extractor, Options, ROWS};
    use std::fmt::Write;

    const BEGIN: &str = "<!-- The table of Options: written by a test. -->\n";
    const END: &str = "<!-- Here it ends. -->\n";

    fn upper_budget(
        (upper_bytes, disk_bytes_max): (Option<u64>, Option<u64>),
        free_bytes: u64,
        log_bytes: u64,
    ) -> u64 {
        let devices = DeviceOptions {
            upper_bytes,
            ..DeviceOptions::new(Extractor::until(b':'))
        };
        let options = Options {
            devices: Some(devices),
            disk_bytes_max,
            ..Options::default()
        };
        let devices = options.for_room(free_bytes, log_bytes).devices;
        devices.expect("devices").upper_budget()
    }

    #[test]
    fn the_upper_level_has_a_third_of_the_room() {
        const GIB: u64 = 1 << 30;
        let by_room = |free_bytes, log_bytes| upper_budget((None, None), free_bytes, log_bytes);
        assert_eq!(by_room(30 * GIB, 0), 10 * GIB);
        // The room that the log takes already counts.
        assert_eq!(by_room(10 * GIB, 20 * GIB), 10 * GIB);
        assert_eq!(by_room(GIB, 0), 8 * GIB);
        assert_eq!(by_room(u64::MAX, GIB), 64 * GIB);
        let limited = upper_budget((None, Some(100 * GIB)), u64::MAX, 0);
        assert_eq!(limited, 8 * GIB);
        assert_eq!(upper_budget((Some(5), None), 30 * GIB, 0), 5);
    }

    /// The page holds the table of settings. `WAYSTATION_WRITE_OPTIONS=1` writes it.
    #[test]
    fn the_page_of_options_is_the_table_of_settings() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/options.md"
        );
        let page = std::fs::read_to_string(path).expect("the page");
        let (head, rest) = page.split_once(BEGIN).expect("where the table begins");
        let (_, tail) = rest.split_once(END).expect("where the table ends");
        let mut table = String::from("| option | default | range | meaning |\n|---|---|---|---|\n");
        for [name, default, range, meaning] in ROWS {
            let meaning = meaning.replace("[`Error::DiskFull`]", "`Error::DiskFull`");
            writeln!(
                table,
                "| `{name}` | {default} | {range} | {} |",
                meaning.trim()
            )
            .expect("text");
        }
        let right = [head, BEGIN, &table, END, tail].concat();
        if std::env::var_os("WAYSTATION_WRITE_OPTIONS").is_some() {
            std::fs::write(path, &right).expect("written");
        }
        assert!(
            page == right,
            "docs/reference/options.md differs from the table of settings in {}: run this test again with \
             WAYSTATION_WRITE_OPTIONS=1, and read what changed",
            file!()
        );
    }
}
