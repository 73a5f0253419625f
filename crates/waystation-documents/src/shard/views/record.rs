//! The records of views.
//!
//! ```text
//!   group            version u8 | number | sequence | count of maps, then the count of rows of each
//!   row              key (text) | value (text, to the end)
//!   rows of a document   (map, sort key, number)*
//! ```
//!
//! Rows of a map stand in the order of their sort keys, then of their documents, then as they were emitted.

#![expect(
    clippy::big_endian_bytes,
    reason = "numbers in keys are in the order of their bytes"
)]

use super::super::keys::{self, GROUP, ROW, ROWS, put_id};
use crate::collate::END;
use crate::views::Signature;
use waystation_format::FormatError;
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

const VERSION: u8 = 1;
/// Bytes at the end of a row's key: its number, and the length of the identifier.
const TRAILER_BYTES: usize = 8;
/// Bytes that name a space and a group.
const NUMBERED_BYTES: usize = 9;

/// How far a group of views is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Names its rows in their keys.
    pub(super) number: u64,
    /// Documents up to this update sequence are in it.
    pub(super) sequence: u64,
    /// How many rows each map has.
    pub(super) counts: Vec<u64>,
}

impl Group {
    pub(super) fn new(number: u64, maps: usize) -> Self {
        Self {
            number,
            sequence: 0,
            counts: vec![0; maps],
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_u64(&mut out, self.number);
        put_u64(&mut out, self.sequence);
        put_u64(&mut out, self.counts.len() as u64);
        self.counts
            .iter()
            .for_each(|count| put_u64(&mut out, *count));
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("version")? != VERSION {
            let reason = "the record is of a newer version";
            return Err(FormatError::Malformed { offset: 0, reason });
        }
        let (number, sequence) = (
            reader.var_u64("number of a group")?,
            reader.var_u64("sequence of a group")?,
        );
        let mut counts = Vec::new();
        for _ in 0..reader.var_u64("count of maps")? {
            counts.push(reader.var_u64("count of rows")?);
        }
        Ok(Self {
            number,
            sequence,
            counts,
        })
    }
}

/// Where a row of a known group and document stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) map: usize,
    pub(super) sort_key: Vec<u8>,
    pub(super) number: u32,
}

impl Place {
    /// The key of the row.
    pub(super) fn key(&self, group: u64, id: &str) -> Vec<u8> {
        let mut key = rows_of(group, self.map);
        key.extend_from_slice(&self.sort_key);
        key.push(END);
        let begin = key.len();
        put_id(&mut key, id);
        let id_bytes = (key.len() - begin) as u32;
        key.extend_from_slice(&self.number.to_be_bytes());
        key.extend_from_slice(&id_bytes.to_be_bytes());
        key
    }
}

/// The sort key, the identifier and the number in the key of a row that begins with `prefix` bytes of its map.
pub(super) fn parts_of(key: &[u8], prefix: usize) -> Option<(&[u8], String, u32)> {
    let (rest, trailer) = key.split_at_checked(key.len().checked_sub(TRAILER_BYTES)?)?;
    let number = u32::from_be_bytes(trailer[..4].try_into().ok()?);
    let id_bytes = u32::from_be_bytes(trailer[4..].try_into().ok()?) as usize;
    // One byte before the identifier ends the sort key.
    let (sort_key, id) = rest.split_at_checked(rest.len().checked_sub(id_bytes + 1)?)?;
    Some((sort_key.get(prefix..)?, keys::id_of(id)?, number))
}

/// Appends what the keys of the rows of `partition` begin with, behind their map.
pub(super) fn put_partition(key: &mut Vec<u8>, partition: &str) {
    put_id(key, partition);
}

/// Which rows an edge of a range lies before or behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    Before,
    Behind,
}

/// The edge of the rows with `sort_key`, or of those of document `id` among them, in the map of `prefix`.
pub(super) fn edge(prefix: &[u8], sort_key: &[u8], id: Option<&str>, edge: Edge) -> Vec<u8> {
    let mut key = [prefix, sort_key].concat();
    key.push(END);
    if let Some(id) = id {
        put_id(&mut key, id);
    }
    if let (Edge::Behind, Some(last)) = (edge, key.last_mut()) {
        *last += 1;
    }
    key
}

/// The key of the group with `signature`.
pub(super) fn group(signature: Signature) -> Vec<u8> {
    let mut key = vec![GROUP];
    key.extend_from_slice(&signature.0);
    key
}

/// The signature in the key of a group.
pub(super) fn signature_of(key: &[u8]) -> Option<Signature> {
    key.get(1..)?.try_into().ok().map(Signature)
}

fn numbered(space: u8, group: u64) -> Vec<u8> {
    let mut key = vec![space];
    key.extend_from_slice(&group.to_be_bytes());
    key
}

/// What the keys of all records of the group `number` begin with, but its own.
pub(super) fn spaces_of(number: u64) -> [Vec<u8>; 2] {
    [numbered(ROW, number), numbered(ROWS, number)]
}

/// What the keys of the rows of `map` in the group `number` begin with.
pub(super) fn rows_of(number: u64, map: usize) -> Vec<u8> {
    let mut key = numbered(ROW, number);
    key.extend_from_slice(&(map as u32).to_be_bytes());
    key
}

