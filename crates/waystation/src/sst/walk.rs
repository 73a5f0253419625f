//! A walk over all entries of a table: whether they are in order, and what their table says of them is so.

use super::{InternalIterator, Table, TableFacts, TableMeta};
use crate::error::Result;
use std::cmp::Ordering;
use std::sync::Arc;
use waystation_format::key::{InternalKey, ValueKind};
use waystation_format::order::Order;

/// What walking over a table found.
#[derive(Default)]
pub(crate) struct Walk {
    facts: TableFacts,
    told: Option<TableFacts>,
    smallest: Vec<u8>,
    largest: Vec<u8>,
    disorder: Option<u64>,
    malformed: u64,
}

impl Walk {
    /// Reads every block of `table`.
    pub(crate) fn over(table: &Arc<Table>) -> Result<Self> {
        let mut walk = Self {
            told: table.facts(),
            ..Self::default()
        };
        let mut cursor = table.scan();
        cursor.seek_to_first()?;
        while cursor.valid() {
            walk.add(table.order(), cursor.key());
            cursor.next()?;
        }
        Ok(walk)
    }

    /// How many entries there are.
    pub(crate) fn entries(&self) -> u64 {
        self.facts.entries
    }

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

    /// What does not hold, as sentences: `table` names bounds, and `known_through` is the last sequence number there was.
    pub(crate) fn compare(&self, table: &TableMeta, known_through: u64) -> Vec<String> {
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
