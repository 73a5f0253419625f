//! Random histories: whatever is flushed, compacted and reopened, every snapshot reads what was written.

use super::{
    Entries, History, assert_sound, dir, flush, listed_tables, machine, open, settle, table_files,
};
use crate::lsm::compaction::Traffic;
use crate::storage::Storage;
use crate::sync::Arc;
use proptest::prelude::*;
use waystation_format::order::Order;

#[derive(Debug, Clone)]
enum Step {
    /// Writes so many keys, from this one on, this far apart, and flushes. Every fourth or so is a deletion.
    Flush {
        first: u16,
        step: u16,
        count: u16,
        deletions: bool,
    },
    Compact,
    CompactRange(u16, u16),
    /// Lets snapshots up to this share (of 8) of all sequence numbers go.
    Release(u64),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (0..400_u16, 1..7_u16, 1..60_u16, any::<bool>()).prop_map(
        |(first, step, count, deletions)| Step::Flush {
            first,
            step,
            count,
            deletions,
        },
    );
    let range = (0..500_u16, 0..500_u16);
    let step = prop_oneof![
        8 => write,
        8 => Just(Step::Compact),
        1 => range.prop_map(|(a, b)| Step::CompactRange(a.min(b), a.max(b))),
        1 => (0..=8_u64).prop_map(Step::Release),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

fn key(number: u16) -> Vec<u8> {
    format!("key{:05}", number % 500).into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_snapshot_reads_what_was_written(seed in any::<u64>(), steps in steps()) {
        let storage: Arc<dyn Storage> = machine(seed);
        let mut tree = open(&storage).unwrap();
        let mut history = History::default();
        let mut memtable = Entries::new(&Order::Bytewise);
        let mut oldest = 0;
        for step in steps {
            match step {
                Step::Flush { first, step, count, deletions } => {
                    for at in 0..count {
                        let value = format!("value {} {}", history.last, "x".repeat(50));
                        let deleted = deletions && at % 3 > 0;
                        let value = (!deleted).then_some(value.as_bytes());
                        history.write(&mut memtable, &key(first + at * step), value);
                    }
                    flush(&tree, &mut memtable, history.last, oldest).unwrap();
                }
                Step::Compact => {
                    tree.compact_once(&|| oldest, Traffic::Writes).unwrap();
                }
                Step::CompactRange(first, last) => {
                    tree.compact_range(Some(&key(first)), Some(&key(last)), &|| oldest).unwrap();
                }
                Step::Release(eighths) => oldest = oldest.max(history.last * eighths / 8),
                Step::Reopen => {
                    drop(tree);
                    tree = open(&storage).unwrap();
                }
            }
            prop_assert_eq!(tree.flushed_sequence(), history.last);
        }
        let between = u64::midpoint(oldest, history.last);
        for snapshot in [oldest, between, history.last] {
            history.compare(&tree, snapshot);
        }
        assert_sound(&tree);
        settle(&tree, oldest);
        assert_sound(&tree);
        for snapshot in [oldest, between, history.last] {
            history.compare(&tree, snapshot);
        }
        prop_assert_eq!(table_files(&*storage), listed_tables(&tree.version()));
        prop_assert!(!storage.list(&dir()).unwrap().iter().any(|entry| entry.name.ends_with("dbtmp")));
    }
}