/// The key under which the places of the rows of document `id` in the group `number` are.
pub(super) fn places_of(number: u64, id: &str) -> Vec<u8> {
    let mut key = numbered(ROWS, number);
    put_id(&mut key, id);
    key
}

pub(super) fn encode_places(places: &[Place]) -> Vec<u8> {
    let mut out = Vec::new();
    for place in places {
        put_u64(&mut out, place.map as u64);
        put_length_prefixed(&mut out, &place.sort_key);
        put_u64(&mut out, place.number.into());
    }
    out
}

pub(super) fn decode_places(bytes: &[u8]) -> Result<Vec<Place>, FormatError> {
    let mut reader = Reader::new(bytes);
    let mut places = Vec::new();
    while !reader.is_empty() {
        places.push(Place {
            map: reader.var_u64("map of a row")? as usize,
            sort_key: reader.length_prefixed("sort key of a row")?.to_vec(),
            number: reader.var_u32("number of a row")?,
        });
    }
    Ok(places)
}

/// Whether a group may have `value` under `key`.
pub(in crate::shard) fn check_record(key: &[u8], value: &[u8]) -> Result<(), FormatError> {
    let malformed = |reason| FormatError::Malformed { offset: 0, reason };
    match key.first().copied() {
        Some(GROUP) => {
            signature_of(key).ok_or(malformed("the key of a group has no signature"))?;
            Group::decode(value).map(drop)
        }
        Some(ROW) => {
            let prefix = rows_of(0, 0).len();
            parts_of(key, prefix).ok_or(malformed("the key of a row names no document"))?;
            decode_row(value)
                .map(drop)
                .ok_or(malformed("a row has no key and value"))
        }
        _ => {
            // The number of the group stands where the space of an identifier would.
            let id = key.get(NUMBERED_BYTES - 1..).and_then(keys::id_of);
            id.ok_or(malformed("the key of a document's rows names no document"))?;
            decode_places(value).map(drop)
        }
    }
}

/// A row's value in the engine: its key and value as JSON.
pub(super) fn encode_row(key: &str, value: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + value.len() + 2);
    put_length_prefixed(&mut out, key.as_bytes());
    out.extend_from_slice(value.as_bytes());
    out
}

pub(super) fn decode_row(bytes: &[u8]) -> Option<(String, String)> {
    let mut reader = Reader::new(bytes);
    let key = reader.length_prefixed("key of a row").ok()?.to_vec();
    let value = reader.rest().to_vec();
    Some((String::from_utf8(key).ok()?, String::from_utf8(value).ok()?))
}

#[cfg(test)]
mod record_tests {
    use super::*;
    use crate::collate::key_of;
    use crate::json::Json;

    #[test]
    fn rows_stand_in_the_order_of_keys_then_documents_then_numbers() {
        let place = |key: &str, number| Place {
            map: 1,
            sort_key: key_of(Json::new(key)),
            number,
        };
        let ordered = [
            ("null", "b", 0),
            ("1", "a", 0),
            ("1", "a", 1),
            ("1", "a\0", 0),
            ("1", "a\0b", 0),
            ("1", "ab", 0),
            ("1", "b", 0),
            ("[1]", "a", 0),
            ("[1,2]", "a", 0),
        ];
        let prefix = rows_of(7, 1);
        let key = |at: usize| place(ordered[at].0, ordered[at].2).key(7, ordered[at].1);
        for at in 0..ordered.len() {
            let (json, id, number) = ordered[at];
            let sort_key = key_of(Json::new(json));
            assert!(at == 0 || key(at - 1) < key(at), "{at}");
            assert_eq!(
                parts_of(&key(at), prefix.len()),
                Some((sort_key.as_slice(), id.to_owned(), number))
            );
            for (other, row) in ordered.iter().enumerate() {
                let range = |id| {
                    edge(&prefix, &sort_key, id, Edge::Before)
                        ..edge(&prefix, &sort_key, id, Edge::Behind)
                };
                assert_eq!(
                    range(None).contains(&key(other)),
                    row.0 == json,
                    "{json} {row:?}"
                );
                let is_same = (row.0, row.1) == (json, id);
                assert_eq!(
                    range(Some(id)).contains(&key(other)),
                    is_same,
                    "{json} {id} {row:?}"
                );
            }
        }
        assert_eq!(parts_of(b"w", prefix.len()), None);
    }

    #[test]
    fn records_are_read_back_and_cuts_are_noticed() {
        let group = Group {
            number: 300,
            sequence: 9,
            counts: vec![1, 0, 700],
        };
        let bytes = group.encode();
        assert_eq!(Group::decode(&bytes), Ok(group));
        assert!((0..bytes.len()).all(|cut| Group::decode(&bytes[..cut]).is_err()));
        let places = vec![
            Place {
                map: 2,
                sort_key: vec![4, 0],
                number: 0,
            };
            3
        ];
        let bytes = encode_places(&places);
        assert_eq!(decode_places(&bytes), Ok(places));
        assert!(decode_places(&bytes[..bytes.len() - 1]).is_err());
        let (key, value) = ("[1]".to_owned(), "null".to_owned());
        assert_eq!(decode_row(&encode_row(&key, &value)), Some((key, value)));
        assert_eq!(decode_row(&[9]), None);
    }
}
