//! Tests of the tree over simulated machines.

mod crash;
mod executor;
mod foreign;
mod leveldb;
mod model;
mod offload;
mod work;

use super::conformance::{dir, machine, memory, open, small, table_files};
use super::entries::Entries;
use super::{Flush, Tree, TreeSettings};
use crate::error::Result;
use crate::lsm::compaction::Hidden;
use crate::lsm::compaction::Traffic;
use crate::lsm::compaction::offload::Offload;
use crate::lsm::version::Version;
use crate::sst::Lookup;
use crate::sst::{InternalIterator, MergingIterator};
use crate::storage::Storage;
use crate::sync::Arc;
use std::collections::BTreeMap;
use waystation_format::key::{InternalKey, ValueKind};
use waystation_format::order::Order;

/// The same, with merges that a worker runs.
pub(super) fn open_offloading(storage: &Arc<dyn Storage>, offload: Offload) -> Result<Tree> {
    let settings = TreeSettings {
        offload: Some(offload),
        ..small()
    };
    Tree::open(storage, &dir(), &memory(), settings)
}

pub(super) fn listed_tables(version: &Version) -> Vec<u64> {
    let mut numbers: Vec<u64> = version.tables().map(|(_, table)| table.number).collect();
    numbers.sort_unstable();
    numbers
}

/// A version: its sequence number, and its value unless it is a deletion.
type Written = (u64, Option<Vec<u8>>);

/// What was written: for every key its versions, and which sequence number comes next.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    versions: BTreeMap<Vec<u8>, Vec<Written>>,
    pub last: u64,
}

impl History {
    /// Writes to memory: a key and a value, or none to delete it.
    pub(super) fn write(&mut self, memtable: &mut Entries, key: &[u8], value: Option<&[u8]>) {
        self.last += 1;
        memtable.push(key, self.last, value);
        let versions = self.versions.entry(key.to_vec()).or_default();
        versions.push((self.last, value.map(<[u8]>::to_vec)));
    }

    /// What a reader at `snapshot` sees.
    pub(super) fn at(&self, snapshot: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let seen = |versions: &[Written]| {
            let last = versions
                .iter()
                .rev()
                .find(|(sequence, _)| *sequence <= snapshot);
            last.and_then(|(_, value)| value.clone())
        };
        let keys = self.versions.iter();
        keys.filter_map(|(key, versions)| Some((key.clone(), seen(versions)?)))
            .collect()
    }

    /// Compares what the tree gives at `snapshot`, by lookups and by a scan, with what was written.
    pub(super) fn compare(&self, tree: &Tree, snapshot: u64) {
        let expected = self.at(snapshot);
        assert_eq!(scan(tree, snapshot), expected, "scanning at {snapshot}");
        let version = tree.version();
        let expected: BTreeMap<_, _> = expected.into_iter().collect();
        for key in self.versions.keys() {
            let found = match tree.get(&version, key, snapshot).unwrap() {
                Lookup::Found(value) => Some(value),
                Lookup::Deleted | Lookup::Missing => None,
            };
            assert_eq!(
                found.as_ref(),
                expected.get(key),
                "looking up {key:?} at {snapshot}"
            );
        }
    }
}

/// All that a reader at `snapshot` sees.
pub(super) fn scan(tree: &Tree, snapshot: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut sources = Vec::new();
    tree.sources(&tree.version(), None, None, &mut sources);
    let mut cursor = MergingIterator::new(sources, &Order::Bytewise);
    cursor.seek_to_first().unwrap();
    let mut seen = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    while cursor.valid() {
        let key = InternalKey::parse(cursor.key()).unwrap();
        if key.sequence <= snapshot && last.as_deref() != Some(key.user_key) {
            last = Some(key.user_key.to_vec());
            if key.kind == ValueKind::Value {
                seen.push((key.user_key.to_vec(), cursor.value().to_vec()));
            }
        }
        cursor.next().unwrap();
    }
    seen
}

/// Flushes `memtable`, which holds everything up to `last`.
pub(super) fn flush(tree: &Tree, memtable: &mut Entries, last: u64, oldest: u64) -> Result<()> {
    memtable.sort();
    let flush = Flush {
        last_sequence: last,
        oldest_snapshot: oldest,
        bytes: memtable.bytes() as u64,
        hidden: &Hidden::default(),
        hurried: last.is_multiple_of(3),
    };
    tree.flush(&mut *memtable, &flush)?;
    memtable.clear();
    Ok(())
}

/// Asserts that the checker finds nothing.
pub(super) fn assert_sound(tree: &Tree) {
    let report = tree.check(0).unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
}

/// Compacts until nothing is due.
pub(super) fn settle(tree: &Tree, oldest: u64) {
    let mut rounds = 0;
    while tree.compact_once(&|| oldest, Traffic::Writes).unwrap() {
        rounds += 1;
        assert!(rounds < 10_000, "the tree never comes to rest");
    }
}
