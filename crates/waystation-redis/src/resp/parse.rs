//! Commands: arrays of bulk strings, or lines of words, as they come in pieces of any size.
//!
//! ```text
//! *2\r\n$3\r\nGET\r\n$1\r\nk\r\n     an array of two bulk strings
//! GET k\r\n                          a line, as people type it
//! ```
//!
//! A [`Parser`] keeps its place between calls, so that a command which comes in a thousand pieces is looked at once. It
//! names the places of the arguments and copies none (a line's words, which may have quotes, it does copy). Every number
//! has a limit, and memory is taken only for what has arrived.

use std::fmt;
use std::ops::Range;

/// The longest line (bytes): a command in words, or the length of an array or a bulk string.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
/// The most arguments of a command.
pub(crate) const ARGUMENTS_MAX: usize = 1 << 20;
/// The most arguments, and the longest of them (bytes), of a client that has not said who it is.
const STRANGER: Limits = Limits {
    arguments_max: 10,
    bulk_bytes_max: 16 << 10,
    is_stranger: true,
};

/// What a command may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    arguments_max: usize,
    bulk_bytes_max: usize,
    is_stranger: bool,
}

impl Limits {
    /// For clients that are known: arguments of up to `bulk_bytes_max` bytes.
    pub fn new(bulk_bytes_max: usize) -> Self {
        Self {
            arguments_max: ARGUMENTS_MAX,
            bulk_bytes_max,
            is_stranger: false,
        }
    }

    /// For clients that have not said who they are.
    pub fn stranger() -> Self {
        STRANGER
    }
}

