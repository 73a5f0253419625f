//! The entries of a range as an iterator from both ends, for loops and adapters.
//!
//! Each end is a cursor of its own, opened when it is first asked, both at one snapshot. The ends have met when a cursor
//! comes to the key that the other end gave last, or passes it. Keys and values are copies; a cursor
//! ([`Db::iter`](super::Db::iter)) shows them without.

use super::snapshot::Snapshot;
use super::{Db, DbIterator, IterOptions};
use crate::error::{Error, Result};
use std::cmp::Ordering;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// The entries of a range of keys, in their order, from both ends: see [`Db::range`] and [`Db::prefix`].
///
/// It reads at one moment: that of the first entry, or the one that [`at`](Self::at) names. It keeps the versions of that
/// moment on storage until it is dropped. After an error it ends.
pub struct Entries<'db> {
    db: &'db Db,
    options: IterOptions,
    /// Why the call cannot be carried out: the first entry.
    refused: Option<Error>,
    is_over: bool,
    front: Option<End>,
    back: Option<End>,
}

/// One end: a cursor, and the last key that it gave.
struct End {
    cursor: DbIterator,
    given: Vec<u8>,
}

impl Db {
    /// The entries with keys in `range`, in order and from both ends.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = waystation::Db::open(dir.path(), waystation::Options::default())?;
    /// db.put(b"car-1", b"red")?;
    /// db.put(b"car-2", b"blue")?;
    /// db.put(b"car-3", b"green")?;
    ///
    /// let colours: Vec<_> = db.range("car-1".."car-3").collect::<Result<_, _>>()?;
    /// assert_eq!(colours, [(b"car-1".to_vec(), b"red".to_vec()), (b"car-2".to_vec(), b"blue".to_vec())]);
    ///
    /// let last = db.range("car-1"..).next_back().transpose()?;
    /// assert_eq!(last, Some((b"car-3".to_vec(), b"green".to_vec())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An entry is [`Error::Io`] or [`Error::Corruption`] if it cannot be read. The first one is
    /// [`Error::InvalidArgument`] if the range excludes its start or includes its end while keys are in a program's own
    /// order ([`Options::order`](crate::Options::order)).
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Entries<'_> {
        let lower = match range.start_bound() {
            Bound::Included(key) => Ok(Some(key.as_ref().to_vec())),
            Bound::Excluded(key) => self.behind(key.as_ref()).map(Some),
            Bound::Unbounded => Ok(None),
        };
        let upper = match range.end_bound() {
            Bound::Included(key) => self.behind(key.as_ref()).map(Some),
            Bound::Excluded(key) => Ok(Some(key.as_ref().to_vec())),
            Bound::Unbounded => Ok(None),
        };
        let options = lower.and_then(|lower| {
            Ok(IterOptions {
                lower,
                upper: upper?,
                ..IterOptions::default()
            })
        });
        Entries::new(self, options)
    }

    /// The entries with keys that begin with `prefix`, in order and from both ends; all there are, if it is empty.
    ///
    /// # Errors
    /// As [`range`](Self::range). The first entry is [`Error::InvalidArgument`] if keys are not in the order of their
    /// bytes.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Entries<'_> {
        Entries::new(self, Ok(IterOptions::prefix(prefix.as_ref())))
    }

    /// The first key behind `key`.
    fn behind(&self, key: &[u8]) -> Result<Vec<u8>> {
        let order = &self.core.options.order;
        if order.is_bytewise() {
            return Ok([key, &[0]].concat());
        }
        let name = order.name();
        Err(Error::InvalidArgument(format!(
            "the keys are ordered by {name:?}, in which the next key is not known; name a first key that is included and \
             an end that is excluded"
        )))
    }
}

impl<'db> Entries<'db> {
    fn new(db: &'db Db, options: Result<IterOptions>) -> Self {
        let (options, refused) = match options {
            Ok(options) => (options, None),
            Err(error) => (IterOptions::default(), Some(error)),
        };
        Self {
            db,
            options,
            refused,
            is_over: false,
            front: None,
            back: None,
        }
    }

    /// The same entries as they were when `snapshot` was taken. To be called before the first entry is asked for.
    #[must_use]
    pub fn at(mut self, snapshot: &Snapshot) -> Self {
        self.options.snapshot = Some(snapshot.clone());
        self
    }

    /// The next entry of one end.
    fn step(&mut self, is_front: bool) -> Option<Result<Entry>> {
        if self.is_over {
            return None;
        }
        let entry = match self.refused.take() {
            Some(error) => Some(Err(error)),
            None => self.advance(is_front).transpose(),
        };
        if !matches!(entry, Some(Ok(_))) {
            self.is_over = true;
            self.options.snapshot = None;
            self.front = None;
            self.back = None;
        }
        entry
    }

    /// Moves one end to its next entry; none if the range is over, or the ends have met.
    fn advance(&mut self, is_front: bool) -> Result<Option<Entry>> {
        let (end, other, beyond) = if is_front {
            (&mut self.front, &self.back, Ordering::Less)
        } else {
            (&mut self.back, &self.front, Ordering::Greater)
        };
        let end = match end {
            Some(end) if is_front => end.moved(DbIterator::next)?,
            Some(end) => end.moved(DbIterator::prev)?,
            None => {
                let snapshot = &mut self.options.snapshot;
                snapshot.get_or_insert_with(|| self.db.snapshot());
                let cursor = self.db.iter(self.options.clone())?;
                let given = Vec::new();
                let begun = end.insert(End { cursor, given });
                if is_front {
                    begun.moved(DbIterator::seek_to_first)?
                } else {
                    begun.moved(DbIterator::seek_to_last)?
                }
            }
        };
        if !end.cursor.valid() {
            return Ok(None);
        }
        let key = end.cursor.key();
        let order = &self.db.core.options.order;
        let has_met = |other: &End| order.compare(key, &other.given) != beyond;
        if other.as_ref().is_some_and(has_met) {
            return Ok(None);
        }
        let entry = (key.to_vec(), end.cursor.value().to_vec());
        end.given.clone_from(&entry.0);
        Ok(Some(entry))
    }
}

impl End {
    /// The end, after its cursor was moved.
    fn moved(&mut self, step: impl FnOnce(&mut DbIterator) -> Result<()>) -> Result<&mut Self> {
        step(&mut self.cursor)?;
        Ok(self)
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl FusedIterator for Entries<'_> {}
