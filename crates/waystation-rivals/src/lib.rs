//! The engines that comparisons are made with: LevelDB 1.23, built from its source by `build.sh`, and RocksDB, which
//! its crate compiles. Empty without the feature `linked`.

#[cfg(feature = "linked")]
pub mod leveldb;
#[cfg(feature = "linked")]
pub use rocksdb;
