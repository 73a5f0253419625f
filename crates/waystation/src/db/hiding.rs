//! What graves hide from a cursor, and how it gets past them.
//!
//! Ranges are looked up once: the cursor remembers how far the floor it found counts. Inside a deleted range, tables
//! and memtables with nothing but older versions are jumped, unread (see
//! [`skip_forward`](crate::sst::InternalIterator::skip_forward)); only what may hold newer ones is walked.
//! Graves of keys are asked for key by key; a run of dead keys that was walked is learned, so that the next cursor
//! jumps it like a deleted range.

use super::view::View;
use crate::cemetery::fragments::Stretch;
use crate::cemetery::learned::{Learned, RUN_MIN};
use crate::cemetery::points::{self, Spot};
use crate::cemetery::vault::Walk;
use crate::error::Result;
use crate::sync::Arc;
use waystation_format::order::Order;

/// Where a grave is, behind which the next key's may be.
#[derive(Debug, Clone, Copy)]
enum Hint {
    Nowhere,
    /// In the plot with this number, the newest being the first.
    Plot(usize, Spot),
    Ground(usize),
}

/// How a version looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// It is not hidden.
    Alive,
    /// It is hidden from all who read at this snapshot or a later one.
    Dead,
    /// It is hidden by its date alone: a reader whose time stands still may see it.
    Expired,
}

/// Tells what graves hide from a cursor at one snapshot.
pub(super) struct Hiding {
    view: Arc<View>,
    learned: Arc<Learned>,
    snapshot: u64,
    /// The time that dates are compared with; 0 if none is past.
    time: u64,
    /// Whether there are graves of keys.
    has_points: bool,
    /// The stretch of keys for which `floor` counts; if it is known.
    known: bool,
    /// `None`: at the first key.
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    floor: u64,
    /// Where the grave was that hid the version before.
    hint: Hint,
    /// Graves of keys that left memory.
    vaults: Walk,
    /// Whether what can be jumped in the stretch was.
    is_jumped: bool,
}

impl Hiding {
    /// `None` if nothing is hidden.
    pub(super) fn new(
        view: &Arc<View>,
        learned: &Arc<Learned>,
        snapshot: u64,
        time: u64,
    ) -> Option<Self> {
        if view.has_no_graves() && learned.is_empty() {
            return None;
        }
        let in_plots = view.plots().any(|plot| plot.points().len() > 0);
        Some(Self {
            has_points: in_plots || view.ground.has_points(),
            view: Arc::clone(view),
            learned: Arc::clone(learned),
            snapshot,
            time: if view.earliest() <= time { time } else { 0 },
            known: false,
            start: None,
            end: None,
            floor: 0,
            hint: Hint::Nowhere,
            vaults: Walk::for_reader(view.ground.vaults(), snapshot),
            is_jumped: false,
        })
    }

    /// Forgets the stretch: the cursor goes somewhere else, and more may have been learned.
    pub(super) fn forget(&mut self) {
        self.known = false;
        self.vaults.forget();
    }

    /// Whether the version of `key` with `sequence` is hidden, and how.
    #[inline]
    pub(super) fn look(&mut self, key: &[u8], sequence: u64) -> Result<Look> {
        let order = self.view.version.order();
        let is_inside = self.known
            && (self.start.as_deref()).is_none_or(|start| !order.is_before(key, start))
            && (self.end.as_deref()).is_none_or(|end| order.is_before(key, end));
        if !is_inside {
            self.find_stretch(key);
        }
        if sequence < self.floor || (self.has_points && self.is_buried(key, sequence)) {
            return Ok(Look::Dead);
        }
        if !self.vaults.is_empty() && sequence < self.vaults.floor(key)? {
            return Ok(Look::Dead);
        }
        let dated = |key| {
            let hash = points::hash(key);
            self.view.dated_floor(key, hash, self.snapshot, self.time)
        };
        if self.time > 0 && sequence < dated(key)? {
            return Ok(Look::Expired);
        }
        Ok(Look::Alive)
    }

    /// Whether a grave of `key` hides the version with `sequence`.
    fn is_buried(&mut self, key: &[u8], sequence: u64) -> bool {
        let hides = |deletion: u64| sequence < deletion && deletion <= self.snapshot;
        match self.hint {
            Hint::Nowhere => {}
            Hint::Plot(number, spot) => {
                let plot = self.view.plots().nth(number);
                if let Some((deletion, spot)) =
                    plot.and_then(|plot| plot.points().find_after(spot, key))
                    && hides(deletion)
                {
                    self.hint = Hint::Plot(number, spot);
                    return true;
                }
            }
            Hint::Ground(at) => {
                if at + 1 < self.view.ground.len()
                    && let next = self.view.ground.points().get(at + 1)
                    && next.key == key
                    && hides(next.sequence)
                {
                    self.hint = Hint::Ground(at + 1);
                    return true;
                }
            }
        }
        let hash = points::hash(key);
        for (number, plot) in self.view.plots().enumerate() {
            if plot.points().len() > 0 {
                let (floor, spot) = plot.points().find(key, hash, self.snapshot);
                if sequence < floor {
                    self.hint = Hint::Plot(number, spot);
                    return true;
                }
            }
        }
        let (floor, at) = self.view.ground.find(key, hash, self.snapshot);
        if sequence < floor {
            self.hint = Hint::Ground(at);
        }
        sequence < floor
    }

