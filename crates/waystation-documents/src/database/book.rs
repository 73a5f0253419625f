//! The book of copies: which nodes have a copy of a shard, and how each of them stands.
//!
//! ```text
//!   p UUID RANGE         [{"node":"one","standing":"whole"},...]    missing: as the database's definition says
//!   y UUID RANGE NODE    nothing: the node may have a copy of this shard that is not in the book
//! ```
//!
//! The records stand in the catalogue's engine, one for each shard, and each change of one survives a power cut before
//! anything relies on it. So after any crash the book says of every copy whether it may be read:
//!
//! ```text
//!   (nothing) ──add──► stale ──filled──► whole ──moved away──► leaving ──removed──► (noted as left) ──► (nothing)
//!                        ▲                 │
//!                        └──missed a change┘
//! ```
//!
//! Invariants: a shard always has a copy that is whole or leaving; a copy that missed a change is stale in the book
//! before that change is acknowledged; a copy on a node is in the book, or noted as left, before it is made.

use crate::array;
use crate::error::{Error, Result};
use crate::json::{Json, canonical, quote};
use std::sync::{Arc, Weak};
use waystation::{Db, Durability, IterOptions, WriteBatch};

/// What keys of shards with copies begin with.
const COPIES: u8 = b'p';
/// What keys of copies that are still to be removed begin with.
const LEFT: u8 = b'y';
/// Digits of a database's uuid.
const UUID_DIGITS: usize = 32;
/// Characters of a range's name.
const RANGE_CHARACTERS: usize = 17;

/// How a copy stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has every change that was acknowledged.
    Whole,
    /// It lacks something: it is not read until it is filled.
    Stale,
    /// It is whole, and is removed once the shard has enough other copies.
    Leaving,
}

impl Standing {
    /// Its name, in the book and in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Stale => "stale",
            Self::Leaving => "leaving",
        }
    }

    fn of(name: &str) -> Option<Self> {
        let all = [Self::Whole, Self::Stale, Self::Leaving];
        all.into_iter().find(|it| it.name() == name)
    }

    /// Whether it has every change that was acknowledged.
    pub fn is_in_service(self) -> bool {
        self != Self::Stale
    }
}

/// A copy of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardCopy {
    /// The name of its node.
    pub node: String,
    /// How it stands.
    pub standing: Standing,
}

/// Names a shard.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ShardKey {
    /// The uuid of its database.
    pub(super) database: String,
    /// The name of its range.
    pub(super) range: String,
}

/// A copy that is not in the book, and may still be on a node.
pub(super) struct Left {
    pub(super) shard: ShardKey,
    pub(super) node: String,
}

/// The book. See the module. It ends with the catalogue: a query's threads, which know their shard's book, may outlive that for a
/// moment, and must not keep its directory.
#[derive(Clone)]
pub(super) struct Book(Weak<Db>);

impl Book {
    pub(super) fn new(db: &Arc<Db>) -> Self {
        Self(Arc::downgrade(db))
    }

    fn db(&self) -> Result<Arc<Db>> {
        let closed = waystation::Error::Closed("the catalogue is closed");
        self.0.upgrade().ok_or(Error::Engine(closed))
    }

    fn key(shard: &ShardKey) -> Vec<u8> {
        [&[COPIES], shard.database.as_bytes(), shard.range.as_bytes()].concat()
    }

    fn left_key(shard: &ShardKey, node: &str) -> Vec<u8> {
        let key = Self::key(shard);
        [&[LEFT], &key[1..], node.as_bytes()].concat()
    }

    /// The copies of `shard`; `None`: the book does not name it.
    pub(super) fn copies(&self, shard: &ShardKey) -> Result<Option<Vec<ShardCopy>>> {
        let record = self.db()?.get(&Self::key(shard))?;
        record.map(|bytes| decode(shard, &bytes)).transpose()
    }

