//! The tree: memtables, the version set and compaction. It knows nothing of devices.

pub(crate) mod compaction;
pub(crate) mod iter;
pub(crate) mod memtable;
pub(crate) mod tree;
pub(crate) mod version;
