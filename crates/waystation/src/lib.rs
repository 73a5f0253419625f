//! Waystation: an embedded ordered key-value engine for data that arrives fast, stays a while, and leaves.

mod background;
pub mod backup;
mod cemetery;
mod db;
mod device;
mod directory;
pub mod error;
pub mod inspect;
mod log;
mod lsm;
#[doc(hidden)]
pub mod parsers;
pub mod repair;
mod sst;
pub mod storage;
mod sync;

pub use db::{
    AreaStats, BATCH_BYTES_MAX, Compression, Db, DbIterator, DeviceInfo, DeviceLevel,
    DeviceOptions, DeviceStats, Durability, Exported, GraveStats, IterOptions, KEY_BYTES_MAX,
    Options, Snapshot, Stats, TableInfo, VALUE_BYTES_MAX, WriteBatch,
};
pub use db::{Digest, EngineId, Export, Receipt, Refusal, Ticket};
pub use device::{Extractor, UnknownExtractor};
pub use error::{DeviceError, Error, Result};
pub use log::LogStats;
pub use lsm::tree::{CheckReport, LevelStats, Problem, TreeStats, WorkStats};
pub use waystation_format::order::{Comparator, Order};
