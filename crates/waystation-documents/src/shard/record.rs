//! The records of a document: its head and its bodies.
//!
//! ```text
//!   head    version u8 | sequence | tree | winner's table of fields
//!   body    version u8 | attachments | text, or its length
//!   table   count | (name, kind u8, offset, length, [value])*
//! ```
//!
//! A head is small however large the document is: a scan that filters on top-level fields reads heads, and of a body
//! only what lies behind an offset, if anything. Short scalars stand in the table itself, and longer ones up to
//! [`INLINE_BYTES_MAX`] bytes until they have [`INLINE_BYTES_SUM`] together: of a document with many strings the table is
//! its names and offsets.
//!
//! A body whose text is longer than [`WHOLE_BYTES_MAX`] is kept in pieces, and has an outline
//! ([`Outline`](super::outline)). Its table ends at [`TABLE_BYTES_MAX`]: of the other fields the outline tells. Both
//! records are then of version 2.
//!
//! Numbers are varints where no width is named. Never renumber the kinds.

use crate::attachment::AttachmentInfo;
use crate::json::{Json, Kind, unquote};
use crate::tree::RevisionTree;
use waystation_format::FormatError;
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

/// The version of both records of a short body.
const VERSION: u8 = 1;
/// Their version if the body is in pieces.
const VERSION_OF_PIECES: u8 = 2;
/// A text up to this long stands in the record of its body.
pub(super) const WHOLE_BYTES_MAX: usize = 16 << 10;
/// The pieces of a longer one are so long, but for the last.
pub(super) const PIECE_BYTES: usize = 8 << 10;
/// The table of a body in pieces has about so many bytes at most.
const TABLE_BYTES_MAX: usize = 1024;
/// Texts of values up to this long stand in the table (bytes).
const INLINE_BYTES_MAX: usize = 48;
/// So many bytes of them stand in one table.
const INLINE_BYTES_SUM: usize = 1024;
/// Texts up to this long, as those of numbers, stand there in any case: an offset and a length are hardly shorter.
const SHORT_BYTES_MAX: usize = 12;

/// A top-level field of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// Its name, unquoted.
    pub(super) name: String,
    pub(super) place: Place,
}

/// Where the text of a field's value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Here.
    Inline(String),
    /// In the body, from the offset on for so many bytes.
    Body(usize, usize),
}

/// The top-level fields of a body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FieldTable {
    pub(super) fields: Vec<Field>,
    /// Whether it names all of them.
    pub(super) is_complete: bool,
    /// Whether the body is in pieces.
    pub(super) is_of_pieces: bool,
}

impl FieldTable {
    /// The table of the object `body`.
    pub(super) fn of(body: &str) -> Self {
        let begin = body.as_ptr().addr();
        let mut left = INLINE_BYTES_SUM;
        let mut field = |(name, value): (&str, Json<'_>)| {
            let text = value.text();
            let is_scalar = !matches!(value.kind(), Kind::Array | Kind::Object);
            let is_short = text.len() <= SHORT_BYTES_MAX;
            let place = if is_scalar && (is_short || text.len() <= INLINE_BYTES_MAX.min(left)) {
                left = left.saturating_sub(text.len());
                Place::Inline(text.to_owned())
            } else {
                Place::Body(text.as_ptr().addr() - begin, text.len())
            };
            let name = unquote(name).into_owned();
            Field { name, place }
        };
        let is_of_pieces = body.len() > WHOLE_BYTES_MAX;
        let mut table_left = if is_of_pieces {
            TABLE_BYTES_MAX
        } else {
            usize::MAX
        };
        let mut members = Json::new(body).members();
        let mut fields = Vec::new();
        while table_left > 0
            && let Some(member) = members.next()
        {
            let field = field(member);
            table_left = table_left.saturating_sub(field.stored_bytes());
            fields.push(field);
        }
        Self {
            fields,
            is_complete: members.next().is_none(),
            is_of_pieces,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_complete));
        put_u64(out, self.fields.len() as u64);
        for field in &self.fields {
            put_length_prefixed(out, field.name.as_bytes());
            match &field.place {
                Place::Inline(text) => {
                    out.push(0);
                    put_length_prefixed(out, text.as_bytes());
                }
                Place::Body(offset, length) => {
                    out.push(1);
                    put_u64(out, *offset as u64);
                    put_u64(out, *length as u64);
                }
            }
        }
    }

    fn take(reader: &mut Reader<'_>, is_of_pieces: bool) -> Result<Self, FormatError> {
        let is_complete = reader.u8("flag of a table")? != 0;
        let count = reader.var_u64("count of fields")?;
        let mut fields = Vec::new();
        for _ in 0..count {
            let name = take_text(reader, "name of a field")?;
            let place = if reader.u8("place of a field")? == 0 {
                Place::Inline(take_text(reader, "value of a field")?)
            } else {
                let offset = reader.var_u64("offset of a field")? as usize;
                Place::Body(offset, reader.var_u64("length of a field")? as usize)
            };
            fields.push(Field { name, place });
        }
        Ok(Self {
            fields,
            is_complete,
            is_of_pieces,
        })
    }
}

