//! What one run of commands reads and writes: the commands that a client sent at once, or a transaction.
//!
//! ```text
//!   commands --> reads:   writes of this run, then the engine
//!            --> writes:  one batch, which becomes visible at once and before the first answer leaves
//! ```
//!
//! A run that only writes keeps its batch and nothing else. The first read behind a write sorts the writes so far, so that
//! the run sees what it wrote.

use crate::encoding::Tag;
use crate::failure::{Outcome, TOO_LONG, TOO_LONG_VALUE, TOO_MUCH, WRONG_TYPE};
use crate::head::{self, Head, Kind};
use crate::ranges::Ranges;
use crate::scan::Scan;
use crate::store::{Hold, STRIPES, Store};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering::SeqCst;
use waystation::{BatchMark, IterOptions, KEY_BYTES_MAX, VALUE_BYTES_MAX, WriteBatch};

/// A command that reads what it writes, such as `COPY`, writes at most so much, and a transaction carries no command out
/// behind so much (bytes): both together fit into a batch of the engine.
pub(crate) const WRITTEN_BYTES_MAX: usize = 256 << 20;

/// Writes that are not committed, sorted.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    /// The last write of each key; `None`: it was deleted.
    pub(crate) keys: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Ranges that were deleted. Keys in `keys` were written later.
    pub(crate) ranges: Ranges,
}

impl Overlay {
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.keys.insert(key.to_vec(), value.map(<[u8]>::to_vec));
    }

    fn delete_range(&mut self, start: &[u8], end: Option<&[u8]>) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        let end_bound = end.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Included(start), end_bound);
        let hidden: Vec<Vec<u8>> = self
            .keys
            .range::<[u8], _>(range)
            .map(|it| it.0.clone())
            .collect();
        for key in hidden {
            self.keys.remove(&key);
        }
        self.ranges.add(start, end);
    }

    /// What it says of `key`; `None`: nothing.
    #[expect(clippy::option_option, reason = "a deletion is something that it says")]
    fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        if let Some(value) = self.keys.get(key) {
            return Some(value.as_deref());
        }
        self.ranges.have(key).then_some(None)
    }
}

