//! Looks at a client's region: everything in it, in both directions, now or at a snapshot.

use super::plan::Plan;
use crate::looks::{Keys, difference, read};
use crate::support::{Content, Random};
use waystation::{Db, IterOptions, Snapshot};

/// How many batches a counter value stands for.
pub(crate) fn count_of(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |bytes| {
        u64::from_le_bytes(bytes.try_into().expect("eight bytes")) + 1
    })
}

/// A look at the region of one client.
pub(crate) struct Look<'a> {
    pub(crate) db: &'a Db,
    pub(crate) plan: &'a Plan,
    pub(crate) client: usize,
    /// `None`: now.
    pub(crate) snapshot: Option<&'a Snapshot>,
    /// What should be there.
    pub(crate) expected: &'a Content,
}

/// How a look went: `Err(difference)` if something else is there.
type Seen = Result<(), String>;

impl Look<'_> {
    /// Compares all of the region, by a cursor, by single reads and by some seeks; an error if a read fails.
    pub(crate) fn compare(&self, random: &mut Random) -> waystation::Result<Seen> {
        let backwards = random.one_in(2);
        let found = read(self.db, self.options(), backwards, Keys::Lasting)?;
        if found != *self.expected {
            return Ok(Err(format!(
                "cursor (backwards: {backwards}): {}",
                difference(&found, self.expected)
            )));
        }
        let some: Vec<_> = (0..8)
            .map(|_| self.plan.some_key(self.client, random))
            .collect();
        for key in self.expected.keys().chain(&some) {
            let got = self.get(key)?;
            if got.as_ref() != self.expected.get(key) {
                let name = key.escape_ascii();
                return Ok(Err(format!("get {name}: found {}", got.is_some())));
            }
        }
        self.seek(&some)
    }

    fn options(&self) -> IterOptions {
        IterOptions {
            snapshot: self.snapshot.cloned(),
            ..IterOptions::prefix(Plan::region(self.client))
        }
    }

    fn get(&self, key: &[u8]) -> waystation::Result<Option<Vec<u8>>> {
        match self.snapshot {
            Some(snapshot) => self.db.get_at(key, snapshot),
            None => self.db.get(key),
        }
    }

    /// Sends one cursor to several keys, and a step on or back from there. (Keys that expire come before all of these.)
    fn seek(&self, keys: &[Vec<u8>]) -> waystation::Result<Seen> {
        let mut cursor = self.db.iter(self.options())?;
        for (at, key) in keys.iter().enumerate() {
            let mut behind = self.expected.range::<Vec<u8>, _>(key..);
            let expected = if at % 2 == 0 {
                cursor.seek(key)?;
                behind.next()
            } else {
                cursor.seek(key)?;
                if cursor.valid() {
                    cursor.next()?;
                }
                behind.nth(1)
            };
            let found = cursor.valid().then(|| cursor.key().to_vec());
            if found.as_ref() != expected.map(|(key, _)| key) {
                let name = key.escape_ascii();
                return Ok(Err(format!("a cursor sent to {name} is elsewhere")));
            }
        }
        Ok(Ok(()))
    }
}
