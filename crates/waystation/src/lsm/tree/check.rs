//! The whole-tree checker: everything that must hold of tables and levels, looked at entry by entry.

use super::Tree;
use crate::error::Result;
use crate::lsm::iter::Source;
use crate::lsm::version::{Change, Version};
use crate::sst::InternalIterator;
use crate::sst::Walk;
use crate::sync::Arc;
use waystation_format::key::user_key;
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
            match self
                .tables
                .get(table)
                .and_then(|opened| Walk::over(&opened))
            {
                Err(error) => problem(error.to_string()),
                Ok(walk) => {
                    walk.compare(table, known_through)
                        .into_iter()
                        .for_each(&mut problem);
                    report.entries += walk.entries();
                }
            }
        }
        if report.problems.is_empty() {
            self.check_depths(&version, &mut report)?;
        }
        Ok(report)
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
