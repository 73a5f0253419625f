//! All spilled graves of one state of the cemetery.

use super::{SpillFile, SpillLabel};
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::sorted::Grave;
use crate::error::Result;
use crate::sst::LookupKey;
use crate::sync::Arc;

/// The spill files beside the flushed graves in memory, the oldest first.
#[derive(Debug, Clone)]
pub(crate) struct SpilledGraves {
    list: Vec<Arc<SpillFile>>,
    /// The first date of a grave.
    earliest: u64,
}

impl Default for SpilledGraves {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl PartialEq for SpilledGraves {
    fn eq(&self, other: &Self) -> bool {
        self.labels().eq(other.labels())
    }
}

impl Eq for SpilledGraves {}

impl SpilledGraves {
    /// These spill files.
    pub(crate) fn new(list: Vec<Arc<SpillFile>>) -> Self {
        let earliest = list.iter().map(|it| it.label().earliest()).min();
        Self {
            earliest: earliest.unwrap_or(u64::MAX),
            list,
        }
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<SpillFile>> {
        self.list.iter()
    }

    /// Their labels.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &SpillLabel> {
        self.list.iter().map(|it| it.label())
    }

    /// Those whose graves count.
    pub(crate) fn counting(&self) -> impl Iterator<Item = &Arc<SpillFile>> {
        self.list.iter().filter(|it| it.label().counts())
    }

    /// How many graves there are that count.
    pub(crate) fn counting_graves(&self) -> u64 {
        self.counting().map(|it| it.label().graves).sum()
    }

    /// How many graves there are with dates.
    pub(crate) fn dated_graves(&self) -> u64 {
        let dated = self.labels().filter(|it| !it.counts());
        dated.map(|it| it.graves).sum()
    }

    /// The first date of a grave; the end of time if none has one.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.earliest
    }

    /// Bytes of memory that their filters and indexes take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.list.iter().map(|it| it.memory_bytes()).sum()
    }

    /// The latest deletion of `key` up to `snapshot`; 0 if there is none. Graves with a date do not count.
    #[inline]
    pub(crate) fn covering(&self, key: &[u8], snapshot: u64) -> Result<u64> {
        if self.list.is_empty() {
            return Ok(0);
        }
        let lookup = LookupKey::new(key, snapshot);
        let mut covering = 0;
        for spill in self.counting() {
            // What lies below is not asked for.
            if spill.label().sequences.1 > covering {
                covering = covering.max(spill.covering(key, &lookup, snapshot)?);
            }
        }
        Ok(covering)
    }

    /// The latest deletion of `key` that was applied to tables that were purged through `number`; 0 if there is none.
    pub(crate) fn applied(&self, key: &[u8], number: u64) -> Result<u64> {
        let lookup = LookupKey::new(key, number);
        let mut covering = 0;
        for spill in self.counting() {
            covering = covering.max(match spill.label().promoted_through {
                0 => spill.dated_covering(key, &lookup, number, number)?,
                promoted if promoted <= number => spill.covering(key, &lookup, number)?,
                _ => 0,
            });
        }
        Ok(covering)
    }

    /// The same as [`covering`](Self::covering), of graves that have a date, and count at `time`.
    #[inline]
    pub(crate) fn dated_covering(&self, key: &[u8], snapshot: u64, time: u64) -> Result<u64> {
        if self.earliest > time {
            return Ok(0);
        }
        let lookup = LookupKey::new(key, snapshot);
        let mut covering = 0;
        for spill in self.list.iter().filter(|it| it.label().earliest() <= time) {
            covering = covering.max(spill.dated_covering(key, &lookup, snapshot, time)?);
        }
        Ok(covering)
    }

    /// The date of the grave of `key` with the number `sequence`.
    pub(crate) fn date_of(&self, key: &[u8], sequence: u64) -> Result<Option<u64>> {
        for spill in self.list.iter().filter(|it| !it.label().counts()) {
            if let Some(date) = spill.date_of(key, sequence)? {
                return Ok(Some(date));
            }
        }
        Ok(None)
    }

    /// Those whose graves count and may concern keys from `first` to `last` (both included; `None`: no bound).
    pub(crate) fn within(&self, first: Option<&[u8]>, last: Option<&[u8]>) -> Self {
        let concerned = self
            .counting()
            .filter(|it| it.label().overlaps(first, last));
        Self::new(concerned.cloned().collect())
    }

    /// The same once all are past `time`, and the flushed graves go through `through`: those of which all dates are
    /// past by then are promoted.
    pub(crate) fn promote(&self, time: u64, through: u64) -> Self {
        let next = |spill: &Arc<SpillFile>| {
            if spill.label().latest() <= time {
                Arc::new(spill.promoted_at(through))
            } else {
                Arc::clone(spill)
            }
        };
        Self::new(self.list.iter().map(next).collect())
    }

    /// The spill files that it `keeps`.
    pub(crate) fn retain(&self, mut keeps: impl FnMut(&SpillFile) -> bool) -> Self {
        let kept = self.list.iter().filter(|it| keeps(it));
        Self::new(kept.cloned().collect())
    }

    /// The same and `spill`.
    pub(crate) fn and(&self, spill: SpillFile) -> Self {
        let mut list = self.list.clone();
        list.push(Arc::new(spill));
        Self::new(list)
    }

    /// The same with `outputs` in the place of `inputs`; `None` if one of these is not among them as it was.
    pub(crate) fn replaced(
        &self,
        inputs: &[Arc<SpillFile>],
        outputs: Vec<SpillFile>,
    ) -> Option<Self> {
        let is_input = |spill: &Arc<SpillFile>| inputs.iter().any(|it| Arc::ptr_eq(it, spill));
        let first = self.list.iter().position(is_input)?;
        let mut list: Vec<_> = self
            .list
            .iter()
            .filter(|it| !is_input(it))
            .cloned()
            .collect();
        if list.len() + inputs.len() != self.list.len() {
            return None;
        }
        let outputs = outputs.into_iter().map(Arc::new);
        list.splice(first..first, outputs);
        Some(Self::new(list))
    }
}

impl FlushedGraves {
    /// The same without spill files, and with these graves in memory: key, number of the deletion, and what tables must
    /// be purged through or the date.
    pub(crate) fn with_all_of(
        &self,
        mut counting: Vec<(Vec<u8>, u64, u64)>,
        mut dated: Vec<(Vec<u8>, u64, u64)>,
    ) -> Self {
        let owned = |it: Grave<'_>| (it.key.to_vec(), it.sequence, it.number);
        counting.extend(self.points().iter().map(owned));
        dated.extend(self.dated().iter().map(owned));
        let ranges = self.ranges().clone();
        let mut next = Self::new(self.through(), ranges).at_time(self.time());
        for (graves, counts) in [(&mut counting, true), (&mut dated, false)] {
            graves.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            graves.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
            for (key, sequence, number) in graves.iter() {
                let (sequence, number) = (*sequence, *number);
                let grave = Grave {
                    key,
                    sequence,
                    number,
                };
                if counts {
                    next.push(grave);
                } else {
                    next.push_dated(grave);
                }
            }
        }
        next
    }
}
