//! The tree: memtables, tables in LevelDB's format, the version set and compaction. It knows nothing of devices.

pub(crate) mod compaction;
pub(crate) mod iter;
pub(crate) mod memtable;
pub(crate) mod retire;
pub(crate) mod table;
pub(crate) mod tree;
pub(crate) mod version;

/// What one place of the tree knows about a key at a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup<V> {
    /// The newest version is this value.
    Found(V),
    /// The newest version is a deletion: older places must not be asked.
    Deleted,
    /// No version is here: ask older places.
    Missing,
}