/// Why bytes are no command. The connection cannot go on: it is not known where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    /// A line is too long.
    LongLine(&'static str),
    /// The length of an array is no number, or over its limit.
    ArrayLength,
    /// The length of a bulk string is no number, or over its limit.
    BulkLength,
    /// Another byte stands where a bulk string begins.
    NoBulk(u8),
    /// A quote of a line is not closed, or a word begins right behind one.
    Quotes,
    /// A client that has not said who it is asks for too much.
    Stranger(&'static str),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::LongLine(what) => write!(f, "too big {what}"),
            Self::ArrayLength => f.write_str("invalid multibulk length"),
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::NoBulk(byte) => write!(f, "expected '$', got '{}'", char::from(*byte)),
            Self::Quotes => f.write_str("unbalanced quotes in request"),
            Self::Stranger(what) => write!(f, "unauthenticated {what} length"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// What stands at the head of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Not yet a whole command.
    Incomplete,
    /// A command of so many bytes; [`Parser::arguments`] names its arguments. It may have none.
    Command(usize),
}

/// Finds the end of the command at the head of a buffer. The buffer may grow between calls, and loses its head only after
/// a whole command.
#[derive(Debug, Default)]
pub struct Parser {
    /// Places of the arguments so far.
    places: Vec<Range<usize>>,
    /// The words of a line, to which `places` refer if it is not empty.
    words: Vec<u8>,
    /// Where to go on.
    at: usize,
    /// Arguments that are still to come; `None`: the head was not read.
    missing: Option<usize>,
    /// The length of the argument that is coming, if it was read.
    bulk: Option<usize>,
    is_done: bool,
}

impl Parser {
    /// Looks at `input` again, which begins with the same bytes as in the last call unless that found a whole command.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn parse(&mut self, input: &[u8], limits: Limits) -> Result<Parsed, ProtocolError> {
        if self.is_done {
            self.reset();
        }
        let Some(first) = input.first() else {
            return Ok(Parsed::Incomplete);
        };
        if *first != b'*' {
            return self.parse_line(input);
        }
        if self.missing.is_none() {
            let Some(line) = self.line(input, "mbulk count string")? else {
                return Ok(Parsed::Incomplete);
            };
            let count =
                number(&input[line.start + 1..line.end]).ok_or(ProtocolError::ArrayLength)?;
            let count = usize::try_from(count).unwrap_or(0);
            if count > limits.arguments_max {
                return Err(if limits.is_stranger {
                    ProtocolError::Stranger("multibulk")
                } else {
                    ProtocolError::ArrayLength
                });
            }
            self.missing = Some(count);
        }
        while self.missing.is_some_and(|it| it > 0) {
            if !self.parse_bulk(input, limits)? {
                return Ok(Parsed::Incomplete);
            }
        }
        self.is_done = true;
        Ok(Parsed::Command(self.at))
    }

    /// Reads one argument; `false`: it is not whole.
    fn parse_bulk(&mut self, input: &[u8], limits: Limits) -> Result<bool, ProtocolError> {
        let length = if let Some(length) = self.bulk {
            length
        } else {
            match input.get(self.at) {
                None => return Ok(false),
                Some(b'$') => {}
                Some(other) => return Err(ProtocolError::NoBulk(*other)),
            }
            let Some(line) = self.line(input, "bulk count string")? else {
                return Ok(false);
            };
            let length = number(&input[line.start + 1..line.end])
                .and_then(|it| usize::try_from(it).ok())
                .ok_or(ProtocolError::BulkLength)?;
            if length > limits.bulk_bytes_max {
                return Err(if limits.is_stranger {
                    ProtocolError::Stranger("bulk")
                } else {
                    ProtocolError::BulkLength
                });
            }
            self.bulk = Some(length);
            length
        };
        let end = self.at + length;
        if input.len() < end + 2 {
            return Ok(false);
        }
        self.places.push(self.at..end);
        self.at = end + 2;
        self.bulk = None;
        self.missing = self.missing.map(|it| it - 1);
        Ok(true)
    }

    /// The line from the current place on, without its end, if all of it is there. Goes on behind it.
    fn line(
        &mut self,
        input: &[u8],
        what: &'static str,
    ) -> Result<Option<Range<usize>>, ProtocolError> {
        let rest = &input[self.at..];
        match memchr::memchr(b'\n', &rest[..rest.len().min(LINE_BYTES_MAX)]) {
            Some(end) => {
                let has_return = end > 0 && rest[end - 1] == b'\r';
                let line = self.at..self.at + end - usize::from(has_return);
                self.at += end + 1;
                Ok(Some(line))
            }
            None if rest.len() >= LINE_BYTES_MAX => Err(ProtocolError::LongLine(what)),
            None => Ok(None),
        }
    }

    fn parse_line(&mut self, input: &[u8]) -> Result<Parsed, ProtocolError> {
        let Some(line) = self.line(input, "inline request")? else {
            return Ok(Parsed::Incomplete);
        };
        self.words.push(b' ');
        split_words(&input[line], &mut self.words, &mut self.places)?;
        self.is_done = true;
        Ok(Parsed::Command(self.at))
    }

    /// The arguments of the command that was found in `input`.
    pub fn arguments<'a>(&'a self, input: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let source = if self.words.is_empty() {
            input
        } else {
            &self.words
        };
        self.places.iter().map(|place| &source[place.clone()])
    }

    /// Memory that it keeps (bytes).
    pub(crate) fn held_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Range<usize>>() + self.words.capacity()
    }

    fn reset(&mut self) {
        // A command of a million arguments is no reason to keep room for the next one.
        if self.held_bytes() > LINE_BYTES_MAX {
            *self = Self::default();
        }
        self.places.clear();
        self.words.clear();
        self.at = 0;
        self.missing = None;
        self.bulk = None;
        self.is_done = false;
    }
}

