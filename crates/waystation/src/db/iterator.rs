//! The user's cursor: the newest visible version of each key, both ways.
//!
//! The merged sources show internal keys: every version of every key, newest first. Going forward the cursor
//! takes the first version at or below its sequence and skips the rest of that key; going back it meets the
//! versions oldest first and keeps the last one that still counts.
//!
//! Invariants: going forward the merged cursor is *on* the shown entry; going back it is *before* all entries
//! of the shown key, whose key and value were saved.

use super::Ownership;
use super::dead_ranges::Patience;
use super::snapshot::Snapshot;
use crate::cemetery::dead_ranges::DeadRangeCache;
use crate::error::Result;
use crate::lsm::iter::Source;
use crate::read_state::ReadState;
use crate::read_state::dead_run::DeadRun;
use crate::read_state::grave_filter::{GraveFilter, Visibility};
use crate::sst::{InternalIterator, MergingIterator};
use crate::sync::Arc;
pub(crate) use waystation_format::batch::prefix_end;
use waystation_format::key::{self, MAX_SEQUENCE, ValueKind};
use waystation_format::order::Order;

/// What an iterator covers.
#[derive(Debug, Clone, Default)]
pub struct IterOptions {
    /// The first key, included. `None`: from the first.
    pub lower: Option<Vec<u8>>,
    /// The last key, excluded. `None`: to the last.
    pub upper: Option<Vec<u8>>,
    /// Only keys that start with this; narrows `lower` and `upper` further. Refused where keys are not in the order of
    /// their bytes.
    pub prefix: Option<Vec<u8>>,
    /// The point in history to read at. `None`: now.
    pub snapshot: Option<Snapshot>,
}

impl IterOptions {
    /// Only keys that start with `prefix`.
    pub fn prefix(prefix: impl Into<Vec<u8>>) -> Self {
        Self {
            prefix: Some(prefix.into()),
            ..Self::default()
        }
    }

    /// The bounds with the prefix worked in.
    pub(crate) fn bounds(&self) -> Bounds {
        let mut bounds = Bounds {
            lower: self.lower.clone(),
            upper: self.upper.clone(),
        };
        if let Some(prefix) = &self.prefix {
            if bounds.lower.as_ref().is_none_or(|lower| lower < prefix) {
                bounds.lower = Some(prefix.clone());
            }
            if let Some(end) = prefix_end(prefix)
                && bounds.upper.as_ref().is_none_or(|upper| *upper > end)
            {
                bounds.upper = Some(end);
            }
        }
        bounds
    }
}

/// A range of user keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds {
    pub(crate) lower: Option<Vec<u8>>,
    pub(crate) upper: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// On no entry.
    Nowhere,
    /// The merged cursor is on the entry shown.
    On,
    /// The merged cursor is before the key shown, which was saved.
    Before,
}

/// A cursor over the keys of a database at one point in its history. It holds that point's data (memory and
/// files) and the directory until it is dropped: no process can open it before, even if [`Db`](crate::Db) is closed.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = waystation::Db::open(dir.path(), waystation::Options::default())?;
/// db.put(b"car-1:speed", b"13")?;
/// let mut iterator = db.iter(waystation::IterOptions::prefix("car-1:"))?;
/// iterator.seek_to_first()?;
/// assert!(iterator.valid());
/// assert_eq!((iterator.key(), iterator.value()), (&b"car-1:speed"[..], &b"13"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DbIterator {
    merged: MergingIterator<Source>,
    sequence: u64,
    time: u64,
    bounds: Bounds,
    position: Position,
    /// The internal key shown when `Before`; the user key passed last when skipping forward.
    saved_key: Vec<u8>,
    saved_value: Vec<u8>,
    /// Scratch for seek targets.
    target: Vec<u8>,
    /// Keeps memtables, graves and tables alive.
    read_state: Arc<ReadState>,
    _snapshot: Option<Snapshot>,
    /// What graves hide, if they hide anything.
    hidden: Option<GraveFilter>,
    dead_ranges: Arc<DeadRangeCache>,
    run: DeadRun,
    patience: Option<Patience>,
    order: Order,
    /// What the fields above read is ours until then; so this goes last.
    _ownership: Ownership,
}