impl Field {
    /// About how long it is in a table.
    fn stored_bytes(&self) -> usize {
        let place = match &self.place {
            Place::Inline(text) => text.len(),
            Place::Body(..) => 4,
        };
        self.name.len() + place + 3
    }
}

/// What a stored table says of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup<'a> {
    /// The text of its value.
    Here(&'a str),
    /// Where the body has it: the offset, and the length.
    InBody(usize, usize),
    /// There is no such field.
    Absent,
    /// The table does not name all fields, and not this one.
    Unknown,
}

/// The beginning of a head: its tree is read, and its table stays in the record until it is asked.
#[derive(Debug)]
pub(super) struct StoredHead {
    pub(super) tree: RevisionTree,
    /// Whether the winner's body is in pieces.
    pub(super) is_of_pieces: bool,
    /// Where the table begins.
    table_at: usize,
}

impl StoredHead {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        let (is_of_pieces, _, tree) = Head::take_begin(&mut reader)?;
        Ok(Self {
            tree,
            is_of_pieces,
            table_at: reader.offset(),
        })
    }

    /// Looks for the field `name` in `bytes`, from which the head was read.
    pub(super) fn find<'a>(&self, bytes: &'a [u8], name: &str) -> Result<Lookup<'a>, FormatError> {
        let mut reader = Reader::new(bytes.get(self.table_at..).unwrap_or_default());
        let is_complete = reader.u8("flag of a table")? != 0;
        for _ in 0..reader.var_u64("count of fields")? {
            let is_it = reader.length_prefixed("name of a field")? == name.as_bytes();
            if reader.u8("place of a field")? == 0 {
                let offset = reader.offset() as u64;
                let text = reader.length_prefixed("value of a field")?;
                if is_it {
                    let reason = "a field is no text";
                    let text = std::str::from_utf8(text);
                    return text
                        .map(Lookup::Here)
                        .map_err(|_| FormatError::Malformed { offset, reason });
                }
            } else {
                let offset = reader.var_u64("offset of a field")? as usize;
                let length = reader.var_u64("length of a field")? as usize;
                if is_it {
                    return Ok(Lookup::InBody(offset, length));
                }
            }
        }
        Ok(if is_complete {
            Lookup::Absent
        } else {
            Lookup::Unknown
        })
    }
}

/// What is known of a document without its bodies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Head {
    /// Its latest update sequence.
    pub(super) sequence: u64,
    pub(super) tree: RevisionTree,
    /// The fields of the winner.
    pub(super) fields: FieldTable,
}

impl Head {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![version(self.fields.is_of_pieces)];
        put_u64(&mut out, self.sequence);
        self.tree.put(&mut out);
        self.fields.put(&mut out);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        let (is_of_pieces, sequence, tree) = Self::take_begin(&mut reader)?;
        let head = Self {
            sequence,
            tree,
            fields: FieldTable::take(&mut reader, is_of_pieces)?,
        };
        check_end(&reader)?;
        Ok(head)
    }

    /// Reads what stands before the table, and whether the body is in pieces.
    fn take_begin(reader: &mut Reader<'_>) -> Result<(bool, u64, RevisionTree), FormatError> {
        let is_of_pieces = take_version(reader)?;
        let sequence = reader.var_u64("sequence of a document")?;
        Ok((is_of_pieces, sequence, RevisionTree::take(reader)?))
    }
}

/// One revision's body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Body {
    pub(super) attachments: Vec<AttachmentInfo>,
    pub(super) text: String,
}

