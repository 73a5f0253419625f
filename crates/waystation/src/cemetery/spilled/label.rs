//! The label of a spill file: its name, and the facts that are known without reading it.

/// What graves a spill file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GraveKind {
    /// They count.
    Counting,
    /// They have dates.
    Dated,
}

/// The facts about a spill file that are known without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpillLabel {
    pub(crate) number: u64,
    pub(crate) file_bytes: u64,
    pub(crate) graves: u64,
    pub(crate) kind: GraveKind,
    /// If it has dates that are past for every reader: what tables must be purged through. Else 0.
    pub(crate) promoted_through: u64,
    /// The lowest and the highest number of a deletion.
    pub(crate) sequences: (u64, u64),
    /// The lowest and the highest of what tables must be purged through, or of the dates.
    pub(crate) numbers: (u64, u64),
    /// The first key and the last.
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
    /// A sample of the dates, ascending.
    pub(crate) dates: Vec<u64>,
}

impl SpillLabel {
    /// Whether its graves count.
    pub(crate) fn counts(&self) -> bool {
        self.kind == GraveKind::Counting || self.promoted_through > 0
    }

    /// The lowest and the highest number that tables must be purged through, if its graves count.
    pub(crate) fn demands(&self) -> (u64, u64) {
        if self.promoted_through > 0 {
            (self.promoted_through, self.promoted_through)
        } else {
            self.numbers
        }
    }

    /// The first of its dates; the end of time if its graves count.
    pub(crate) fn earliest(&self) -> u64 {
        if self.counts() {
            u64::MAX
        } else {
            self.numbers.0
        }
    }

    /// The last of its dates; the end of time if its graves count.
    pub(crate) fn latest(&self) -> u64 {
        if self.counts() {
            u64::MAX
        } else {
            self.numbers.1
        }
    }

    /// How many of the dates are past at `time`, of as many as are known.
    pub(crate) fn due(&self, time: u64) -> (usize, usize) {
        let past = self.dates.partition_point(|date| *date <= time);
        (past, self.dates.len())
    }

    /// Whether it may have graves of `key`.
    pub(super) fn spans(&self, key: &[u8]) -> bool {
        *self.first <= *key && *key <= *self.last
    }

    /// Whether it may have graves of keys from `first` to `last` (both included; `None`: no bound).
    pub(crate) fn overlaps(&self, first: Option<&[u8]>, last: Option<&[u8]>) -> bool {
        first.is_none_or(|first| first <= &self.last[..])
            && last.is_none_or(|last| &self.first[..] <= last)
    }
}
