//! The order of a view's rows: CouchDB's collation, or that of raw values.
//!
//! ```text
//!   unicode   null < false < true < numbers < strings (root collation) < arrays < objects
//!   raw       numbers < false < null < true < objects < arrays < strings (bytes)
//! ```
//!
//! As in [`collate`](crate::collate), bytes of keys are in the order of values, no key continues another one, and
//! [`AFTER`](crate::collate::AFTER) is above all that may follow a key.

use crate::collate::{END, put_key, put_number};
use crate::json::{Json, Kind, unquote};

/// Which order the rows of a group of views have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// By collation.
    Unicode,
    /// `"collation": "raw"` in the options of the design document.
    Raw,
}

impl RowOrder {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unicode => "unicode",
            Self::Raw => "raw",
        }
    }

    /// The sort key of `value`.
    pub(crate) fn key_of(self, value: Json<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        match self {
            Self::Unicode => put_key(&mut key, value),
            Self::Raw => put_raw(&mut key, value),
        }
        key
    }
}

/// Appends the raw sort key of `value`. Never renumber the kinds: they stand in indexes.
fn put_raw(out: &mut Vec<u8>, value: Json<'_>) {
    match value.kind() {
        Kind::Number => {
            out.push(1);
            put_number(out, value.text());
        }
        Kind::False => out.push(2),
        Kind::Null => out.push(3),
        Kind::True => out.push(4),
        Kind::Object => {
            out.push(5);
            for (name, value) in value.members() {
                put_text(out, name);
                put_raw(out, value);
            }
            out.push(END);
        }
        Kind::Array => {
            out.push(6);
            value.elements().for_each(|element| put_raw(out, element));
            out.push(END);
        }
        Kind::String => put_text(out, value.text()),
    }
}

fn put_text(out: &mut Vec<u8>, quoted: &str) {
    out.push(7);
    for byte in unquote(quoted).bytes() {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_values_are_in_erlangs_order() {
        let ordered = [
            "-1",
            "0",
            "1.5",
            "2",
            "false",
            "null",
            "true",
            "{}",
            r#"{"a":1}"#,
            r#"{"a":1,"b":0}"#,
            r#"{"b":0}"#,
            "[]",
            "[1]",
            "[1,2]",
            "[2]",
            r#"["a"]"#,
            r#""""#,
            r#""\u0000""#,
            r#""A""#,
            r#""B""#,
            r#""a""#,
            r#""aB""#,
            r#""ab""#,
        ];
        let key = |text: &str| RowOrder::Raw.key_of(Json::new(text));
        for pair in ordered.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{} {}", pair[0], pair[1]);
            assert!(!key(pair[1]).starts_with(&key(pair[0])));
        }
    }
}
