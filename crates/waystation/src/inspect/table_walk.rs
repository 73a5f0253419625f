//! What must hold of the entries of one table, met one after the other.

use std::cmp::Ordering;
use waystation_format::key::{InternalKey, ValueKind, compare_internal};
use waystation_format::table::Properties;
use waystation_format::version_edit::NewFile;

/// How many problems of a table are told one by one.
const TOLD: u64 = 10;

/// The walk through a table's entries so far.
pub(super) struct TableWalk<'a> {
    /// Whether keys are in the order of their bytes; nothing is said of any other order.
    is_bytewise: bool,
    table: &'a NewFile,
    previous: Vec<u8>,
    pub(super) entries: u64,
    deletions: u64,
    sequences: Option<(u64, u64)>,
    problems: u64,
    /// False once a part of the table could not be read: then nothing is said about counts and bounds.
    pub(super) is_complete: bool,
}

impl<'a> TableWalk<'a> {
    pub(super) fn new(table: &'a NewFile, is_bytewise: bool) -> Self {
        Self {
            is_bytewise,
            table,
            previous: Vec::new(),
            entries: 0,
            deletions: 0,
            sequences: None,
            problems: 0,
            is_complete: true,
        }
    }

    /// Takes the next entry's key, in a block that `separator` closes; its fault, if it has one. `is_hidden`: the
    /// table's filter says that it is not there.
    pub(super) fn entry(
        &mut self,
        key: &[u8],
        separator: &[u8],
        is_hidden: bool,
    ) -> Option<String> {
        self.entries += 1;
        let reason = self.judge(key, separator, is_hidden);
        key.clone_into(&mut self.previous);
        self.problems += u64::from(reason.is_some());
        reason.filter(|_| self.problems <= TOLD)
    }

    fn judge(&mut self, key: &[u8], separator: &[u8], is_hidden: bool) -> Option<String> {
        let entry = self.entries;
        let parsed = match InternalKey::parse(key) {
            Ok(parsed) => parsed,
            Err(error) => return Some(format!("entry {entry}: {}", error.reason())),
        };
        self.deletions += u64::from(parsed.kind == ValueKind::Deletion);
        let (low, high) = self.sequences.unwrap_or((u64::MAX, 0));
        self.sequences = Some((low.min(parsed.sequence), high.max(parsed.sequence)));
        let first = entry == 1;
        if self.is_bytewise && !first && compare_internal(&self.previous, key) != Ordering::Less {
            return Some(format!(
                "entry {entry} does not stand above the one before it"
            ));
        }
        if first && key != self.table.smallest {
            return Some("the first key is not the one the MANIFEST names".to_owned());
        }
        if self.is_bytewise && compare_internal(key, separator) == Ordering::Greater {
            return Some(format!(
                "entry {entry} stands above its block's key in the index, so that searches miss it"
            ));
        }
        if is_hidden {
            return Some(format!(
                "entry {entry} is hidden by the table's filter, so that searches miss it"
            ));
        }
        None
    }

    /// The fault of the table as a whole.
    pub(super) fn finish(self, properties: Option<&Properties>) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.problems > TOLD {
            reasons.push(format!("{} more entries are wrong", self.problems - TOLD));
        }
        if !self.is_complete {
            return reasons;
        }
        if self.previous != self.table.largest {
            reasons.push("the last key is not the one the MANIFEST names".to_owned());
        }
        if let Some(properties) = properties {
            let counted = (self.entries, self.deletions);
            if counted != (properties.entries, properties.deletions) {
                reasons.push(format!(
                    "{} entries and {} deletions are there, and the properties say {} and {}",
                    self.entries, self.deletions, properties.entries, properties.deletions
                ));
            }
            if let Some((low, high)) = self.sequences
                && (low, high) != (properties.smallest_sequence, properties.largest_sequence)
            {
                reasons.push(format!(
                    "sequence numbers {low} to {high} are there, and the properties say {} to {}",
                    properties.smallest_sequence, properties.largest_sequence
                ));
            }
        }
        reasons
    }
}
