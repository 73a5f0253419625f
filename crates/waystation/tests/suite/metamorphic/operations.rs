//! Operations on a database, as they follow from a seed.

use crate::support::Random;

/// A key and the length and byte of its value, or its deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<(usize, u8)>,
}

/// What is done to a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A batch, synced or not.
    Write(Vec<Change>, bool),
    /// The deletion of a range of keys, to the last key if there is no end.
    DeleteRange(Vec<u8>, Option<Vec<u8>>),
    /// The value of a key, now.
    Get(Vec<u8>),
    /// Some keys from one on, forwards or backwards.
    Scan(Vec<u8>, bool),
    /// All keys of a range.
    Range(Vec<u8>, Vec<u8>),
    /// A snapshot is taken, if there are not many.
    TakeSnapshot,
    /// The oldest snapshot is read in full, and released.
    ReadSnapshot,
    /// A device departs.
    Depart(u64),
    /// A device settles.
    Settle(u64),
    Flush,
    Compact,
    /// Closed and opened again.
    Reopen,
    /// The process dies.
    Crash,
}

const DEVICES: u64 = 4;

fn key(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => Vec::new(),
        1..6 => format!("k{:02}", random.below(40)).into_bytes(),
        _ => format!("d{}:{:02}", random.below(DEVICES), random.below(12)).into_bytes(),
    }
}

fn change(random: &mut Random) -> Change {
    let bytes = match random.below(40) {
        0 => random.below(30_000),
        1..8 => random.below(3000),
        _ => random.below(60),
    };
    let value = (bytes as usize, random.next() as u8);
    Change {
        key: key(random),
        value: (random.below(4) > 0).then_some(value),
    }
}

/// Deletes a few neighbours as a rule, many now and then.
fn delete_range(random: &mut Random) -> Operation {
    let start = key(random);
    let end = match random.below(8) {
        0 => None,
        1..4 => Some(key(random)),
        _ => Some([&start[..], b"~"].concat()),
    };
    match end {
        Some(end) if end <= start => Operation::DeleteRange(end, Some([&start[..], b"~"].concat())),
        end => Operation::DeleteRange(start, end),
    }
}

/// The operations of `seed`.
pub(crate) fn list(seed: u64, count: usize) -> Vec<Operation> {
    let mut random = Random(seed);
    (0..count)
        .map(|_| match random.below(100) {
            0..43 => {
                let most = 1 + random.below(8);
                let count = 1 + random.below(most);
                let changes = (0..count).map(|_| change(&mut random)).collect();
                Operation::Write(changes, random.below(8) == 0)
            }
            43..46 => delete_range(&mut random),
            46..65 => Operation::Get(key(&mut random)),
            65..75 => Operation::Scan(key(&mut random), random.below(2) == 0),
            75..80 => Operation::Range(key(&mut random), key(&mut random)),
            80..84 => Operation::TakeSnapshot,
            84..88 => Operation::ReadSnapshot,
            88..91 => Operation::Depart(random.below(DEVICES)),
            91..93 => Operation::Settle(random.below(DEVICES)),
            93..96 => Operation::Flush,
            96..97 => Operation::Compact,
            97..98 => Operation::Crash,
            _ => Operation::Reopen,
        })
        .collect()
}
