//! Walking over canonical text without parsing it.
//!
//! A [`Json`] is a slice of canonical text that is one value. Going to a member skips the values before it: strings
//! by a search for the closing quote, containers by a search for quotes and their own kind of bracket. Nothing is
//! allocated and nothing is checked, as canonical text is right by construction and every record's checksum is
//! verified by the engine. On other text the answers are meaningless; they are never unsafe, and every walk ends.

use super::canonical::put_string;
use std::borrow::Cow;
use std::cmp::Ordering;

/// The kinds of JSON values, in CouchDB's order of collation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `null`
    Null,
    /// `false`
    False,
    /// `true`
    True,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// One value in canonical text.
///
/// ```
/// use waystation_documents::json::{Json, canonical};
/// let text = canonical(br#"{"car": {"speeds": [50, 52]}}"#)?;
/// let speeds = Json::new(&text).member("car").and_then(|car| car.member("speeds"));
/// assert_eq!(speeds.and_then(|it| it.element(1)).map(|it| it.text()), Some("52"));
/// # Ok::<(), waystation_documents::json::JsonError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    /// The value that the canonical text `text` is.
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Its text.
    pub fn text(self) -> &'a str {
        self.0
    }

    /// What kind of value it is.
    pub fn kind(self) -> Kind {
        match self.0.as_bytes().first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't') => Kind::True,
            Some(b'f') => Kind::False,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// The text of a string; `None` for other values.
    pub fn string(self) -> Option<Cow<'a, str>> {
        (self.kind() == Kind::String).then(|| unquote(self.0))
    }

    /// The truth of a boolean; `None` for other values.
    pub fn boolean(self) -> Option<bool> {
        match self.kind() {
            Kind::True => Some(true),
            Kind::False => Some(false),
            _ => None,
        }
    }

    /// The number, if it is an integer of 64 bits that is written as one: `1`, and not `1.0`.
    pub fn integer(self) -> Option<i64> {
        (self.kind() == Kind::Number).then(|| self.0.parse().ok())?
    }

    /// Whether it is a number without fraction and exponent, of whatever size.
    pub fn is_integer(self) -> bool {
        self.kind() == Kind::Number
            && !self
                .0
                .bytes()
                .any(|byte| matches!(byte, b'.' | b'e' | b'E'))
    }

    /// The value of an object's member `name`.
    pub fn member(self, name: &str) -> Option<Json<'a>> {
        self.members()
            .find(|(other, _)| is_called(other, name))
            .map(|(_, value)| value)
    }

    /// The element at place `at` of an array.
    pub fn element(self, at: usize) -> Option<Json<'a>> {
        self.elements().nth(at)
    }

    /// The members of an object: names as they stand, with quotes, and values. None for other values.
    pub fn members(self) -> impl Iterator<Item = (&'a str, Json<'a>)> {
        let mut walk = Walk::into(self.0, b'{');
        std::iter::from_fn(move || walk.member())
    }

    /// The elements of an array; none for other values.
    pub fn elements(self) -> impl Iterator<Item = Json<'a>> {
        let mut walk = Walk::into(self.0, b'[');
        std::iter::from_fn(move || walk.value().map(Json))
    }
}

/// The member at place `at` of `run`, members as they stand in an object, if it is called `name`.
pub(crate) fn member_of_run<'a>(run: &'a str, at: usize, name: &str) -> Option<Json<'a>> {
    let mut walk = Walk { text: run, at: 0 };
    for _ in 0..at {
        walk.member()?;
    }
    let (other, value) = walk.member()?;
    is_called(other, name).then_some(value)
}

/// A walk over what stands in a container.
struct Walk<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Walk<'a> {
    fn into(text: &'a str, bracket: u8) -> Self {
        let is_such = text.as_bytes().first() == Some(&bracket);
        let at = if is_such { 1 } else { text.len() };
        Self { text, at }
    }

    /// The next member of an object: its name as it stands, and its value.
    fn member(&mut self) -> Option<(&'a str, Json<'a>)> {
        let name = self.value()?;
        self.at += 1;
        Some((name, Json(self.value()?)))
    }

    /// The text of the next value, or name; goes behind it and a comma.
    fn value(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        let begin = self.at;
        let first = bytes.get(begin)?;
        let end = match first {
            b'"' => skip_string(bytes, begin),
            b'{' => skip_container(bytes, begin, b'{', b'}'),
            b'[' => skip_container(bytes, begin, b'[', b']'),
            b'}' | b']' => return None,
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']');
                let length = bytes[begin..].iter().position(ends);
                length.map_or(bytes.len(), |length| begin + length)
            }
        };
        self.at = end;
        if bytes.get(end) == Some(&b',') {
            self.at += 1;
        }
        self.text.get(begin..end)
    }
}

