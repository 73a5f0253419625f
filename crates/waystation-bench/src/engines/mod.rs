//! The engines side by side, behind the few operations that `db_bench` does.
//!
//! The trait is used by type, not through a table of functions: an operation of 200 ns should not pay for the
//! comparison. Each engine comes in its default configuration, as somebody gets it who sets nothing, and some
//! in a tuned one: what their documentation recommends for a machine of this class.

#[cfg(feature = "rivals")]
mod fjall;
#[cfg(feature = "rivals")]
mod leveldb;
#[cfg(feature = "rivals")]
mod rocksdb;
mod waystation;

use crate::error::{Error, Result};
use crate::tiers::TierSettings;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use self::waystation::Waystation;
#[cfg(feature = "rivals")]
pub(crate) use self::{fjall::Fjall, leveldb::LevelDb, rocksdb::RocksDb};

/// An engine in one of its configurations.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineKind {
    /// Waystation as it comes
    Waystation,
    /// Waystation with 64 MB memtables and 256 MB cache: the memory of the tuned rivals
    #[value(name = "waystation-tuned")]
    #[serde(rename = "waystation-tuned")]
    WaystationTuned,
    /// Waystation without devices, where the others have them (iot): every key in the tree
    #[value(name = "waystation-plain")]
    #[serde(rename = "waystation-plain")]
    WaystationPlain,
    /// Waystation of the build that `--pair-with` names
    #[value(name = "waystation-earlier")]
    #[serde(rename = "waystation-earlier")]
    WaystationEarlier,
    /// LevelDB 1.23 as it comes: 4 MB write buffer, 8 MB cache, no filter
    #[value(name = "leveldb")]
    #[serde(rename = "leveldb")]
    LevelDb,
    /// LevelDB 1.23 with 64 MB write buffer, 256 MB cache, a filter of 10 bits, files of 32 MB
    #[value(name = "leveldb-tuned")]
    #[serde(rename = "leveldb-tuned")]
    LevelDbTuned,
    /// RocksDB as it comes
    #[value(name = "rocksdb")]
    #[serde(rename = "rocksdb")]
    RocksDb,
    /// RocksDB with a filter, 256 MB cache, 128 MB buffers, pipelined writes, direct flushes and compactions
    #[value(name = "rocksdb-tuned")]
    #[serde(rename = "rocksdb-tuned")]
    RocksDbTuned,
    /// RocksDB as it comes, but for its helpers against tombstones: scans turn runs of them into ranges and flush
    /// memtables full of them, and tables full of them are compacted
    #[value(name = "rocksdb-tombstones")]
    #[serde(rename = "rocksdb-tombstones")]
    RocksDbTombstones,
    /// fjall as it comes
    Fjall,
}

impl EngineKind {
    /// Whether it can use a slow and a fast device.
    pub(crate) fn knows_tiers(self) -> bool {
        let others = [Self::LevelDb, Self::LevelDbTuned, Self::Fjall];
        !others.contains(&self)
    }

