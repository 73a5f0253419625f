//! The tree: memtables, tables in LevelDB's format, the version set and compaction. It knows nothing of devices.

pub(crate) mod table;
