//! Entries of a range of the engine's keys, with writes that are not committed among them.

use crate::failure::Outcome;
use crate::ranges::Ranges;
use crate::work::Overlay;
use std::ops::Bound;
use waystation::DbIterator;

/// Where the shown entry comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Stored,
    Written,
}

/// Shows one entry after the other, in order or backwards.
pub(crate) struct Scan {
    cursor: DbIterator,
    is_backward: bool,
    /// Writes of the run in the range, in the scan's order; `None`: deleted.
    written: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    at: usize,
    /// Ranges that the run deleted.
    hidden: Ranges,
    shown: Shown,
    is_begun: bool,
}

impl Scan {
    pub(crate) fn new(
        cursor: DbIterator,
        overlay: Option<&Overlay>,
        (lower, upper): (Vec<u8>, Option<Vec<u8>>),
        is_backward: bool,
    ) -> Self {
        let mut written = Vec::new();
        let mut hidden = Ranges::default();
        if let Some(overlay) = overlay
            && upper.as_ref().is_none_or(|upper| *upper > lower)
        {
            hidden = overlay.ranges.between(&lower, upper.as_deref());
            let end = upper.map_or(Bound::Unbounded, Bound::Excluded);
            let entries = overlay.keys.range((Bound::Included(lower), end));
            written.extend(entries.map(|(key, value)| (key.clone(), value.clone())));
        }
        if is_backward {
            written.reverse();
        }
        Self {
            cursor,
            is_backward,
            written,
            at: 0,
            hidden,
            shown: Shown::Nothing,
            is_begun: false,
        }
    }

    /// Goes to the next entry, if there is one.
    pub(crate) fn advance(&mut self) -> Outcome<bool> {
        if self.is_begun {
            self.leave()?;
        } else if self.is_backward {
            self.cursor.seek_to_last()?;
        } else {
            self.cursor.seek_to_first()?;
        }
        self.is_begun = true;
        self.settle()
    }

    /// Goes to the first entry at `key` or behind it. Not for scans that go backwards.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Outcome<bool> {
        self.is_begun = true;
        self.cursor.seek(key)?;
        self.at = self.written.partition_point(|it| &it.0[..] < key);
        self.settle()
    }

    fn leave(&mut self) -> Outcome {
        match self.shown {
            Shown::Nothing => {}
            Shown::Stored => self.step()?,
            Shown::Written => self.at += 1,
        }
        Ok(())
    }

    fn step(&mut self) -> Outcome {
        if self.is_backward {
            self.cursor.prev()?;
        } else {
            self.cursor.next()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Outcome<bool> {
        loop {
            let stored = self.cursor.valid().then(|| self.cursor.key());
            let written = self.written.get(self.at);
            match (stored, written) {
                (None, None) => {
                    self.shown = Shown::Nothing;
                    return Ok(false);
                }
                (Some(stored), Some((key, _))) if stored == &key[..] => {
                    self.step()?;
                }
                (Some(stored), written)
                    if written.is_none_or(|it| self.is_before(stored, &it.0)) =>
                {
                    if self.hidden.have(stored) {
                        self.step()?;
                        continue;
                    }
                    self.shown = Shown::Stored;
                    return Ok(true);
                }
                (_, Some((_, Some(_)))) => {
                    self.shown = Shown::Written;
                    return Ok(true);
                }
                _ => self.at += 1,
            }
        }
    }

    fn is_before(&self, one: &[u8], other: &[u8]) -> bool {
        if self.is_backward {
            one > other
        } else {
            one < other
        }
    }

    /// The engine's key of the shown entry.
    pub(crate) fn key(&self) -> &[u8] {
        match self.shown {
            Shown::Stored => self.cursor.key(),
            _ => self.written.get(self.at).map_or(&[], |it| &it.0),
        }
    }

    /// The value of the shown entry.
    pub(crate) fn value(&self) -> &[u8] {
        match self.shown {
            Shown::Stored => self.cursor.value(),
            _ => self
                .written
                .get(self.at)
                .and_then(|it| it.1.as_deref())
                .unwrap_or_default(),
        }
    }
}
