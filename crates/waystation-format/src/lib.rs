//! The byte formats of Waystation and `LevelDB`.
pub mod log;
