//! The grave filter: what graves hide from a cursor, and how it gets past them.
//!
//! Ranges are looked up once: the cursor remembers how far the covering sequence that it found counts. Inside a deleted
//! range, tables and memtables with nothing but older versions are jumped, unread (see
//! [`skip_forward`](crate::sst::InternalIterator::skip_forward)); only what may hold newer ones is walked. Graves of
//! keys are asked for key by key; a run of dead keys that was walked goes to the dead-range cache, so that the next
//! cursor jumps it like a deleted range ([`dead_run`](super::dead_run)).

use super::ReadState;
use crate::cemetery::dead_ranges::DeadRangeCache;
use crate::cemetery::fragments::Span;
use crate::cemetery::points::{self, Spot};
use crate::cemetery::spilled::SpillCursors;
use crate::error::Result;
use crate::sync::Arc;

/// Where a grave is, behind which the next key's may be.
#[derive(Debug, Clone, Copy)]
enum Hint {
    Nowhere,
    /// In the active graves with this number, the newest being the first.
    Active(usize, Spot),
    Flushed(usize),
}

/// Whether a reader sees a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// It is not hidden.
    Alive,
    /// It is hidden from all who read at this snapshot or a later one.
    Dead,
    /// It is hidden by its date alone: a reader whose time stands still may see it.
    Expired,
}

/// Tells what graves hide from a cursor at one snapshot.
pub(crate) struct GraveFilter {
    read_state: Arc<ReadState>,
    dead_ranges: Arc<DeadRangeCache>,
    snapshot: u64,
    /// The time that dates are compared with; 0 if none is past.
    time: u64,
    /// Whether there are graves of keys.
    has_points: bool,
    /// The span of keys for which `covering` counts; if it is known.
    known: bool,
    /// `None`: at the first key.
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    covering: u64,
    /// Where the grave was that hid the version before.
    hint: Hint,
    /// Graves of keys that left memory.
    spilled: SpillCursors,
    /// Whether what can be jumped in the span was.
    is_jumped: bool,
}

impl GraveFilter {
    /// `None` if nothing is hidden.
    pub(crate) fn new(
        read_state: &Arc<ReadState>,
        dead_ranges: &Arc<DeadRangeCache>,
        snapshot: u64,
        time: u64,
    ) -> Option<Self> {
        if read_state.has_no_graves() && dead_ranges.is_empty() {
            return None;
        }
        let in_memtables = read_state
            .active_graves()
            .any(|graves| graves.points().len() > 0);
        Some(Self {
            has_points: in_memtables || read_state.flushed.has_points(),
            read_state: Arc::clone(read_state),
            dead_ranges: Arc::clone(dead_ranges),
            snapshot,
            time: if read_state.earliest() <= time {
                time
            } else {
                0
            },
            known: false,
            start: None,
            end: None,
            covering: 0,
            hint: Hint::Nowhere,
            spilled: SpillCursors::for_reader(read_state.flushed.spilled(), snapshot),
            is_jumped: false,
        })
    }

    /// Forgets the span: the cursor goes somewhere else, and more may have become known.
    pub(crate) fn forget(&mut self) {
        self.known = false;
        self.spilled.forget();
    }

    /// Whether the version of `key` with `sequence` is hidden, and how.
    #[inline]
    pub(crate) fn look(&mut self, key: &[u8], sequence: u64) -> Result<Visibility> {
        let order = self.read_state.version.order();
        let is_inside = self.known
            && (self.start.as_deref()).is_none_or(|start| !order.is_before(key, start))
            && (self.end.as_deref()).is_none_or(|end| order.is_before(key, end));
        if !is_inside {
            self.find_span(key);
        }
        if sequence < self.covering || (self.has_points && self.is_deleted(key, sequence)) {
            return Ok(Visibility::Dead);
        }
        if !self.spilled.is_empty() && sequence < self.spilled.covering(key)? {
            return Ok(Visibility::Dead);
        }
        let dated = |key| {
            let hash = points::hash(key);
            self.read_state
                .dated_covering(key, hash, self.snapshot, self.time)
        };
        if self.time > 0 && sequence < dated(key)? {
            return Ok(Visibility::Expired);
        }
        Ok(Visibility::Alive)
    }

    /// Whether a grave of `key` hides the version with `sequence`.
    fn is_deleted(&mut self, key: &[u8], sequence: u64) -> bool {
        let hides = |deletion: u64| sequence < deletion && deletion <= self.snapshot;
        match self.hint {
            Hint::Nowhere => {}
            Hint::Active(number, spot) => {
                let graves = self.read_state.active_graves().nth(number);
                if let Some((deletion, spot)) =
                    graves.and_then(|graves| graves.points().find_after(spot, key))
                    && hides(deletion)
                {
                    self.hint = Hint::Active(number, spot);
                    return true;
                }
            }
            Hint::Flushed(at) => {
                if at + 1 < self.read_state.flushed.len()
                    && let next = self.read_state.flushed.points().get(at + 1)
                    && next.key == key
                    && hides(next.sequence)
                {
                    self.hint = Hint::Flushed(at + 1);
                    return true;
                }
            }
        }
        let hash = points::hash(key);
        for (number, graves) in self.read_state.active_graves().enumerate() {
            if graves.points().len() > 0 {
                let (covering, spot) = graves.points().find(key, hash, self.snapshot);
                if sequence < covering {
                    self.hint = Hint::Active(number, spot);
                    return true;
                }
            }
        }
        let (covering, at) = self.read_state.flushed.find(key, hash, self.snapshot);
        if sequence < covering {
            self.hint = Hint::Flushed(at);
        }
        sequence < covering
    }

    #[cold]
    fn find_span(&mut self, key: &[u8]) {
        self.known = true;
        self.is_jumped = false;
        self.covering = 0;
        self.start = None;
        self.end = None;
        let order = self.read_state.version.order();
        let (start, end, covering) = (&mut self.start, &mut self.end, &mut self.covering);
        let mut narrow = |span: &Span<'_>| {
            *covering = span.covering.max(*covering);
            if let Some(begins) = span.start
                && (start.as_deref()).is_none_or(|start| order.is_before(start, begins))
            {
                *start = Some(begins.to_vec());
            }
            if let Some(ends) = span.end
                && end.as_deref().is_none_or(|end| order.is_before(ends, end))
            {
                *end = Some(ends.to_vec());
            }
        };
        narrow(&self.read_state.flushed.ranges().span(key, self.snapshot));
        for graves in self.read_state.active_graves() {
            graves.with_span(key, self.snapshot, &mut narrow);
        }
        self.dead_ranges.with_span(key, self.snapshot, &mut narrow);
    }

    /// The span around `key`, if anything is hidden in it.
    pub(crate) fn span_at(&mut self, key: &[u8]) -> Option<Span<'_>> {
        self.find_span(key);
        self.span()
    }

    /// The span around the key asked about last, once, if anything is hidden in it.
    pub(crate) fn take_jump(&mut self) -> Option<Span<'_>> {
        if std::mem::replace(&mut self.is_jumped, true) {
            return None;
        }
        self.span()
    }

    fn span(&self) -> Option<Span<'_>> {
        (self.covering > 0).then_some(Span {
            covering: self.covering,
            start: self.start.as_deref(),
            end: self.end.as_deref(),
        })
    }
}
