//! Tables: immutable sorted files in LevelDB's format.

mod meta;

pub(crate) use meta::{TableFacts, TableMeta};
