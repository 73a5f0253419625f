//! From any JSON text to the canonical one, in one pass.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

/// How deep arrays and objects may be nested.
pub const DEPTH_MAX: usize = 512;
/// Objects with more members than this look for equal names in a hash table.
const FEW_MEMBERS: usize = 8;

/// Why a text is no JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON at byte {offset}: {reason}")]
pub struct JsonError {
    /// Where it was noticed.
    pub offset: usize,
    /// What does not hold.
    pub reason: &'static str,
}

/// The canonical form of the JSON text `input`.
///
/// ```
/// use waystation_documents::json::canonical;
/// let text = br#" { "a" : 1.0, "b": "\u0041\/", "a": [ 2 ] } "#;
/// assert_eq!(canonical(text).as_deref(), Ok(r#"{"b":"A/","a":[2]}"#));
/// assert!(canonical(b"{'a': 1}").is_err());
/// ```
///
/// # Errors
/// [`JsonError`] if it is no JSON, no UTF-8, or nested too deep.
pub fn canonical(input: &[u8]) -> Result<String, JsonError> {
    let text = std::str::from_utf8(input).map_err(|error| JsonError {
        offset: error.valid_up_to(),
        reason: "the text is no UTF-8",
    })?;
    let mut writer = Writer {
        text,
        at: 0,
        out: String::with_capacity(text.len()),
    };
    writer.skip_space();
    writer.value(0)?;
    writer.skip_space();
    if writer.at < text.len() {
        return Err(writer.error("something stands behind the value"));
    }
    Ok(writer.out)
}

struct Writer<'a> {
    text: &'a str,
    at: usize,
    out: String,
}

impl Writer<'_> {
    fn error(&self, reason: &'static str) -> JsonError {
        let offset = self.at;
        JsonError { offset, reason }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.error("a value is expected")),
            None => Err(self.error("the text ends within a value")),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.error("a value is expected"));
        }
        self.out.push_str(word);
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let begin = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.out.push_str(&self.text[begin..self.at]);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.error("a digit is expected"));
        }
        self.at += count;
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.out.push('"');
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let Some(length) = memchr::memchr2(b'"', b'\\', rest.as_bytes()) else {
                return Err(self.error("the text ends within a string"));
            };
            let plain = &rest[..length];
            if let Some(control) = plain.bytes().position(|byte| byte < 0x20) {
                self.at += control;
                return Err(self.error("a control character stands in a string"));
            }
            self.out.push_str(plain);
            self.at += length + 1;
            if rest.as_bytes()[length] == b'"' {
                self.out.push('"');
                return Ok(());
            }
            let character = self.escape()?;
            put_character(&mut self.out, character);
        }
    }

    /// The character that an escape stands for; the backslash is behind us.
    fn escape(&mut self) -> Result<char, JsonError> {
        let letter = self.peek();
        self.at += 1;
        Ok(match letter {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => {
                self.at -= 1;
                return Err(self.error("no such escape"));
            }
        })
    }

    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        let first = self.hex4()?;
        let code = match first {
            0xd800..=0xdbff => {
                if !self.text[self.at..].starts_with("\\u") {
                    return Err(self.error("half of a surrogate pair is missing"));
                }
                self.at += 2;
                let second = self.hex4()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(self.error("half of a surrogate pair is missing"));
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| self.error("half of a surrogate pair is missing"))
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.filter(|it| it.iter().all(u8::is_ascii_hexdigit));
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.error("four hexadecimal digits are expected"))?;
        self.at += 4;
        Ok(code)
    }

    fn array(&mut self, depth: usize) -> Result<(), JsonError> {
        self.open('[', depth)?;
        let mut is_first = true;
        while self.has_more(b']', &mut is_first)? {
            self.value(depth + 1)?;
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), JsonError> {
        let begin = self.out.len() + 1;
        self.open('{', depth)?;
        let mut members = Vec::new();
        let mut is_first = true;
        while self.has_more(b'}', &mut is_first)? {
            if self.peek() != Some(b'"') {
                return Err(self.error("a name in quotes is expected"));
            }
            let start = self.out.len();
            self.string()?;
            let name_end = self.out.len();
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.error("a colon is expected"));
            }
            self.at += 1;
            self.out.push(':');
            self.skip_space();
            self.value(depth + 1)?;
            members.push(Member {
                name: start..name_end,
                end: self.out.len(),
            });
        }
        self.drop_repeated(begin, &members);
        self.out.push('}');
        Ok(())
    }

    fn open(&mut self, bracket: char, depth: usize) -> Result<(), JsonError> {
        if depth == DEPTH_MAX {
            return Err(self.error("arrays and objects are nested too deep"));
        }
        self.out.push(bracket);
        self.at += 1;
        Ok(())
    }

    /// Goes to the next element of a container that ends with `close`, if there is one.
    fn has_more(&mut self, close: u8, is_first: &mut bool) -> Result<bool, JsonError> {
        self.skip_space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        if !std::mem::take(is_first) {
            if self.peek() != Some(b',') {
                return Err(self.error("a comma or the end of the container is expected"));
            }
            self.at += 1;
            self.out.push(',');
            self.skip_space();
            if self.peek() == Some(close) {
                return Err(self.error("a value is expected"));
            }
        }
        Ok(true)
    }

    /// Takes members out whose name comes again later. The members stand in the output from `begin` on.
    fn drop_repeated(&mut self, begin: usize, members: &[Member]) {
        let name = |member: &Member| &self.out[member.name.clone()];
        let mut kept: Vec<&Member> = Vec::new();
        if members.len() <= FEW_MEMBERS {
            let comes_again = |at: usize| {
                let mut later = members[at + 1..].iter();
                later.any(|later| name(later) == name(&members[at]))
            };
            if !(0..members.len()).any(comes_again) {
                return;
            }
            let kept_places = (0..members.len()).filter(|at| !comes_again(*at));
            kept.extend(kept_places.map(|at| &members[at]));
        } else {
            let mut seen = HashSet::with_capacity(members.len());
            let newest_first = members.iter().rev();
            kept.extend(newest_first.filter(|member| seen.insert(name(member))));
            if kept.len() == members.len() {
                return;
            }
            kept.reverse();
        }
        let texts = kept
            .iter()
            .map(|member| &self.out[member.name.start..member.end]);
        let rest = texts.collect::<Vec<_>>().join(",");
        self.out.truncate(begin);
        self.out.push_str(&rest);
    }
}

