//! Bodies of documents, in the shapes that CouchDB was measured with.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The bytes of a member `"f0123":"..."` and its comma.
const MEMBER_BYTES: usize = 35;
/// The digits of a member's value.
const VALUE_DIGITS: usize = 24;

/// What a body consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shape {
    /// Two numbers and one long string.
    String,
    /// Many short strings: half of them at the top, half in the object `car`. The numbers stand behind them.
    Fields,
}

/// Appends document `number` of about `bytes` bytes: its number is its `number` and its `car.number`, modulo 100.
pub(crate) fn put_document(
    out: &mut String,
    number: u64,
    shape: Shape,
    bytes: usize,
    seed: &mut u64,
) {
    let begin = out.len();
    let kind = number % 100;
    // Writing into a string cannot fail.
    let _ = write!(out, "{{\"_id\":\"{number:012}\"");
    match shape {
        Shape::String => {
            let _ = write!(
                out,
                ",\"number\":{kind},\"car\":{{\"number\":{kind}}},\"text\":\""
            );
            while out.len() < begin + bytes.saturating_sub(2) {
                let _ = write!(out, "{:016x}", next(seed));
            }
            out.push_str("\"}");
        }
        Shape::Fields => {
            let members = bytes / MEMBER_BYTES;
            put_members(out, 0..members / 2, seed);
            out.push_str(",\"car\":{\"kind\":\"car\"");
            put_members(out, members / 2..members, seed);
            let _ = write!(out, ",\"number\":{kind}}},\"number\":{kind}}}");
        }
    }
}

fn put_members(out: &mut String, members: std::ops::Range<usize>, seed: &mut u64) {
    for member in members {
        let _ = write!(
            out,
            ",\"f{member:04}\":\"{:0digits$x}\"",
            next(seed),
            digits = VALUE_DIGITS
        );
    }
}

/// The next number of a xorshift generator.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_length_and_both_numbers() {
        for (shape, bytes) in [
            (Shape::String, 8192),
            (Shape::Fields, 8192),
            (Shape::Fields, 118_784),
        ] {
            let (mut text, mut seed) = (String::new(), 1);
            put_document(&mut text, 107, shape, bytes, &mut seed);
            assert!(
                text.len().abs_diff(bytes) < 100,
                "{shape:?} {bytes} {}",
                text.len()
            );
            let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(
                (json["number"].as_u64(), json["car"]["number"].as_u64()),
                (Some(7), Some(7))
            );
        }
    }
}
