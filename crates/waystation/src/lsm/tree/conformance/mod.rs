//! What every executor has to do, whatever it is: one suite for all.
//!
//! It is built for the tests of this crate, and with the feature `test-storage` for those of crates that have a
//! [`MergeEngine`]: [`check_engine`].

mod near;

#[cfg(test)]
pub(super) use near::Desk;
pub(super) use near::Near;

use super::entries::Entries;
use super::{Flush, Tree, TreeSettings};
use crate::cemetery::Cut;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::fragments::Fragments;
use crate::cemetery::sorted::Grave;
use crate::error::{Error, Result};
use crate::lsm::compaction::offload::{LocalReason, MergeEngine, RemoteExecutor};
use crate::lsm::compaction::{
    Choice, CompactionExecutor, Context, Counters, Grandparent, Hidden, Job, JobResult,
    LocalExecutor, Shape, Workplace, contradiction, pick, remove_outputs,
};
use crate::sst::{Compression, TableFacts, TableMemory, TableMeta, TableSettings};
use crate::storage::sim::SimStorage;
use crate::storage::{Storage, read_whole};
use crate::sync::{Arc, lock};
use std::path::{Path, PathBuf};
use std::time::Duration;
use waystation_format::filename::{FileKind, parse};
use waystation_format::order::Order;

/// What a step of a test that cannot fail says if it does.
const WORKS: &str = "a step of the suite that works";

/// Makes the executor under test, over the storage of its engine.
pub(super) type Make<'m> = &'m dyn Fn(&Arc<dyn Storage>) -> Box<dyn CompactionExecutor>;

/// Runs the suite for a worker whose records an engine merges. The engine has to take six inputs.
///
/// # Panics
/// If the engine does not do what every executor has to do.
pub fn check_engine(name: &str, engine: impl Fn() -> Box<dyn MergeEngine>) {
    check(name, &|storage| {
        let near = Near::by_engine(storage, engine());
        Box::new(RemoteExecutor::new(near.offload(), &dir()))
    });
}

/// Runs the suite, each part on a machine of its own.
pub(super) fn check(name: &str, make: Make<'_>) {
    let parts: [fn(&Subject); 7] = [
        the_same_job_gives_the_same_tables,
        the_rest_of_a_job_gives_the_later_tables,
        applied_graves_are_claimed_and_no_others,
        limits_cut_tables,
        a_cancelled_job_leaves_nothing,
        a_full_disk_is_told_and_leaves_nothing,
        damaged_inputs_are_told_and_leave_nothing,
    ];
    for (seed, part) in parts.into_iter().enumerate() {
        let machine = machine(seed as u64);
        let storage: Arc<dyn Storage> = machine.clone();
        let (tree, job) = due(&storage);
        let executor = make(&storage);
        let name = name.to_owned();
        let subject = Subject {
            name,
            machine,
            tree,
            job,
            executor,
        };
        part(&subject);
        if let Some(stats) = subject.executor.offload_stats() {
            // Engines merge whole tables.
            let unfit = stats.local.get(&LocalReason::Unfit).copied().unwrap_or(0);
            let intended = stats.fall_backs + unfit;
            assert_eq!(stats.local_jobs, intended, "{}: {stats:?}", subject.name);
        }
    }
}

/// An executor, and what it is to merge.
struct Subject {
    name: String,
    machine: Arc<SimStorage>,
    tree: Tree,
    job: Job,
    executor: Box<dyn CompactionExecutor>,
}

impl Subject {
    fn run(&self, job: &Job) -> Result<JobResult> {
        self.run_by(&*self.executor, job, &|| false)
    }

