//! Tests of what flushes and compactions do to the tree, and of what they leave behind.

use super::{
    Entries, History, assert_sound, dir, flush, listed_tables, machine, memory, open, scan, settle,
    small, table_files,
};
use crate::error::Error;
use crate::lsm::compaction::Traffic;
use crate::lsm::tree::Tree;
use crate::lsm::version::{LEVELS, UserRange};
use crate::storage::Storage;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::sync::Arc;
use std::path::Path;
use waystation_format::filename::table_name;
use waystation_format::order::Order;

pub(super) fn fill(tree: &Tree, history: &mut History, keys: std::ops::Range<u32>, step: usize) {
    let mut memtable = Entries::new(&Order::Bytewise);
    for key in keys.step_by(step) {
        let value = format!("{key} {}", "v".repeat(80));
        history.write(
            &mut memtable,
            format!("{key:08}").as_bytes(),
            Some(value.as_bytes()),
        );
    }
    flush(tree, &mut memtable, history.last, history.last).unwrap();
}

#[test]
fn a_sequential_load_is_never_rewritten() {
    let storage: Arc<dyn Storage> = machine(1);
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    for memtable in 0..60 {
        fill(&tree, &mut history, memtable * 100..(memtable + 1) * 100, 1);
        settle(&tree, history.last);
        assert_eq!(tree.pressure().level0_tables, 0);
    }
    let stats = tree.stats();
    assert_eq!(
        stats
            .levels
            .iter()
            .map(|level| level.merges.jobs)
            .sum::<u64>(),
        0
    );
    assert_eq!(stats.debt_bytes, 0);
    assert!(
        stats.moved_tables > 0 && stats.levels[3].tables > 0,
        "{stats:?}"
    );
    assert!(stats.flushes.written_bytes < 60 * 100 * 130);
    history.compare(&tree, history.last);
    assert_sound(&tree);
}

/// Loads every `step`th key of 3,000 from `first` on as one run. Returns the level it went to.
fn load(tree: &Tree, history: &mut History, first: u32, step: usize) -> usize {
    load_keys(tree, history, (first..3000).step_by(step))
}

/// Loads `keys` as one run. Returns the level it went to.
fn load_keys(tree: &Tree, history: &mut History, keys: impl Iterator<Item = u32>) -> usize {
    let keys: Vec<_> = keys.collect();
    let key = |number: u32| format!("{number:08}").into_bytes();
    let ends = [keys[0], keys[keys.len() - 1]].map(key);
    let mut entries = Entries::new(&Order::Bytewise);
    for number in keys {
        let value = format!("{number} {}", "v".repeat(80));
        history.write(&mut entries, &key(number), Some(value.as_bytes()));
    }
    entries.sort();
    let mut load = tree.begin_load(history.last);
    let place = load.find_place(&ends[0], &ends[1]);
    let level = place.level();
    load.write(place, (&ends[0], &ends[1]), &mut &mut entries)
        .unwrap();
    load.install().unwrap();
    level
}

#[test]
fn filters_of_level_0_have_twice_the_bits() {
    let storage: Arc<dyn Storage> = machine(13);
    let tree = open(&storage).unwrap();
    let (version, range) = (tree.version(), UserRange::new(b"a", b"b"));
    let bits = |level| {
        let job = tree.flush_job(&version, level, &range, 0);
        job.layout.filter_bits_per_key
    };
    assert!(bits(1) > 0);
    assert_eq!((bits(0), bits(2)), (2 * bits(1), bits(1)));
}

#[test]
fn loads_lie_on_one_another_from_the_last_level_up() {
    let storage: Arc<dyn Storage> = machine(14);
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    let levels: Vec<_> = (0..4)
        .map(|first| load(&tree, &mut history, first, 150))
        .collect();
    assert_eq!(levels, [6, 5, 4, 3]);
    // No thread writes: what lies far down in levels that are nearly empty is left where it is.
    while tree.compact_once(&|| history.last, Traffic::None).unwrap() {}
    let levels = tree.stats().levels;
    assert_eq!(levels.iter().map(|level| level.merges.jobs).sum::<u64>(), 0);
    history.compare(&tree, history.last);
    // A flush goes above all of it, and wins.
    fill(&tree, &mut history, 0..3000, 40);
    assert!((0..3).any(|level| tree.version().level_bytes(level) > 0));
    history.compare(&tree, history.last);
    tree.compact_range(None, None, &|| history.last).unwrap();
    history.compare(&tree, history.last);
    assert_sound(&tree);
}

