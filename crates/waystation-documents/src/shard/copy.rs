//! Copying a shard: all that its engine holds, page by page, from one snapshot.
//!
//! A page is a range of keys and a digest of what lies in it. Who fills a copy compares the digest with that of the same
//! range there, and takes the entries only where they differ. So a copy that was begun and interrupted, or that missed
//! some changes, costs the bytes that differ, and reading the rest.
//!
//! A copy that is being filled is not asked for anything else: its own records are read again at the end
//! ([`Shard::reload`]).

use super::{Shard, State};
use crate::error::{Error, Result};
use crate::wire::wire_struct;
use md5::{Digest, Md5};
use waystation::{DbIterator, Durability, IterOptions, Snapshot, WriteBatch};

/// A page ends when its entries have this many bytes.
const PAGE_BYTES: usize = 1 << 20;
/// A page ends when it has this many entries.
const PAGE_ENTRIES: usize = 8192;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A range of keys: behind `after`, up to `end` and with it. `None`: from the first, to the last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeySpan {
    /// The key before the first.
    pub after: Option<Vec<u8>>,
    /// The last key.
    pub end: Option<Vec<u8>>,
}

/// The next part of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPage {
    /// What it is of.
    pub span: KeySpan,
    /// A digest of its entries.
    pub digest: Vec<u8>,
    /// Bytes of its entries.
    pub bytes: u64,
}

wire_struct! {
    KeySpan { after, end }
    CopyPage { span, digest, bytes }
}

/// What a copy is made from: one snapshot of a shard.
pub trait CopySource: Send {
    /// Goes on to the next page; the one without an end is the last.
    ///
    /// # Errors
    /// What reading fails of.
    fn next_page(&mut self) -> Result<CopyPage>;

    /// The entries of the page that was last returned.
    ///
    /// # Errors
    /// What reading fails of.
    fn entries(&mut self) -> Result<Vec<Entry>>;
}

/// A snapshot of a shard in this process.
pub struct ShardSnapshot {
    cursor: DbIterator,
    span: KeySpan,
    entries: Vec<Entry>,
}

impl CopySource for ShardSnapshot {
    fn next_page(&mut self) -> Result<CopyPage> {
        let (mut bytes, mut entries) = (0, Vec::new());
        while self.cursor.valid() && bytes < PAGE_BYTES && entries.len() < PAGE_ENTRIES {
            let entry = (self.cursor.key().to_vec(), self.cursor.value().to_vec());
            bytes += entry.0.len() + entry.1.len();
            entries.push(entry);
            self.cursor.next()?;
        }
        let last = entries.last().map(|(key, _)| key.clone());
        self.span = KeySpan {
            after: self.span.end.take(),
            end: last.filter(|_| self.cursor.valid()),
        };
        let digest = digest(entries.iter().map(|(key, value)| (&key[..], &value[..])));
        self.entries = entries;
        Ok(CopyPage {
            span: self.span.clone(),
            digest,
            bytes: bytes as u64,
        })
    }

    fn entries(&mut self) -> Result<Vec<Entry>> {
        Ok(self.entries.clone())
    }
}

fn digest<'a>(entries: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut digest = Md5::new();
    for (key, value) in entries {
        digest.update((key.len() as u64).to_le_bytes());
        digest.update(key);
        digest.update((value.len() as u64).to_le_bytes());
        digest.update(value);
    }
    digest.finalize().to_vec()
}

impl KeySpan {
    fn options(&self, snapshot: Option<Snapshot>) -> IterOptions {
        // The key that follows another one is that one and a zero byte.
        let next = |key: &Vec<u8>| [key.as_slice(), &[0]].concat();
        IterOptions {
            lower: self.after.as_ref().map(next),
            upper: self.end.as_ref().map(next),
            snapshot,
            ..IterOptions::default()
        }
    }

    fn holds(&self, key: &[u8]) -> bool {
        let is_behind = self.after.as_deref().is_none_or(|after| after < key);
        is_behind && self.end.as_deref().is_none_or(|end| key <= end)
    }
}

