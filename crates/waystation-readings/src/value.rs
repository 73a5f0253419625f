//! The value of a reading: a byte that names its kind, then its bytes. Kinds are never renumbered.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

/// Kinds on storage: never renumber.
const FLOAT: u8 = 1;
const INTEGER: u8 = 2;
const FLAG: u8 = 3;
const TEXT: u8 = 4;
const BYTES: u8 = 5;
const JSON: u8 = 6;
/// The member that stands for bytes in JSON.
const BASE64: &str = "base64";

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number.
    Float(f64),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Flag(bool),
    /// Text.
    Text(String),
    /// Bytes of no known meaning.
    Bytes(Vec<u8>),
    /// An array or an object: JSON text.
    Json(String),
}

/// The bytes are no value of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are no value of a reading; another program wrote them, or a newer version")]
pub struct Unreadable;

impl Value {
    /// The bytes on storage.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, bytes): (u8, &[u8]) = match self {
            Self::Float(number) => (FLOAT, &number.to_le_bytes()),
            Self::Integer(number) => (INTEGER, &number.to_le_bytes()),
            Self::Flag(flag) => (FLAG, &[u8::from(*flag)]),
            Self::Text(text) => (TEXT, text.as_bytes()),
            Self::Bytes(bytes) => (BYTES, bytes),
            Self::Json(text) => (JSON, text.as_bytes()),
        };
        [&[kind], bytes].concat()
    }

    /// The value of bytes on storage.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let (kind, rest) = bytes.split_first().ok_or(Unreadable)?;
        let eight = || <[u8; 8]>::try_from(rest).map_err(|_| Unreadable);
        let text = || String::from_utf8(rest.to_vec()).map_err(|_| Unreadable);
        Ok(match (*kind, rest) {
            (FLOAT, _) => Self::Float(f64::from_le_bytes(eight()?)),
            (INTEGER, _) => Self::Integer(i64::from_le_bytes(eight()?)),
            (FLAG, [flag @ (0 | 1)]) => Self::Flag(*flag == 1),
            (TEXT, _) => Self::Text(text()?),
            (BYTES, _) => Self::Bytes(rest.to_vec()),
            (JSON, _) => Self::Json(text()?),
            _ => return Err(Unreadable),
        })
    }

    /// The value that JSON stands for; `None` for null.
    pub fn of_json(json: &Json) -> Option<Self> {
        Some(match json {
            Json::Null => return None,
            Json::Bool(flag) => Self::Flag(*flag),
            Json::Number(number) => match number.as_i64() {
                Some(whole) => Self::Integer(whole),
                None => Self::Float(number.as_f64()?),
            },
            Json::String(text) => Self::Text(text.clone()),
            Json::Object(members) if members.len() == 1 && members.contains_key(BASE64) => {
                let text = members[BASE64].as_str()?;
                Self::Bytes(STANDARD.decode(text).ok()?)
            }
            Json::Array(_) | Json::Object(_) => Self::Json(json.to_string()),
        })
    }

    /// The value of a payload without a format: a number, a flag, text, or bytes.
    pub fn of_raw(payload: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(payload) else {
            return Self::Bytes(payload.to_vec());
        };
        let plain = text.trim();
        if let Ok(whole) = plain.parse() {
            return Self::Integer(whole);
        }
        match (plain, plain.parse::<f64>()) {
            ("true", _) => Self::Flag(true),
            ("false", _) => Self::Flag(false),
            (_, Ok(number)) if number.is_finite() => Self::Float(number),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// The value as JSON. Numbers that JSON does not have are null.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Float(number) => json!(number),
            Self::Integer(number) => json!(number),
            Self::Flag(flag) => json!(flag),
            Self::Text(text) => json!(text),
            Self::Bytes(bytes) => json!({ BASE64: STANDARD.encode(bytes) }),
            Self::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        }
    }

    /// The value as a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            Self::Integer(number) => Some(*number as f64),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn payloads_without_a_format_are_what_they_look_like() {
        let of = |payload: &str| Value::of_raw(payload.as_bytes());
        assert_eq!(of("21"), Value::Integer(21));
        assert_eq!(of(" -2.5\n"), Value::Float(-2.5));
        assert_eq!(of("1e3"), Value::Float(1000.0));
        assert_eq!(of("true"), Value::Flag(true));
        for text in ["", "open", "nan", "inf", " open "] {
            assert_eq!(of(text), Value::Text(text.to_owned()));
        }
        assert_eq!(Value::of_raw(b"\xff\x00"), Value::Bytes(vec![0xff, 0]));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        for bytes in [
            &b""[..],
            &[0],
            &[7, 1],
            &[FLOAT, 1],
            &[INTEGER],
            &[FLAG, 2],
            &[FLAG],
            &[TEXT, 0xff],
        ] {
            assert_eq!(Value::decode(bytes), Err(Unreadable), "{bytes:?}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        prop_oneof![
            prop::num::f64::NORMAL.prop_map(Value::Float),
            any::<i64>().prop_map(Value::Integer),
            any::<bool>().prop_map(Value::Flag),
            ".*".prop_map(Value::Text),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
            Just(Value::Json(r#"{"a":[1,null]}"#.to_owned())),
        ]
    }

    proptest! {
        #[test]
        fn values_are_read_back(value in values()) {
            prop_assert_eq!(Value::decode(&value.encode()), Ok(value.clone()));
            let json = value.to_json().to_string();
            let json: Json = serde_json::from_str(&json).map_err(|error| TestCaseError::fail(error.to_string()))?;
            match (Value::of_json(&json), value.number()) {
                (Some(read), Some(number)) => prop_assert_eq!(read.number(), Some(number)),
                (read, _) => prop_assert_eq!(read, Some(value)),
            }
        }
    }
}
