//! The benchmarks by name, and what each needs before it.

use crate::error::{Error, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What one benchmark does to the database.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[value(rename_all = "lower")]
#[serde(rename_all = "lowercase")]
pub(crate) enum Benchmark {
    /// Puts of keys 0 to num in order, into a fresh database
    FillSeq,
    /// num puts of random keys, into a fresh database
    FillRandom,
    /// num puts of random keys, into the database as it is
    Overwrite,
    /// num/1000 (at least 1000) synced puts of random keys, into a fresh database of its own
    FillSync,
    /// num gets of random keys
    ReadRandom,
    /// num gets of random keys that do not exist
    ReadMissing,
    /// One iterator over up to num entries from the first
    ReadSeq,
    /// One iterator over up to num entries from the last
    ReadReverse,
    /// num times a new iterator, sought to a random key
    SeekRandom,
    /// Deletes of keys 0 to num in order
    DeleteSeq,
    /// P2's sequence, in databases of its own: fillseq, deleteseq, readrandom, readseq (give it 4 threads)
    P2,
    /// 500,000 keys deleted one by one, and by range, in databases of its own
    MassDelete,
    /// A queue, and expiry under ingest, in databases of its own
    Churn,
}

/// The fewest synced puts a thread does in `fillsync`.
const MIN_SYNCED_OPS: u32 = 1000;

impl Benchmark {
    /// Whether it writes.
    pub(crate) fn is_write(self) -> bool {
        matches!(
            self,
            Self::FillSeq | Self::FillRandom | Self::Overwrite | Self::FillSync | Self::DeleteSeq
        )
    }

    /// Whether it is a whole scenario, in databases of its own.
    pub(crate) fn is_scenario(self) -> bool {
        matches!(self, Self::P2 | Self::MassDelete | Self::Churn)
    }

    /// Whether it replaces the database by a fresh one.
    pub(crate) fn is_fresh_fill(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom)
    }

    /// How many operations each thread does.
    pub(crate) fn ops_per_thread(self, num: u32) -> u32 {
        match self {
            Self::FillSync => (num / 1000).max(MIN_SYNCED_OPS),
            _ => num,
        }
    }

    /// Its name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FillSeq => "fillseq",
            Self::FillRandom => "fillrandom",
            Self::Overwrite => "overwrite",
            Self::FillSync => "fillsync",
            Self::ReadRandom => "readrandom",
            Self::ReadMissing => "readmissing",
            Self::ReadSeq => "readseq",
            Self::ReadReverse => "readreverse",
            Self::SeekRandom => "seekrandom",
            Self::DeleteSeq => "deleteseq",
            Self::P2 => "p2",
            Self::MassDelete => "massdelete",
            Self::Churn => "churn",
        }
    }
}

impl fmt::Display for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Refuses a list in which something would run on an empty database, or twice (a row is one figure per name).
pub(crate) fn check_order(list: &[Benchmark]) -> Result<()> {
    let mut is_filled = false;
    for (position, benchmark) in list.iter().enumerate() {
        if list[..position].contains(benchmark) {
            let message =
                format!("{benchmark} is named twice; there is one row for each benchmark");
            return Err(Error::Refused(message));
        }
        is_filled |= benchmark.is_fresh_fill();
        let has_own = *benchmark == Benchmark::FillSync || benchmark.is_scenario();
        if !is_filled && !has_own {
            let message = format!(
                "{benchmark} needs a filled database: name fillseq or fillrandom before it"
            );
            return Err(Error::Refused(message));
        }
    }
    Ok(())
}

/// Which benchmarks bring a database to the state that `list[position]` starts from: the last fresh fill
/// before it and the writes since. Empty for one that starts from nothing.
pub(crate) fn replay_before(list: &[Benchmark], position: usize) -> Vec<(usize, Benchmark)> {
    let benchmark = list[position];
    if benchmark.is_fresh_fill() || benchmark == Benchmark::FillSync {
        return Vec::new();
    }
    let before = &list[..position];
    let fill = before.iter().rposition(|earlier| earlier.is_fresh_fill());
    let Some(fill) = fill else {
        return Vec::new();
    };
    let positions = before.iter().copied().enumerate().skip(fill);
    positions
        .filter(|(_, earlier)| earlier.is_write() && *earlier != Benchmark::FillSync)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Benchmark::*;

    #[test]
    fn names_are_those_of_the_command_line_and_of_json() {
        for benchmark in Benchmark::value_variants() {
            let value = benchmark.to_possible_value().expect("all are offered");
            assert_eq!(value.get_name(), benchmark.name());
            let json = serde_json::to_string(benchmark).expect("a plain enum");
            assert_eq!(json, format!("\"{benchmark}\""));
        }
    }

    #[test]
    fn a_read_needs_a_fill_before_it() {
        assert!(check_order(&[FillSeq, ReadSeq]).is_ok());
        assert!(check_order(&[FillSync]).is_ok());
        assert!(check_order(&[FillSync, ReadSeq]).is_err());
        assert!(check_order(&[Overwrite, FillRandom]).is_err());
        assert!(check_order(&[FillSeq, ReadSeq, ReadSeq]).is_err());
    }

    #[test]
    fn a_repetition_replays_the_last_fill_and_the_writes_since() {
        let list = [FillSeq, FillRandom, ReadSeq, FillSync, Overwrite, DeleteSeq];
        assert_eq!(replay_before(&list, 0), []);
        assert_eq!(replay_before(&list, 1), []);
        assert_eq!(replay_before(&list, 3), []);
        assert_eq!(replay_before(&list, 4), [(1, FillRandom)]);
        assert_eq!(replay_before(&list, 5), [(1, FillRandom), (4, Overwrite)]);
    }

    #[test]
    fn synced_puts_are_few_but_not_too_few() {
        assert_eq!(FillSync.ops_per_thread(5_000_000), 5000);
        assert_eq!(FillSync.ops_per_thread(200_000), 1000);
        assert_eq!(ReadRandom.ops_per_thread(200_000), 200_000);
    }
}
