//! The whole-tree checker: everything that must hold of tables and levels, looked at entry by entry.

use super::Tree;
use crate::error::Result;
use crate::lsm::iter::Source;
use crate::lsm::version::{Change, Version};
use crate::sst::InternalIterator;
use crate::sst::{TableFacts, TableMeta};
use crate::sync::Arc;
use std::cmp::Ordering;
use waystation_format::key::{InternalKey, ValueKind, user_key};
use waystation_format::order::Order;

/// What a check looked at, and what it found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckReport {
    /// Tables read in full.
    pub tables: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their entries.
    pub entries: u64,
    /// Versions in the upper level that were read in the log.
    pub upper_entries: u64,
    /// Everything that does not hold; empty if all is well.
    pub problems: Vec<Problem>,
}

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// The level of the table.
    pub level: usize,
    /// The number of the table; 0 where it is none.
    pub table: u64,
    /// What does not hold, as a sentence.
    pub reason: String,
}

impl Tree {
    /// Reads every table of the newest version: every block's checksum, the order of keys, bounds, counts and
    /// sequence numbers against what the MANIFEST and the table say, and the order of the levels.
    ///
    /// Sequence numbers may go up to `written_through` where devices settle before the memtables are flushed.
    pub(crate) fn check(&self, written_through: u64) -> Result<CheckReport> {
        let (version, flushed_through) = self.versions.current_and_flushed_through();
        let known_through = flushed_through.max(written_through);
        let mut report = CheckReport::default();
        if let Err(reason) = version.with(&Change::default()) {
            report.problems.push(Problem {
                level: 0,
                table: 0,
                reason,
            });
        }
        for (level, table) in version.tables() {
            report.tables += 1;
            report.bytes += table.file_bytes;
            let mut problem = |reason: String| {
                report.problems.push(Problem {
                    level,
                    table: table.number,
                    reason,
                });
            };
            match self.walk(table) {
                Err(error) => problem(error.to_string()),
                Ok(walk) => {
                    walk.compare(table, known_through)
                        .into_iter()
                        .for_each(&mut problem);
                    report.entries += walk.facts.entries;
                }
            }
        }
        if report.problems.is_empty() {
            self.check_depths(&version, &mut report)?;
        }
        Ok(report)
    }

    /// Reads all entries of a table.
    fn walk(&self, table: &TableMeta) -> Result<Walk> {
        let opened = self.tables.get(table)?;
        let mut walk = Walk {
            told: opened.facts(),
            ..Walk::default()
        };
        let mut cursor = opened.scan();
        cursor.seek_to_first()?;
        while cursor.valid() {
            walk.add(self.order(), cursor.key());
            cursor.next()?;
        }
        Ok(walk)
    }

    /// For every key, a place that is looked at earlier holds newer versions than one looked at later: one pass
    /// over all places at once.
    fn check_depths(&self, version: &Arc<Version>, report: &mut CheckReport) -> Result<()> {
        let mut places = Vec::new();
        self.sources(version, None, None, &mut places);
        for place in &mut places {
            place.seek_to_first()?;
        }
        let mut last: Option<(Vec<u8>, usize)> = None;
        let order = self.order();
        while let Some(next) = least(order, &places) {
            let internal_key = places[next].key();
            match &mut last {
                // The same version once more, of an edit that failed and was there nevertheless.
                Some((key, _)) if key == internal_key => {}
                Some((key, place)) if order.is_same(user_key(key), user_key(internal_key)) => {
                    if next < *place {
                        let reason =
                            "an older version of a key is looked at before a newer one".to_owned();
                        report.problems.push(Problem {
                            level: 0,
                            table: 0,
                            reason,
                        });
                        return Ok(());
                    }
                    *place = next;
                    key.clear();
                    key.extend_from_slice(internal_key);
                }
                _ => last = Some((internal_key.to_vec(), next)),
            }
            places[next].next()?;
        }
        Ok(())
    }
}

/// The place with the least key; among equal ones, the first.
fn least(order: &Order, places: &[Source]) -> Option<usize> {
    let valid = (0..places.len()).filter(|&place| places[place].valid());
    valid.min_by(|&a, &b| order.compare_internal(places[a].key(), places[b].key()))
}

/// What walking over a table found.
#[derive(Default)]
struct Walk {
    facts: TableFacts,
    told: Option<TableFacts>,
    smallest: Vec<u8>,
    largest: Vec<u8>,
    disorder: Option<u64>,
    malformed: u64,
}

impl Walk {
    fn add(&mut self, order: &Order, internal_key: &[u8]) {
        let facts = &mut self.facts;
        if facts.entries == 0 {
            self.smallest = internal_key.to_vec();
            facts.smallest_sequence = u64::MAX;
        } else if order.compare_internal(&self.largest, internal_key) != Ordering::Less {
            self.disorder.get_or_insert(facts.entries);
        }
        self.largest.clear();
        self.largest.extend_from_slice(internal_key);
        facts.entries += 1;
        match InternalKey::parse(internal_key) {
            Ok(key) => {
                facts.deletions += u64::from(key.kind == ValueKind::Deletion);
                facts.smallest_sequence = facts.smallest_sequence.min(key.sequence);
                facts.largest_sequence = facts.largest_sequence.max(key.sequence);
            }
            Err(_) => self.malformed += 1,
        }
    }

    /// Everything that does not hold, as sentences.
    fn compare(&self, table: &TableMeta, known_through: u64) -> Vec<String> {
        let mut problems = Vec::new();
        let mut expect = |holds: bool, problem: &dyn Fn() -> String| {
            if !holds {
                problems.push(problem());
            }
        };
        expect(self.facts.entries > 0, &|| "it has no entries".to_owned());
        expect(self.malformed == 0, &|| {
            format!("{} entries have malformed keys", self.malformed)
        });
        expect(self.disorder.is_none(), &|| {
            format!(
                "entry {} does not follow the one before",
                self.disorder.unwrap_or(0)
            )
        });
        expect(self.smallest == table.smallest, &|| {
            "its first key is not the one the MANIFEST names".to_owned()
        });
        expect(self.largest == table.largest, &|| {
            "its last key is not the one the MANIFEST names".to_owned()
        });
        expect(self.facts.largest_sequence <= known_through, &|| {
            format!(
                "it holds sequence number {}, and {known_through} is the last there was",
                self.facts.largest_sequence
            )
        });
        if let Some(told) = self.told {
            let found = TableFacts {
                purged_through: told.purged_through,
                ..self.facts
            };
            expect(found == told, &|| {
                format!("it says of itself {told:?}, and holds {found:?}")
            });
        }
        problems
    }
}
