//! The whole tree as a model: tables are lists in memory, picks are the real ones, merges run the real rules.
//! Whatever is picked, and in whatever order jobs that run at once are installed, every key reads the same at
//! every snapshot that may be read.

use super::{LAYOUT, facts, shared, table};
use crate::error::Result;
use crate::lsm::compaction::merge::{Output, merge};
use crate::lsm::compaction::{
    Choice, Claim, Context, Counters, Hidden, Job, Running, Shape, Traffic, pick,
};
use crate::lsm::version::{Change, LEVELS, Version};
use crate::sst::InternalIterator;
use crate::sst::TableMeta;
use crate::sync::Arc;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use waystation_format::key::{
    MAX_SEQUENCE, ValueKind, append, compare_internal, trailer, user_key,
};
use waystation_format::order::Order;

/// Every entry counts as this many bytes.
const ENTRY_BYTES: u64 = 4;

/// Levels that fill quickly.
const TINY: Shape = Shape {
    level0_trigger: 3,
    level_base_bytes: 40,
    fan_out: 2,
    table_bytes: 10,
};

/// An internal key; its sequence number stands for the value.
type Entry = Vec<u8>;

/// Keys, each with whether it is deleted or put.
type Writes = Vec<(u8, bool)>;

struct Entries {
    entries: Vec<Entry>,
    at: usize,
}

impl InternalIterator for Entries {
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }
    fn key(&self) -> &[u8] {
        &self.entries[self.at]
    }
    fn value(&self) -> &[u8] {
        b""
    }
    fn seek_to_last(&mut self) -> Result<()> {
        unreachable!("a merge only goes forward")
    }
    fn seek(&mut self, _: &[u8]) -> Result<()> {
        unreachable!("a merge only goes forward")
    }
    fn seek_for_prev(&mut self, _: &[u8]) -> Result<()> {
        unreachable!("a merge only goes forward")
    }
    fn prev(&mut self) -> Result<()> {
        unreachable!("a merge only goes forward")
    }
}

#[derive(Default)]
struct Tables {
    current: Vec<Entry>,
    done: Vec<Vec<Entry>>,
}

impl Output for Tables {
    fn add(&mut self, internal_key: &[u8], _: &[u8]) -> Result<()> {
        self.current.push(internal_key.to_vec());
        Ok(())
    }
    fn table_bytes(&self) -> u64 {
        self.current.len() as u64 * ENTRY_BYTES
    }
    fn cut(&mut self, _: Option<(&Counters, &[u8])>) -> Result<()> {
        assert!(!self.current.is_empty(), "an empty table is cut");
        self.done.push(std::mem::take(&mut self.current));
        Ok(())
    }
}

struct Model {
    version: Version,
    content: BTreeMap<u64, Vec<Entry>>,
    next_number: u64,
    last_sequence: u64,
    smallest_snapshot: u64,
    running: Running,
    /// Picks that are not yet installed: the ticket and its change.
    pending: Vec<(u64, Change)>,
}

impl Model {
    fn new() -> Self {
        Self {
            version: Version::empty(&Order::Bytewise),
            content: BTreeMap::new(),
            next_number: 1,
            last_sequence: 0,
            smallest_snapshot: 0,
            running: Running::default(),
            pending: Vec::new(),
        }
    }

    fn add_table(&mut self, entries: Vec<Entry>) -> Arc<TableMeta> {
        let number = self.next_number;
        self.next_number += 1;
        let (smallest, largest) = (entries[0].clone(), entries[entries.len() - 1].clone());
        let mut meta = table(
            number,
            smallest,
            largest,
            entries.len() as u64 * ENTRY_BYTES,
        );
        let deletions = entries.iter().filter(|entry| !is_value(entry)).count() as u64;
        let newest = entries
            .iter()
            .map(|entry| trailer(entry) >> 8)
            .max()
            .unwrap();
        meta.facts = Some(facts(entries.len() as u64, deletions, newest)).into();
        self.content.insert(number, entries);
        shared(meta)
    }

