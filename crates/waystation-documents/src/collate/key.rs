//! Sort keys: bytes whose order is the order of values.
//!
//! ```text
//!   null 1 | false 2 | true 3 | number 4, eight bytes | string 5, Unicode's sort key, 0
//!   array 6, elements, 0 | object 7, names and values, 0
//! ```
//!
//! A key is followed by nothing, by another key, or by [`END`]; so no key continues another one, and every key with
//! what may follow lies below the key with [`AFTER`] behind it. Equal keys do not always mean equal values: integers
//! beyond 2^53 have the key of the nearest double. A reader of keys compares the values again.
//!
//! Unicode's sort keys may change with the collator's version: [`KEY_VERSION`] names what made a key.

#![expect(
    clippy::big_endian_bytes,
    reason = "numbers in keys are in the order of their bytes"
)]

use super::COLLATOR;
use crate::json::{Json, Kind, unquote};

/// What made the keys; an index of another version is built anew.
pub(crate) const KEY_VERSION: &str = "1/icu_collator-2";

/// Ends a list of keys.
pub(crate) const END: u8 = 0;
/// Above all that may follow a key.
pub(crate) const AFTER: u8 = 8;

/// Appends the key of `value`.
pub(crate) fn put_key(out: &mut Vec<u8>, value: Json<'_>) {
    let kind = value.kind();
    out.push(kind as u8 + 1);
    match kind {
        Kind::Null | Kind::False | Kind::True => {}
        Kind::Number => put_number(out, value.text()),
        Kind::String => put_text(out, value.text()),
        Kind::Array => {
            value.elements().for_each(|element| put_key(out, element));
            out.push(END);
        }
        Kind::Object => {
            for (name, value) in value.members() {
                out.push(Kind::String as u8 + 1);
                put_text(out, name);
                put_key(out, value);
            }
            out.push(END);
        }
    }
}

/// The key of `value`.
pub(crate) fn key_of(value: Json<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    put_key(&mut key, value);
    key
}

fn put_text(out: &mut Vec<u8>, quoted: &str) {
    let Ok(()) = COLLATOR.write_sort_key_to(&unquote(quoted), out);
    out.push(END);
}

/// Appends the number `text`.
pub(crate) fn put_number(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&number_key(text));
}

/// The nearest double, in the order of its bytes.
fn number_key(text: &str) -> [u8; 8] {
    let number: f64 = text.parse().unwrap_or(0.0);
    // Zero has one sign.
    let bits = (number + 0.0).to_bits();
    let ordered = if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    };
    ordered.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::compare;
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|it| it.to_string()),
            (-1000_i32..1000).prop_map(|it| it.to_string()),
            (-10.0..10.0).prop_map(|it: f64| format!("{it:?}")),
            "[ aA\u{e9}b\u{301}\u{1}]{0,4}".prop_map(|it| crate::json::quote(&it)),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let pair = (
                prop::sample::select(vec!["\"a\"", "\"b\"", "\"c\""]),
                inner.clone(),
            );
            prop_oneof![
                prop::collection::vec(inner, 0..3).prop_map(|it| format!("[{}]", it.join(","))),
                prop::collection::vec(pair, 0..3).prop_map(|it| {
                    let members: Vec<String> = it
                        .iter()
                        .map(|(name, value)| format!("{name}:{value}"))
                        .collect();
                    format!("{{{}}}", members.join(","))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn keys_are_in_the_order_of_values(one in values(), other in values()) {
            let (one, other) = (Json::new(&one), Json::new(&other));
            prop_assert_eq!(key_of(one).cmp(&key_of(other)), compare(one, other));
        }

        #[test]
        fn no_key_continues_another(one in values(), other in values()) {
            let (mut one, other) = (key_of(Json::new(&one)), key_of(Json::new(&other)));
            prop_assert!(one == other || !other.starts_with(&one));
            one.push(AFTER);
            prop_assert!(!other.starts_with(&one));
        }
    }

    #[test]
    fn zero_has_one_key() {
        assert_eq!(number_key("0"), number_key("-0.0"));
        assert!(number_key("-1") < number_key("0"));
        assert_eq!(
            number_key("9007199254740993"),
            number_key("9007199254740992")
        );
    }
}