/// A number as the protocol writes it, from -1 on.
fn number(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Splits a line into words as a shell does: quotes of both kinds, and escapes within double quotes.
fn split_words(
    line: &[u8],
    words: &mut Vec<u8>,
    places: &mut Vec<Range<usize>>,
) -> Result<(), ProtocolError> {
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        let Some(first) = rest.first() else {
            return Ok(());
        };
        let start = words.len();
        if *first == b'"' || *first == b'\'' {
            let length = quoted(&rest[1..], *first, words)?;
            rest = &rest[1 + length..];
            if rest.first().is_some_and(|it| !it.is_ascii_whitespace()) {
                return Err(ProtocolError::Quotes);
            }
        } else {
            let end = rest.iter().position(u8::is_ascii_whitespace);
            let end = end.unwrap_or(rest.len());
            words.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
        places.push(start..words.len());
    }
}

/// Copies what stands up to the quote; its length with the quote.
fn quoted(text: &[u8], quote: u8, words: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        if *byte == quote {
            return Ok(at + 1);
        }
        if *byte != b'\\' {
            words.push(*byte);
            at += 1;
            continue;
        }
        let next = *text.get(at + 1).ok_or(ProtocolError::Quotes)?;
        if quote == b'\'' {
            // Only the quote itself is escaped.
            if next == b'\'' {
                words.push(next);
                at += 2;
            } else {
                words.push(b'\\');
                at += 1;
            }
            continue;
        }
        let code = text.get(at + 2..at + 4).filter(|_| next == b'x');
        let code = code.and_then(|it| u8::from_str_radix(std::str::from_utf8(it).ok()?, 16).ok());
        if let Some(code) = code {
            words.push(code);
            at += 4;
            continue;
        }
        words.push(match next {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 8,
            b'a' => 7,
            other => other,
        });
        at += 2;
    }
    Err(ProtocolError::Quotes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KNOWN: usize = 1 << 20;

    /// The commands in `input`, which comes in pieces of `piece` bytes.
    fn commands(input: &[u8], piece: usize) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
        let mut parser = Parser::default();
        let (mut buffer, mut found) = (Vec::new(), Vec::new());
        for chunk in input.chunks(piece) {
            buffer.extend_from_slice(chunk);
            while let Parsed::Command(length) = parser.parse(&buffer, Limits::new(KNOWN))? {
                found.push(parser.arguments(&buffer).map(<[u8]>::to_vec).collect());
                buffer.drain(..length);
            }
        }
        Ok(found)
    }

    #[test]
    fn arrays_and_lines_are_commands() {
        let input =
            b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\nSET  k \"a\\x41\\n\" 'it\\'s'\r\n*0\r\n\r\n";
        for piece in [1, 3, 1000] {
            let found = commands(input, piece).unwrap();
            assert_eq!(found.len(), 4);
            assert_eq!(found[0], [b"GET".to_vec(), b"a\r\n".to_vec()]);
            assert_eq!(found[1], [&b"SET"[..], b"k", b"aA\n", b"it's"]);
            assert!(found[2].is_empty() && found[3].is_empty());
        }
    }

    #[test]
    fn what_is_no_command_is_named() {
        let wrong = |input: &[u8]| commands(input, 7).unwrap_err();
        assert_eq!(wrong(b"*x\r\n"), ProtocolError::ArrayLength);
        assert_eq!(wrong(b"*1048577\r\n"), ProtocolError::ArrayLength);
        assert_eq!(wrong(b"*1\r\n:3\r\n"), ProtocolError::NoBulk(b':'));
        assert_eq!(wrong(b"*1\r\n$-1\r\n"), ProtocolError::BulkLength);
        assert_eq!(wrong(b"*1\r\n$1048577\r\n"), ProtocolError::BulkLength);
        assert_eq!(wrong(b"SET \"a\r\n"), ProtocolError::Quotes);
        assert_eq!(wrong(b"SET \"a\"b\r\n"), ProtocolError::Quotes);
        let long = vec![b'a'; LINE_BYTES_MAX + 1];
        assert_eq!(wrong(&long), ProtocolError::LongLine("inline request"));
        let mut stranger = Parser::default();
        let refused = stranger.parse(b"*11\r\n", Limits::stranger());
        assert_eq!(refused, Err(ProtocolError::Stranger("multibulk")));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same(
            input in prop::collection::vec(prop::sample::select(&b"*$0123\r\n\"' ab\\x"[..]), 0..200),
            piece in 1usize..20,
        ) {
            let whole = commands(&input, input.len().max(1));
            let pieces = commands(&input, piece);
            prop_assert_eq!(whole.is_err(), pieces.is_err());
            if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
                prop_assert_eq!(whole, pieces);
            }
        }
    }
}