    /// A sorted run of new versions: the keys written, and whether each is a deletion.
    fn new_run(&mut self, writes: &[(u8, bool)]) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for &(key, deletion) in writes {
            self.last_sequence += 1;
            let kind = if deletion {
                ValueKind::Deletion
            } else {
                ValueKind::Value
            };
            let mut entry = Vec::new();
            append(&mut entry, &[b'a' + key], self.last_sequence, kind);
            entries.push(entry);
        }
        entries.sort_by(|a, b| compare_internal(a, b));
        entries
    }

    /// Adds a table to level 0.
    fn flush(&mut self, writes: &[(u8, bool)]) {
        let entries = self.new_run(writes);
        let change = Change {
            removed: Vec::new(),
            added: vec![(0, self.add_table(entries))],
        };
        self.version = self.version.with(&change).unwrap();
    }

    /// Fills the levels as another program may have: tables cut anywhere, even between versions of one key.
    fn inherit(&mut self, levels: &[(Writes, Vec<usize>)]) {
        for (depth, (writes, cuts)) in levels.iter().enumerate() {
            let entries = self.new_run(writes);
            let mut change = Change::default();
            for chunk in split(entries, cuts) {
                change
                    .added
                    .push((levels.len() - depth, self.add_table(chunk)));
            }
            self.version = self.version.with(&change).unwrap();
        }
    }

    /// Picks and runs, but does not install. Whether there was anything to do.
    fn start(&mut self) -> bool {
        let context = Context {
            version: &self.version,
            shape: &TINY,
            layout: LAYOUT,
            running: &self.running,
            smallest_snapshot: self.smallest_snapshot,
            traffic: match self.smallest_snapshot % 3 {
                0 => Traffic::Writes,
                1 => Traffic::Reads,
                _ => Traffic::None,
            },
            seek_credit_bytes: self.smallest_snapshot % 1000,
            hidden: &Hidden::default(),
        };
        let choice = pick(&context);
        let Some((tables, level, range)) = choice.footprint(&Order::Bytewise) else {
            return false;
        };
        let claim = Claim::new(tables, level, &range);
        let change = match &choice {
            Choice::Nothing => return false,
            Choice::Move(moved) => Change {
                removed: moved
                    .tables
                    .iter()
                    .map(|table| (moved.from, table.number))
                    .collect(),
                added: moved
                    .tables
                    .iter()
                    .map(|table| (moved.to, Arc::clone(table)))
                    .collect(),
            },
            Choice::Drop(discard) => Change {
                removed: discard
                    .tables
                    .iter()
                    .map(|table| (discard.level, table.number))
                    .collect(),
                added: Vec::new(),
            },
            Choice::Merge(job) => self.run(job),
        };
        let ticket = self.running.add(claim);
        self.pending.push((ticket, change));
        true
    }

    fn run(&mut self, job: &Job) -> Change {
        let mut entries: Vec<Entry> = job
            .tables()
            .flat_map(|table| self.content[&table.number].clone())
            .collect();
        entries.sort_by(|a, b| compare_internal(a, b));
        let mut outputs = Tables::default();
        let mut input = Entries { entries, at: 0 };
        merge(job, &Order::Bytewise, &mut input, &mut outputs, &|| false).unwrap();
        let mut change = Change::default();
        for input in &job.inputs {
            change
                .removed
                .extend(input.tables.iter().map(|table| (input.level, table.number)));
        }
        for output in outputs.done {
            change
                .added
                .push((job.output_level, self.add_table(output)));
        }
        change
    }

    fn install(&mut self, which: usize) {
        let (ticket, change) = self.pending.swap_remove(which);
        self.running.remove(ticket);
        self.version = self.version.with(&change).unwrap();
    }

    /// The sequence number of the version of `key` that a reader at `snapshot` sees.
    fn get(&self, key: u8, snapshot: u64) -> Option<u64> {
        let mut lookup = Vec::new();
        append(&mut lookup, &[b'a' + key], snapshot, ValueKind::SEEK);
        for level in 0..LEVELS {
            let tables: Vec<&Arc<TableMeta>> = if level == 0 {
                self.version.level(0).iter().collect()
            } else {
                self.version
                    .seek_version(level, user_key(&lookup), snapshot)
                    .into_iter()
                    .collect()
            };
            for table in tables {
                let entries = &self.content[&table.number];
                let at = entries
                    .partition_point(|entry| compare_internal(entry, &lookup) == Ordering::Less);
                let found = entries
                    .get(at)
                    .filter(|entry| user_key(entry) == user_key(&lookup));
                if let Some(entry) = found {
                    return is_value(entry).then_some(trailer(entry) >> 8);
                }
            }
        }
        None
    }

    fn readings(&self) -> Vec<Option<u64>> {
        let newest = self.smallest_snapshot.max(self.last_sequence);
        let snapshots = (self.smallest_snapshot..=newest).chain([MAX_SEQUENCE]);
        snapshots
            .flat_map(|snapshot| (0..KEYS).map(move |key| self.get(key, snapshot)))
            .collect()
    }
}

fn is_value(entry: &[u8]) -> bool {
    trailer(entry) & 0xff == ValueKind::Value as u64
}

fn split(entries: Vec<Entry>, cuts: &[usize]) -> Vec<Vec<Entry>> {
    let mut chunks = vec![Vec::new()];
    for (at, entry) in entries.into_iter().enumerate() {
        if cuts.contains(&at) && !chunks[chunks.len() - 1].is_empty() {
            chunks.push(Vec::new());
        }
        let last = chunks.len() - 1;
        chunks[last].push(entry);
    }
    chunks
}

const KEYS: u8 = 6;

#[derive(Debug, Clone)]
enum Step {
    /// Writes a table to level 0.
    Flush(Writes),
    /// Lets snapshots up to this share (of 8) of all sequence numbers go.
    Release(u64),
    Start,
    Install(usize),
}

fn writes() -> impl Strategy<Value = Writes> {
    prop::collection::vec((0..KEYS, prop::bool::weighted(0.4)), 1..25)
}

fn inherited() -> impl Strategy<Value = Vec<(Writes, Vec<usize>)>> {
    let cuts = prop::collection::vec(0..25_usize, 1..12);
    prop::collection::vec((writes(), cuts), 0..5)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => writes().prop_map(Step::Flush),
        2 => (0..=8_u64).prop_map(Step::Release),
        4 => Just(Step::Start),
        4 => (0..4_usize).prop_map(Step::Install),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn no_choice_changes_what_is_read(inherited in inherited(), steps in steps()) {
        let mut model = Model::new();
        model.inherit(&inherited);
        for step in steps {
            match step {
                Step::Flush(writes) => model.flush(&writes),
                Step::Release(eighths) => {
                    let released = model.last_sequence * eighths / 8;
                    model.smallest_snapshot = model.smallest_snapshot.max(released);
                }
                Step::Start => {
                    model.start();
                }
                Step::Install(which) if !model.pending.is_empty() => {
                    let before = model.readings();
                    model.install(which % model.pending.len());
                    prop_assert_eq!(before, model.readings());
                }
                Step::Install(_) => {}
            }
        }
        let before = model.readings();
        let mut rounds = 0;
        loop {
            while model.start() {}
            if model.pending.is_empty() {
                break;
            }
            model.install(0);
            rounds += 1;
            prop_assert!(rounds < 10_000, "the tree never comes to rest");
        }
        prop_assert_eq!(before, model.readings());
        prop_assert!(model.version.level(0).len() < TINY.level0_trigger);
    }
}