/// Where a member of an object stands in the output.
struct Member {
    /// Its name, with quotes.
    name: Range<usize>,
    /// Where its value ends.
    end: usize,
}

/// Appends `character` as it stands in a canonical string.
fn put_character(out: &mut String, character: char) {
    let escape: Cow<'_, str> = match character {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\u{8}' => "\\b".into(),
        '\u{c}' => "\\f".into(),
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        control @ '\0'..'\u{20}' => format!("\\u{:04x}", u32::from(control)).into(),
        plain => return out.push(plain),
    };
    out.push_str(&escape);
}

/// Appends `text` as a canonical string.
pub(super) fn put_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        put_character(out, character);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_become_canonical() {
        let cases = [
            ("null", "null"),
            (" [ ] ", "[]"),
            ("[1 , -0.5e+10,\t1.0]", "[1,-0.5e+10,1.0]"),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567890",
            ),
            (r#""\u00e9\ud83d\ude00\u0001\b\/""#, "\"é😀\\u0001\\b/\""),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"a":1,"b":0,"\u0061":2}"#, r#"{"b":0,"a":2}"#),
            (
                r#"{"x":{"a":1,"a":{"b":1,"b":2}}}"#,
                r#"{"x":{"a":{"b":2}}}"#,
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(
                canonical(text.as_bytes()).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn the_last_of_many_members_stays() {
        let members: Vec<String> = (0..50).map(|at| format!("\"k{}\":{at}", at % 20)).collect();
        let text = format!("{{{}}}", members.join(","));
        let value = canonical(text.as_bytes()).expect("JSON");
        let parsed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&value).ok(),
            Some(parsed)
        );
        assert_eq!(value.matches(':').count(), 20);
        assert!(
            value.starts_with("{\"k10\":30"),
            "in the place of the last: {value}"
        );
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let texts = [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            "1e",
            "-",
            "+1",
            ".5",
            "tru",
            "nul",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "\"\n\"",
            "1 2",
            "[1 2]",
            "{\"a\" 1}",
            "NaN",
            "[,1]",
        ];
        for text in texts {
            assert!(canonical(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(
            canonical(b"[\"\xff\"]").map_err(|error| error.offset),
            Err(2)
        );
        let deep = "[".repeat(DEPTH_MAX + 1) + &"]".repeat(DEPTH_MAX + 1);
        assert!(canonical(deep.as_bytes()).is_err());
        assert!(canonical(&deep.as_bytes()[1..=2 * DEPTH_MAX]).is_ok());
    }

    fn values() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            (-1e9..1e9).prop_map(serde_json::Value::from),
            any::<String>().prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 40, 12, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..12).prop_map(serde_json::Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..12)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_text_means_the_same(value in values()) {
            let pretty = serde_json::to_string_pretty(&value).expect("JSON");
            let text = canonical(pretty.as_bytes()).expect("JSON");
            let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
            prop_assert_eq!(parse(&text), parse(&pretty));
            prop_assert_eq!(canonical(text.as_bytes()), Ok(text.clone()), "once is enough");
        }

        #[test]
        fn what_serde_refuses_is_refused(text in "[\\[\\]{}\":,0-9a-e.\\\\ntrufls \n-]{0,24}") {
            // It refuses numbers that no double holds; ours are kept as they are written.
            prop_assume!(!text.as_bytes().windows(2).any(|it| it[0].is_ascii_digit() && it[1] == b'e'));
            let ours = canonical(text.as_bytes()).is_ok();
            prop_assert_eq!(ours, serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
        }
    }
}
