//! Answers, in the second version of the protocol or the third.
//!
//! What the third version has of its own (maps, sets, numbers with fractions, nothing at all) is written in the second as
//! Redis does: as arrays, strings and empty strings.

use crate::number::{Digits, show_double};

/// Where the answers to a client gather.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pub(crate) bytes: Vec<u8>,
    /// The third version of the protocol.
    pub(crate) is_third: bool,
}

impl Out {
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn counted(&mut self, kind: u8, count: usize) {
        self.line(kind, Digits::unsigned(count as u64).as_bytes());
    }

    pub(crate) fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// A word that is no data.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// A refusal, which begins with its kind. Line ends in it are blanks.
    pub(crate) fn error(&mut self, text: &str) {
        if text.contains(['\r', '\n']) {
            self.line(b'-', text.replace(['\r', '\n'], " ").as_bytes());
        } else {
            self.line(b'-', text.as_bytes());
        }
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.line(b':', Digits::signed(number).as_bytes());
    }

    /// A count, or an age: a number that is not negative.
    pub(crate) fn count(&mut self, number: usize) {
        self.counted(b':', number);
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.integer(i64::from(flag));
    }

    pub(crate) fn bulk(&mut self, text: &[u8]) {
        self.bytes.reserve(text.len() + 16);
        self.counted(b'$', text.len());
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn bulk_or_null(&mut self, text: Option<&[u8]>) {
        match text {
            Some(text) => self.bulk(text),
            None => self.null(),
        }
    }

    /// Text with lines, for people.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if self.is_third {
            self.counted(b'=', text.len() + 4);
            self.bytes.extend_from_slice(b"txt:");
            self.bytes.extend_from_slice(text.as_bytes());
            self.bytes.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    pub(crate) fn null(&mut self) {
        let null: &[u8] = if self.is_third { b"_\r\n" } else { b"$-1\r\n" };
        self.bytes.extend_from_slice(null);
    }

    /// Nothing in the place of an array.
    pub(crate) fn null_array(&mut self) {
        let null: &[u8] = if self.is_third { b"_\r\n" } else { b"*-1\r\n" };
        self.bytes.extend_from_slice(null);
    }

    /// A number with a fraction.
    pub(crate) fn double(&mut self, number: f64) {
        let text = show_double(number);
        if self.is_third {
            self.line(b',', text.as_bytes());
        } else {
            self.bulk(text.as_bytes());
        }
    }

    pub(crate) fn array(&mut self, length: usize) {
        self.counted(b'*', length);
    }

    /// A map of so many pairs, which follow.
    pub(crate) fn map(&mut self, pairs: usize) {
        if self.is_third {
            self.counted(b'%', pairs);
        } else {
            self.counted(b'*', 2 * pairs);
        }
    }

    /// A message that answers no command.
    pub(crate) fn push(&mut self, length: usize) {
        let kind = if self.is_third { b'>' } else { b'*' };
        self.counted(kind, length);
    }

    /// Answers whose number is known when they are written: gives their place to [`end_array`](Self::end_array).
    pub(crate) fn begin_array(&mut self) -> usize {
        self.bytes.len()
    }

    /// Puts the head of an array of `length` answers before the answers written since.
    pub(crate) fn end_array(&mut self, begun: usize, length: usize) {
        self.end(begun, b'*', length);
    }

    /// Puts the head of a map of `pairs` before the answers written since.
    pub(crate) fn end_map(&mut self, begun: usize, pairs: usize) {
        if self.is_third {
            self.end(begun, b'%', pairs);
        } else {
            self.end(begun, b'*', 2 * pairs);
        }
    }

    /// Puts the head of a set of `length` answers before the answers written since.
    pub(crate) fn end_set(&mut self, begun: usize, length: usize) {
        let kind = if self.is_third { b'~' } else { b'*' };
        self.end(begun, kind, length);
    }

    fn end(&mut self, begun: usize, kind: u8, length: usize) {
        let digits = Digits::unsigned(length as u64);
        let head = [&[kind], digits.as_bytes(), b"\r\n"].concat();
        self.bytes.splice(begun..begun, head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_third: bool, write: impl Fn(&mut Out)) -> String {
        let mut out = Out {
            is_third,
            ..Out::default()
        };
        write(&mut out);
        String::from_utf8(out.bytes).unwrap()
    }

    #[test]
    fn both_versions_are_written() {
        let answer = |out: &mut Out| {
            out.map(1);
            out.bulk(b"k");
            out.double(1.5);
            out.null();
            out.error("ERR a\nb");
        };
        assert_eq!(
            written(false, answer),
            "*2\r\n$1\r\nk\r\n$3\r\n1.5\r\n$-1\r\n-ERR a b\r\n"
        );
        assert_eq!(
            written(true, answer),
            "%1\r\n$1\r\nk\r\n,1.5\r\n_\r\n-ERR a b\r\n"
        );
        let late = |out: &mut Out| {
            let begun = out.begin_array();
            out.integer(-7);
            out.end_array(begun, 1);
        };
        assert_eq!(written(false, late), "*1\r\n:-7\r\n");
    }
}
