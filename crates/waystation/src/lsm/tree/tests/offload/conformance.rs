//! What every executor has to do, whatever it is: the same tests for each.

use super::super::{History, dir, flush, machine, open, table_files};
use super::{Near, job_directories};
use crate::cemetery::Cut;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::fragments::Fragments;
use crate::cemetery::sorted::Grave;
use crate::error::Error;
use crate::lsm::compaction::offload::RemoteExecutor;
use crate::lsm::compaction::{
    Choice, CompactionExecutor, Context, Hidden, Job, JobResult, LocalExecutor, Workplace,
    contradiction, pick, remove_outputs,
};
use crate::lsm::tree::Tree;
use crate::lsm::tree::entries::Entries;
use crate::sst::{TableFacts, TableMeta};
use crate::storage::sim::SimStorage;
use crate::storage::{Area, OpenMode, Storage, Transfer};
use crate::sync::{Arc, lock};
use waystation_format::order::Order;

/// How to make the executor under test, over the storage of its engine and that of the machine.
type Make = fn(&Arc<dyn Storage>) -> Box<dyn CompactionExecutor>;

/// Every executor there is.
const EXECUTORS: [(&str, Make); 2] = [
    ("local", |_| Box::new(LocalExecutor)),
    ("worker", |storage| {
        let offload = Near::honest(storage).offload();
        Box::new(RemoteExecutor::new(offload, &dir()))
    }),
];

/// A tree that is due for a merge, and the merge: puts and deletions of 300 keys in six tables.
fn due(storage: &Arc<dyn Storage>) -> (Tree, Job) {
    let tree = open(storage).unwrap();
    let mut history = History::default();
    for round in 0..6_u64 {
        let mut memtable = Entries::new(&Order::Bytewise);
        for key in (round % 3..300).step_by(3 + round as usize % 2) {
            let value = format!("{round} {key} {}", "v".repeat(60));
            let value = (key % 7 != round).then_some(value.as_bytes());
            history.write(&mut memtable, format!("{key:08}").as_bytes(), value);
        }
        flush(&tree, &mut memtable, history.last, 0).unwrap();
    }
    let job = {
        let running = lock(&tree.running);
        let version = tree.version();
        let hidden = Hidden::default();
        let context: Context<'_> = tree.context(&version, &running, history.last / 2, &hidden);
        match pick(&context) {
            Choice::Merge(job) => job,
            other => panic!("a merge is due, not {other:?}"),
        }
    };
    (tree, job)
}

/// Jobs over the same tables that differ in what an executor must obey.
fn variants(job: &Job) -> Vec<(&'static str, Job)> {
    let mut ranges = Fragments::default();
    ranges.insert(b"00000040", Some(b"00000100"), Cut::deletion(120));
    let mut graves = FlushedGraves::new(200, ranges);
    graves.push(Grave::counting(b"00000007", 150, 150));
    graves.push(Grave::counting(b"00000200", 199, 199));
    let with_graves = Hidden {
        graves: graves.into(),
        through: 200,
        ..Hidden::default()
    };
    let mut one_table = job.clone();
    one_table.limits.table_bytes = u64::MAX;
    one_table.limits.grandparent_bytes = u64::MAX;
    let mut small_tables = job.clone();
    small_tables.limits.table_bytes = 600;
    let mut over_deeper = job.clone();
    over_deeper.deeper = vec![(b"00000010".to_vec(), b"00000150".to_vec())];
    let mut compressed = job.clone();
    compressed.layout.compression = 1;
    compressed.layout.filter_bits_per_key = 14;
    compressed.layout.block_bytes = 1024;
    let mut cut_by_grandparents = job.clone();
    cut_by_grandparents.limits.grandparent_bytes = 50;
    cut_by_grandparents.grandparents = (1..10)
        .map(|at| crate::lsm::compaction::Grandparent {
            largest: format!("{:08}", at * 30).into_bytes(),
            bytes: 40,
        })
        .collect();
    vec![
        ("as picked", job.clone()),
        (
            "graves",
            Job {
                hidden: with_graves,
                ..job.clone()
            },
        ),
        (
            "every snapshot",
            Job {
                smallest_snapshot: 0,
                ..job.clone()
            },
        ),
        ("one table", one_table),
        ("small tables", small_tables),
        ("over deeper keys", over_deeper),
        ("another layout", compressed),
        ("grandparents", cut_by_grandparents),
    ]
}

fn run(tree: &Tree, executor: &dyn CompactionExecutor, job: &Job) -> crate::Result<JobResult> {
    run_until(tree, executor, job, &|| false)
}

fn run_until(
    tree: &Tree,
    executor: &dyn CompactionExecutor,
    job: &Job,
    cancelled: &dyn Fn() -> bool,
) -> crate::Result<JobResult> {
    let new_number = || tree.versions.new_file_number();
    let place = tree.workplace(None, &new_number, cancelled);
    executor.execute(job, &place)
}

fn discard(tree: &Tree, result: &JobResult) {
    let new_number = || tree.versions.new_file_number();
    let place: Workplace<'_> = tree.workplace(None, &new_number, &|| false);
    remove_outputs(&place, &result.outputs);
}

