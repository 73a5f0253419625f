//! Whether a selector matches a document.

use super::Fields;
use super::condition::{Argument, Comparison, Condition};
use super::path::Found;
use super::selector::{Node, Selector};
use crate::collate::{are_equal_texts, compare, compare_raw};
use crate::json::{Json, Kind, unquote};
use std::cmp::Ordering;

/// How values compare: by collation, or by bytes.
type Order = fn(Json<'_>, Json<'_>) -> Ordering;

impl Selector {
    /// Whether `document` is one that is asked for.
    pub fn matches(&self, document: &(impl Fields + ?Sized)) -> bool {
        self.root.matches(document)
    }
}

impl Node {
    fn matches(&self, document: &(impl Fields + ?Sized)) -> bool {
        match self {
            Self::And(parts) => parts.iter().all(|part| part.matches(document)),
            Self::Or(parts) => parts.is_empty() || parts.iter().any(|part| part.matches(document)),
            Self::Not(part) => !part.matches(document),
            Self::Field(path, condition) => match path.find(document) {
                Found::Value(value) if path.is_id() => condition.holds(value, compare_raw),
                Found::Value(value) => condition.holds(value, compare),
                Found::Absent => matches!(condition, Condition::Exists(false)),
                Found::NoWay => false,
            },
        }
    }
}

impl Condition {
    fn holds(&self, value: Json<'_>, order: Order) -> bool {
        let equals = |one: Json<'_>, other: &Argument| equal(one, other.json(), order);
        match self {
            Self::Compare(Comparison::Equal, argument) => equals(value, argument),
            Self::Compare(Comparison::Unequal, argument) => !equals(value, argument),
            Self::Compare(comparison, argument) => {
                let order = order(value, argument.json());
                match comparison {
                    Comparison::Less => order.is_lt(),
                    Comparison::LessOrEqual => order.is_le(),
                    Comparison::GreaterOrEqual => order.is_ge(),
                    _ => order.is_gt(),
                }
            }
            Self::In(list) => is_in(value, list, order),
            Self::NotIn(list) => !is_in(value, list, order),
            Self::Exists(expected) => *expected,
            Self::Type(name) => type_name(value) == name,
            Self::Size(size) => {
                value.kind() == Kind::Array && value.elements().count() as u64 == *size
            }
            Self::Modulo(divisor, remainder) => {
                value.is_integer() && has_remainder(value.text(), *divisor, *remainder)
            }
            // A pattern that backtracks beyond its limit matches nothing.
            Self::Regex(regex) => value
                .string()
                .is_some_and(|text| regex.is_match(&*text).unwrap_or(false)),
            Self::BeginsWith(prefix) => value
                .string()
                .is_some_and(|text| text.starts_with(prefix.as_str())),
            Self::All(list) => has_all(value, list),
            Self::AnyElement(node) => value.elements().any(|element| node.matches(&element)),
            Self::EveryElement(node) => {
                let mut elements = value.elements().peekable();
                elements.peek().is_some() && elements.all(|element| node.matches(&element))
            }
            Self::AnyName(node) => value
                .members()
                .any(|(name, _)| node.matches(&Json::new(name))),
            Self::Not(condition) => !condition.holds(value, order),
        }
    }
}

/// Whether two values are equal in `order`; texts are mostly told apart without the collator.
fn equal(one: Json<'_>, other: Json<'_>, order: Order) -> bool {
    if one.text() == other.text() {
        return true;
    }
    if one.kind() != other.kind() {
        return false;
    }
    if one.kind() == Kind::String && order as usize == compare as Order as usize {
        return are_equal_texts(&unquote(one.text()), &unquote(other.text()));
    }
    order(one, other).is_eq()
}

fn is_in(value: Json<'_>, list: &[Argument], order: Order) -> bool {
    let is_any = |value: Json<'_>| list.iter().any(|it| equal(value, it.json(), order));
    if value.kind() == Kind::Array {
        return value.elements().any(is_any);
    }
    is_any(value)
}

/// `$all` compares terms and not by collation.
fn has_all(value: Json<'_>, list: &[Argument]) -> bool {
    if value.kind() != Kind::Array || list.is_empty() {
        return false;
    }
    let is_there = |argument: &Argument| {
        value
            .elements()
            .any(|it| compare_raw(it, argument.json()).is_eq())
    };
    let is_the_array = match list {
        [argument] => compare_raw(argument.json(), value).is_eq(),
        _ => false,
    };
    is_the_array || list.iter().all(is_there)
}

fn type_name(value: Json<'_>) -> &'static str {
    match value.kind() {
        Kind::Null => "null",
        Kind::False | Kind::True => "boolean",
        Kind::Number => "number",
        Kind::String => "string",
        Kind::Array => "array",
        Kind::Object => "object",
    }
}

/// Whether the integer `digits`, of any size, leaves `remainder`, which has its sign, when divided.
fn has_remainder(digits: &str, divisor: i64, remainder: i64) -> bool {
    let divisor = i128::from(divisor.unsigned_abs());
    let step = |left: i128, digit: u8| (left * 10 + i128::from(digit - b'0')) % divisor;
    let size = digits.trim_start_matches('-').bytes().fold(0, step);
    let signed = if digits.starts_with('-') { -size } else { size };
    signed == i128::from(remainder)
}