impl Shard {
    /// Begins to copy it as it stands now.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn begin_copy(&self) -> Result<ShardSnapshot> {
        let all = KeySpan::default();
        let mut cursor = self.db.iter(all.options(Some(self.db.snapshot())))?;
        cursor.seek_to_first()?;
        Ok(ShardSnapshot {
            cursor,
            span: all,
            entries: Vec::new(),
        })
    }

    /// The digest of what lies in `span`.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn digest(&self, span: &KeySpan) -> Result<Vec<u8>> {
        let mut entries = self.db.iter(span.options(None))?;
        entries.seek_to_first()?;
        let mut digest = Md5::new();
        while entries.valid() {
            let (key, value) = (entries.key(), entries.value());
            digest.update((key.len() as u64).to_le_bytes());
            digest.update(key);
            digest.update((value.len() as u64).to_le_bytes());
            digest.update(value);
            entries.next()?;
        }
        Ok(digest.finalize().to_vec())
    }

    /// Has `span` hold `entries`, which are in order, and nothing else.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if an entry lies elsewhere; [`Error::Engine`].
    pub fn fill(&self, span: &KeySpan, entries: &[Entry]) -> Result<()> {
        let in_order = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !in_order || !entries.iter().all(|(key, _)| span.holds(key)) {
            let reason = "The entries of a copy are out of their order or range.";
            return Err(Error::BadRequest(reason.into()));
        }
        let _updates = self.lock();
        let mut batch = WriteBatch::new();
        let mut stored = self.db.iter(span.options(None))?;
        stored.seek_to_first()?;
        let mut wanted = entries.iter().peekable();
        while stored.valid() {
            let before = wanted.next_if(|(key, _)| key.as_slice() < stored.key());
            if let Some((key, value)) = before {
                batch.put(key, value);
                continue;
            }
            match wanted.next_if(|(key, _)| key == stored.key()) {
                Some((key, value)) if value != stored.value() => batch.put(key, value),
                Some(_) => {}
                None => batch.delete(stored.key()),
            }
            stored.next()?;
        }
        for (key, value) in wanted {
            batch.put(key, value);
        }
        Ok(self.db.write(&batch, Durability::ProcessCrash)?)
    }

    /// Reads its own records again, which were filled.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn reload(&self) -> Result<()> {
        {
            let mut state = self.lock();
            *state = State::read(&self.db)?;
            self.clock.pass(state.sequence);
            self.replace_indexes(|_| false, None);
        }
        self.load_turns()?;
        self.load_indexes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;
    use crate::shard::{Edits, IndexDefinition, Turns};
    use waystation::Options;

    fn shard(directory: &std::path::Path) -> Result<Shard> {
        Shard::open(directory, Options::default())
    }

    fn write(shard: &Shard, text: &str) -> Result<()> {
        let document = Document::parse(text.as_bytes())?;
        let edits = Edits::Replicated;
        shard.update(&[document], edits, Durability::ProcessCrash)?[0].clone()?;
        Ok(())
    }

    /// Copies, and returns how many pages differed.
    fn copy(source: &Shard, target: &Shard) -> Result<usize> {
        let mut copy = source.begin_copy()?;
        let mut different = 0;
        loop {
            let page = copy.next_page()?;
            if target.digest(&page.span)? != page.digest {
                different += 1;
                target.fill(&page.span, &copy.entries()?)?;
            }
            if page.span.end.is_none() {
                target.reload()?;
                return Ok(different);
            }
        }
    }

    #[test]
    fn a_copy_is_the_same_and_costs_what_differs() -> Result<()> {
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let (source, target) = (shard(one.path())?, shard(two.path())?);
        write(&target, r#"{"_id":"surplus","_rev":"1-a"}"#)?;
        let pad = "x".repeat(9000);
        for at in 0..400 {
            write(
                &source,
                &format!(r#"{{"_id":"{at}","_rev":"1-a","n":{at},"pad":"{pad}"}}"#),
            )?;
        }
        source.create_index(IndexDefinition {
            name: "by n".to_owned(),
            columns: vec!["n".to_owned()],
            partial: None,
        })?;
        source.set_turn(7)?;
        let pages = copy(&source, &target)?;
        assert!(pages > 3, "{pages}");
        assert_eq!(target.info(), source.info());
        assert_eq!(target.index_definitions(), source.index_definitions());
        assert!(target.open_winner("surplus").is_err());
        assert_eq!(target.open_winner("399")?.version.body.len(), 9000 + 18);
        assert_eq!(copy(&source, &target)?, 0);
        write(&source, r#"{"_id":"5","_rev":"2-b"}"#)?;
        let again = copy(&source, &target)?;
        assert!((1..pages).contains(&again), "{again} of {pages}");
        assert_eq!(target.open_winner("5")?.version.body, "{}");
        let told = target.follow(crate::shard::Turn::default(), crate::shard::Request::Info);
        assert_eq!(told.turns, Turns::at(7));
        Ok(())
    }

    #[test]
    fn entries_that_lie_elsewhere_are_refused() -> Result<()> {
        let directory = tempfile::tempdir().expect("a directory");
        let shard = shard(directory.path())?;
        let span = KeySpan {
            after: Some(b"b".to_vec()),
            end: Some(b"d".to_vec()),
        };
        let entry = |key: &str| (key.as_bytes().to_vec(), Vec::new());
        for entries in [
            vec![entry("b")],
            vec![entry("e")],
            vec![entry("d"), entry("c")],
        ] {
            assert!(shard.fill(&span, &entries).is_err(), "{entries:?}");
        }
        Ok(())
    }
}
