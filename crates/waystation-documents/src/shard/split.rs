//! Splitting a shard's identifiers, so that several threads scan it.
//!
//! The points of division are interpolated between the first identifier and the last one, as if those between were
//! spread evenly, and then moved to identifiers that are there. Where they are not spread evenly the pieces differ in
//! size, which costs time and nothing else.

use super::{Shard, keys};
use crate::error::{Error, Result};
use waystation::{DbIterator, IterOptions};

/// A shard with fewer documents is not split.
const DOCUMENTS_MIN: u64 = 8192;
/// Pieces of a shard, at most.
const PIECES_MAX: u64 = 16;

impl Shard {
    /// Identifiers at which pieces of the shard begin, but for the first one, in order. There are as many pieces as
    /// processors here, shared with `shards` shards that are scanned with this one (itself included).
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn split(&self, shards: u64) -> Result<Vec<String>> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let pieces = processors.div_ceil(shards.max(1)).min(PIECES_MAX);
        if self.info().documents < DOCUMENTS_MIN {
            return Ok(Vec::new());
        }
        self.split_into(pieces)
    }

    /// The same, for so many `pieces`.
    pub(super) fn split_into(&self, pieces: u64) -> Result<Vec<String>> {
        let mut heads = self.db.iter(IterOptions::prefix([keys::HEAD]))?;
        heads.seek_to_last()?;
        let Some(last) = id_at(&heads)? else {
            return Ok(Vec::new());
        };
        heads.seek_to_first()?;
        let first = id_at(&heads)?.unwrap_or_default();
        let mut points = Vec::new();
        for point in points_between(first.as_bytes(), last.as_bytes(), pieces) {
            // A point need not be an identifier: any bytes lead to the next one.
            heads.seek(&[&[keys::HEAD], &point[..]].concat())?;
            points.extend(id_at(&heads)?);
        }
        points.retain(|point| *point > first);
        points.dedup();
        Ok(points)
    }
}

fn id_at(heads: &DbIterator) -> Result<Option<String>> {
    if !heads.valid() {
        return Ok(None);
    }
    let id = keys::id_of(heads.key());
    let missing = || Error::damaged("a document", "it has no identifier");
    id.ok_or_else(missing).map(Some)
}

/// Points that divide what lies between `first` and `last` into so many equal `pieces`.
fn points_between(first: &[u8], last: &[u8], pieces: u64) -> Vec<Vec<u8>> {
    let common = first
        .iter()
        .zip(last)
        .take_while(|(one, other)| one == other);
    let common = common.count();
    let number = |bytes: &[u8]| {
        let digits = bytes[common..].iter().copied().chain(std::iter::repeat(0));
        digits
            .take(8)
            .fold(0, |number: u64, digit| number << 8 | u64::from(digit))
    };
    let (begin, end) = (number(first), number(last));
    let point = |at: u64| {
        let width = u128::from(end.saturating_sub(begin));
        let offset = width * u128::from(at) / u128::from(pieces.max(1));
        let number = begin.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX));
        let digits = (0..8).rev().map(|at| (number >> (8 * at)) as u8);
        first[..common].iter().copied().chain(digits).collect()
    };
    (1..pieces).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{put, shard};
    use super::*;

    #[test]
    fn pieces_are_about_equal_where_identifiers_are_spread_evenly() -> Result<()> {
        let (_dir, shard) = shard();
        assert_eq!(shard.split_into(4)?, Vec::<String>::new());
        for at in 0..1000 {
            put(&shard, &format!(r#"{{"_id":"car-{at:03}"}}"#))?;
        }
        let points = shard.split_into(4)?;
        assert_eq!(points.len(), 3, "{points:?}");
        let mut begin = 0;
        for point in points
            .iter()
            .map(|point| point["car-".len()..].parse::<i32>())
        {
            let point = point.expect("a number");
            assert!((150..400).contains(&(point - begin)), "{points:?}");
            begin = point;
        }
        assert_eq!(shard.split_into(1)?, Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn strange_identifiers_are_split_too() -> Result<()> {
        let (_dir, shard) = shard();
        for id in ["a", "a\u{1}", "ab", "\u{10ffff}", "é"] {
            put(&shard, &format!(r#"{{"_id":{}}}"#, crate::json::quote(id)))?;
        }
        let points = shard.split_into(8)?;
        assert!(points.is_sorted(), "{points:?}");
        assert!(
            points.iter().all(|point| point.as_str() > "a"),
            "{points:?}"
        );
        Ok(())
    }
}
