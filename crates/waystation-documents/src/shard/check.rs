//! Checks of single records: what tools and fuzzers ask about bytes that a shard may hold.

use super::index::Index;
use super::outline::Outline;
use super::record::{Head, StoredBody, StoredHead, StoredText};
use super::{State, Turns, index, keys, local, views};
use crate::error::{Error, Result};
use waystation_format::FormatError;

/// Whether a shard may hold `value` under `key`: the key is one of a known space, and the value is read to its end.
///
/// # Errors
/// [`Error::Damaged`] that says what is wrong.
pub fn check_record(key: &[u8], value: &[u8]) -> Result<()> {
    let damaged =
        |reason: &dyn std::fmt::Display| Error::damaged(key.escape_ascii().to_string(), reason);
    let read = |outcome: Result<(), FormatError>| outcome.map_err(|error| damaged(&error));
    let named = || keys::id_of(key).ok_or_else(|| damaged(&"the key has no identifier"));
    let is_true = |is_true: bool, reason: &str| {
        if is_true {
            Ok(())
        } else {
            Err(damaged(&reason))
        }
    };
    match key.first().copied() {
        Some(keys::ATTACHMENT) => is_true(
            keys::digest_of(key).is_some(),
            "the key of an attachment's part has no digest",
        ),
        Some(keys::BODY) => {
            named()?;
            read(check_body(value))
        }
        Some(keys::PIECE) => {
            named()?;
            is_true(!value.is_empty(), "a piece of a body is empty")
        }
        Some(keys::OUTLINE) => {
            named()?;
            let outline = Outline::decode(value);
            read(outline.map(|outline| drop(outline.way(&["car", "number"]))))
        }
        Some(keys::HEAD) => {
            named()?;
            read(check_head(value))
        }
        Some(keys::INDEX) => is_true(
            keys::id_of_entry(key).is_some() && value.is_empty(),
            "an entry of an index names no document",
        ),
        Some(keys::ENTRIES) => {
            named()?;
            read(index::read_entries(value).map(drop))
        }
        Some(keys::LOCAL) => local::decode(&named()?, value).map(drop),
        Some(keys::CHANGE) => is_true(
            keys::sequence_of(key).is_some() && std::str::from_utf8(value).is_ok(),
            "a change names no document",
        ),
        Some(keys::DEFINITION) => Index::decode(named()?, value).map(drop),
        Some(keys::GROUP | keys::ROW | keys::ROWS) => read(views::check_record(key, value)),
        _ if key == keys::SHARD => read(State::decode(value).map(drop)),
        _ if key == keys::TURNS => read(Turns::decode(value).map(drop)),
        _ => Err(damaged(&"the key is of no known space")),
    }
}

fn check_body(value: &[u8]) -> Result<(), FormatError> {
    let body = StoredBody::read(value.to_vec())?;
    match &body.text {
        StoredText::Here { .. } => body.text.all().map(drop),
        StoredText::Pieces { .. } => Ok(()),
    }
}

/// Both ways of reading a head say the same.
fn check_head(value: &[u8]) -> Result<(), FormatError> {
    let head = Head::decode(value)?;
    let stored = StoredHead::read(value)?;
    let mut fields = head.fields.fields.iter();
    fields.try_for_each(|field| stored.find(value, &field.name).map(drop))
}
