//! All versions there are, merged by key, and of each key the newest.
//!
//! Sequence numbers decide, whatever level or file a version comes from; so it does no harm that a version is there
//! more than once, or that one is there still which was replaced. A version is hidden if a grave of its key has a
//! higher number, as for every reader (see `cemetery`).
//!
//! **Gaps.** Where a block does not check, its keys are in doubt: a newer version may have been in it. The newest
//! version that is found is saved only if none in the block can be newer: if its number is above all of the damaged
//! table's, or it comes from a shallower level, or from the log behind everything that was flushed. What is lost
//! otherwise is named.

use super::cursor::{Hidden, TableCursor};
use super::report::Gap;
use super::tables::FoundTable;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::points::hash;
use crate::error::Result;
use crate::storage::Storage;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::path::Path;
use waystation_format::key::{
    InternalKey, MAX_SEQUENCE, ValueKind, append, compare_internal, user_key,
};

/// Where versions come from.
pub(super) struct Input {
    pub(super) table: FoundTable,
    /// Whether it is a run of what logs held.
    pub(super) is_log: bool,
}

/// Takes an entry that is saved: key, value, when it expires.
pub(super) type Taker<'a> = dyn FnMut(&[u8], &[u8], Option<u64>) -> Result<()> + 'a;

/// The next version of one input.
struct Head {
    key: Vec<u8>,
    value: Vec<u8>,
    input: usize,
    /// False until the table is opened: then `key` is where it begins.
    is_entry: bool,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_internal(&self.key, &other.key)
            .then(self.is_entry.cmp(&other.is_entry))
            .then(self.input.cmp(&other.input))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// A gap that the merge is in, or comes to.
struct Doubt {
    gap: Gap,
    /// If the gap begins with the table: its first key, which is in it.
    from: Option<Vec<u8>>,
    input: usize,
    largest_sequence: Option<u64>,
}

impl Doubt {
    fn concerns(&self, key: &[u8]) -> bool {
        let is_behind = self.gap.after.as_deref().is_none_or(|after| key > after);
        let is_from = self.from.as_deref().is_none_or(|from| key >= from);
        is_behind && is_from && key <= &self.gap.through[..]
    }
}

/// The merge.
pub(super) struct Merge<'a> {
    pub(super) storage: &'a dyn Storage,
    /// Where tables are, and where runs are.
    pub(super) dirs: (&'a Path, &'a Path),
    pub(super) inputs: Vec<Input>,
    pub(super) graves: &'a FlushedGraves,
    /// What has expired by now.
    pub(super) time: u64,
    /// No table holds writes behind this one, if that is known.
    pub(super) flushed: Option<u64>,
}

/// The merge under way.
struct Run<'m, 'a> {
    merge: &'m Merge<'a>,
    heap: BinaryHeap<Reverse<Head>>,
    cursors: Vec<Option<TableCursor>>,
    doubts: Vec<Doubt>,
    gaps: Vec<Gap>,
    /// The key that was decided last.
    last: Option<Vec<u8>>,
}

impl Merge<'_> {
    /// Hands the saved entries to `take`, in the order of keys; returns the gaps.
    pub(super) fn run(&self, take: &mut Taker<'_>) -> Result<Vec<Gap>> {
        let heads = self.inputs.iter().enumerate().map(|(input, it)| {
            Reverse(Head {
                key: first_key(&it.table.smallest),
                value: Vec::new(),
                input,
                is_entry: false,
            })
        });
        let mut run = Run {
            merge: self,
            heap: heads.collect(),
            cursors: self.inputs.iter().map(|_| None).collect(),
            doubts: Vec::new(),
            gaps: Vec::new(),
            last: None,
        };
        while let Some(best) = run.next_entry(None)? {
            run.decide(&best, take)?;
        }
        let rest = run.doubts.into_iter().map(|doubt| doubt.gap);
        run.gaps.extend(rest);
        Ok(run.gaps)
    }

    /// Whether nothing in the gap of `doubt` can be newer than version `sequence` of `input`.
    fn is_newer(&self, sequence: u64, input: usize, doubt: &Doubt) -> bool {
        let (this, that) = (&self.inputs[input], &self.inputs[doubt.input]);
        if doubt
            .largest_sequence
            .is_some_and(|largest| largest <= sequence)
        {
            return true;
        }
        if this.is_log {
            return self.flushed.is_some_and(|flushed| sequence > flushed);
        }
        match (this.table.level, that.table.level) {
            (Some(0), Some(0)) => this.table.number > that.table.number,
            (Some(this), Some(that)) => this < that,
            _ => false,
        }
    }
}

