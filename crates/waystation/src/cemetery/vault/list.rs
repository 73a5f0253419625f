//! All vaults of a ground.

use super::{Label, Vault};
use crate::cemetery::ground::Ground;
use crate::cemetery::row::Grave;
use crate::error::Result;
use crate::sst::LookupKey;
use crate::sync::Arc;

/// The vaults of a ground, the oldest first.
#[derive(Debug, Clone)]
pub(crate) struct Vaults {
    list: Vec<Arc<Vault>>,
    /// The first date of a grave.
    earliest: u64,
}

impl Default for Vaults {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl PartialEq for Vaults {
    fn eq(&self, other: &Self) -> bool {
        self.labels().eq(other.labels())
    }
}

impl Eq for Vaults {}

impl Vaults {
    /// These vaults.
    pub(crate) fn new(list: Vec<Arc<Vault>>) -> Self {
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
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Vault>> {
        self.list.iter()
    }

    /// Their labels.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &Label> {
        self.list.iter().map(|it| it.label())
    }

    /// Those whose graves count.
    pub(crate) fn counting(&self) -> impl Iterator<Item = &Arc<Vault>> {
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
    pub(crate) fn floor(&self, key: &[u8], snapshot: u64) -> Result<u64> {
        if self.list.is_empty() {
            return Ok(0);
        }
        let lookup = LookupKey::new(key, snapshot);
        let mut floor = 0;
        for vault in self.counting() {
            // What lies below is not asked for.
            if vault.label().sequences.1 > floor {
                floor = floor.max(vault.floor(key, &lookup, snapshot)?);
            }
        }
        Ok(floor)
    }

    /// The latest deletion of `key` that was applied to tables that were purged through `number`; 0 if there is none.
    pub(crate) fn applied(&self, key: &[u8], number: u64) -> Result<u64> {
        let lookup = LookupKey::new(key, number);
        let mut floor = 0;
        for vault in self.counting() {
            floor = floor.max(match vault.label().dug {
                0 => vault.dated_floor(key, &lookup, number, number)?,
                dug if dug <= number => vault.floor(key, &lookup, number)?,
                _ => 0,
            });
        }
        Ok(floor)
    }

    /// The same as [`floor`](Self::floor), of those that have a date, and count at `time`.
    #[inline]
    pub(crate) fn dated_floor(&self, key: &[u8], snapshot: u64, time: u64) -> Result<u64> {
        if self.earliest > time {
            return Ok(0);
        }
        let lookup = LookupKey::new(key, snapshot);
        let mut floor = 0;
        for vault in self.list.iter().filter(|it| it.label().earliest() <= time) {
            floor = floor.max(vault.dated_floor(key, &lookup, snapshot, time)?);
        }
        Ok(floor)
    }

    /// The date of the grave of `key` with the number `sequence`.
    pub(crate) fn date_of(&self, key: &[u8], sequence: u64) -> Result<Option<u64>> {
        for vault in self.list.iter().filter(|it| !it.label().counts()) {
            if let Some(date) = vault.date_of(key, sequence)? {
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

    /// The same once all are past `time`, and the ground goes through `through`: those of which all dates are past by
    /// then are dug.
    pub(crate) fn dug(&self, time: u64, through: u64) -> Self {
        let next = |vault: &Arc<Vault>| {
            if vault.label().latest() <= time {
                Arc::new(vault.dug_at(through))
            } else {
                Arc::clone(vault)
            }
        };
        Self::new(self.list.iter().map(next).collect())
    }

    /// Those that `keeps`.
    pub(crate) fn retain(&self, mut keeps: impl FnMut(&Vault) -> bool) -> Self {
        let kept = self.list.iter().filter(|it| keeps(it));
        Self::new(kept.cloned().collect())
    }

    /// The same and `vault`.
    pub(crate) fn and(&self, vault: Vault) -> Self {
        let mut list = self.list.clone();
        list.push(Arc::new(vault));
        Self::new(list)
    }

    /// The same with `outputs` in the place of `inputs`; `None` if one of these is not among them as it was.
    pub(crate) fn replaced(&self, inputs: &[Arc<Vault>], outputs: Vec<Vault>) -> Option<Self> {
        let is_input = |vault: &Arc<Vault>| inputs.iter().any(|it| Arc::ptr_eq(it, vault));
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

impl Ground {
    /// The ground without vaults, and with these graves in memory: key, number of the deletion, other number.
    pub(crate) fn with_all_of(
        &self,
        mut counting: Vec<(Vec<u8>, u64, u64)>,
        mut dated: Vec<(Vec<u8>, u64, u64)>,
    ) -> Self {
        let owned = |it: Grave<'_>| (it.key.to_vec(), it.sequence, it.other);
        counting.extend(self.points().iter().map(owned));
        dated.extend(self.dated().iter().map(owned));
        let ranges = self.ranges().clone();
        let mut next = Self::new(self.through(), ranges).at_time(self.time());
        for (graves, counts) in [(&mut counting, true), (&mut dated, false)] {
            graves.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            graves.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
            for (key, sequence, other) in graves.iter() {
                let (sequence, other) = (*sequence, *other);
                let grave = Grave {
                    key,
                    sequence,
                    other,
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
