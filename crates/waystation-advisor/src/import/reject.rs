//! What was not understood: per reason a count, and the first few places.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::RowError;

/// Places kept per reason.
const EXAMPLES: usize = 3;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rejected {
    count: u64,
    examples: Vec<String>,
}

/// Rows that were not understood, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejections {
    by_reason: BTreeMap<&'static str, Rejected>,
    /// Rows that are no requests (comments, other events), which a format may contain.
    pub other_rows: u64,
    /// Completions of requests whose issue is not in the trace.
    pub unmatched_completions: u64,
}

impl Rejections {
    /// Counts one row.
    pub(super) fn add(&mut self, file: &Path, line: u64, error: &RowError) {
        let rejected = self.by_reason.entry(error.reason).or_default();
        rejected.count += 1;
        if rejected.examples.len() < EXAMPLES {
            let mut found = error.found.clone();
            if found.len() > 60 {
                let end = (0..=60)
                    .rev()
                    .find(|end| found.is_char_boundary(*end))
                    .unwrap_or(0);
                found.truncate(end);
                found.push_str("...");
            }
            rejected
                .examples
                .push(format!("{}, line {line}: \"{found}\"", file.display()));
        }
    }

    /// Rows that were not understood.
    pub fn count(&self) -> u64 {
        self.by_reason.values().map(|rejected| rejected.count).sum()
    }

    /// Whether every row was understood.
    pub fn is_empty(&self) -> bool {
        self.by_reason.is_empty()
    }

    /// How many rows were rejected for `reason`.
    pub fn of(&self, reason: &str) -> u64 {
        self.by_reason
            .get(reason)
            .map_or(0, |rejected| rejected.count)
    }
}

impl fmt::Display for Rejections {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count() {
            1 => write!(formatter, "1 row was not understood:")?,
            count => write!(formatter, "{count} rows were not understood:")?,
        }
        for (reason, rejected) in &self.by_reason {
            write!(formatter, "\n  {} x {reason}", rejected.count)?;
            for example in &rejected.examples {
                write!(formatter, "\n      {example}")?;
            }
        }
        Ok(())
    }
}
