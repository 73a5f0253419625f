//! How keys and values are written on the command line and printed.
//!
//! Text: printable characters stand for themselves, everything else is escaped: `\\`, `\t`, `\n`, `\r`,
//! `\xNN`. Hex: pairs of digits. Both are exact: what is printed, read again, is the same bytes, and a printed
//! key or value never holds a tab or a newline, so that lines and columns stay what they are.

use std::fmt::Write;

/// A text that stands for no bytes: where and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotationError(String);

impl std::fmt::Display for NotationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One of the two ways to write bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Printable text with escapes.
    Text,
    /// Pairs of hexadecimal digits.
    Hex,
}

impl From<crate::args::Notation> for Style {
    fn from(notation: crate::args::Notation) -> Self {
        if notation.hex { Self::Hex } else { Self::Text }
    }
}

impl Style {
    /// The bytes that `text` stands for.
    pub(crate) fn parse(self, text: &str) -> Result<Vec<u8>, NotationError> {
        match self {
            Self::Text => parse_text(text),
            Self::Hex => parse_hex(text),
        }
    }

    /// `bytes`, written out.
    pub(crate) fn show(self, bytes: &[u8]) -> String {
        match self {
            Self::Text => show_text(bytes),
            Self::Hex => {
                bytes
                    .iter()
                    .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
                        push_hex(&mut text, *byte);
                        text
                    })
            }
        }
    }
}

fn parse_text(text: &str) -> Result<Vec<u8>, NotationError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at + 1..];
        let (byte, used) = match escape.as_bytes().first() {
            Some(b'\\') => (b'\\', 1),
            Some(b't') => (b'\t', 1),
            Some(b'n') => (b'\n', 1),
            Some(b'r') => (b'\r', 1),
            Some(b'x') => match escape.get(1..3).and_then(hex_pair) {
                Some(byte) => (byte, 3),
                None => {
                    return Err(NotationError(format!(
                        "\\x wants two hexadecimal digits after it, in `{text}`"
                    )));
                }
            },
            _ => {
                let reason = "a backslash must be followed by \\, t, n, r or xNN (write \\\\ for a backslash)";
                return Err(NotationError(format!("{reason}, in `{text}`")));
            }
        };
        bytes.push(byte);
        rest = &escape[used..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

fn parse_hex(text: &str) -> Result<Vec<u8>, NotationError> {
    if !text.len().is_multiple_of(2) {
        return Err(NotationError(format!(
            "hexadecimal bytes come in pairs of digits, `{text}` has an odd number"
        )));
    }
    (0..text.len())
        .step_by(2)
        .map(|at| text.get(at..at + 2).and_then(hex_pair))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| {
            NotationError(format!(
                "`{text}` holds more than the digits 0-9 and a-f; leave out --hex for text"
            ))
        })
}

fn hex_pair(pair: &str) -> Option<u8> {
    if pair.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        u8::from_str_radix(pair, 16).ok()
    } else {
        None
    }
}

fn show_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                _ if is_printable(character) => text.push(character),
                _ => {
                    let mut buffer = [0; 4];
                    for byte in character.encode_utf8(&mut buffer).bytes() {
                        push_escape(&mut text, byte);
                    }
                }
            }
        }
        for byte in chunk.invalid() {
            push_escape(&mut text, *byte);
        }
    }
    text
}

/// Whether a terminal shows the character and nothing else happens: no controls, no line or paragraph
/// separators, no invisible or direction-changing marks.
fn is_printable(character: char) -> bool {
    let is_format = matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !character.is_control() && !is_format
}

fn push_escape(text: &mut String, byte: u8) {
    text.push_str("\\x");
    push_hex(text, byte);
}

fn push_hex(text: &mut String, byte: u8) {
    write!(text, "{byte:02x}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_itself_and_the_rest_is_escaped() {
        assert_eq!(Style::Text.show(b"car17:speed"), "car17:speed");
        assert_eq!(
            Style::Text.show("Größe \u{1f697}".as_bytes()),
            "Größe \u{1f697}"
        );
        assert_eq!(Style::Text.show(b"a\\b\t\n\r\0\xff"), r"a\\b\t\n\r\x00\xff");
        assert_eq!(Style::Text.show("\u{202e}x".as_bytes()), r"\xe2\x80\xaex");
        assert_eq!(Style::Hex.show(b"\x00\xffa"), "00ff61");
    }

    #[test]
    fn what_stands_for_nothing_is_explained() {
        for (text, part) in [
            (r"a\b", "write \\\\"),
            ("a\\", "must be followed"),
            (r"\x1", "two hexadecimal"),
            (r"\x+1", "two hexadecimal"),
            (r"\xé", "two hexadecimal"),
        ] {
            let error = Style::Text.parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(
            Style::Hex
                .parse("abc")
                .expect_err("odd")
                .to_string()
                .contains("pairs")
        );
        assert!(
            Style::Hex
                .parse("zz")
                .expect_err("not hex")
                .to_string()
                .contains("--hex")
        );
        assert!(Style::Hex.parse("aé1").is_err());
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for style in [Style::Text, Style::Hex] {
                let text = style.show(&bytes);
                prop_assert!(!text.contains(['\n', '\t', '\r']));
                prop_assert_eq!(style.parse(&text).expect("own notation"), bytes.clone());
            }
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = Style::Text.parse(&text);
            let _ = Style::Hex.parse(&text);
        }
    }
}
