//! Where things are in the engine: the first byte of a key tells what it names.
//!
//! ```text
//!   a digest place      a part of an attachment's bytes
//!   b id revision       the body of one revision
//!   c id revision place a piece of the text of a long body
//!   d id                the head of a document: its revisions, and the fields of the winner
//!   f id revision       the outline of a long body
//!   i index keys 00 id length   an entry of an index: the values' sort keys, the identifier's length at the end
//!   k id                the keys of a document's entries in indexes
//!   l id                a local document
//!   m name              what is kept of the shard itself
//!   s sequence          the change of a document, at its latest sequence
//!   v signature         a group of views: how far it is built
//!   w group view key 00 id number length   a row of a view: the key's sort key, the identifier's length at the end
//!   x name              the definition of an index
//!   y group id          the rows of a document in a group of views
//! ```
//!
//! Identifiers stand in their own order: a zero byte is written as `00 ff`, and `00 01` ends an identifier.

#![expect(
    clippy::big_endian_bytes,
    reason = "numbers in keys are in the order of their bytes"
)]

use crate::attachment::ContentDigest;
use crate::revision::Revision;

pub(super) const ATTACHMENT: u8 = b'a';
pub(super) const BODY: u8 = b'b';
pub(super) const PIECE: u8 = b'c';
pub(super) const HEAD: u8 = b'd';
pub(super) const OUTLINE: u8 = b'f';
pub(super) const INDEX: u8 = b'i';
pub(super) const ENTRIES: u8 = b'k';
pub(super) const LOCAL: u8 = b'l';
pub(super) const DEFINITION: u8 = b'x';
pub(super) const CHANGE: u8 = b's';
pub(super) const GROUP: u8 = b'v';
pub(super) const ROW: u8 = b'w';
pub(super) const ROWS: u8 = b'y';

/// The key of the shard's own record.
pub(super) const SHARD: &[u8] = b"mshard";
/// The key of how far the numbered changes of a copy have come.
pub(super) const TURNS: &[u8] = b"mturn";

const ESCAPED_ZERO: [u8; 2] = [0, 0xff];
const END: [u8; 2] = [0, 1];

fn named(space: u8, id: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(id.len() + 3);
    key.push(space);
    put_id(&mut key, id);
    key
}

/// Appends an identifier, ended.
pub(super) fn put_id(key: &mut Vec<u8>, id: &str) {
    for byte in id.bytes() {
        match byte {
            0 => key.extend_from_slice(&ESCAPED_ZERO),
            byte => key.push(byte),
        }
    }
    key.extend_from_slice(&END);
}

/// The key of the head of document `id`.
pub(super) fn head(id: &str) -> Vec<u8> {
    named(HEAD, id)
}

/// The key of the local document `id`, which is without `_local/`.
pub(super) fn local(id: &str) -> Vec<u8> {
    named(LOCAL, id)
}

/// The key under which the keys of the index entries of document `id` are.
pub(super) fn entries(id: &str) -> Vec<u8> {
    named(ENTRIES, id)
}

/// The key of the definition of the index `name`.
pub(super) fn definition(name: &str) -> Vec<u8> {
    named(DEFINITION, name)
}

/// What the keys of the entries of index `number` begin with.
pub(super) fn index(number: u64) -> Vec<u8> {
    let mut key = vec![INDEX];
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The key of the entry for document `id` under the sort keys `values` in index `number`.
pub(super) fn entry(number: u64, values: &[u8], id: &str) -> Vec<u8> {
    let mut key = index(number);
    key.extend_from_slice(values);
    key.push(crate::collate::END);
    key.extend_from_slice(id.as_bytes());
    key.extend_from_slice(&(id.len() as u32).to_be_bytes());
    key
}

/// The identifier at the end of an entry's key.
pub(super) fn id_of_entry(key: &[u8]) -> Option<String> {
    let (rest, length) = key.split_last_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    let id = &rest[rest.len().checked_sub(length)?..];
    String::from_utf8(id.to_vec()).ok()
}

/// The key of the body of `revision` of document `id`.
pub(super) fn body(id: &str, revision: &Revision) -> Vec<u8> {
    of_revision(BODY, id, revision)
}

/// The key of piece `place` of its text.
pub(super) fn piece(id: &str, revision: &Revision, place: usize) -> Vec<u8> {
    let mut key = of_revision(PIECE, id, revision);
    key.extend_from_slice(&(place as u32).to_be_bytes());
    key
}

/// The key of its outline.
pub(super) fn outline(id: &str, revision: &Revision) -> Vec<u8> {
    of_revision(OUTLINE, id, revision)
}

fn of_revision(space: u8, id: &str, revision: &Revision) -> Vec<u8> {
    let mut key = named(space, id);
    revision.put(&mut key);
    key
}

/// The key of the change at `sequence`.
pub(super) fn change(sequence: u64) -> Vec<u8> {
    let mut key = vec![CHANGE];
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

/// The key of part `place` of the bytes with `digest`.
pub(super) fn attachment(digest: ContentDigest, place: u32) -> Vec<u8> {
    let mut key = vec![ATTACHMENT];
    key.extend_from_slice(&digest.0);
    key.extend_from_slice(&place.to_be_bytes());
    key
}

/// The digest in the key of a part of an attachment.
pub(super) fn digest_of(key: &[u8]) -> Option<ContentDigest> {
    let bytes = key.get(1..17)?.try_into().ok()?;
    Some(ContentDigest(bytes))
}

/// The identifier in a key that begins with a space and an identifier; `None` if there is none.
pub(super) fn id_of(key: &[u8]) -> Option<String> {
    let mut id = Vec::with_capacity(key.len());
    let mut bytes = key.get(1..)?.iter();
    loop {
        match (bytes.next()?, bytes.as_slice().first()) {
            (0, Some(0xff)) => {
                id.push(0);
                bytes.next();
            }
            (0, Some(1)) => return String::from_utf8(id).ok(),
            (0, _) => return None,
            (byte, _) => id.push(*byte),
        }
    }
}

/// The sequence in the key of a change.
pub(super) fn sequence_of(key: &[u8]) -> Option<u64> {
    let bytes = key.get(1..)?.try_into().ok()?;
    Some(u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_in_the_order_of_identifiers(one in "[\0-\u{2}a]{0,4}", other in "[\0-\u{2}a]{0,4}") {
            prop_assert_eq!(head(&one).cmp(&head(&other)), one.cmp(&other));
            prop_assert_eq!(id_of(&head(&one)), Some(one.clone()));
            let key = body(&one, &Revision::digest(3, [0; 16]));
            prop_assert_eq!(id_of(&key), Some(one));
        }
    }

    #[test]
    fn changes_are_in_the_order_of_sequences() {
        assert!(change(255) < change(256));
        assert_eq!(sequence_of(&change(77)), Some(77));
    }
}