impl Run<'_, '_> {
    /// The next version, of `key` if that is given. Tables that begin here are opened.
    fn next_entry(&mut self, key: Option<&[u8]>) -> Result<Option<Head>> {
        loop {
            let is_next = |head: &Reverse<Head>| key.is_none_or(|key| user_key(&head.0.key) == key);
            if !self.heap.peek().is_some_and(is_next) {
                return Ok(None);
            }
            let Some(Reverse(head)) = self.heap.pop() else {
                return Ok(None);
            };
            if head.is_entry {
                self.advance(head.input)?;
                return Ok(Some(head));
            }
            self.open(head.input)?;
        }
    }

    fn open(&mut self, input: usize) -> Result<()> {
        let Input { table, is_log } = &self.merge.inputs[input];
        let (tables, runs) = self.merge.dirs;
        let dir = if *is_log { runs } else { tables };
        match TableCursor::open(self.merge.storage, dir, table)? {
            Ok(cursor) => {
                self.cursors[input] = Some(cursor);
                self.advance(input)
            }
            Err((offset, reason)) => {
                let hidden = Hidden {
                    offset,
                    reason,
                    after: None,
                    through: user_key(&table.largest).to_vec(),
                };
                self.hide(hidden, input, None);
                Ok(())
            }
        }
    }

    /// Puts the next version of an input on the heap.
    fn advance(&mut self, input: usize) -> Result<()> {
        let Some(mut cursor) = self.cursors[input].take() else {
            return Ok(());
        };
        let largest_sequence = cursor.largest_sequence;
        let mut hidden = Vec::new();
        let next = cursor.next(&mut |part| hidden.push(part))?;
        for part in hidden {
            self.hide(part, input, largest_sequence);
        }
        if let Some((key, value)) = next {
            self.heap.push(Reverse(Head {
                key,
                value,
                input,
                is_entry: true,
            }));
            self.cursors[input] = Some(cursor);
        }
        Ok(())
    }

    fn hide(&mut self, hidden: Hidden, input: usize, largest_sequence: Option<u64>) {
        let table = &self.merge.inputs[input].table;
        let from = match hidden.after {
            Some(_) => None,
            None => Some(user_key(&table.smallest).to_vec()),
        };
        let gap = Gap {
            file: table.name.clone(),
            offset: hidden.offset,
            reason: hidden.reason,
            after: hidden.after.or_else(|| self.last.clone()),
            through: hidden.through,
            rescued: 0,
            lost_keys: Vec::new(),
        };
        self.doubts.push(Doubt {
            gap,
            from,
            input,
            largest_sequence,
        });
    }

    /// Decides about the key of `best`, the newest version that is found of it.
    fn decide(&mut self, best: &Head, take: &mut Taker<'_>) -> Result<()> {
        let key = user_key(&best.key);
        while self.next_entry(Some(key))?.is_some() {}
        let merge = self.merge;
        let Ok(version) = InternalKey::parse(&best.key) else {
            return Ok(());
        };
        let hash = hash(key);
        let dated = merge
            .graves
            .dated_covering(key, hash, MAX_SEQUENCE, merge.time);
        let covering = merge.graves.covering(key, hash, MAX_SEQUENCE).max(dated);
        let known = version.sequence.max(covering);
        let mut concerned = self.doubts.iter_mut().filter(|doubt| doubt.concerns(key));
        let in_doubt = concerned.find(|doubt| !merge.is_newer(known, best.input, doubt));
        if let Some(doubt) = in_doubt {
            doubt.gap.lost_keys.push(key.to_vec());
        } else if version.kind == ValueKind::Value && version.sequence >= covering {
            let expiry = merge.graves.date_of(key, version.sequence + 1);
            take(key, &best.value, expiry)?;
            for doubt in &mut self.doubts {
                doubt.gap.rescued += u64::from(doubt.concerns(key));
            }
        }
        self.last = Some(key.to_vec());
        let past = self
            .doubts
            .extract_if(.., |doubt| key >= &doubt.gap.through[..]);
        self.gaps.extend(past.map(|doubt| doubt.gap));
        Ok(())
    }
}

/// Where a table whose first internal key is `smallest` is to be opened: before all versions of that key.
fn first_key(smallest: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    append(&mut key, user_key(smallest), MAX_SEQUENCE, ValueKind::Value);
    key
}