    fn run_by(
        &self,
        executor: &dyn CompactionExecutor,
        job: &Job,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<JobResult> {
        let new_number = || self.tree.versions.new_file_number();
        executor.execute(job, &self.tree.workplace(None, &new_number, cancelled))
    }

    fn discard(&self, result: &JobResult) {
        let new_number = || self.tree.versions.new_file_number();
        let place: Workplace<'_> = self.tree.workplace(None, &new_number, &|| false);
        remove_outputs(&place, &result.outputs);
    }

    /// The bytes of the tables.
    fn bytes(&self, outputs: &[TableMeta]) -> Vec<Vec<u8>> {
        let path = |table: &TableMeta| self.tree.tables.path(table.number);
        let read = |table: &TableMeta| read_whole(&*self.machine, &path(table)).expect(WORKS);
        outputs.iter().map(read).collect()
    }

    /// Asserts that nothing but the tables of the tree lies in its directory.
    #[track_caller]
    fn assert_nothing_left(&self, before: &[u64]) {
        assert_eq!(table_files(&*self.machine), before, "{}", self.name);
        assert!(job_directories(&*self.machine).is_empty(), "{}", self.name);
    }
}

/// A tree that is due for a merge, and the merge: puts and deletions of 300 keys in six tables.
fn due(storage: &Arc<dyn Storage>) -> (Tree, Job) {
    let tree = open(storage).expect(WORKS);
    let mut last = 0;
    for round in 0..6_u64 {
        let mut memtable = Entries::new(&Order::Bytewise);
        for key in (round % 3..300).step_by(3 + round as usize % 2) {
            let value = format!("{round} {key} {}", "v".repeat(60));
            let value = (key % 7 != round).then_some(value.as_bytes());
            last += 1;
            memtable.push(format!("{key:08}").as_bytes(), last, value);
        }
        memtable.sort();
        let flush = Flush {
            last_sequence: last,
            oldest_snapshot: 0,
            bytes: memtable.bytes() as u64,
            hidden: &Hidden::default(),
            hurried: last.is_multiple_of(3),
        };
        tree.flush(&mut memtable, &flush).expect(WORKS);
    }
    let job = {
        let running = lock(&tree.running);
        let version = tree.version();
        let hidden = Hidden::default();
        let context: Context<'_> = tree.context(&version, &running, last / 2, &hidden);
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
        .map(|at| Grandparent {
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

fn facts(outputs: &[TableMeta]) -> Vec<(Vec<u8>, Vec<u8>, Option<TableFacts>)> {
    let of = |table: &TableMeta| {
        let (smallest, largest) = (table.smallest.clone(), table.largest.clone());
        (smallest, largest, table.facts())
    };
    outputs.iter().map(of).collect()
}

/// A tree whose tables hold a few kilobytes and whose levels fill quickly.
pub(super) fn small() -> TreeSettings {
    let table = TableSettings {
        block_bytes: 512,
        compression: Compression::None,
        ..TableSettings::default()
    };
    let shape = Shape {
        level0_trigger: 3,
        level_base_bytes: 8 << 10,
        fan_out: 4,
        table_bytes: 2 << 10,
    };
    TreeSettings {
        table,
        shape,
        max_open_tables: 20,
        compaction_bytes_per_second: 0,
        offload: None,
    }
}

pub(super) fn dir() -> PathBuf {
    PathBuf::from("/db")
}

pub(super) fn machine(seed: u64) -> Arc<SimStorage> {
    let storage = SimStorage::new(seed);
    storage.create_dir(&dir()).expect(WORKS);
    storage.sync_dir(Path::new("/")).expect(WORKS);
    storage
}

pub(super) fn open(storage: &Arc<dyn Storage>) -> Result<Tree> {
    Tree::open(storage, &dir(), &memory(), small())
}

/// Memory for the tables of a tree, with a cache of a mebibyte.
pub(super) fn memory() -> TableMemory {
    TableMemory::own(&dir(), 1 << 20)
}

/// The names of all table files.
pub(super) fn table_files(storage: &dyn Storage) -> Vec<u64> {
    let entries = storage.list(&dir()).expect(WORKS);
    let mut numbers: Vec<u64> = entries
        .iter()
        .filter_map(|entry| match parse(&entry.name)? {
            FileKind::Table(number) => Some(number),
            _ => None,
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The directories in that of the database: those of jobs.
pub(super) fn job_directories(storage: &dyn Storage) -> Vec<String> {
    let entries = storage.list(&dir()).expect("the directory");
    let directories = entries.into_iter().filter(|entry| entry.is_dir);
    directories.map(|entry| entry.name).collect()
}

fn the_same_job_gives_the_same_tables(subject: &Subject) {
    let (name, tree) = (&subject.name, &subject.tree);
    let before = table_files(&*subject.machine);
    for (variant, job) in variants(&subject.job) {
        let expected = subject
            .run_by(&LocalExecutor, &job, &|| false)
            .expect(WORKS);
        let result = subject.run(&job).expect(WORKS);
        assert!(!result.outputs.is_empty(), "{name}, {variant}");
        let contradicted = contradiction(&job, &result, tree.order());
        assert_eq!(contradicted, None, "{name}, {variant}");
        let told = facts(&result.outputs);
        assert_eq!(told, facts(&expected.outputs), "{name}, {variant}");
        let is_same = subject.bytes(&result.outputs) == subject.bytes(&expected.outputs);
        assert!(is_same, "{name}, {variant}: other bytes");
        let counted = Counters {
            elapsed_us: expected.counters.elapsed_us,
            ..result.counters
        };
        assert_eq!(counted, expected.counters, "{name}, {variant}");
        subject.discard(&expected);
        subject.discard(&result);
    }
    if let Some(stats) = subject.executor.offload_stats() {
        assert_eq!((stats.jobs, stats.local_jobs), (8, 0), "{name}: {stats:?}");
        assert_eq!(stats.share_percent, 100);
    }
    subject.assert_nothing_left(&before);
}

/// A job whose first tables are made already.
fn the_rest_of_a_job_gives_the_later_tables(subject: &Subject) {
    let (name, tree) = (&subject.name, &subject.tree);
    let before = table_files(&*subject.machine);
    for (variant, job) in variants(&subject.job) {
        let whole = subject.run_by(&LocalExecutor, &job, &|| false);
        let whole = whole.expect(WORKS);
        let expected = subject.bytes(&whole.outputs);
        let made = whole.outputs.len();
        for first in 0..=made {
            let from = match whole.outputs.get(first) {
                Some(table) => table.smallest_user_key().to_vec(),
                None => b"~".to_vec(),
            };
            let rest = Job {
                from: Some(from),
                ..job.clone()
            };
            let name = format!("{name}, {variant}, from table {first} of {made}");
            let result = subject.run(&rest).expect(WORKS);
            assert!(
                subject.bytes(&result.outputs) == expected[first..],
                "{name}"
            );
            assert_eq!(contradiction(&rest, &result, tree.order()), None, "{name}");
            subject.discard(&result);
        }
        subject.discard(&whole);
    }
    subject.assert_nothing_left(&before);
}

fn applied_graves_are_claimed_and_no_others(subject: &Subject) {
    let (_, with_graves) = variants(&subject.job).swap_remove(1);
    let result = subject.run(&with_graves).expect(WORKS);
    assert!(result.counters.hidden > 0, "{}", subject.name);
    for table in &result.outputs {
        let through = table.facts().map(|facts| facts.purged_through);
        assert_eq!(through, Some(200), "{}", subject.name);
    }
}

fn limits_cut_tables(subject: &Subject) {
    let counts = |variant| {
        let (_, job) = variants(&subject.job).swap_remove(variant);
        subject.run(&job).expect(WORKS).outputs.len()
    };
    let name = &subject.name;
    assert_eq!(counts(3), 1, "{name}");
    let (small, by_grandparents) = (counts(4), counts(7));
    assert!(small > 10, "{name}: {small}");
    assert!(by_grandparents > 4, "{name}: {by_grandparents}");
}

fn a_cancelled_job_leaves_nothing(subject: &Subject) {
    let before = table_files(&*subject.machine);
    let outcome = subject.run_by(&*subject.executor, &subject.job, &|| true);
    let is_closed = matches!(outcome, Err(Error::Closed(_)));
    assert!(is_closed, "{}: {outcome:?}", subject.name);
    subject.assert_nothing_left(&before);
}

fn a_full_disk_is_told_and_leaves_nothing(subject: &Subject) {
    let machine = &subject.machine;
    let before = table_files(&**machine);
    let entries = machine.list(&dir()).expect(WORKS);
    let used: u64 = entries.iter().map(|it| it.bytes).sum();
    machine.set_capacity(Some(used + 3000));
    let outcome = subject.run(&subject.job);
    let is_full = matches!(&outcome, Err(error) if error.is_out_of_space());
    assert!(is_full, "{}: {outcome:?}", subject.name);
    subject.assert_nothing_left(&before);
    machine.set_capacity(None);
    // The worker is left alone for a while after that.
    machine.sleep(Duration::from_secs(61));
    subject.run(&subject.job).expect(WORKS);
}

fn damaged_inputs_are_told_and_leave_nothing(subject: &Subject) {
    let before = table_files(&*subject.machine);
    let table = &subject.job.inputs[0].tables[0];
    let path = subject.tree.tables.path(table.number);
    subject.machine.flip_bit(&path, 8 * 100).expect(WORKS);
    let outcome = subject.run(&subject.job);
    let is_told = matches!(outcome, Err(Error::Corruption { .. }));
    assert!(is_told, "{}: {outcome:?}", subject.name);
    subject.assert_nothing_left(&before);
}
