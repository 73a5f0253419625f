//! YCSB's core workloads: reads, updates, inserts and scans of records with ten fields.
//!
//! | | what | whose |
//! |---|---|---|
//! | A | half reads, half updates | zipfian |
//! | B | 95 % reads, 5 % updates | zipfian |
//! | C | reads | zipfian |
//! | D | 95 % reads, 5 % inserts | latest |
//! | E | 95 % scans of 1 to 100 records, 5 % inserts | zipfian |
//! | F | half reads, half reads with an update after them | zipfian |
//!
//! Keys and fields are told by [`record`], whose turn it is by [`distribution`]; [`run`] does it. Source: YCSB, `CoreWorkload`
//! and its generators, and the files `workloada` to `workloadf`.

mod distribution;
mod record;
mod run;

use crate::protocol::Figures;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use record::RECORD_BYTES as YCSB_RECORD_BYTES;
pub(crate) use run::run_ycsb;

/// One of the core workloads, or what comes before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum YcsbPhase {
    /// Inserts of all records, in the order of their numbers
    Load,
    /// Deletions of all records that were loaded, in the same order
    Delete,
    /// Scans of the tenth that is left after deletions, which a cursor from before keeps from being purged
    Graves,
    /// Operations
    #[serde(untagged)]
    Run(YcsbWorkload),
}

/// One of the core workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum YcsbWorkload {
    /// Half reads, half updates
    A,
    /// 95 % reads, 5 % updates
    B,
    /// Reads
    C,
    /// 95 % reads of what was inserted last, 5 % inserts
    D,
    /// 95 % scans, 5 % inserts
    E,
    /// Half reads, half read-modify-writes
    F,
}

impl YcsbWorkload {
    /// In the order in which they are run by convention: those that add records come last.
    pub(crate) const IN_ORDER: [Self; 6] = [Self::A, Self::B, Self::C, Self::F, Self::D, Self::E];

    /// Whether it starts from records as they were loaded, whatever ran before.
    pub(crate) fn needs_fresh_records(self) -> bool {
        self == Self::E
    }

    /// How many of a hundred operations are of which kind; the rest is of the other one.
    fn mix(self) -> (Operation, u32, Operation) {
        match self {
            Self::A => (Operation::Read, 50, Operation::Update),
            Self::B => (Operation::Read, 95, Operation::Update),
            Self::C => (Operation::Read, 100, Operation::Update),
            Self::D => (Operation::Read, 95, Operation::Insert),
            Self::E => (Operation::Scan, 95, Operation::Insert),
            Self::F => (Operation::Read, 50, Operation::ReadModifyWrite),
        }
    }

    /// Its name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
        }
    }
}

/// What is done to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// All its fields are read.
    Read,
    /// One field is replaced: the record is read, and put.
    Update,
    /// A new one is put.
    Insert,
    /// It, and those after it, are read.
    Scan,
    /// It is read, and updated.
    ReadModifyWrite,
    /// It is deleted.
    Delete,
}

impl Operation {
    const ALL: [Self; 6] = [
        Self::Read,
        Self::Update,
        Self::Insert,
        Self::Scan,
        Self::ReadModifyWrite,
        Self::Delete,
    ];
}

/// How much is done.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct YcsbLoad {
    /// Records that are loaded.
    pub(crate) records: u32,
    /// Operations, by all threads.
    pub(crate) operations: u32,
    /// Threads.
    pub(crate) threads: u32,
}

/// One kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationFigures {
    /// Which.
    pub(crate) operation: Operation,
    /// How many.
    pub(crate) ops: u64,
    /// The latency that half of them do not exceed.
    pub(crate) p50_us: f64,
    /// The latency that 99 % of them do not exceed.
    pub(crate) p99_us: f64,
    /// The latency that 99.9 % of them do not exceed.
    pub(crate) p999_us: f64,
    /// The longest.
    pub(crate) max_us: f64,
}

/// The figures of one phase, as they stand in the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct YcsbFigures {
    /// Those of every benchmark.
    #[serde(flatten)]
    pub(crate) common: Figures,
    /// Records that scans found.
    pub(crate) scanned: u64,
    /// Seconds until the rate came to nine tenths of that of the last quarter; missing in phases of less than 20 seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) adapted_s: Option<f64>,
    /// By kind of operation.
    pub(crate) operations: Vec<OperationFigures>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workloads_are_offered_and_have_their_place_in_the_order() {
        let mut sorted = YcsbWorkload::IN_ORDER;
        sorted.sort_unstable();
        assert_eq!(sorted, YcsbWorkload::value_variants());
        for workload in sorted {
            let json = serde_json::to_string(&YcsbPhase::Run(workload)).expect("a plain enum");
            assert_eq!(json, format!("\"{}\"", workload.name()));
            let back: YcsbPhase = serde_json::from_str(&json).expect("a phase");
            assert_eq!(back, YcsbPhase::Run(workload));
        }
        let json = serde_json::to_string(&YcsbPhase::Load).expect("a plain enum");
        assert_eq!(json, "\"load\"");
        let back: YcsbPhase = serde_json::from_str(&json).expect("a phase");
        assert_eq!(back, YcsbPhase::Load);
        for (json, phase) in [
            ("\"delete\"", YcsbPhase::Delete),
            ("\"graves\"", YcsbPhase::Graves),
        ] {
            let back: YcsbPhase = serde_json::from_str(json).expect("a phase");
            assert_eq!(back, phase);
        }
    }
}