impl DbIterator {
    pub(super) fn new(
        merged: MergingIterator<Source>,
        (sequence, time): (u64, u64),
        bounds: Bounds,
        read_state: Arc<ReadState>,
        (snapshot, ownership): (Option<Snapshot>, Ownership),
        dead_ranges: Arc<DeadRangeCache>,
    ) -> Self {
        Self {
            hidden: None,
            dead_ranges,
            run: DeadRun::new(read_state.version.order()),
            patience: None,
            order: read_state.version.order().clone(),
            merged,
            sequence,
            time,
            bounds,
            position: Position::Nowhere,
            saved_key: Vec::new(),
            saved_value: Vec::new(),
            target: Vec::new(),
            read_state,
            _snapshot: snapshot,
            _ownership: ownership,
        }
    }

    /// The same, with `patience` for dead keys on its way forward: it is on no entry when that is over.
    pub(super) fn with_patience(self, patience: Patience) -> Self {
        Self {
            patience: Some(patience),
            ..self
        }
    }

    /// Seeks `key`, where a run of dead keys may have ended that is remembered, if it is a front.
    pub(super) fn seek_on(&mut self, key: &[u8], is_front: bool) -> Result<()> {
        self.run.go_on_from(is_front.then_some(key));
        self.seek(key)
    }

    /// The dead key, or version of one, at which its patience was over.
    pub(super) fn gave_up_at(&self) -> Option<&[u8]> {
        let is_over = self.patience.as_ref().is_some_and(Patience::is_over);
        (is_over && !self.valid() && self.merged.valid()).then(|| key::user_key(self.merged.key()))
    }

    /// The sequence number it reads at.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether anything that it may come to expires.
    pub(super) fn knows_dates(&self) -> bool {
        self.read_state.earliest() < u64::MAX
    }

    /// When the entry that it is on expires (microseconds since 1970), if it does.
    pub(super) fn expiry(&self) -> Result<Option<u64>> {
        if !self.knows_dates() {
            return Ok(None);
        }
        let internal = match self.position {
            Position::On => self.merged.key(),
            Position::Before => &self.saved_key,
            Position::Nowhere => return Ok(None),
        };
        let sequence = key::trailer(internal) >> 8;
        self.read_state
            .date_of(key::user_key(internal), sequence + 1)
    }

    /// Whether the cursor is on an entry.
    pub fn valid(&self) -> bool {
        self.position != Position::Nowhere
    }

    /// The key of the entry. The cursor must be valid.
    pub fn key(&self) -> &[u8] {
        match self.position {
            Position::On => key::user_key(self.merged.key()),
            Position::Before => key::user_key(&self.saved_key),
            Position::Nowhere => panic!("key() of a cursor that is on no entry"),
        }
    }

    /// The value of the entry. The cursor must be valid.
    pub fn value(&self) -> &[u8] {
        match self.position {
            Position::On => self.merged.value(),
            Position::Before => &self.saved_value,
            Position::Nowhere => panic!("value() of a cursor that is on no entry"),
        }
    }

