//! Tagged fields: `tag varint | length varint | bytes`, in any order, the same tag as often as there are values.

use crate::FormatError;
use crate::varint::{Reader, get_u64, put_length_prefixed, put_u32, put_u64};

/// Appends fields.
#[derive(Debug, Default)]
pub(super) struct FieldWriter(Vec<u8>);

impl FieldWriter {
    /// Adds bytes.
    pub(super) fn bytes(&mut self, tag: u32, bytes: &[u8]) -> &mut Self {
        put_u32(&mut self.0, tag);
        put_length_prefixed(&mut self.0, bytes);
        self
    }

    /// Adds a number, unless it is 0: that is what a reader takes for a missing one.
    pub(super) fn number(&mut self, tag: u32, number: u64) -> &mut Self {
        if number != 0 {
            let mut bytes = Vec::new();
            put_u64(&mut bytes, number);
            self.bytes(tag, &bytes);
        }
        self
    }

    /// Adds fields within a field.
    pub(super) fn group(&mut self, tag: u32, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut group = Self::default();
        fill(&mut group);
        self.bytes(tag, &group.0)
    }

    /// All of them.
    pub(super) fn finish(&self) -> &[u8] {
        &self.0
    }
}

/// The fields of a message or of a group, one after the other.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    reader: Reader<'a>,
    /// Where the reader's bytes begin in the message.
    base: usize,
}

/// One field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    /// What it is.
    pub(super) tag: u32,
    /// Its value.
    pub(super) bytes: &'a [u8],
    /// Where the value lies in the message.
    pub(super) offset: usize,
}

impl<'a> Fields<'a> {
    /// The fields that `reader` has not read yet, of the message that it reads.
    pub(super) fn new(reader: Reader<'a>) -> Self {
        Self { reader, base: 0 }
    }

    /// The next one; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>, FormatError> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let tag = self.reader.var_u32("a field's tag")?;
        let bytes = self.reader.length_prefixed("a field's value")?;
        let offset = self.base + self.reader.offset() - bytes.len();
        Ok(Some(Field { tag, bytes, offset }))
    }
}

impl<'a> Field<'a> {
    /// The number it holds.
    pub(super) fn number(&self) -> Result<u64, FormatError> {
        match get_u64(self.bytes) {
            Some((number, length)) if length == self.bytes.len() => Ok(number),
            _ => Err(self.malformed("it is no number")),
        }
    }

    /// The number it holds, which fits into 32 bits.
    pub(super) fn small(&self) -> Result<u32, FormatError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.malformed("the number is too large"))
    }

    /// The text it holds.
    pub(super) fn text(&self) -> Result<String, FormatError> {
        let text = std::str::from_utf8(self.bytes);
        text.map(str::to_owned)
            .map_err(|_| self.malformed("the text is not UTF-8"))
    }

    /// The fields within it.
    pub(super) fn group(&self) -> Fields<'a> {
        Fields {
            reader: Reader::new(self.bytes),
            base: self.offset,
        }
    }

    /// That its value contradicts the format.
    pub(super) fn malformed(&self, reason: &'static str) -> FormatError {
        FormatError::malformed(self.offset, reason)
    }
}