/// The bytes of the tables.
fn bytes(tree: &Tree, outputs: &[TableMeta]) -> Vec<Vec<u8>> {
    let read = |table: &TableMeta| {
        let path = tree.tables.path(table.number);
        let file = tree
            .storage
            .open(&path, OpenMode::Read, Transfer::Buffered, Area::Tables)
            .unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        bytes
    };
    outputs.iter().map(read).collect()
}

fn facts(outputs: &[TableMeta]) -> Vec<(Vec<u8>, Vec<u8>, Option<TableFacts>)> {
    let of = |table: &TableMeta| {
        let (smallest, largest) = (table.smallest.clone(), table.largest.clone());
        (smallest, largest, table.facts())
    };
    outputs.iter().map(of).collect()
}

/// Runs `test` for every executor, each on a machine of its own.
fn each(test: impl Fn(&str, &Arc<SimStorage>, &Tree, &Job, &dyn CompactionExecutor)) {
    for (seed, (name, make)) in EXECUTORS.into_iter().enumerate() {
        let machine = machine(seed as u64);
        let storage: Arc<dyn Storage> = machine.clone();
        let (tree, job) = due(&storage);
        let executor = make(&storage);
        test(name, &machine, &tree, &job, &*executor);
        if let Some(stats) = executor.offload_stats() {
            assert_eq!(stats.local_jobs, stats.fall_backs, "{name}: {stats:?}");
        }
    }
}

/// Asserts that nothing but the tables of the tree lies in its directory.
#[track_caller]
fn assert_nothing_left(machine: &Arc<SimStorage>, before: &[u64]) {
    assert_eq!(table_files(&**machine), before);
    assert!(job_directories(&**machine).is_empty());
}

#[test]
fn the_same_job_gives_the_same_tables() {
    each(|name, machine, tree, job, executor| {
        let before = table_files(&**machine);
        for (variant, job) in variants(job) {
            let expected = run(tree, &LocalExecutor, &job).unwrap();
            let result = run(tree, executor, &job).unwrap();
            assert!(!result.outputs.is_empty(), "{variant}");
            assert_eq!(
                contradiction(&job, &result, tree.order()),
                None,
                "{variant}"
            );
            assert_eq!(
                facts(&result.outputs),
                facts(&expected.outputs),
                "{variant}"
            );
            let (made, local) = (bytes(tree, &result.outputs), bytes(tree, &expected.outputs));
            assert!(made == local, "{name}, {variant}: other bytes");
            let counted = crate::lsm::compaction::Counters {
                elapsed_us: expected.counters.elapsed_us,
                ..result.counters
            };
            assert_eq!(counted, expected.counters, "{name}, {variant}");
            discard(tree, &expected);
            discard(tree, &result);
        }
        if let Some(stats) = executor.offload_stats() {
            assert_eq!((stats.jobs, stats.local_jobs), (8, 0), "{stats:?}");
            assert_eq!(stats.share_percent, 100);
        }
        assert_nothing_left(machine, &before);
    });
}

#[test]
fn applied_graves_are_claimed_and_no_others() {
    each(|name, _, tree, job, executor| {
        let (_, with_graves) = variants(job).swap_remove(1);
        let result = run(tree, executor, &with_graves).unwrap();
        assert!(result.counters.hidden > 0, "{name}");
        for table in &result.outputs {
            assert_eq!(table.facts().unwrap().purged_through, 200, "{name}");
        }
    });
}

#[test]
fn limits_cut_tables() {
    each(|name, _, tree, job, executor| {
        let counts = |variant| {
            let (_, job) = variants(job).swap_remove(variant);
            run(tree, executor, &job).unwrap().outputs.len()
        };
        assert_eq!(counts(3), 1, "{name}");
        let (small, by_grandparents) = (counts(4), counts(7));
        assert!(small > 10, "{name}: {small}");
        assert!(by_grandparents > 4, "{name}: {by_grandparents}");
    });
}

#[test]
fn a_cancelled_job_leaves_nothing() {
    each(|name, machine, tree, job, executor| {
        let before = table_files(&**machine);
        let error = run_until(tree, executor, job, &|| true).unwrap_err();
        assert!(matches!(error, Error::Closed(_)), "{name}: {error}");
        assert_nothing_left(machine, &before);
    });
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    each(|name, machine, tree, job, executor| {
        let before = table_files(&**machine);
        let used: u64 = machine
            .list(&dir())
            .unwrap()
            .iter()
            .map(|it| it.bytes)
            .sum();
        machine.set_capacity(Some(used + 3000));
        let error = run(tree, executor, job).unwrap_err();
        assert!(error.is_out_of_space(), "{name}: {error}");
        assert_nothing_left(machine, &before);
        machine.set_capacity(None);
        // The worker is left alone for a while after that.
        machine.sleep(std::time::Duration::from_secs(61));
        run(tree, executor, job).unwrap();
    });
}

#[test]
fn damaged_inputs_are_told_and_leave_nothing() {
    each(|name, machine, tree, job, executor| {
        let before = table_files(&**machine);
        let path = tree.tables.path(job.inputs[0].tables[0].number);
        machine.flip_bit(&path, 8 * 100).unwrap();
        let error = run(tree, executor, job).unwrap_err();
        assert!(matches!(error, Error::Corruption { .. }), "{name}: {error}");
        assert_nothing_left(machine, &before);
    });
}
