//! Reading all of a database, or a part of it, and telling what differs.

use crate::support::Content;
use waystation::{Db, IterOptions};

/// Which keys are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    All,
    /// All but those that may be about to expire.
    Lasting,
}

/// All that a cursor with `options` finds.
pub(crate) fn read(
    db: &Db,
    options: IterOptions,
    backwards: bool,
    keys: Keys,
) -> waystation::Result<Content> {
    let mut found = Content::new();
    let mut cursor = db.iter(options)?;
    if backwards {
        cursor.seek_to_last()?;
    } else {
        cursor.seek_to_first()?;
    }
    while cursor.valid() {
        if keys == Keys::All || !is_brief(cursor.key()) {
            let old = found.insert(cursor.key().to_vec(), cursor.value().to_vec());
            assert!(old.is_none(), "a key came twice");
        }
        if backwards {
            cursor.prev()?;
        } else {
            cursor.next()?;
        }
    }
    Ok(found)
}

fn is_brief(key: &[u8]) -> bool {
    key.get(3..).is_some_and(|rest| rest.starts_with(b"brief"))
}

/// What differs between what was found and what should have been.
pub(crate) fn difference(found: &Content, expected: &Content) -> String {
    let name = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
    let wrong = |(key, value): &(&Vec<u8>, &Vec<u8>)| found.get(*key) != Some(*value);
    let lost: Vec<_> = expected
        .iter()
        .filter(wrong)
        .map(|(key, _)| name(key))
        .collect();
    let extra: Vec<_> = found
        .keys()
        .filter(|key| !expected.contains_key(*key))
        .map(name)
        .collect();
    format!("lost or wrong: {lost:?}; should not be there: {extra:?}")
}