    /// Its name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Waystation => "waystation",
            Self::WaystationTuned => "waystation-tuned",
            Self::WaystationPlain => "waystation-plain",
            Self::WaystationEarlier => "waystation-earlier",
            Self::LevelDb => "leveldb",
            Self::LevelDbTuned => "leveldb-tuned",
            Self::RocksDb => "rocksdb",
            Self::RocksDbTuned => "rocksdb-tuned",
            Self::RocksDbTombstones => "rocksdb-tombstones",
            Self::Fjall => "fjall",
        }
    }

    /// Whether this build of the program holds it.
    pub(crate) fn is_built(self) -> bool {
        cfg!(feature = "rivals") || self.is_waystation()
    }

    /// Whether it is Waystation, however it is set.
    fn is_waystation(self) -> bool {
        matches!(
            self,
            Self::Waystation
                | Self::WaystationTuned
                | Self::WaystationPlain
                | Self::WaystationEarlier
        )
    }

    /// The engine that the process of another build is asked for.
    pub(crate) fn in_its_build(self) -> Self {
        match self {
            Self::WaystationEarlier => Self::Waystation,
            other => other,
        }
    }

    /// Whether it is a configuration of choice rather than the engine as it comes.
    pub(crate) fn is_of_choice(self) -> bool {
        matches!(
            self,
            Self::WaystationTuned
                | Self::WaystationPlain
                | Self::WaystationEarlier
                | Self::LevelDbTuned
                | Self::RocksDbTuned
                | Self::RocksDbTombstones
        )
    }

    /// What it is set to, for the report.
    pub(crate) fn settings(self) -> &'static str {
        match self {
            Self::Waystation | Self::WaystationPlain | Self::WaystationEarlier => {
                "default: memtable 32 MB, cache 1/64 of memory (8 to 256 MB), filter 10, snappy, direct I/O for the log"
            }
            Self::WaystationTuned => {
                "memtable 64 MB, cache 256 MB, filter 10, snappy, direct I/O for the log"
            }
            Self::Fjall => "default",
            Self::LevelDb => "default: write_buffer 4 MB, block_cache 8 MB, no filter, snappy",
            Self::LevelDbTuned => {
                "write_buffer 64 MB, block_cache 256 MB, bloom 10, max_file_size 32 MB, snappy"
            }
            Self::RocksDb => "default: write_buffer 64 MB, block_cache 32 MB, no filter, snappy",
            Self::RocksDbTuned => {
                "write_buffer 128 MB x 4, block_cache 256 MB, bloom 10, parallelism = cores, pipelined writes, \
                 direct I/O for flush and compaction, snappy"
            }
            Self::RocksDbTombstones => {
                "default, and min_tombstones_for_range_conversion 64, memtable_op_scan_flush_trigger 1,000, \
                 memtable_avg_op_scan_flush_trigger 100, CompactOnDeletionCollector (64 of 128, ratio 0.5)"
            }
        }
    }

    /// What it is set to where keys have devices, for the report.
    pub(crate) fn device_settings(self) -> String {
        let settings = self.settings();
        match self {
            Self::Waystation | Self::WaystationTuned | Self::WaystationEarlier => {
                format!("{settings}; devices: key up to ':', budgets by default")
            }
            Self::RocksDbTuned => settings.replace("snappy", "no compression"),
            _ => settings.to_owned(),
        }
    }

    /// The engine's version.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Waystation | Self::WaystationTuned | Self::WaystationPlain => {
                env!("CARGO_PKG_VERSION")
            }
            Self::WaystationEarlier => "of --pair-with",
            Self::LevelDb | Self::LevelDbTuned => "1.23",
            Self::RocksDb | Self::RocksDbTuned | Self::RocksDbTombstones => {
                env!("WAYSTATION_BENCH_ROCKSDB_VERSION")
            }
            Self::Fjall => env!("WAYSTATION_BENCH_FJALL_VERSION"),
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Refuses engines that this build does not hold.
pub(crate) fn check_built(engines: &[EngineKind]) -> Result<()> {
    match engines.iter().find(|engine| !engine.is_built()) {
        None => Ok(()),
        Some(engine) => Err(Error::Refused(format!(
            "{engine} is not in this build: run `make bench-build`, which fetches and compiles the rivals"
        ))),
    }
}

/// What runs compactions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecutorSettings {
    /// The engine's own threads.
    #[default]
    Local,
    /// The worker that listens here.
    Worker(String),
}

/// What an engine says of its compactions so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Merges {
    /// Processor time that they took in the engine's process.
    pub(crate) cpu: Duration,
    /// Bytes read by merges that level 0 had a part in, and how long they took.
    pub(crate) level0: (u64, Duration),
    /// The same of merges below level 0.
    pub(crate) deeper: (u64, Duration),
    /// Bytes over what the levels should hold.
    pub(crate) debt_bytes: u64,
    /// Bytes read by merges elsewhere, and by merges in the process of an engine that could have them run elsewhere.
    pub(crate) read_bytes: (u64, u64),
    /// How many merges ran in the process for each reason.
    pub(crate) local: BTreeMap<String, u64>,
    /// Where the time of merges elsewhere went: waiting, running, verifying, installing.
    pub(crate) elsewhere: [Duration; 4],
}

/// Where and how to open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OpenSettings {
    /// Which engine.
    pub(crate) engine: EngineKind,
    /// The database's directory, made if missing.
    pub(crate) directory: PathBuf,
    /// A memtable (write buffer) of this many bytes instead of the engine's own choice.
    pub(crate) memtable_bytes: Option<usize>,
    /// What runs its compactions, where there is a choice.
    #[serde(default)]
    pub(crate) executor: ExecutorSettings,
    /// Keys begin with a device and `:`, and a device settles after this time; never, and however much there is, after
    /// [`Duration::MAX`]. Only Waystation tells devices apart;
    /// the tuned RocksDB leaves out compression, which cannot shrink what devices send in that workload.
    pub(crate) residency: Option<Duration>,
    /// How a slow and a fast device are used, where there are two.
    #[serde(default)]
    pub(crate) tiers: Option<TierSettings>,
}

/// Keys and values that are put together. Its memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Group {
    bytes: Vec<u8>,
    /// Where each key and each value ends.
    ends: Vec<(usize, usize)>,
}