#[test]
fn loads_pass_by_tables_that_only_reach_over_them() {
    let storage: Arc<dyn Storage> = machine(15);
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    // Each flush reaches over all keys, and has one in a thousand.
    for first in 0..3 {
        fill(&tree, &mut history, first..3000, 1000);
    }
    assert!((0..3).any(|level| tree.version().level_bytes(level) > 0));
    assert_eq!(load_keys(&tree, &mut history, 100..900), 6);
    assert_eq!(load_keys(&tree, &mut history, 1100..1500), 6);
    // Its first key, and its last one, were flushed before.
    assert_eq!(load_keys(&tree, &mut history, 2002..2100), 0);
    assert_eq!(load_keys(&tree, &mut history, 900..1001), 0);
    history.compare(&tree, history.last);
    // Flushed again, they win.
    fill(&tree, &mut history, 0..3000, 70);
    history.compare(&tree, history.last);
    while tree.compact_once(&|| history.last, Traffic::None).unwrap() {}
    history.compare(&tree, history.last);
    tree.compact_range(None, None, &|| history.last).unwrap();
    history.compare(&tree, history.last);
    assert_sound(&tree);
}

#[test]
fn a_random_load_keeps_its_shape() {
    let storage: Arc<dyn Storage> = machine(2);
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    for memtable in 0..40 {
        fill(&tree, &mut history, memtable..3000, 37);
        settle(&tree, history.last);
        let stats = tree.stats();
        assert_eq!(stats.debt_bytes, 0);
        for level in &stats.levels[1..] {
            assert!(
                level.tables as u64 <= level.bytes / 700 + 1,
                "tables are too small: {level:?}"
            );
        }
    }
    history.compare(&tree, history.last);
    assert_sound(&tree);
}

#[test]
fn compacting_everything_leaves_nothing_of_what_was_deleted() {
    let storage: Arc<dyn Storage> = machine(3);
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    for memtable in 0..12 {
        fill(&tree, &mut history, memtable..1200, 12);
        settle(&tree, history.last);
    }
    let snapshot = history.last;
    let mut memtable = Entries::new(&Order::Bytewise);
    for key in 0..1200 {
        history.write(&mut memtable, format!("{key:08}").as_bytes(), None);
    }
    flush(&tree, &mut memtable, history.last, snapshot).unwrap();
    tree.compact_range(None, None, &|| snapshot).unwrap();
    settle(&tree, snapshot);
    history.compare(&tree, snapshot);
    assert_eq!(scan(&tree, history.last), []);
    settle(&tree, history.last);
    tree.compact_range(None, None, &|| history.last).unwrap();
    settle(&tree, history.last);
    assert_eq!(tree.version().tables().count(), 0, "{:?}", tree.stats());
    assert!(table_files(&*storage).is_empty());
}

#[test]
fn a_range_compacted_by_hand_ends_in_one_place() {
    let storage: Arc<dyn Storage> = machine(4);
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    for memtable in 0..9 {
        fill(&tree, &mut history, memtable..2000, 9);
    }
    tree.compact_range(Some(b"00000500"), Some(b"00001500"), &|| history.last)
        .unwrap();
    let version = tree.version();
    let range = UserRange::new(b"00000500", b"00001500");
    let levels: Vec<usize> = (0..LEVELS)
        .filter(|&level| version.overlaps(level, &range))
        .collect();
    assert_eq!(levels.len(), 1, "{levels:?}");
    history.compare(&tree, history.last);
    assert_sound(&tree);
}

#[test]
fn a_reader_keeps_its_version_and_nothing_more() {
    let storage: Arc<dyn Storage> = machine(5);
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    for memtable in 0..3 {
        fill(&tree, &mut history, memtable..300, 3);
    }
    let reader = tree.version();
    settle(&tree, history.last);
    tree.compact_range(None, None, &|| history.last).unwrap();
    for number in listed_tables(&reader) {
        assert!(table_files(&*storage).contains(&number));
    }
    assert!(tree.stats().held_tables > 0);
    let held = tree.get(&reader, b"00000000", history.last).unwrap();
    assert!(matches!(held, crate::sst::Lookup::Found(_)));
    drop(reader);
    tree.remove_garbage();
    assert_eq!(table_files(&*storage), listed_tables(&tree.version()));
    assert_eq!(tree.stats().held_tables, 0);
}

