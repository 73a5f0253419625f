//! JSON values as CouchDB's error sentences show them: as Erlang terms.

use crate::json::{Json, Kind, unquote};

/// `value` as an Erlang term.
pub(super) fn term(value: Json<'_>) -> String {
    match value.kind() {
        Kind::String => text_term(value.text()),
        Kind::Array => format!("[{}]", join(value.elements().map(term))),
        Kind::Object => {
            let pair = |(name, value)| format!("{{{},{}}}", text_term(name), term(value));
            format!("{{[{}]}}", join(value.members().map(pair)))
        }
        Kind::Null | Kind::False | Kind::True | Kind::Number => value.text().to_owned(),
    }
}

fn text_term(quoted: &str) -> String {
    let text = unquote(quoted);
    format!("<<{}>>", join(text.bytes().map(|byte| byte.to_string())))
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_terms() {
        let cases = [
            ("null", "null"),
            ("[1,\"ab\"]", "[1,<<97,98>>]"),
            ("{\"a\":{}}", "{[{<<97>>,{[]}}]}"),
        ];
        for (text, expected) in cases {
            assert_eq!(term(Json::new(text)), expected);
        }
    }
}