impl Body {
    /// Whether its text stands in records of its own.
    pub(super) fn is_in_pieces(&self) -> bool {
        self.text.len() > WHOLE_BYTES_MAX
    }

    /// Its record, without pieces.
    pub(super) fn encode(&self) -> Vec<u8> {
        let is_in_pieces = self.is_in_pieces();
        let room = if is_in_pieces { 0 } else { self.text.len() };
        let mut out = Vec::with_capacity(room + 16);
        out.push(version(is_in_pieces));
        put_u64(&mut out, self.attachments.len() as u64);
        for attachment in &self.attachments {
            attachment.put(&mut out);
        }
        if is_in_pieces {
            put_u64(&mut out, self.text.len() as u64);
        } else {
            out.extend_from_slice(self.text.as_bytes());
        }
        out
    }
}

/// A body whose text stays in the record: as much of it is checked as is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredBody {
    pub(super) attachments: Vec<AttachmentInfo>,
    pub(super) text: StoredText,
}

/// Where the text of a body is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoredText {
    /// In this record.
    Here {
        record: Vec<u8>,
        /// Where it begins.
        begin: usize,
    },
    /// In pieces.
    Pieces { length: usize },
}

impl StoredBody {
    /// Reads what stands before the text.
    pub(super) fn read(bytes: Vec<u8>) -> Result<Self, FormatError> {
        let mut reader = Reader::new(&bytes);
        let is_in_pieces = take_version(&mut reader)?;
        let count = reader.var_u64("count of attachments")?;
        let mut attachments = Vec::new();
        for _ in 0..count {
            attachments.push(AttachmentInfo::take(&mut reader)?);
        }
        let text = if is_in_pieces {
            let length = reader.var_u64("length of a body")? as usize;
            check_end(&reader)?;
            StoredText::Pieces { length }
        } else {
            StoredText::Here {
                begin: reader.offset(),
                record: bytes,
            }
        };
        Ok(Self { attachments, text })
    }

    /// The body, if its text is here.
    pub(super) fn into_body(self) -> Result<Body, FormatError> {
        let attachments = self.attachments;
        match self.text {
            StoredText::Here { mut record, begin } => {
                record.drain(..begin);
                let text = String::from_utf8(record).map_err(|_| no_text(begin))?;
                Ok(Body { attachments, text })
            }
            StoredText::Pieces { .. } => Err(in_pieces()),
        }
    }
}

impl StoredText {
    /// The `length` bytes of the text from `offset` on, if the text is here.
    pub(super) fn slice(&self, offset: usize, length: usize) -> Result<&str, FormatError> {
        let Self::Here { record, begin } = self else {
            return Err(in_pieces());
        };
        let begin = begin.saturating_add(offset);
        let bytes = record.get(begin..begin.saturating_add(length));
        let malformed = |reason| FormatError::Malformed {
            offset: begin as u64,
            reason,
        };
        let bytes = bytes.ok_or_else(|| malformed("a field lies outside of the body"))?;
        std::str::from_utf8(bytes).map_err(|_| malformed("a field is no text"))
    }

    /// All of it, if it is here.
    pub(super) fn all(&self) -> Result<&str, FormatError> {
        let Self::Here { record, begin } = self else {
            return Err(in_pieces());
        };
        let bytes = record.get(*begin..).unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|_| no_text(*begin))
    }
}

fn no_text(at: usize) -> FormatError {
    FormatError::Malformed {
        offset: at as u64,
        reason: "a body is no text",
    }
}

fn in_pieces() -> FormatError {
    FormatError::Malformed {
        offset: 0,
        reason: "the body is in pieces, and its head says that it is not",
    }
}

fn version(is_of_pieces: bool) -> u8 {
    if is_of_pieces {
        VERSION_OF_PIECES
    } else {
        VERSION
    }
}

/// Whether the version is that of a body in pieces.
fn take_version(reader: &mut Reader<'_>) -> Result<bool, FormatError> {
    match reader.u8("version")? {
        VERSION => Ok(false),
        VERSION_OF_PIECES => Ok(true),
        _ => Err(newer_version()),
    }
}

/// What stands at the beginning of a record that this version cannot read.
pub(super) fn newer_version() -> FormatError {
    FormatError::Malformed {
        offset: 0,
        reason: "the record is of a newer version",
    }
}

