//! Version edits: what a manifest is a log of.
//!
//! An edit is a sequence of fields, each a varint tag and its content. Only LevelDB's tags exist: it refuses
//! to open a directory whose manifest holds another.
//!
//! | tag | content |
//! |---|---|
//! | 1 | comparator name (length-prefixed) |
//! | 2 | log number: older write-ahead logs are not needed (varint) |
//! | 3 | next file number (varint) |
//! | 4 | last sequence (varint) |
//! | 5 | compact pointer: level (varint), internal key (length-prefixed) |
//! | 6 | deleted file: level, number (varints) |
//! | 7 | new file: level, number, bytes (varints), smallest, largest internal key (length-prefixed) |
//! | 9 | previous log number (varint) |
//!
//! Tag 8 was used once and is retired. Numbers are LevelDB's (`db/version_edit.cc`): never renumber.

use crate::error::FormatError;
use crate::key::TRAILER_BYTES;
use crate::varint::{Reader, put_length_prefixed, put_u32, put_u64};

/// How many levels a tree has: 0 to 6.
pub const LEVELS: usize = 7;

/// The comparator every LevelDB database has unless its program brought another.
pub const BYTEWISE_COMPARATOR: &str = "leveldb.BytewiseComparator";

const COMPARATOR: u32 = 1;
const LOG_NUMBER: u32 = 2;
const NEXT_FILE_NUMBER: u32 = 3;
const LAST_SEQUENCE: u32 = 4;
const COMPACT_POINTER: u32 = 5;
const DELETED_FILE: u32 = 6;
const NEW_FILE: u32 = 7;
const PREV_LOG_NUMBER: u32 = 9;

/// A table that an edit adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// The level it is added to, below [`LEVELS`].
    pub level: u32,
    /// Its file number.
    pub number: u64,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Its first internal key.
    pub smallest: Vec<u8>,
    /// Its last internal key.
    pub largest: Vec<u8>,
}

/// A change from one version of the tree to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionEdit {
    /// The name of the key order; in the first edit of a manifest.
    pub comparator: Option<String>,
    /// Write-ahead logs with lower numbers are no longer needed.
    pub log_number: Option<u64>,
    /// The write-ahead log before, in directories of very old programs; else zero.
    pub prev_log_number: Option<u64>,
    /// No file has this number or a higher one.
    pub next_file_number: Option<u64>,
    /// No version in a table has a higher sequence number.
    pub last_sequence: Option<u64>,
    /// Where the next compaction of a level starts (level, internal key). LevelDB keeps these.
    pub compact_pointers: Vec<(u32, Vec<u8>)>,
    /// Tables that go (level, number).
    pub deleted_files: Vec<(u32, u64)>,
    /// Tables that come. Deletions apply first, so one edit can move a table between levels.
    pub new_files: Vec<NewFile>,
}

