//! Conditions: what a selector asks of one value.

use super::selector::Node;
use super::term::term;
use crate::error::{Error, Result};
use crate::json::{Json, Kind};
use fancy_regex::Regex;

/// A value in a selector, as canonical text.
#[derive(Debug, Clone)]
pub(super) struct Argument(String);

impl Argument {
    pub(super) fn of(value: Json<'_>) -> Self {
        Self(value.text().to_owned())
    }

    pub(super) fn json(&self) -> Json<'_> {
        Json::new(&self.0)
    }
}

/// How a value compares with an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    Unequal,
    GreaterOrEqual,
    Greater,
}

impl Comparison {
    /// The comparison that holds where this one does not.
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Equal => Self::Unequal,
            Self::Unequal => Self::Equal,
            Self::GreaterOrEqual => Self::Less,
            Self::Greater => Self::LessOrEqual,
        }
    }
}

/// A condition on the value of a field.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    Compare(Comparison, Argument),
    In(Vec<Argument>),
    NotIn(Vec<Argument>),
    Exists(bool),
    Type(String),
    Size(u64),
    /// Divisor, not zero, and remainder.
    Modulo(i64, i64),
    Regex(Box<Regex>),
    BeginsWith(String),
    All(Vec<Argument>),
    AnyElement(Box<Node>),
    EveryElement(Box<Node>),
    AnyName(Box<Node>),
    Not(Box<Condition>),
}

impl Condition {
    /// Reads the operator `name` with its `argument`. `nested` parses a selector on elements.
    pub(super) fn parse(
        name: &str,
        argument: Json<'_>,
        nested: impl Fn(Json<'_>) -> Result<Node>,
    ) -> Result<Self> {
        let bad = || bad_argument(name, argument);
        let list = || -> Result<Vec<Argument>> {
            let is_array = argument.kind() == Kind::Array;
            is_array
                .then(|| argument.elements().map(Argument::of).collect())
                .ok_or_else(bad)
        };
        let node = || -> Result<Box<Node>> {
            if argument.kind() != Kind::Object {
                return Err(bad());
            }
            nested(argument).map(Box::new)
        };
        let text = || {
            argument
                .string()
                .map(std::borrow::Cow::into_owned)
                .ok_or_else(bad)
        };
        let compare = |comparison| Self::Compare(comparison, Argument::of(argument));
        Ok(match name {
            "$lt" => compare(Comparison::Less),
            "$lte" => compare(Comparison::LessOrEqual),
            "$eq" => compare(Comparison::Equal),
            "$ne" => compare(Comparison::Unequal),
            "$gte" => compare(Comparison::GreaterOrEqual),
            "$gt" => compare(Comparison::Greater),
            "$in" => Self::In(list()?),
            "$nin" => Self::NotIn(list()?),
            "$exists" => Self::Exists(argument.boolean().ok_or_else(bad)?),
            "$type" => Self::Type(text()?),
            "$size" => Self::Size(argument.text().parse().map_err(|_| bad())?),
            "$mod" => modulo(argument).ok_or_else(bad)?,
            "$regex" => Self::Regex(Box::new(Regex::new(&text()?).map_err(|_| bad())?)),
            "$beginsWith" => Self::BeginsWith(text()?),
            "$all" => Self::All(list()?),
            "$elemMatch" => Self::AnyElement(node()?),
            "$allMatch" => Self::EveryElement(node()?),
            "$keyMapMatch" => Self::AnyName(node()?),
            "$where" | "$geoWithin" | "$geoIntersects" | "$near" | "$nearSphere" => {
                let reason = format!("Unsupported operator: {name}");
                return Err(Error::query("not_supported", reason));
            }
            "$text" | "$default" => {
                let reason = "There is no index available for this selector.";
                return Err(Error::query("no_usable_index", reason));
            }
            other => {
                let reason = format!("Invalid operator: {other}");
                return Err(Error::query("invalid_operator", reason));
            }
        })
    }

    /// The condition that holds where a value is there and this one does not hold.
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Compare(comparison, argument) => Self::Compare(comparison.negated(), argument),
            Self::In(list) => Self::NotIn(list),
            Self::NotIn(list) => Self::In(list),
            Self::Exists(expected) => Self::Exists(!expected),
            Self::Not(condition) => *condition,
            other => Self::Not(Box::new(other)),
        }
    }
}

fn modulo(argument: Json<'_>) -> Option<Condition> {
    let numbers: Option<Vec<i64>> = argument.elements().map(Json::integer).collect();
    match numbers?.as_slice() {
        [divisor, remainder] if *divisor != 0 => Some(Condition::Modulo(*divisor, *remainder)),
        _ => None,
    }
}

/// The error of an operator whose argument is of the wrong kind.
pub(super) fn bad_argument(name: &str, argument: Json<'_>) -> Error {
    let reason = format!("Bad argument for operator {name}: {}", term(argument));
    Error::query("bad_arg", reason)
}