    /// Notes the copies of `shard`, and that `removed` may still be on its node.
    pub(super) fn save(
        &self,
        shard: &ShardKey,
        copies: &[ShardCopy],
        removed: Option<&str>,
    ) -> Result<()> {
        let mut batch = WriteBatch::new();
        let copy = |copy: &ShardCopy| {
            let (node, standing) = (quote(&copy.node), copy.standing.name());
            format!(r#"{{"node":{node},"standing":"{standing}"}}"#)
        };
        let text = array(copies.iter().map(copy));
        batch.put(&Self::key(shard), text.as_bytes());
        for copy in copies {
            batch.delete(&Self::left_key(shard, &copy.node));
        }
        if let Some(node) = removed {
            batch.put(&Self::left_key(shard, node), &[]);
        }
        Ok(self.db()?.write(&batch, Durability::PowerLoss)?)
    }

    /// Has `batch` remove all that the book knows of the database `uuid`.
    pub(super) fn forget(uuid: &str, batch: &mut WriteBatch) {
        for space in [COPIES, LEFT] {
            batch.delete_prefix(&[&[space], uuid.as_bytes()].concat());
        }
    }

    /// The copies that may still be on their nodes and are not in the book.
    pub(super) fn left(&self) -> Result<Vec<Left>> {
        let db = self.db()?;
        let mut entries = db.iter(IterOptions::prefix([LEFT]))?;
        entries.seek_to_first()?;
        let mut left = Vec::new();
        while entries.valid() {
            let text = std::str::from_utf8(&entries.key()[1..]).ok();
            let parts = text.and_then(|text| {
                let (database, rest) = text.split_at_checked(UUID_DIGITS)?;
                let (range, node) = rest.split_at_checked(RANGE_CHARACTERS)?;
                Some((database, range, node))
            });
            let (database, range, node) =
                parts.ok_or_else(|| Error::damaged("a note of a copy", "it names none"))?;
            left.push(Left {
                shard: ShardKey {
                    database: database.to_owned(),
                    range: range.to_owned(),
                },
                node: node.to_owned(),
            });
            entries.next()?;
        }
        Ok(left)
    }

    /// Notes that a copy which was left is gone.
    pub(super) fn note_gone(&self, left: &Left) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(&Self::left_key(&left.shard, &left.node));
        Ok(self.db()?.write(&batch, Durability::ProcessCrash)?)
    }
}

fn decode(shard: &ShardKey, bytes: &[u8]) -> Result<Vec<ShardCopy>> {
    let damaged = |reason: &str| {
        let (range, database) = (&shard.range, &shard.database);
        Error::damaged(
            format!("the copies of shard {range} of the database {database}"),
            reason,
        )
    };
    let text = canonical(bytes).map_err(|error| damaged(&error.to_string()))?;
    let copy = |json: Json<'_>| {
        let standing = json.member("standing")?.string()?;
        Some(ShardCopy {
            node: json.member("node")?.string()?.into_owned(),
            standing: Standing::of(&standing)?,
        })
    };
    let copies: Option<Vec<ShardCopy>> = Json::new(&text).elements().map(copy).collect();
    let copies = copies.ok_or_else(|| damaged("a copy has no node, or an unknown standing"))?;
    if copies.iter().any(|copy| copy.standing.is_in_service()) {
        return Ok(copies);
    }
    Err(damaged("none of them is whole"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use waystation::Options;

    fn copy(node: &str, standing: Standing) -> ShardCopy {
        ShardCopy {
            node: node.to_owned(),
            standing,
        }
    }

    #[test]
    fn copies_are_read_back_and_what_was_left_is_known() -> Result<()> {
        let directory = tempfile::tempdir().expect("a directory");
        let db = Arc::new(Db::open(directory.path(), Options::default())?);
        let book = Book::new(&db);
        let shard = ShardKey {
            database: "0".repeat(UUID_DIGITS),
            range: "00000000-ffffffff".to_owned(),
        };
        assert_eq!(book.copies(&shard)?, None);
        let copies = [
            copy("one", Standing::Whole),
            copy("two \"x\"", Standing::Stale),
            copy("nonode@nohost", Standing::Leaving),
        ];
        book.save(&shard, &copies, None)?;
        assert_eq!(book.copies(&shard)?.as_deref(), Some(&copies[..]));
        book.save(&shard, &copies[..2], Some("nonode@nohost"))?;
        let left = book.left()?;
        assert_eq!(left.len(), 1);
        assert_eq!(
            (&left[0].shard, left[0].node.as_str()),
            (&shard, "nonode@nohost")
        );
        // A copy that comes back is not removed.
        book.save(&shard, &copies, None)?;
        assert!(book.left()?.is_empty());
        book.save(&shard, &copies[..1], Some("two"))?;
        let mut batch = WriteBatch::new();
        Book::forget(&shard.database, &mut batch);
        db.write(&batch, Durability::ProcessCrash)?;
        assert_eq!(book.copies(&shard)?, None);
        assert!(book.left()?.is_empty());
        Ok(())
    }

    #[test]
    fn a_shard_without_a_whole_copy_is_damage() {
        let shard = ShardKey {
            database: "0".repeat(UUID_DIGITS),
            range: "00000000-ffffffff".to_owned(),
        };
        for bytes in [
            "[]",
            r#"[{"node":"one","standing":"stale"}]"#,
            r#"[{"node":"one","standing":"new"}]"#,
            r#"[{"standing":"whole"}]"#,
            "x",
        ] {
            assert!(decode(&shard, bytes.as_bytes()).is_err(), "{bytes}");
        }
    }
}
