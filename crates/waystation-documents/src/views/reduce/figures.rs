//! `_stats`: sum, count, least, greatest and sum of squares of numbers, or of the places of arrays.

use super::sum::Number;
use crate::error::{Error, Result};
use crate::json::{Json, Kind};
use std::cmp::Ordering;

/// The figures of some values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Figures {
    /// Of numbers.
    One {
        sum: Number,
        count: Number,
        least: Number,
        greatest: Number,
        squares: Number,
    },
    /// Of arrays, place by place.
    Many(Vec<Self>),
}

impl Figures {
    /// The figures of one value: a number, an array of such values, or figures that were computed before.
    pub(super) fn of(value: Json<'_>) -> Result<Self> {
        match value.kind() {
            Kind::Number => {
                let number = Number::of(value).ok_or_else(|| wrong(value))?;
                Ok(Self::One {
                    sum: number,
                    count: Number::Integer(1),
                    least: number,
                    greatest: number,
                    squares: number.squared(),
                })
            }
            Kind::Array => value
                .elements()
                .map(Self::of)
                .collect::<Result<_>>()
                .map(Self::Many),
            Kind::Object => {
                let part = |name| part_of(value, name);
                Ok(Self::One {
                    sum: part("sum")?,
                    count: part("count")?,
                    least: part("min")?,
                    greatest: part("max")?,
                    squares: part("sumsqr")?,
                })
            }
            _ => Err(wrong(value)),
        }
    }

    /// The figures of the values of both.
    pub(super) fn merged(self, other: Self) -> Result<Self> {
        match (self, other) {
            (Self::Many(one), Self::Many(other)) if one.len() == other.len() => {
                let pairs = one.into_iter().zip(other);
                let merged: Result<_> = pairs.map(|(one, other)| one.merged(other)).collect();
                merged.map(Self::Many)
            }
            (
                Self::One {
                    sum,
                    count,
                    least,
                    greatest,
                    squares,
                },
                Self::One {
                    sum: more,
                    count: others,
                    least: other_least,
                    greatest: other_greatest,
                    squares: more_squares,
                },
            ) => Ok(Self::One {
                sum: sum.plus(more),
                count: count.plus(others),
                least: extreme(least, other_least, Ordering::Greater),
                greatest: extreme(greatest, other_greatest, Ordering::Less),
                squares: squares.plus(more_squares),
            }),
            (_, other) => Err(wrong(Json::new(&other.to_json()))),
        }
    }

    pub(super) fn to_json(&self) -> String {
        match self {
            Self::One {
                sum,
                count,
                least,
                greatest,
                squares,
            } => {
                let [sum, count, least, greatest, squares] =
                    [sum, count, least, greatest, squares].map(|it| it.to_json());
                format!(
                    r#"{{"sum":{sum},"count":{count},"min":{least},"max":{greatest},"sumsqr":{squares}}}"#
                )
            }
            Self::Many(places) => {
                let places: Vec<String> = places.iter().map(Self::to_json).collect();
                format!("[{}]", places.join(","))
            }
        }
    }
}

/// `other` if `one` compares to it as `replaced` says.
fn extreme(one: Number, other: Number, replaced: Ordering) -> Number {
    if one.compare(other) == replaced {
        other
    } else {
        one
    }
}

fn part_of(value: Json<'_>, name: &str) -> Result<Number> {
    let invalid = |reason: String| Error::query("invalid_value", reason);
    let Some(part) = value.member(name) else {
        let text = value.text();
        return Err(invalid(format!(
            "user _stats input missing required field {name} ({text})"
        )));
    };
    let non_numeric = || {
        invalid(format!(
            "non-numeric _stats input received for {name}: {}",
            part.text()
        ))
    };
    Number::of(part).ok_or_else(non_numeric)
}

fn wrong(value: Json<'_>) -> Error {
    // A string stands as Erlang shows it.
    let shown = match value.kind() {
        Kind::String => format!("<<{}>>", value.text()),
        _ => value.text().to_owned(),
    };
    let reason = format!(
        "The _stats function requires that map values be numbers or arrays of numbers, not '{shown}'"
    );
    Error::query("invalid_value", reason)
}
