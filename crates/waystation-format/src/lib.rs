//! The byte formats of Waystation and LevelDB.