/// The place behind the string that begins at `begin`.
fn skip_string(bytes: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(length) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += length + 1;
        if bytes[at - 1] == b'"' {
            return at;
        }
        // What is escaped ends nothing.
        at += 1;
    }
    bytes.len()
}

/// The place behind the container that begins at `begin`. Brackets of the other kind come in pairs.
fn skip_container(bytes: &[u8], begin: usize, open: u8, close: u8) -> usize {
    let mut at = begin + 1;
    let mut depth = 1;
    while let Some(length) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr3(b'"', open, close, rest))
    {
        at += length;
        match bytes[at] {
            b'"' => {
                at = skip_string(bytes, at);
                continue;
            }
            bracket if bracket == open => depth += 1,
            _ => depth -= 1,
        }
        at += 1;
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

/// Whether the canonical string `quoted` stands for `name`. An escape is longer than what it stands for.
fn is_called(quoted: &str, name: &str) -> bool {
    let length = quoted.len().saturating_sub(2);
    match length.cmp(&name.len()) {
        Ordering::Less => false,
        Ordering::Equal => {
            let inner = quoted.as_bytes().get(1..=length);
            inner == Some(name.as_bytes()) && !name.contains('\\')
        }
        Ordering::Greater => quoted.contains('\\') && unquote(quoted) == name,
    }
}

/// The text that the canonical string `quoted` stands for.
pub fn unquote(quoted: &str) -> Cow<'_, str> {
    let inner = quoted.strip_prefix('"').unwrap_or(quoted);
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match rest.next() {
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('u') => {
                let digits: String = rest.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok();
                out.extend(code.and_then(char::from_u32));
            }
            Some(escaped) => out.push(escaped),
            None => {}
        }
    }
    Cow::Owned(out)
}

/// `text` as a canonical string, with quotes.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    put_string(&mut out, text);
    out
}

#[cfg(test)]
mod tests {
    use super::super::canonical;
    use super::*;
    use proptest::prelude::*;

    const CAR: &str =
        r#"{"name":"a\"b","tags":["x","{",[1,2],{"a":"}"}],"":null,"speed":-1.5,"on":true}"#;

    #[test]
    fn members_and_elements_are_found() {
        let car = Json::new(CAR);
        assert_eq!(
            car.member("name").and_then(Json::string).as_deref(),
            Some("a\"b")
        );
        let tags = car.member("tags").expect("tags");
        let tags: Vec<&str> = tags.elements().map(Json::text).collect();
        assert_eq!(tags, ["\"x\"", "\"{\"", "[1,2]", "{\"a\":\"}\"}"]);
        assert_eq!(car.member("").map(Json::kind), Some(Kind::Null));
        assert_eq!(car.member("speed").map(Json::text), Some("-1.5"));
        assert_eq!(car.member("on").and_then(Json::boolean), Some(true));
        assert_eq!(car.member("off"), None);
        assert_eq!(car.element(0), None);
        assert_eq!(Json::new("{}").members().count(), 0);
        assert_eq!(Json::new("[]").elements().count(), 0);
        assert_eq!(Json::new("[[]]").elements().count(), 1);
    }

    #[test]
    fn integers_are_told_from_other_numbers() {
        assert_eq!(Json::new("12").integer(), Some(12));
        assert_eq!(Json::new("1.0").integer(), None);
        assert!(Json::new("123456789012345678901234567890").is_integer());
        assert!(!Json::new("1e3").is_integer());
    }

    proptest! {
        #[test]
        fn quoting_is_undone(text in any::<String>()) {
            let quoted = quote(&text);
            prop_assert_eq!(unquote(&quoted), text.as_str());
            prop_assert_eq!(canonical(quoted.as_bytes()), Ok(quoted.clone()));
        }

        #[test]
        fn a_name_is_known_with_its_escapes(name in "[a\\\\\"\n]{0,4}", other in "[a\\\\\"\n]{0,4}") {
            prop_assert_eq!(is_called(&quote(&name), &other), name == other);
        }

        #[test]
        fn any_text_is_walked_to_an_end(text in any::<String>(), bracket in "[{\\[\"]") {
            let text = bracket + &text;
            let json = Json::new(&text);
            prop_assert!(json.members().count() <= text.len());
            prop_assert!(json.elements().count() <= text.len());
        }
    }
}