    #[cold]
    fn find_stretch(&mut self, key: &[u8]) {
        self.known = true;
        self.is_jumped = false;
        self.floor = 0;
        self.start = None;
        self.end = None;
        let order = self.view.version.order();
        let (start, end, floor) = (&mut self.start, &mut self.end, &mut self.floor);
        let mut narrow = |stretch: &Stretch<'_>| {
            *floor = stretch.floor.max(*floor);
            if let Some(begins) = stretch.start
                && (start.as_deref()).is_none_or(|start| order.is_before(start, begins))
            {
                *start = Some(begins.to_vec());
            }
            if let Some(ends) = stretch.end
                && end.as_deref().is_none_or(|end| order.is_before(ends, end))
            {
                *end = Some(ends.to_vec());
            }
        };
        narrow(&self.view.ground.ranges().stretch(key, self.snapshot));
        for plot in self.view.plots() {
            plot.with_stretch(key, self.snapshot, &mut narrow);
        }
        self.learned.with_stretch(key, self.snapshot, &mut narrow);
    }

    /// The stretch around `key`, if anything is hidden in it.
    pub(super) fn stretch_at(&mut self, key: &[u8]) -> Option<Stretch<'_>> {
        self.find_stretch(key);
        self.stretch()
    }

    /// The stretch around the key asked about last, once, if anything is hidden in it.
    pub(super) fn take_jump(&mut self) -> Option<Stretch<'_>> {
        if std::mem::replace(&mut self.is_jumped, true) {
            return None;
        }
        self.stretch()
    }

    fn stretch(&self) -> Option<Stretch<'_>> {
        (self.floor > 0).then_some(Stretch {
            floor: self.floor,
            start: self.start.as_deref(),
            end: self.end.as_deref(),
        })
    }
}

/// A run of dead keys that a cursor walks over.
#[derive(Default)]
pub(super) struct Run {
    /// The first dead key it came to.
    first: Vec<u8>,
    /// Dead versions walked over.
    length: usize,
    /// Whether one of them is hidden by its date alone.
    is_spoiled: bool,
    /// Whether nothing is to be learned at all.
    is_vain: bool,
}

impl Run {
    /// For walks over keys in `order`. Where that is a program's own, nothing is learned: what lies next to a key is only
    /// known of bytes.
    pub(super) fn new(order: &Order) -> Self {
        Self {
            is_vain: !order.is_bytewise(),
            ..Self::default()
        }
    }

    /// A walk begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.length = 0;
        self.is_spoiled = false;
    }

    /// Nothing before counts.
    #[inline]
    pub(super) fn restart(&mut self) {
        self.length = 0;
    }

    /// A version was met that is hidden by its date alone: there is nothing to be learned from this walk.
    #[inline]
    pub(super) fn spoil(&mut self) {
        self.is_spoiled = true;
    }

    fn is_worth_it(&self) -> bool {
        self.length >= RUN_MIN && !self.is_spoiled && !self.is_vain
    }

    /// A dead version of `key` was met.
    #[inline]
    pub(super) fn add(&mut self, key: &[u8]) {
        if self.length == 0 {
            self.first.clear();
            self.first.extend_from_slice(key);
        }
        self.length += 1;
    }

    /// The walk forward, of a cursor at `snapshot`, ended before `end`, or at the last key.
    #[inline]
    pub(super) fn end_forward(&self, learned: &Learned, end: Option<&[u8]>, snapshot: u64) {
        if self.is_worth_it() {
            learned.add(&self.first, end, snapshot);
        }
    }

    /// The walk backward, of a cursor at `snapshot`, ended behind `live`, or at `lower` or the first key.
    #[inline]
    pub(super) fn end_backward(
        &mut self,
        learned: &Learned,
        live: Option<&[u8]>,
        lower: Option<&[u8]>,
        snapshot: u64,
    ) {
        if self.is_worth_it() {
            self.first.push(0);
            let behind = live.map(|key| [key, &[0]].concat());
            let start = behind.as_deref().or(lower).unwrap_or_default();
            learned.add(start, Some(&self.first), snapshot);
        }
    }
}
