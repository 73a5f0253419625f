//! What a cell of the city asks of its engine, and nothing more.
//!
//! The trait is used by type: an operation of a microsecond should not pay for the comparison with others.

#[cfg(feature = "rivals")]
mod leveldb;
#[cfg(test)]
pub(crate) mod memory;
#[cfg(feature = "rivals")]
mod rocksdb;
mod waystation;

pub(crate) use self::waystation::{FILES_MIN, MEMORY_MIN, WaystationEdge, options_within};

#[cfg(feature = "rivals")]
pub(crate) use self::{leveldb::LevelDbEdge, rocksdb::RocksDbEdge};

use super::error::EdgeError;
#[cfg(any(test, feature = "rivals"))]
use super::reading::DELIMITER;
use serde::Serialize;

/// The result of an engine's call.
pub(crate) type Result<T> = std::result::Result<T, EdgeError>;

/// What a hand-off took along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Records.
    pub(crate) records: u64,
    /// Their keys' and values' bytes.
    pub(crate) bytes: u64,
}

#[cfg(any(test, feature = "rivals"))]
impl Carried {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
    }
}

/// What the keys of the vehicle called `name` begin with; and the first key after them.
#[cfg(any(test, feature = "rivals"))]
fn range_of_name(name: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (
        [name, &[DELIMITER]].concat(),
        [name, &[DELIMITER + 1]].concat(),
    )
}

/// What an engine holds, and has written so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Occupancy {
    /// Vehicles whose data is in the upper level.
    pub(crate) upper_vehicles: u64,
    /// Keys' and values' bytes of them.
    pub(crate) upper_bytes: u64,
    /// Vehicles whose data is in the tree.
    pub(crate) tree_vehicles: u64,
    /// The tables' bytes.
    pub(crate) tree_bytes: u64,
    /// Memory that the upper level's indexes take.
    pub(crate) index_bytes: u64,
    /// Records that went from the upper level to the tree since the engine was opened.
    pub(crate) settled_records: u64,
    /// Bytes written to the log since then.
    pub(crate) log_written: u64,
    /// Bytes written to tables since then.
    pub(crate) tables_written: u64,
    /// Bytes read from storage since then.
    pub(crate) storage_read: u64,
}

impl std::ops::AddAssign for Occupancy {
    fn add_assign(&mut self, other: Self) {
        self.upper_vehicles += other.upper_vehicles;
        self.upper_bytes += other.upper_bytes;
        self.tree_vehicles += other.tree_vehicles;
        self.tree_bytes += other.tree_bytes;
        self.index_bytes += other.index_bytes;
        self.settled_records += other.settled_records;
        self.log_written += other.log_written;
        self.tables_written += other.tables_written;
        self.storage_read += other.storage_read;
    }
}

/// Called with each key and value of a scan.
pub(crate) type Visitor<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

/// A cell's engine. Dropping it is no clean end: [`Edge::close`] is.
pub(crate) trait Edge: Sized + Send + Sync {
    /// Stores a reading; survives the death of the process.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Shows all entries from `from` up to `to`, in order.
    fn scan(&self, from: &[u8], to: &[u8], each: Visitor<'_>) -> Result<()>;
    /// The last key from `from` up to `to`, with its value.
    fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>>;
    /// The vehicle called `name` comes from outside the city, wherever it has been before.
    fn welcome(&self, name: &[u8]) -> Result<()>;
    /// Hands all that the vehicle called `name` has here over to `target`. One of the two answers for it at any
    /// moment, with what the settings promise after a crash.
    fn hand_off(&self, name: &[u8], target: &Self) -> Result<Carried>;
    /// Deletes all that the vehicle called `name` has here.
    fn depart(&self, name: &[u8]) -> Result<()>;
    /// Moves vehicles' data to where data lies that stays long. False if there is no such place.
    fn settle(&self, names: &[Vec<u8>]) -> Result<bool>;
    /// What it holds.
    fn occupancy(&self) -> Result<Occupancy>;
    /// Closes, and reports what only closing finds out.
    fn close(self) -> Result<()>;
}