fn check_end(reader: &Reader<'_>) -> Result<(), FormatError> {
    if reader.is_empty() {
        return Ok(());
    }
    Err(FormatError::Malformed {
        offset: reader.offset() as u64,
        reason: "something stands behind the record",
    })
}

pub(super) fn take_text(
    reader: &mut Reader<'_>,
    what: &'static str,
) -> Result<String, FormatError> {
    let offset = reader.offset() as u64;
    let bytes = reader.length_prefixed(what)?.to_vec();
    let reason = "a field is no text";
    String::from_utf8(bytes).map_err(|_| FormatError::Malformed { offset, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::ContentDigest;
    use crate::tree::Stored;

    #[test]
    fn records_are_read_back_and_cuts_are_noticed() {
        let long = "x".repeat(100);
        let text = format!(r#"{{"a":1,"b":[1,2],"c":"{long}","d":null}}"#);
        let mut head = Head {
            sequence: 9,
            fields: FieldTable::of(&text),
            ..Head::default()
        };
        let stored = Stored {
            sequence: 9,
            deleted: false,
        };
        head.tree
            .merge(&["1-a".parse().expect("a revision")], stored);
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Ok(head.clone()));
        for cut in 0..bytes.len() {
            assert!(Head::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        let stored = StoredHead::read(&bytes).expect("a head");
        assert_eq!(stored.tree, head.tree);
        assert_eq!(stored.find(&bytes, "a"), Ok(Lookup::Here("1")));
        assert_eq!(
            stored.find(&bytes, "c"),
            Ok(Lookup::InBody(text.find("\"xx").expect("c"), 102))
        );
        assert_eq!(stored.find(&bytes, "e"), Ok(Lookup::Absent));
        assert!(stored.find(&bytes[..bytes.len() - 1], "e").is_err());
        assert_eq!(
            head.fields.fields[1].place,
            Place::Body(text.find("[1").expect("b"), 5)
        );
        let body = Body {
            attachments: vec![AttachmentInfo {
                name: "a.txt".into(),
                content_type: "text/plain".into(),
                revpos: 1,
                digest: ContentDigest::of(b"hello"),
                length: 5,
            }],
            text,
        };
        let stored = StoredBody::read(body.encode());
        assert_eq!(stored.and_then(StoredBody::into_body), Ok(body));
    }

    #[test]
    fn long_strings_of_a_document_with_many_stay_in_the_body() {
        let members = (0..300).map(|at| format!("\"f{at}\":\"{at:040}\""));
        let members: Vec<String> = members.chain(["\"n\":7".to_owned()]).collect();
        let text = format!("{{{}}}", members.join(","));
        let head = Head {
            fields: FieldTable::of(&text),
            ..Head::default()
        };
        let bytes = head.encode();
        assert!(
            bytes.len() < text.len() / 3,
            "{} of {}",
            bytes.len(),
            text.len()
        );
        let stored = StoredHead::read(&bytes).expect("a head");
        assert_eq!(stored.find(&bytes, "n"), Ok(Lookup::Here("7")));
        let first = format!("\"{:040}\"", 0);
        assert_eq!(stored.find(&bytes, "f0"), Ok(Lookup::Here(first.as_str())));
        let Ok(Lookup::InBody(offset, length)) = stored.find(&bytes, "f299") else {
            panic!("a long string behind many others");
        };
        assert_eq!(text[offset..offset + length], format!("\"{:040}\"", 299));
    }

    #[test]
    fn a_table_names_no_more_than_it_may() {
        let members: Vec<String> = (0..2000).map(|at| format!("\"f{at}\":{at}")).collect();
        let table = FieldTable::of(&format!("{{{}}}", members.join(",")));
        assert!(table.is_of_pieces && !table.is_complete);
        let named = table.fields.len();
        assert!((110..140).contains(&named), "{named}");
        let head = Head {
            fields: table,
            ..Head::default()
        };
        let bytes = head.encode();
        let stored = StoredHead::read(&bytes).expect("a head");
        let last = (named - 1).to_string();
        let found = stored.find(&bytes, &format!("f{last}"));
        assert_eq!(found, Ok(Lookup::Here(&last)));
        let found = stored.find(&bytes, &format!("f{named}"));
        assert_eq!(found, Ok(Lookup::Unknown));
    }
}