/// The work of one run.
pub(crate) struct Work<'s> {
    pub(crate) store: &'s Store,
    /// Milliseconds since 1970: one time for the whole run.
    pub(crate) now: u64,
    batch: WriteBatch,
    /// Where the writes of the command begin.
    begun: BatchMark,
    /// Once something was read behind a write.
    overlay: Option<Overlay>,
    /// The first date at which a key of this run is over.
    first_date: u64,
    holds: Vec<Hold<'s>>,
    shared: [u64; STRIPES / 64],
    alone: [u64; STRIPES / 64],
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'s> Work<'s> {
    pub(crate) fn new(store: &'s Store) -> Self {
        let batch = WriteBatch::new();
        Self {
            store,
            now: store.clock.millis(),
            begun: batch.mark(),
            batch,
            overlay: None,
            first_date: u64::MAX,
            holds: Vec::new(),
            shared: [0; STRIPES / 64],
            alone: [0; STRIPES / 64],
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Bytes that wait for the commit.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.batch.byte_len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// What comes now is written by another command.
    pub(crate) fn begin_command(&mut self) {
        self.begun = self.batch.mark();
    }

    /// Takes back what the command has written so far: it was refused.
    pub(crate) fn undo_command(&mut self) {
        if self.batch.mark() != self.begun {
            self.batch.return_to(self.begun);
            self.overlay = None;
        }
    }

    /// Refuses a command that would write `more` bytes, and too much with them. Arguments are bounded already, so one
    /// entry is always allowed.
    fn check_written(&self, more: usize) -> Outcome {
        // The engine would refuse the whole run.
        if self.value.len() > VALUE_BYTES_MAX {
            return Err(TOO_LONG_VALUE);
        }
        let written = self.batch.byte_len() - self.begun.byte_len();
        if written > 0 && written + more > WRITTEN_BYTES_MAX {
            return Err(TOO_MUCH);
        }
        Ok(())
    }

    /// Holds the stripes of a command, or none of those it did not hold before: then commit, and
    /// [`hold_all`](Self::hold_all).
    pub(crate) fn try_hold(&mut self, stripes: &[(usize, bool)]) -> bool {
        for (stripe, alone) in stripes {
            let (word, bit) = (stripe / 64, 1 << (stripe % 64));
            if self.alone[word] & bit != 0 || (!alone && self.shared[word] & bit != 0) {
                continue;
            }
            if self.shared[word] & bit != 0 {
                return false;
            }
            let Some(hold) = self.store.try_hold(*stripe, *alone) else {
                return false;
            };
            self.note_held(*stripe, *alone, hold);
        }
        true
    }

    fn note_held(&mut self, stripe: usize, alone: bool, hold: Hold<'s>) {
        let held = if alone {
            &mut self.alone
        } else {
            &mut self.shared
        };
        held[stripe / 64] |= 1 << (stripe % 64);
        self.holds.push(hold);
    }

    /// Waits for the stripes of a command. Everything before was committed.
    pub(crate) fn hold_all(&mut self, stripes: &mut Vec<(usize, bool)>) {
        // The same stripe twice: alone counts.
        stripes.sort_unstable_by_key(|(stripe, alone)| (*stripe, !alone));
        stripes.dedup_by_key(|it| it.0);
        for (stripe, alone) in stripes {
            let hold = self.store.hold(*stripe, *alone);
            self.note_held(*stripe, *alone, hold);
        }
    }

    /// Makes the writes visible, and lets the keys go.
    pub(crate) fn commit(&mut self) -> Outcome {
        self.commit_and(|| ())
    }

    /// The same, with `then` between both, unless nothing could be written.
    pub(crate) fn commit_and(&mut self, then: impl FnOnce()) -> Outcome {
        let mut written = Ok(());
        if !self.batch.is_empty() {
            written = self.store.write(&self.batch);
            if written.is_ok() && self.first_date < u64::MAX {
                self.store.next_date.fetch_min(self.first_date, SeqCst);
                self.first_date = u64::MAX;
            }
            self.batch.clear();
            self.begun = self.batch.mark();
        }
        if written.is_ok() {
            then();
        }
        self.overlay = None;
        self.let_go();
        self.now = self.store.clock.millis();
        written
    }

    fn let_go(&mut self) {
        if !self.holds.is_empty() {
            self.holds.clear();
            self.shared = [0; STRIPES / 64];
            self.alone = [0; STRIPES / 64];
        }
    }

    /// The writes so far, sorted; `None`: there are none.
    fn sorted(&mut self) -> Option<&Overlay> {
        if self.overlay.is_none() && !self.batch.is_empty() {
            let mut overlay = Overlay::default();
            for operation in &self.batch {
                match operation.range() {
                    _ if operation.time.is_some() => {}
                    Some(end) => overlay.delete_range(operation.key, end),
                    None => overlay.write(operation.key, operation.value),
                }
            }
            self.overlay = Some(overlay);
        }
        self.overlay.as_ref()
    }

    fn get(&mut self) -> Outcome<Option<Vec<u8>>> {
        let key = std::mem::take(&mut self.key);
        let written = self.sorted().and_then(|it| it.get(&key));
        let found = match written {
            Some(value) => Ok(value.map(<[u8]>::to_vec)),
            None => self.store.db.get(&key),
        };
        self.key = key;
        Ok(found?)
    }

    /// Puts `self.value` under `self.key`, until `over_at` as far as the engine knows times.
    fn put(&mut self, over_at: Option<u64>) -> Outcome {
        self.check_written(self.key.len() + self.value.len())?;
        match over_at {
            Some(over_at) if !self.store.encoding.has_device(&self.key) => {
                let micros = over_at.saturating_mul(1000);
                self.batch.put_until(&self.key, &self.value, micros);
            }
            _ => self.batch.put(&self.key, &self.value),
        }
        if let Some(overlay) = &mut self.overlay {
            overlay.write(&self.key, Some(&self.value));
        }
        Ok(())
    }

    fn delete(&mut self) {
        self.batch.delete(&self.key);
        if let Some(overlay) = &mut self.overlay {
            overlay.write(&self.key, None);
        }
    }

    /// Deletes a range of the engine's keys.
    pub(crate) fn delete_range(&mut self, start: &[u8], end: Option<&[u8]>) {
        self.batch.delete_range(start, end);
        if let Some(overlay) = &mut self.overlay {
            overlay.delete_range(start, end);
        }
    }

    /// Reads a range of the engine's keys, in order or backwards.
    pub(crate) fn scan(
        &mut self,
        lower: Vec<u8>,
        upper: Option<Vec<u8>>,
        is_backward: bool,
    ) -> Outcome<Scan> {
        let options = IterOptions {
            lower: Some(lower.clone()),
            upper: upper.clone(),
            ..IterOptions::default()
        };
        let cursor = self.store.db.iter(options)?;
        let overlay = self.sorted();
        Ok(Scan::new(cursor, overlay, (lower, upper), is_backward))
    }

    fn fill(&mut self, key: &[u8], tag: Tag, under: &[u8]) -> Outcome {
        self.store.encoding.base(key, &mut self.key)?;
        self.store.encoding.extend(&mut self.key, tag, under);
        // The engine would refuse the whole run.
        if self.key.len() > KEY_BYTES_MAX {
            return Err(TOO_LONG);
        }
        Ok(())
    }

    /// The key of the engine for what lies under `key`.
    pub(crate) fn engine_key(&self, key: &[u8], tag: Tag, under: &[u8]) -> Outcome<Vec<u8>> {
        let mut whole = Vec::with_capacity(key.len() + under.len() + 8);
        self.store.encoding.base(key, &mut whole)?;
        self.store.encoding.extend(&mut whole, tag, under);
        Ok(whole)
    }

    /// The head of `key`, unless the key is over.
    pub(crate) fn head(&mut self, key: &[u8]) -> Outcome<Option<Head>> {
        let now = self.now;
        Ok(self.stored_head(key)?.filter(|it| !it.is_over(now)))
    }

    /// The head of `key`, which may be over.
    fn stored_head(&mut self, key: &[u8]) -> Outcome<Option<Head>> {
        self.fill(key, Tag::Head, b"")?;
        Ok(self.get()?.and_then(Head::read))
    }

    /// The head of `key`, which has to be of this kind if there is one.
    pub(crate) fn head_of(&mut self, key: &[u8], kind: Kind) -> Outcome<Option<Head>> {
        match self.head(key)? {
            Some(head) if head.kind != kind => Err(WRONG_TYPE),
            head => Ok(head),
        }
    }

    /// Writes the head of `key`. Nothing is read.
    pub(crate) fn put_head(
        &mut self,
        key: &[u8],
        kind: Kind,
        over_at: Option<u64>,
        rest: &[u8],
    ) -> Outcome {
        self.fill(key, Tag::Head, b"")?;
        head::write(kind, over_at, rest, &mut self.value);
        // The heads of collections stay, so that what lies under them is found and goes with them.
        let engine_time = over_at.filter(|_| kind == Kind::String);
        let needs_date = over_at.is_some()
            && (kind != Kind::String || self.store.encoding.has_device(&self.key));
        self.put(engine_time)?;
        if let Some(over_at) = over_at.filter(|_| needs_date) {
            self.first_date = self.first_date.min(over_at);
            self.key = self.store.encoding.date(key, over_at);
            if self.key.len() > KEY_BYTES_MAX {
                return Err(TOO_LONG);
            }
            self.value.clear();
            self.put(None)?;
        }
        Ok(())
    }

    pub(crate) fn put_string(&mut self, key: &[u8], value: &[u8], over_at: Option<u64>) -> Outcome {
        self.put_head(key, Kind::String, over_at, value)
    }

    /// Writes the head of a collection that has `count` entries now; the key goes with the last of them. A collection that
    /// begins clears away what an earlier one left.
    pub(crate) fn put_count(
        &mut self,
        key: &[u8],
        kind: Kind,
        before: Option<&Head>,
        count: u64,
    ) -> Outcome {
        if count == 0 {
            self.fill(key, Tag::Head, b"")?;
            self.delete();
            return Ok(());
        }
        if before.is_some_and(|it| it.count() == count) {
            return Ok(());
        }
        let over_at = before.and_then(|it| it.over_at);
        self.put_head(key, kind, over_at, &count.to_le_bytes())
    }

    /// Clears what lies under a key that has no head, if anything does: the rest of a collection that was overwritten.
    /// Samples without a head are a series.
    pub(crate) fn begin_collection(&mut self, key: &[u8]) -> Outcome {
        if self.head_or_samples(key)?.is_some() {
            return Err(WRONG_TYPE);
        }
        let (lower, upper) = self.under(key)?;
        self.clear(&lower, &upper)
    }

    /// The same for a series, which keeps samples that are there, unless they are those of a key that is over.
    pub(crate) fn begin_series(&mut self, key: &[u8]) -> Outcome {
        let (lower, end) = self.under(key)?;
        if self.stored_head(key)?.is_some() {
            return self.clear(&lower, &end);
        }
        let upper = self.engine_key(key, Tag::Sample, b"")?;
        self.clear(&lower, &upper)
    }

    fn clear(&mut self, lower: &[u8], upper: &[u8]) -> Outcome {
        let mut left = self.scan(lower.to_vec(), Some(upper.to_vec()), false)?;
        if left.advance()? {
            self.delete_range(lower, Some(upper));
        }
        Ok(())
    }

    /// Whether a sample lies under `key`.
    pub(crate) fn has_samples(&mut self, key: &[u8]) -> Outcome<bool> {
        self.scan_under(key, Tag::Sample, (b"", None), false)?
            .advance()
    }

    /// The head of `key`; if it has none but samples, a series' head.
    pub(crate) fn head_or_samples(&mut self, key: &[u8]) -> Outcome<Option<Head>> {
        if let Some(head) = self.stored_head(key)? {
            // Samples under a head that is over are over with it.
            return Ok(Some(head).filter(|it| !it.is_over(self.now)));
        }
        Ok(self.has_samples(key)?.then(|| Head::plain(Kind::Series)))
    }

    /// The range of all that lies under `key`, without its head.
    fn under(&self, key: &[u8]) -> Outcome<(Vec<u8>, Vec<u8>)> {
        let mut lower = Vec::new();
        self.store.encoding.base(key, &mut lower)?;
        let mut upper = lower.clone();
        lower.extend_from_slice(&[0, 1]);
        upper.extend_from_slice(&[0, 0xff]);
        Ok((lower, upper))
    }

    /// Deletes `key`, whose head was read.
    pub(crate) fn remove(&mut self, key: &[u8], kind: Kind) -> Outcome {
        self.fill(key, Tag::Head, b"")?;
        self.delete();
        let (lower, upper) = self.under(key)?;
        if kind == Kind::String {
            // What the string was put over.
            return self.clear(&lower, &upper);
        }
        self.delete_range(&lower, Some(&upper));
        Ok(())
    }

    pub(crate) fn get_under(
        &mut self,
        key: &[u8],
        tag: Tag,
        under: &[u8],
    ) -> Outcome<Option<Vec<u8>>> {
        self.fill(key, tag, under)?;
        self.get()
    }

    pub(crate) fn put_under(
        &mut self,
        key: &[u8],
        tag: Tag,
        under: &[u8],
        value: &[u8],
    ) -> Outcome {
        self.fill(key, tag, under)?;
        self.value.clear();
        self.value.extend_from_slice(value);
        self.put(None)
    }

    pub(crate) fn delete_under(&mut self, key: &[u8], tag: Tag, under: &[u8]) -> Outcome {
        self.fill(key, tag, under)?;
        self.delete();
        Ok(())
    }

    /// Reads what lies under `key` with this tag, between two bounds.
    pub(crate) fn scan_under(
        &mut self,
        key: &[u8],
        tag: Tag,
        (lower, upper): (&[u8], Option<&[u8]>),
        is_backward: bool,
    ) -> Outcome<Scan> {
        let low = self.engine_key(key, tag, lower)?;
        let high = if let Some(upper) = upper {
            self.engine_key(key, tag, upper)?
        } else {
            let mut end = self.engine_key(key, tag, b"")?;
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            end
        };
        self.scan(low, Some(high), is_backward)
    }

    /// What lies under the key of an entry that a scan shows.
    pub(crate) fn under_of(&self, engine_key: &[u8]) -> Vec<u8> {
        let decoded = self.store.encoding.decode(engine_key);
        decoded.map(|it| it.under.into_owned()).unwrap_or_default()
    }

    /// Removes a date.
    pub(crate) fn delete_date(&mut self, date: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(date);
        self.delete();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::failure::STOPPING;
    use std::sync::Arc;
    use waystation::{Db, Options};

    fn store(directory: &std::path::Path) -> Store {
        let db = Arc::new(Db::open(directory, Options::default()).unwrap());
        Store::new("db".to_owned(), db, None, Clock::start()).unwrap()
    }

    #[tokio::test]
    async fn a_command_that_writes_too_much_is_refused_and_has_written_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let mut work = Work::new(&store);
        let value = vec![0; WRITTEN_BYTES_MAX / 5];
        work.put_string(b"before", b"1", None).unwrap();
        work.begin_command();
        for field in 0..4 {
            work.put_under(b"key", Tag::Field, &[field], &value)
                .unwrap();
        }
        let refused = work.put_under(b"key", Tag::Field, b"last", &value);
        assert_eq!(refused, Err(TOO_MUCH));
        work.undo_command();
        assert!(work.batch_bytes() < 100);
        assert!(work.head(b"before").unwrap().is_some());
        let read = work.get_under(b"key", Tag::Field, &[0]);
        assert_eq!(read, Ok(None));
        work.commit().unwrap();
    }

    #[tokio::test]
    async fn nothing_is_written_once_the_store_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let mut work = Work::new(&store);
        work.put_string(b"a", b"1", None).unwrap();
        work.commit().unwrap();
        store.close();
        work.put_string(b"a", b"2", None).unwrap();
        assert_eq!(work.commit(), Err(STOPPING));
        let read = work.head(b"a").unwrap();
        assert_eq!(read.as_ref().map(Head::rest), Some(&b"1"[..]));
    }
}