impl Group {
    /// Adds one.
    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ends.iter().scan(0, |start, (key_end, end)| {
            let key = &self.bytes[*start..*key_end];
            *start = *end;
            Some((key, &self.bytes[*key_end..*end]))
        })
    }

    /// Keys and values together (bytes).
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Makes it empty.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// An open database. Dropping it closes it.
pub(crate) trait Engine: Sized + Sync {
    /// How it is called in messages.
    const NAME: &'static str;

    /// Its iterator.
    type Cursor<'a>: Cursor
    where
        Self: 'a;

    /// Opens the database, made if missing.
    fn open(settings: &OpenSettings) -> Result<Self>;
    /// Puts; survives the death of the process.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Puts; survives a power cut.
    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Puts all of `group`, or nothing, by the engine's batches; survives a power cut if `sync`, else the death of the
    /// process.
    fn put_group(&self, group: &Group, sync: bool) -> Result<()>;
    /// Deletes; survives the death of the process.
    fn delete(&self, key: &[u8]) -> Result<()>;
    /// Replaces `value` by the key's. False (and anything in `value`) if there is none.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// A new iterator over the database as it is now.
    fn cursor(&self) -> Result<Self::Cursor<'_>>;
    /// Deletes all that the device called `name` has written, `keys` of it, in the best way the engine has; survives
    /// the death of the process.
    fn depart(&self, name: &[u8], keys: impl Iterator<Item = Vec<u8>>) -> Result<()>;
    /// Brings what the device called `name` has written to the tree, where the engine has another place for it.
    fn settle(&self, _name: &[u8]) -> Result<()> {
        Ok(())
    }
    /// Deletes all keys from `start` (included) to `end` (excluded), in the best way the engine has; survives the death
    /// of the process. Where there is none: what a cursor finds, key by key.
    fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<()> {
        let mut cursor = self.cursor()?;
        let mut is_there = cursor.seek(start)?;
        while is_there && cursor.key() < end {
            self.delete(cursor.key())?;
            is_there = cursor.next()?;
        }
        Ok(())
    }
    /// Puts a key that is to be gone after `lifetime`. Returns whether the engine sees to that.
    fn put_for(&self, key: &[u8], value: &[u8], _lifetime: Duration) -> Result<bool> {
        self.put(key, value)?;
        Ok(false)
    }
    /// What the engine's two levels hold and have done; nothing from an engine that has no devices.
    fn levels(&self) -> Result<Option<Levels>> {
        Ok(None)
    }
    /// What the engine's compactions have done; nothing from an engine that does not tell.
    fn merges(&self) -> Option<Merges> {
        None
    }
    /// Returns when no flush and no compaction is running or due, with the time for which that has been so.
    fn wait_idle(&self) -> Result<Duration>;
    /// The same, but does not wait for compactions that are not due, if the engine does such.
    fn wait_while_due(&self) -> Result<Duration> {
        self.wait_idle()
    }
    /// Closes, and reports what only closing finds out.
    fn close(self) -> Result<()>;
}

/// What an engine says of its upper and lower level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Levels {
    /// Records in the upper level.
    pub(crate) upper_records: u64,
    /// Memory that its indexes take (bytes).
    pub(crate) index_bytes: u64,
    /// Records that went from there to the tree so far.
    pub(crate) settled_records: u64,
    /// Records that flushes and settling have brought to the tree so far.
    pub(crate) tree_records: u64,
    /// Bytes of the log's segments that were freed for use again so far.
    pub(crate) freed_log_bytes: u64,
    /// Bytes that were read from the log so far.
    pub(crate) log_read_bytes: u64,
    /// Bytes that were written to the log so far.
    pub(crate) log_written_bytes: u64,
    /// Bytes of the tables that flushes and settling have written so far.
    pub(crate) loaded_bytes: u64,
    /// Bytes of the tables that compactions have written so far.
    pub(crate) merged_bytes: u64,
}

/// An iterator over a database. Every step says whether there is an entry; `key` and `value` may be asked
/// only after one that said so.
pub(crate) trait Cursor {
    /// To the first entry.
    fn seek_to_first(&mut self) -> Result<bool>;
    /// To the last entry.
    fn seek_to_last(&mut self) -> Result<bool>;
    /// To the first entry at or after `key`.
    fn seek(&mut self, key: &[u8]) -> Result<bool>;
    /// One forward; only after `seek_to_first` or `seek`.
    fn next(&mut self) -> Result<bool>;
    /// One back; only after `seek_to_last`.
    fn prev(&mut self) -> Result<bool>;
    /// The key here.
    fn key(&self) -> &[u8];
    /// The value here.
    fn value(&self) -> &[u8];
}

#[cfg(test)]
mod tests;
