//! Local documents: never replicated, without history. Replicators keep their checkpoints in them.

use super::{Shard, keys};
use crate::error::{Error, Result};
use waystation::{Durability, IterOptions};
use waystation_format::varint::{Reader, put_u64};

/// A local document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDocument {
    /// Its name without `_local/`.
    pub name: String,
    /// How often it was written; its revision is `0-` and this.
    pub version: u64,
    /// Its body in canonical text.
    pub body: String,
}

impl Shard {
    /// The local document `name`.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn open_local(&self, name: &str) -> Result<LocalDocument> {
        let bytes = self
            .db
            .get(&keys::local(name))?
            .ok_or_else(Error::missing)?;
        decode(name, &bytes)
    }

    /// Writes the local document `name` over `version`; `None` creates it, or writes over whatever is there.
    /// Returns the new version.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it is at another version; [`Error::Engine`].
    pub fn put_local(
        &self,
        name: &str,
        version: Option<u64>,
        body: &str,
        durability: Durability,
    ) -> Result<u64> {
        let updated = {
            let _updates = self.lock();
            let known = self.local_version(name)?;
            if version.is_some_and(|version| version != known) {
                return Err(Error::Conflict);
            }
            let mut record = Vec::with_capacity(body.len() + 2);
            put_u64(&mut record, known + 1);
            record.extend_from_slice(body.as_bytes());
            self.db.put(&keys::local(name), &record)?;
            known + 1
        };
        if durability == Durability::PowerLoss {
            self.db.sync()?;
        }
        Ok(updated)
    }

    /// Deletes the local document `name`, which is at `version`, if that is named.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] if it is at another version; [`Error::Engine`].
    pub fn delete_local(&self, name: &str, version: Option<u64>) -> Result<()> {
        let _updates = self.lock();
        match (self.local_version(name)?, version) {
            (0, _) => Err(Error::missing()),
            (known, Some(version)) if known != version => Err(Error::Conflict),
            _ => Ok(self.db.delete(&keys::local(name))?),
        }
    }

    /// All local documents, by name.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn local_documents(&self) -> Result<Vec<LocalDocument>> {
        let mut entries = self.db.iter(IterOptions::prefix([keys::LOCAL]))?;
        entries.seek_to_first()?;
        let mut found = Vec::new();
        while entries.valid() {
            let name = keys::id_of(entries.key());
            let name = name.ok_or_else(|| Error::damaged("a local document", "it has no name"))?;
            found.push(decode(&name, entries.value())?);
            entries.next()?;
        }
        Ok(found)
    }

    /// How often the local document `name` was written; 0 if it is not there.
    fn local_version(&self, name: &str) -> Result<u64> {
        let bytes = self.db.get(&keys::local(name))?;
        let known = bytes.map(|bytes| decode(name, &bytes)).transpose()?;
        Ok(known.map_or(0, |known| known.version))
    }
}

pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<LocalDocument> {
    let damaged = |reason: &dyn ToString| Error::damaged(format!("local document {name}"), reason);
    let mut reader = Reader::new(bytes);
    let version = reader.var_u64("version").map_err(|error| damaged(&error))?;
    let body = String::from_utf8(reader.rest().to_vec()).map_err(|error| damaged(&error))?;
    Ok(LocalDocument {
        name: name.to_owned(),
        version,
        body,
    })
}