impl VersionEdit {
    /// Appends the bytes of this edit, in the order of fields LevelDB writes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(name) = &self.comparator {
            put_u32(out, COMPARATOR);
            put_length_prefixed(out, name.as_bytes());
        }
        let numbers = [
            (LOG_NUMBER, self.log_number),
            (PREV_LOG_NUMBER, self.prev_log_number),
            (NEXT_FILE_NUMBER, self.next_file_number),
            (LAST_SEQUENCE, self.last_sequence),
        ];
        for (tag, number) in numbers {
            if let Some(number) = number {
                put_u32(out, tag);
                put_u64(out, number);
            }
        }
        for (level, key) in &self.compact_pointers {
            put_u32(out, COMPACT_POINTER);
            put_u32(out, *level);
            put_length_prefixed(out, key);
        }
        for (level, number) in &self.deleted_files {
            put_u32(out, DELETED_FILE);
            put_u32(out, *level);
            put_u64(out, *number);
        }
        for file in &self.new_files {
            put_u32(out, NEW_FILE);
            put_u32(out, file.level);
            put_u64(out, file.number);
            put_u64(out, file.file_bytes);
            put_length_prefixed(out, &file.smallest);
            put_length_prefixed(out, &file.largest);
        }
    }

    /// The bytes of this edit.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Reads an edit; `bytes` hold nothing else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut edit = Self::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            edit.read_field(&mut reader)?;
        }
        Ok(edit)
    }

    fn read_field(&mut self, reader: &mut Reader<'_>) -> Result<(), FormatError> {
        let at = reader.offset();
        match reader.var_u32("tag of a version edit")? {
            COMPARATOR => {
                let name = reader.length_prefixed("comparator name")?;
                let name = std::str::from_utf8(name)
                    .map_err(|_| FormatError::malformed(at, "the comparator name is not text"))?;
                self.comparator = Some(name.to_owned());
            }
            LOG_NUMBER => self.log_number = Some(reader.var_u64("log number")?),
            PREV_LOG_NUMBER => self.prev_log_number = Some(reader.var_u64("previous log number")?),
            NEXT_FILE_NUMBER => self.next_file_number = Some(reader.var_u64("next file number")?),
            LAST_SEQUENCE => self.last_sequence = Some(reader.var_u64("last sequence")?),
            COMPACT_POINTER => {
                let level = read_level(reader)?;
                self.compact_pointers.push((level, read_key(reader)?));
            }
            DELETED_FILE => {
                let level = read_level(reader)?;
                let number = reader.var_u64("number of a deleted file")?;
                self.deleted_files.push((level, number));
            }
            NEW_FILE => self.new_files.push(NewFile {
                level: read_level(reader)?,
                number: reader.var_u64("number of a new file")?,
                file_bytes: reader.var_u64("length of a new file")?,
                smallest: read_key(reader)?,
                largest: read_key(reader)?,
            }),
            _ => {
                return Err(FormatError::unsupported(
                    at,
                    "this tag of a version edit is not LevelDB's",
                ));
            }
        }
        Ok(())
    }
}

fn read_level(reader: &mut Reader<'_>) -> Result<u32, FormatError> {
    let at = reader.offset();
    let level = reader.var_u32("level of a version edit")?;
    if level as usize >= LEVELS {
        return Err(FormatError::malformed(
            at,
            "a tree has seven levels, 0 to 6",
        ));
    }
    Ok(level)
}

