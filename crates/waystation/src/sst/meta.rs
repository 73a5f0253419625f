//! What the engine knows of a table without opening it.
//!
//! LevelDB's MANIFEST holds a table's number, length and bounds, and nothing more ever fits there. What else is
//! known ([`TableFacts`]) stands in the table's own properties block: a table just written carries its facts,
//! one found in the MANIFEST learns them when it is first opened, and a table written by LevelDB never has any.

use std::sync::OnceLock;

/// A table as a version lists it. Internal key = user key + 8-byte trailer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableMeta {
    /// The file number; in level 0, a higher number means newer data.
    pub number: u64,
    /// Where the table's footer ends; the file may be longer.
    pub file_bytes: u64,
    /// The first internal key.
    pub smallest: Vec<u8>,
    /// The last internal key.
    pub largest: Vec<u8>,
    /// What the table's own properties say.
    pub facts: LearntFacts,
}

/// The facts about a table's content that are known so far. A copy, such as a job's, stays as it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct LearntFacts(OnceLock<Option<TableFacts>>);

impl LearntFacts {
    /// The facts; `None` while unread, and for tables written by LevelDB.
    pub(crate) fn get(&self) -> Option<TableFacts> {
        self.0.get().copied().flatten()
    }

    /// Whether no thread has looked yet.
    pub(crate) fn are_unread(&self) -> bool {
        self.0.get().is_none()
    }

    /// Notes what the table says; the first to look counts, and a table never changes.
    pub(crate) fn learn(&self, facts: Option<TableFacts>) {
        let _ = self.0.set(facts);
    }
}

impl From<Option<TableFacts>> for LearntFacts {
    fn from(facts: Option<TableFacts>) -> Self {
        let learnt = Self::default();
        if facts.is_some() {
            learnt.learn(facts);
        }
        learnt
    }
}

impl PartialEq for LearntFacts {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for LearntFacts {}

/// What a table's properties block says about its content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TableFacts {
    /// The lowest sequence number of any entry.
    pub smallest_sequence: u64,
    /// The highest sequence number of any entry.
    pub largest_sequence: u64,
    /// The highest G such that every grave up to G was fully applied when the table was written.
    pub purged_through: u64,
    /// How many entries the table has.
    pub entries: u64,
    /// How many of them are deletions.
    pub deletions: u64,
}

/// Bytes of the trailer (sequence number and kind) behind the user key in an internal key.
const TRAILER_BYTES: usize = 8;

impl TableMeta {
    /// The known facts about its content; `None` while unread, and for tables written by LevelDB.
    pub(crate) fn facts(&self) -> Option<TableFacts> {
        self.facts.get()
    }

    /// The user key of the first entry.
    pub(crate) fn smallest_user_key(&self) -> &[u8] {
        user_key(&self.smallest)
    }

    /// The user key of the last entry.
    pub(crate) fn largest_user_key(&self) -> &[u8] {
        user_key(&self.largest)
    }
}

fn user_key(internal: &[u8]) -> &[u8] {
    &internal[..internal.len().saturating_sub(TRAILER_BYTES)]
}
