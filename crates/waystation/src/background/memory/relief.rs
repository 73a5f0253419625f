//! Relief: how the databases that share a ceiling give memory back when they come close to it. A pure function of what each of them
//! takes; `testdata/relief.txt` holds its script.
//!
//! ```text
//!   0        relief from 75 %         writers slow down from 90 %        100 %: the ceiling
//!   |  the cache has all that is left  |   a part of the cache is kept      |
//!   +--------------+-------------------+------------------------------------+
//!                  the largest memtable is flushed, or the largest indexes settle, one after the other
//! ```

use crate::background::plan::Id;

/// The cache may shrink to this part of its size.
const CACHE_KEPT_PART: u64 = 8;
/// This part of the ceiling is left to what reads, writes and merges take for a moment.
const SLACK_PART: u64 = 16;
/// From this share of the ceiling on memory is relieved,
const RELIEF: f64 = 0.75;
/// and from this on by both ways at once.
const URGENT: f64 = 0.9;
/// Databases relieve memory at once, at most so many by each way.
const TOGETHER: usize = 2;
/// Less than this brings nothing (bytes).
pub(super) const WORTH_BYTES: u64 = 16 << 10;

/// What may be taken (bytes).
#[derive(Debug, Clone, Copy)]
pub(super) struct Ceiling {
    pub(super) memory_bytes: u64,
    /// By the cache at most; a part of the above.
    pub(super) cache_bytes: u64,
}

/// What one database takes besides the cache (bytes).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Share {
    pub(super) id: Id,
    pub(super) memtable_bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) other_bytes: u64,
    /// It was asked to flush, or to let devices settle, and has not ended that.
    pub(super) is_flushing: bool,
    pub(super) is_settling: bool,
}

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Relief {
    /// How much the cache may keep.
    pub(super) cache_bytes: u64,
    /// How much of the ceiling is used, the least of the cache included.
    pub(super) fill: f64,
    /// This one flushes its memtable.
    pub(super) flush: Option<Id>,
    /// This one lets devices settle early.
    pub(super) settle: Option<Id>,
}

/// Decides where `shares` are taken.
pub(super) fn relieve(shares: &[Share], ceiling: &Ceiling) -> Relief {
    let memtables: u64 = shares.iter().map(|it| it.memtable_bytes).sum();
    let indexes: u64 = shares.iter().map(|it| it.index_bytes).sum();
    let others: u64 = shares.iter().map(|it| it.other_bytes).sum();
    let taken = memtables + indexes + others;
    let kept = ceiling.cache_bytes / CACHE_KEPT_PART;
    let slack = ceiling.memory_bytes / SLACK_PART;
    let left = ceiling.memory_bytes.saturating_sub(taken + slack);
    let fill = (taken + kept) as f64 / ceiling.memory_bytes.max(1) as f64;
    let relieves = |has_most: bool| fill > RELIEF && (has_most || fill > URGENT);
    let largest = |bytes: fn(&Share) -> u64, is_at_it: fn(&Share) -> bool| {
        let running = shares.iter().filter(|it| is_at_it(it)).count();
        let free = shares.iter().filter(|it| !is_at_it(it));
        let most = free.max_by_key(|it| (bytes(it), std::cmp::Reverse(it.id)))?;
        (running < TOGETHER && bytes(most) >= WORTH_BYTES).then_some(most.id)
    };
    let flush = relieves(memtables >= indexes)
        .then(|| largest(|it| it.memtable_bytes, |it| it.is_flushing))
        .flatten();
    let settle = relieves(indexes > memtables)
        .then(|| largest(|it| it.index_bytes, |it| it.is_settling))
        .flatten();
    Relief {
        cache_bytes: left.clamp(kept, ceiling.cache_bytes.max(kept)),
        fill,
        flush,
        settle,
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::background::tests::script;

    #[test]
    fn scripts_answer_as_written() {
        script::run("relief", answer);
    }

    /// `ceiling MEMORY CACHE`, then a line for each database, in KiB: `NUMBER memtable=N index=N other=N flushing settling`.
    fn answer(question: &str) -> String {
        const KIB: u64 = 1 << 10;
        let mut ceiling = Ceiling {
            memory_bytes: 0,
            cache_bytes: 0,
        };
        let mut shares = Vec::new();
        for line in question.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |text: &str| text.parse::<u64>().unwrap();
            if words[0] == "ceiling" {
                ceiling.memory_bytes = number(words[1]) * KIB;
                ceiling.cache_bytes = number(words[2]) * KIB;
                continue;
            }
            let value = |name: &str| {
                let mut values = words.iter().filter_map(|word| word.split_once('='));
                values
                    .find(|(key, _)| *key == name)
                    .map_or(0, |(_, value)| number(value) * KIB)
            };
            shares.push(Share {
                id: number(words[0]),
                memtable_bytes: value("memtable"),
                index_bytes: value("index"),
                other_bytes: value("other"),
                is_flushing: words.contains(&"flushing"),
                is_settling: words.contains(&"settling"),
            });
        }
        let relief = relieve(&shares, &ceiling);
        let mut out = format!(
            "cache {} KiB, {:.0} % used",
            relief.cache_bytes / KIB,
            relief.fill * 100.0
        );
        if let Some(id) = relief.flush {
            out = format!("{out}\n{id} flushes");
        }
        if let Some(id) = relief.settle {
            out = format!("{out}\n{id} settles");
        }
        out
    }
}