    /// Goes to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        let lower = self.bounds.lower.take();
        let first = lower.as_deref().or(self.order.least_key());
        let sought = match first {
            Some(first) => self.seek_from(first),
            None => self.seek_from_first(),
        };
        self.bounds.lower = lower;
        sought
    }

    /// Goes to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.start_over();
        match &self.bounds.upper {
            Some(upper) => {
                // The newest version of `upper` sorts before all its versions: the last entry before it.
                set_target(&mut self.target, upper, MAX_SEQUENCE);
                self.merged.seek(&self.target)?;
                if self.merged.valid() {
                    self.merged.prev()?;
                } else {
                    self.merged.seek_to_last()?;
                }
            }
            None => self.merged.seek_to_last()?,
        }
        self.settle_backward()
    }

    /// Goes to the first key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self
            .bounds
            .lower
            .as_deref()
            .is_some_and(|lower| self.order.is_before(key, lower))
        {
            return self.seek_to_first();
        }
        self.seek_from(key)
    }

    /// Goes to the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self
            .bounds
            .upper
            .as_deref()
            .is_some_and(|upper| !self.order.is_before(key, upper))
        {
            return self.seek_to_last();
        }
        self.start_over();
        // Sequence 0 sorts behind every version of the key.
        set_target(&mut self.target, key, 0);
        self.merged.seek_for_prev(&self.target)?;
        self.settle_backward()
    }

    /// Goes to the next key. The cursor must be valid.
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor that borrows its entry, not an Iterator"
    )]
    pub fn next(&mut self) -> Result<()> {
        match self.position {
            Position::On => {
                self.saved_key.clear();
                self.saved_key
                    .extend_from_slice(key::user_key(self.merged.key()));
                self.merged.next()?;
            }
            Position::Before => {
                // Onto the entries of the shown key again, to be skipped.
                let shown = self.saved_key.len() - 8;
                self.saved_key.truncate(shown);
                if self.merged.valid() {
                    self.merged.next()?;
                } else {
                    self.merged.seek_to_first()?;
                }
            }
            Position::Nowhere => panic!("next() of a cursor that is on no entry"),
        }
        self.settle_forward(true)
    }

    /// Goes to the previous key. The cursor must be valid.
    pub fn prev(&mut self) -> Result<()> {
        match self.position {
            Position::On => {
                self.saved_key.clear();
                self.saved_key
                    .extend_from_slice(key::user_key(self.merged.key()));
                while self.merged.valid()
                    && (self.order).is_same(key::user_key(self.merged.key()), &self.saved_key)
                {
                    self.merged.prev()?;
                }
            }
            Position::Before => {}
            Position::Nowhere => panic!("prev() of a cursor that is on no entry"),
        }
        self.settle_backward()
    }

    fn seek_from_first(&mut self) -> Result<()> {
        self.start_over();
        self.merged.seek_to_first()?;
        self.settle_forward(false)
    }

    fn seek_from(&mut self, key: &[u8]) -> Result<()> {
        self.start_over();
        set_target(&mut self.target, key, self.sequence);
        match self.hidden.as_mut().and_then(|it| it.span_at(key)) {
            Some(dead) => self
                .merged
                .seek_past(&self.target, dead.end, dead.covering)?,
            None => self.merged.seek(&self.target)?,
        }
        self.settle_forward(false)
    }

    /// The cursor is sent somewhere else.
    fn start_over(&mut self) {
        match &mut self.hidden {
            Some(hidden) => hidden.forget(),
            none => {
                let (snapshot, time) = (self.sequence, self.time);
                *none = GraveFilter::new(&self.read_state, &self.dead_ranges, snapshot, time);
            }
        }
    }

    /// From the merged cursor's place on, finds the next entry to show. With `skipping`, entries of
    /// `saved_key` do not count.
    fn settle_forward(&mut self, mut skipping: bool) -> Result<()> {
        self.position = Position::Nowhere;
        self.run.begin();
        // The key to be skipped is one that was shown, or else one that was deleted.
        let mut skips_shown = skipping;
        while self.merged.valid() {
            let internal = self.merged.key();
            let (user, trailer) = (key::user_key(internal), key::trailer(internal));
            if self
                .bounds
                .upper
                .as_deref()
                .is_some_and(|upper| !self.order.is_before(user, upper))
            {
                break;
            }
            if self.patience.as_mut().is_some_and(Patience::ends) {
                self.run
                    .end_forward(&self.dead_ranges, Some(user), self.sequence);
                return Ok(());
            }
            let is_passed = skipping && self.order.is_same(user, &self.saved_key);
            match sight(self.sequence, &mut self.hidden, user, trailer)? {
                // What was dead came before it: the cursor was behind that once.
                Sight::Seen if is_passed && skips_shown => self.run.restart(),
                Sight::Seen if is_passed => {}
                Sight::Seen => {
                    if trailer & 0xff == ValueKind::Value as u64 {
                        self.run
                            .end_forward(&self.dead_ranges, Some(user), self.sequence);
                        self.position = Position::On;
                        return Ok(());
                    }
                    self.run.add(user);
                    self.saved_key.clear();
                    self.saved_key.extend_from_slice(user);
                    (skipping, skips_shown) = (true, false);
                }
                Sight::Later => {}
                Sight::Expired => self.run.spoil(),
                Sight::Hidden => {
                    if !is_passed {
                        self.run.add(user);
                    }
                    if let Some(jump) = self.hidden.as_mut().and_then(GraveFilter::take_jump)
                        && self.merged.skip_forward(jump.end, jump.covering)?
                    {
                        continue;
                    }
                }
            }
            self.merged.next()?;
        }
        let end = self.bounds.upper.as_deref();
        self.run.end_forward(&self.dead_ranges, end, self.sequence);
        Ok(())
    }

    /// From the merged cursor's place back, finds the previous entry to show.
    fn settle_backward(&mut self) -> Result<()> {
        self.position = Position::Nowhere;
        self.run.begin();
        let mut found = false;
        while self.merged.valid() {
            let internal = self.merged.key();
            let (user, trailer) = (key::user_key(internal), key::trailer(internal));
            if found && !self.order.is_same(user, key::user_key(&self.saved_key)) {
                break;
            }
            if self
                .bounds
                .lower
                .as_deref()
                .is_some_and(|lower| self.order.is_before(user, lower))
            {
                break;
            }
            match sight(self.sequence, &mut self.hidden, user, trailer)? {
                Sight::Seen => {
                    // A newer version than any seen of this key so far: it alone counts.
                    found = trailer & 0xff == ValueKind::Value as u64;
                    if found {
                        self.saved_key.clear();
                        self.saved_key.extend_from_slice(internal);
                        self.saved_value.clear();
                        self.saved_value.extend_from_slice(self.merged.value());
                    } else {
                        self.run.add(user);
                    }
                }
                Sight::Later => {}
                Sight::Expired => self.run.spoil(),
                Sight::Hidden => {
                    self.run.add(user);
                    if let Some(jump) = self.hidden.as_mut().and_then(GraveFilter::take_jump)
                        && let Some(start) = jump.start.or(self.order.least_key())
                        && self.merged.skip_backward(start, jump.covering)?
                    {
                        continue;
                    }
                }
            }
            self.merged.prev()?;
        }
        let live = found.then(|| key::user_key(&self.saved_key));
        let lower = self.bounds.lower.as_deref();
        self.run
            .end_backward(&self.dead_ranges, live, lower, self.sequence);
        if found {
            self.position = Position::Before;
        }
        Ok(())
    }
}

/// How a version looks to a reader.
enum Sight {
    /// It counts.
    Seen,
    /// It was written later.
    Later,
    /// It is dead.
    Hidden,
    /// It is dead by its date alone.
    Expired,
}

/// How a version looks to a reader at `snapshot`.
#[inline]
fn sight(
    snapshot: u64,
    hidden: &mut Option<GraveFilter>,
    user_key: &[u8],
    trailer: u64,
) -> Result<Sight> {
    let sequence = trailer >> 8;
    if sequence > snapshot {
        return Ok(Sight::Later);
    }
    let Some(hidden) = hidden else {
        return Ok(Sight::Seen);
    };
    Ok(match hidden.look(user_key, sequence)? {
        Visibility::Alive => Sight::Seen,
        Visibility::Dead => Sight::Hidden,
        Visibility::Expired => Sight::Expired,
    })
}

/// The internal key that seeks `user_key` at `sequence`.
fn set_target(target: &mut Vec<u8>, user_key: &[u8], sequence: u64) {
    target.clear();
    let kind = if sequence == 0 {
        ValueKind::Deletion
    } else {
        ValueKind::Value
    };
    key::append(target, user_key, sequence, kind);
}
