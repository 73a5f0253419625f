//! Paths and parameters: percent decoding, and the values of parameters.

use crate::failure::{Failure, Outcome};
use std::fmt::Write;
use waystation_documents::json::canonical;

/// The parameters of a request, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what stands behind the question mark, or a form.
    pub(crate) fn parse(text: &str) -> Outcome<Self> {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decode(name, true)?, decode(value, true)?))
        };
        let parts = text.split('&').filter(|part| !part.is_empty());
        Ok(Self(parts.map(pair).collect::<Outcome<_>>()?))
    }

    /// Adds the members of a JSON object as parameters: what a body says replaces what the path says.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.0.retain(|(other, _)| other != name);
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// Names and values, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter();
        pairs.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether the parameter is `true`.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// A parameter that is `true` or `false`.
    pub(crate) fn boolean(&self, name: &str) -> Outcome<Option<bool>> {
        match self.get(name).map(str::to_ascii_lowercase).as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(Failure::query(format!(
                "Invalid boolean parameter: \"{other}\""
            ))),
        }
    }

    /// A parameter that is a whole number from 0 on.
    pub(crate) fn whole(&self, name: &str) -> Outcome<Option<u64>> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        match text.trim_matches('"').parse::<i64>() {
            Ok(number) => u64::try_from(number).map(Some).map_err(|_| {
                Failure::query(format!("Invalid value for positive integer: \"{number}\""))
            }),
            Err(_) => Err(Failure::query(format!(
                "Invalid value for integer: \"{text}\""
            ))),
        }
    }

    /// A parameter that is JSON, as canonical text.
    pub(crate) fn json(&self, name: &str) -> Outcome<Option<String>> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let json = canonical(text.as_bytes());
        json.map(Some)
            .map_err(|_| Failure::bad_request("invalid UTF-8 JSON"))
    }
}

/// The segments of a path, decoded. A plus stands for a space behind the first one, which names a database.
pub(crate) fn segments(path: &str) -> Outcome<Vec<String>> {
    let parts = path.trim_start_matches('/').split('/').enumerate();
    let mut segments = parts
        .map(|(at, part)| decode(part, at > 0))
        .collect::<Outcome<Vec<String>>>()?;
    // One slash at the end says nothing.
    if segments.len() > 1 && segments.last().is_some_and(String::is_empty) {
        segments.pop();
    }
    Ok(segments)
}

/// Undoes percent encoding.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> Outcome<String> {
    let source = text.as_bytes();
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = source.get(at) {
        let digits = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let digits = digits.filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                at += 2;
            }
            None if *byte == b'+' && plus_is_space => bytes.push(b' '),
            None => bytes.push(*byte),
        }
        at += 1;
    }
    String::from_utf8(bytes).map_err(|_| Failure::bad_request("the URL is not UTF-8"))
}

/// `text` as a segment of a path.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$'()*,;:@".contains(&byte) {
            out.push(byte as char);
        } else {
            // Writing into a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_by_segment() -> Outcome<()> {
        assert_eq!(segments("/")?, [""]);
        assert_eq!(segments("/a%2Fb/c%20d+e/")?, ["a/b", "c d e"]);
        assert_eq!(
            segments("/a+b/%ZZ/%E4%B8%AD%")?,
            ["a+b", "%ZZ", "\u{4e2d}%"]
        );
        assert!(segments("/a/%FF").is_err());
        assert_eq!(decode(&encode("a/b c\u{4e2d}%"), true)?, "a/b c\u{4e2d}%");
        Ok(())
    }

    #[test]
    fn parameters_are_read() -> Outcome<()> {
        let query = Query::parse("a=1&b=true&c&key=%22x%22&d=-1&e=x")?;
        assert_eq!(query.whole("a")?, Some(1));
        assert_eq!(query.boolean("b")?, Some(true));
        assert_eq!(query.get("c"), Some(""));
        assert_eq!(query.json("key")?.as_deref(), Some("\"x\""));
        assert!(query.whole("d").is_err() && query.whole("e").is_err());
        assert!(query.boolean("e").is_err());
        Ok(())
    }
}
