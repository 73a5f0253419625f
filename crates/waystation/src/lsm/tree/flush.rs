//! From a memtable to tables.
//!
//! A flush usually makes one table in level 0. Where no table of the upper levels overlaps it, as in a
//! sequential load, it goes as deep as level 2 at once, in tables of the ordinary size: it would only sink
//! there by and by, and level 0 is where every read has to look. It claims its place like a compaction, so that
//! no running one writes there.

use super::Tree;
use super::work::Claimed;
use crate::error::Result;
use crate::lsm::compaction::{
    Claim, Counters, Hidden, Job, JobResult, OutputLayout, OutputLimits, Workplace, grandparents,
    ranges_from, run,
};
use crate::lsm::version::{Change, Progress, UserRange, Version};
use crate::sst::InternalIterator;
use crate::sync::{Arc, lock};
use waystation_format::key::user_key;
use waystation_format::table::Compression;

/// The deepest level a flush goes to. Deeper would only spare moves, and put new data where merges are large.
const DEEPEST: usize = 2;
/// A get asks the filter of each table of level 0, and all these tables have few keys: their filters have so many times the bits
/// (Monkey, SIGMOD 2017).
const LEVEL0_FILTERS: u32 = 2;

/// What a flush has to know beside the entries of a memtable.
pub(crate) struct Flush<'a> {
    /// Its last write.
    pub(crate) last_sequence: u64,
    /// All readers are at this sequence number or later: versions that none of them can reach are left out.
    pub(crate) oldest_snapshot: u64,
    /// The bytes that it takes.
    pub(crate) bytes: u64,
    /// What is left out, too.
    pub(crate) hidden: &'a Hidden,
    /// A table of level 0, which will be written anew soon, is not compressed: that is half of the work.
    pub(crate) hurried: bool,
}

impl Tree {
    /// Writes the entries of `memtable` to tables and installs them: every write up to its last one is in a table then. Memtables
    /// come in the order of their sequence numbers, one at a time, and only once the log is durable up to there.
    pub(crate) fn flush<I: InternalIterator>(
        &self,
        mut memtable: I,
        flush: &Flush<'_>,
    ) -> Result<()> {
        let _one_at_a_time = lock(&self.flushing);
        let progress = Progress {
            flushed_through: Some(flush.last_sequence),
            log_number: None,
        };
        let started = self.storage.thread_cpu();
        memtable.seek_to_last()?;
        if !memtable.valid() {
            return self.versions.apply(&Change::default(), progress);
        }
        let largest = user_key(memtable.key()).to_vec();
        memtable.seek_to_first()?;
        let smallest = user_key(memtable.key()).to_vec();
        let range = UserRange::new(&smallest, &largest);
        let (version, level, claimed) = self.find_place(&range, 0, DEEPEST);
        let mut job = self.flush_job(&version, level, &range, flush.oldest_snapshot);
        job.hidden = flush.hidden.within(&range);
        if flush.hurried && level == 0 {
            job.layout.compression = Compression::None as u8;
        }
        let new_number = || self.versions.new_file_number();
        // A flush is never cancelled: it is what makes room, and what closing waits for.
        let workplace = Workplace {
            flushed_bytes: flush.bytes,
            ..self.workplace(None, &new_number, &|| false)
        };
        let JobResult { outputs, counters } = run(&job, &mut memtable, &workplace)?;
        let added = outputs
            .into_iter()
            .map(|table| (level, Arc::new(table)))
            .collect();
        self.versions.apply(
            &Change {
                removed: Vec::new(),
                added,
            },
            progress,
        )?;
        drop(claimed);
        let counters = Counters {
            cpu_us: self.cpu_us_since(started),
            ..counters
        };
        lock(&self.totals).flushed(&counters);
        drop(version);
        self.remove_garbage();
        Ok(())
    }

    /// The level, not below `deepest`, that new tables go to, and below level 0 the claim on their place there. The first
    /// `clear` levels hold no key of `range`, whatever the ranges of their tables are.
    pub(super) fn find_place(
        &self,
        range: &UserRange<'_>,
        clear: usize,
        deepest: usize,
    ) -> (Arc<Version>, usize, Option<Claimed<'_>>) {
        let mut running = lock(&self.running);
        let version = self.version();
        let shape = &self.settings.shape;
        let order = version.order();
        let is_free =
            |level: usize| !version.overlaps(level, range) && !running.writes(order, level, range);
        let is_cheap =
            |level: usize| version.bytes_overlapping(level + 1, range) <= shape.grandparent_bytes();
        let reached = (0..=deepest).take_while(|&level| level < clear || is_free(level));
        let level = reached
            .filter(|&level| level == 0 || (is_free(level) && is_cheap(level)))
            .last()
            .unwrap_or(0);
        let claim = Claim::new(Vec::new(), level, range);
        let claimed = (level > 0).then(|| Claimed::take(self, &mut running, claim));
        drop(running);
        (version, level, claimed)
    }

    pub(super) fn flush_job(
        &self,
        version: &Version,
        level: usize,
        range: &UserRange<'_>,
        smallest_snapshot: u64,
    ) -> Job {
        let shape = &self.settings.shape;
        let mut layout = OutputLayout::from(&self.settings.table);
        if level == 0 {
            layout.filter_bits_per_key *= LEVEL0_FILTERS;
        }
        let whole = OutputLimits {
            table_bytes: u64::MAX,
            grandparent_bytes: u64::MAX,
        };
        let cut = OutputLimits {
            table_bytes: shape.table_bytes,
            grandparent_bytes: shape.grandparent_bytes(),
        };
        Job {
            inputs: Vec::new(),
            from: None,
            output_level: level,
            smallest_snapshot,
            deeper: ranges_from(version, 0, range),
            hidden: Hidden::default(),
            grandparents: if level == 0 {
                Vec::new()
            } else {
                grandparents(version, level, range)
            },
            limits: if level == 0 { whole } else { cut },
            layout,
        }
    }
}