fn read_key(reader: &mut Reader<'_>) -> Result<Vec<u8>, FormatError> {
    let at = reader.offset();
    let key = reader.length_prefixed("internal key of a version edit")?;
    if key.len() < TRAILER_BYTES {
        return Err(FormatError::malformed(
            at,
            "an internal key has at least eight bytes",
        ));
    }
    Ok(key.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{InternalKey, ValueKind};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    fn key(user_key: &[u8], sequence: u64, kind: ValueKind) -> Vec<u8> {
        InternalKey {
            user_key,
            sequence,
            kind,
        }
        .to_bytes()
    }

    /// The case of LevelDB's `db/version_edit_test.cc`: numbers beyond 2^50 everywhere.
    #[test]
    fn large_numbers_round_trip() {
        const BIG: u64 = 1 << 50;
        let mut edit = VersionEdit::default();
        for i in 0..4 {
            assert_eq!(VersionEdit::decode(&edit.to_bytes()).as_ref(), Ok(&edit));
            edit.new_files.push(NewFile {
                level: 3,
                number: BIG + 300 + i,
                file_bytes: BIG + 400 + i,
                smallest: key(b"foo", BIG + 500 + i, ValueKind::Value),
                largest: key(b"zoo", BIG + 600 + i, ValueKind::Deletion),
            });
            edit.deleted_files.push((4, BIG + 700 + i));
            edit.compact_pointers
                .push((i as u32, key(b"x", BIG + 900 + i, ValueKind::Value)));
        }
        edit.comparator = Some("foo".into());
        edit.log_number = Some(BIG + 100);
        edit.next_file_number = Some(BIG + 200);
        edit.last_sequence = Some(BIG + 1000);
        assert_eq!(VersionEdit::decode(&edit.to_bytes()), Ok(edit));
    }

    /// The bytes themselves, by hand from the table above.
    #[test]
    fn bytes_are_leveldbs() {
        let edit = VersionEdit {
            comparator: Some("c".into()),
            log_number: Some(0),
            prev_log_number: Some(3),
            next_file_number: Some(300),
            last_sequence: Some(5),
            compact_pointers: vec![(1, key(b"k", 1, ValueKind::Value))],
            deleted_files: vec![(6, 9)],
            new_files: vec![NewFile {
                level: 2,
                number: 10,
                file_bytes: 128,
                smallest: key(b"", 0, ValueKind::Deletion),
                largest: key(b"z", 2, ValueKind::Value),
            }],
        };
        let expected = [
            &[1, 1, b'c', 2, 0, 9, 3, 3, 0xac, 2, 4, 5][..],
            &[5, 1, 9, b'k', 1, 1, 0, 0, 0, 0, 0, 0],
            &[6, 6, 9],
            &[7, 2, 10, 0x80, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0],
            &[9, b'z', 1, 2, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(edit.to_bytes(), expected.concat());
    }

    #[test]
    fn unknown_tags_and_levels_are_refused() {
        for tag in [0_u8, 8, 10, 100] {
            assert!(matches!(
                VersionEdit::decode(&[2, 1, tag, 1]),
                Err(FormatError::Unsupported { offset: 2, .. })
            ));
        }
        assert!(matches!(
            VersionEdit::decode(&[6, 7, 1]),
            Err(FormatError::Malformed { offset: 1, .. })
        ));
        assert!(VersionEdit::decode(&[5, 1, 3, 1, 2, 3]).is_err());
        assert!(VersionEdit::decode(&[1, 2, 0xff, 0xff]).is_err());
    }

    fn any_internal_key() -> impl Strategy<Value = Vec<u8>> {
        vec(any::<u8>(), 8..20)
    }

    fn any_edit() -> impl Strategy<Value = VersionEdit> {
        let numbers = (
            option::of(any::<u64>()),
            option::of(any::<u64>()),
            option::of(any::<u64>()),
            option::of(any::<u64>()),
        );
        let file = (
            0..7_u32,
            any::<u64>(),
            any::<u64>(),
            any_internal_key(),
            any_internal_key(),
        )
            .prop_map(|(level, number, file_bytes, smallest, largest)| NewFile {
                level,
                number,
                file_bytes,
                smallest,
                largest,
            });
        (
            option::of(".{0,12}"),
            numbers,
            vec((0..7_u32, any_internal_key()), 0..4),
            vec((0..7_u32, any::<u64>()), 0..4),
            vec(file, 0..4),
        )
            .prop_map(
                |(comparator, n, compact_pointers, deleted_files, new_files)| VersionEdit {
                    comparator,
                    log_number: n.0,
                    prev_log_number: n.1,
                    next_file_number: n.2,
                    last_sequence: n.3,
                    compact_pointers,
                    deleted_files,
                    new_files,
                },
            )
    }

    proptest! {
        #[test]
        fn edits_round_trip(edit in any_edit()) {
            prop_assert_eq!(VersionEdit::decode(&edit.to_bytes()), Ok(edit));
        }

        #[test]
        fn any_bytes_are_answered(bytes: Vec<u8>) {
            let _ = VersionEdit::decode(&bytes);
        }

        #[test]
        fn damaged_edits_are_answered(edit in any_edit(), at: prop::sample::Index, flip in 1..=255_u8) {
            let mut bytes = edit.to_bytes();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= flip;
                let _ = VersionEdit::decode(&bytes);
                let _ = VersionEdit::decode(&bytes[..at]);
            }
        }
    }
}