#[test]
fn a_failed_job_leaves_nothing_and_is_done_again() {
    for after in 0..12 {
        for operation in [Operation::Write, Operation::Sync, Operation::Open] {
            let machine = machine(6);
            let rules = FaultRules::new();
            let storage: Arc<dyn Storage> = machine.with_faults(&rules);
            let tree = open(&storage).unwrap();
            let mut history = History::default();
            for memtable in 0..6 {
                fill(&tree, &mut history, memtable..300, 3);
            }
            let before = listed_tables(&tree.version());
            let fault = Fault::Fail(Refusal::NoSpace);
            rules.add(Rule::new(operation, fault).on("ldb").after(after).times(1));
            let failed = tree
                .compact_once(&|| history.last, Traffic::Writes)
                .is_err();
            if failed {
                assert_eq!(listed_tables(&tree.version()), before);
                assert_eq!(table_files(&*machine), before, "{operation:?} {after}");
            }
            settle(&tree, history.last);
            history.compare(&tree, history.last);
            assert_eq!(table_files(&*machine), listed_tables(&tree.version()));
            assert_sound(&tree);
        }
    }
}

#[test]
fn a_cancelled_tree_starts_nothing_and_flushes_all_the_same() {
    let storage: Arc<dyn Storage> = machine(7);
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    for memtable in 0..6 {
        fill(&tree, &mut history, memtable..300, 3);
    }
    assert!(tree.wants_compaction(Traffic::Writes));
    tree.cancel();
    assert!(
        !tree
            .compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    let by_hand = tree.compact_range(None, None, &|| history.last);
    assert!(matches!(by_hand, Err(Error::Closed(_))));
    fill(&tree, &mut history, 0..300, 3);
    history.compare(&tree, history.last);
}

#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    let machine = machine(8);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    for memtable in 0..6 {
        fill(&tree, &mut history, memtable..300, 3);
    }
    let then = history.clone();
    let copy_to = |target| tree.checkpoint(&tree.moment(), Path::new(target), |_| Ok(()));
    copy_to("/linked").unwrap();
    rules.add(Rule::new(
        Operation::Link,
        Fault::Fail(Refusal::Unsupported),
    ));
    copy_to("/copied").unwrap();
    let again = copy_to("/copied").unwrap_err();
    assert!(again.to_string().contains("not empty"), "{again}");
    fill(&tree, &mut history, 0..300, 2);
    settle(&tree, history.last);
    history.compare(&tree, history.last);
    for copy in ["/linked", "/copied"] {
        let copy = Tree::open(&storage, Path::new(copy), &memory(), small()).unwrap();
        assert!(copy.state().is_empty());
        assert_eq!(copy.flushed_sequence(), then.last);
        then.compare(&copy, then.last);
        settle(&copy, then.last);
        then.compare(&copy, then.last);
    }
}

#[test]
fn damage_is_found_and_named() {
    let machine = machine(9);
    let storage: Arc<dyn Storage> = Arc::clone(&machine) as Arc<dyn Storage>;
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    fill(&tree, &mut history, 0..300, 3);
    assert_sound(&tree);
    let number = listed_tables(&tree.version())[0];
    machine
        .flip_bit(&dir().join(table_name(number)), 8_000)
        .unwrap();
    let report = tree.check(0).unwrap();
    assert_eq!(report.problems.len(), 1);
    let problem = &report.problems[0];
    assert!(
        problem.table == number && problem.reason.contains("is damaged at byte"),
        "{problem:?}"
    );
}

#[test]
fn threads_flush_compact_and_read_at_once() {
    let storage: Arc<dyn Storage> = machine(10);
    let tree = open(&storage).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut history = History::default();
    std::thread::scope(|scope| {
        let compact = || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                // What a reader may need: nothing is read below the newest flush here.
                if !tree
                    .compact_once(&|| tree.flushed_sequence(), Traffic::Writes)
                    .unwrap()
                {
                    std::thread::yield_now();
                }
            }
        };
        scope.spawn(compact);
        scope.spawn(compact);
        for round in 0..60 {
            fill(&tree, &mut history, round % 7..900, 7);
            if round % 20 == 19 {
                tree.compact_range(Some(b"00000100"), Some(b"00000300"), &|| {
                    tree.flushed_sequence()
                })
                .unwrap();
            }
            if round % 5 == 0 {
                history.compare(&tree, history.last);
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    settle(&tree, history.last);
    history.compare(&tree, history.last);
    assert_sound(&tree);
    tree.close().unwrap();
    assert_eq!(table_files(&*storage), listed_tables(&tree.version()));
}
