//! CouchDB's order of JSON values.
//!
//! `null < false < true < numbers < strings < arrays < objects`. Numbers compare by value and strings by the rules of
//! Unicode's root collation (tertiary strength), so that `"a" < "B" < "b"`, and texts that differ only in ignorable
//! characters are equal. Arrays compare element by element, the shorter one first; objects member by member in the
//! order in which they are stored, names before values.

mod key;

pub(crate) use key::{AFTER, END, KEY_VERSION, key_of, put_key, put_number};

use crate::json::{Json, Kind, compare_numbers, unquote};
use icu_collator::options::CollatorOptions;
use icu_collator::{Collator, CollatorBorrowed};
use std::cmp::Ordering;
use std::sync::LazyLock;

static COLLATOR: LazyLock<CollatorBorrowed<'static>> = LazyLock::new(|| {
    Collator::try_new(
        icu_collator::CollatorPreferences::default(),
        CollatorOptions::default(),
    )
    .expect("the root collation is compiled in")
});

/// Compares two texts as CouchDB does.
pub fn compare_texts(one: &str, other: &str) -> Ordering {
    if one == other {
        return Ordering::Equal;
    }
    COLLATOR.compare(one, other)
}

/// Whether two texts are equal as CouchDB has it. Texts of printable ASCII are equal if their bytes are.
pub fn are_equal_texts(one: &str, other: &str) -> bool {
    let is_plain = |text: &str| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    one == other || !(is_plain(one) && is_plain(other)) && COLLATOR.compare(one, other).is_eq()
}

/// Compares two values.
///
/// ```
/// use waystation_documents::{collate::compare, json::Json};
/// let value = Json::new;
/// assert!(compare(value("12"), value("\"1\"")).is_lt());
/// assert!(compare(value("\"a\""), value("\"B\"")).is_lt());
/// assert!(compare(value("[1]"), value("[1,null]")).is_lt());
/// ```
pub fn compare(one: Json<'_>, other: Json<'_>) -> Ordering {
    compare_by(one, other, &compare_texts)
}

/// Compares two values with texts in the order of their bytes and behind all other values, as CouchDB compares
/// identifiers.
pub fn compare_raw(one: Json<'_>, other: Json<'_>) -> Ordering {
    let is_text = |json: Json<'_>| json.kind() == Kind::String;
    let texts = |one: &str, other: &str| one.cmp(other);
    let by_kind = is_text(one).cmp(&is_text(other));
    by_kind.then_with(|| compare_by(one, other, &texts))
}

fn compare_by(one: Json<'_>, other: Json<'_>, texts: &impl Fn(&str, &str) -> Ordering) -> Ordering {
    let kind = one.kind();
    kind.cmp(&other.kind()).then_with(|| match kind {
        Kind::Null | Kind::False | Kind::True => Ordering::Equal,
        Kind::Number => compare_numbers(one.text(), other.text()),
        Kind::String => texts(&unquote(one.text()), &unquote(other.text())),
        Kind::Array => {
            let pairs = |one, other| compare_by(one, other, texts);
            compare_lists(one.elements(), other.elements(), pairs)
        }
        Kind::Object => compare_lists(one.members(), other.members(), |one, other| {
            let by_name = texts(&unquote(one.0), &unquote(other.0));
            by_name.then_with(|| compare_by(one.1, other.1, texts))
        }),
    })
}

fn compare_lists<T>(
    mut one: impl Iterator<Item = T>,
    mut other: impl Iterator<Item = T>,
    compare: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        match (one.next(), other.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(one), Some(other)) => match compare(one, other) {
                Ordering::Equal => {}
                unequal => return unequal,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order that CouchDB 3.5.0 gave these values.
    const ORDERED: [&str; 22] = [
        "null",
        "false",
        "true",
        "-1",
        "0",
        "1",
        "2.5",
        "10",
        "\"\"",
        "\"Äpfel\"",
        "\"apple\"",
        "\"b\"",
        "\"B\"",
        "\"zebra\"",
        "\"Zebra\"",
        "[]",
        "[1]",
        "[1,null]",
        "[\"a\"]",
        "{}",
        "{\"a\":1}",
        "{\"b\":0}",
    ];

    #[test]
    fn values_are_in_couchdbs_order() {
        for (at, one) in ORDERED.iter().enumerate() {
            for (place, other) in ORDERED.iter().enumerate() {
                let order = compare(Json::new(one), Json::new(other));
                assert_eq!(order, at.cmp(&place), "{one} {other}");
            }
        }
    }

    #[test]
    fn equality_is_that_of_collation() {
        assert!(
            are_equal_texts("a", "a\u{1}"),
            "control characters are ignored"
        );
        assert!(
            are_equal_texts("\u{e9}", "e\u{301}"),
            "one letter, composed or not"
        );
        assert!(!are_equal_texts("a", "A"));
        assert!(!are_equal_texts("a ", "a"));
        for one in ORDERED {
            for other in ORDERED {
                let (one, other) = (Json::new(one), Json::new(other));
                if let (Some(one), Some(other)) = (one.string(), other.string()) {
                    assert_eq!(are_equal_texts(&one, &other), one == other);
                }
            }
        }
    }

    #[test]
    fn identifiers_compare_by_bytes() {
        assert!(compare_raw(Json::new("\"B\""), Json::new("\"a\"")).is_lt());
        assert!(compare(Json::new("\"B\""), Json::new("\"a\"")).is_gt());
    }
}
