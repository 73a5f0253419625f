//! `_sum`: numbers, arrays of numbers, and objects of both.
//!
//! Arrays are added place by place, a number counting as the first place; objects member by member. Integers stay
//! integers, however large. What cannot be added makes the sum an error object, as CouchDB answers it in the row.

use crate::json::{Json, Kind, compare_numbers};
use std::cmp::Ordering;

/// CouchDB's sentence for values that cannot be added.
const WRONG_VALUE: &str = "The _sum function requires that map values be numbers, arrays of numbers, or objects. \
    Objects cannot be mixed with other data structures. Objects can be arbitrarily nested, provided that the values \
    for all fields are themselves numbers, arrays of numbers, or objects.";
/// A sum longer than this has to be less than half as long as what was added (bytes): CouchDB's limits.
const LENGTH_UNCHECKED_MAX: usize = 4906;
/// How often the length is looked at (rows).
const CHECKED_EVERY: u64 = 1024;

/// A number of JSON.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Integer(i128),
    Double(f64),
}

impl Number {
    pub(super) const ZERO: Self = Self::Integer(0);

    /// The number that `json` is, if it is one.
    pub(super) fn of(json: Json<'_>) -> Option<Self> {
        if json.kind() != Kind::Number {
            return None;
        }
        let integer = json
            .is_integer()
            .then(|| json.text().parse().ok())
            .flatten();
        integer.map_or_else(
            || json.text().parse().ok().map(Self::Double),
            |it| Some(Self::Integer(it)),
        )
    }

    fn double(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Double(double) => double,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => one
                .checked_add(other)
                .map_or_else(|| Self::Double(one as f64 + other as f64), Self::Integer),
            (one, other) => Self::Double(one.double() + other.double()),
        }
    }

    pub(super) fn squared(self) -> Self {
        match self {
            Self::Integer(integer) => integer
                .checked_mul(integer)
                .map_or_else(|| Self::Double((integer as f64).powi(2)), Self::Integer),
            Self::Double(double) => Self::Double(double * double),
        }
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        compare_numbers(&self.to_json(), &other.to_json())
    }

    pub(super) fn to_json(self) -> String {
        match self {
            Self::Integer(integer) => integer.to_string(),
            // JSON has no infinity.
            Self::Double(double) => format!("{:?}", double.clamp(f64::MIN, f64::MAX)),
        }
    }
}

/// What is added: kept apart until something is added to it, and refused only then.
#[derive(Debug, Clone, PartialEq)]
enum Term {
    Number(Number),
    Array(Vec<Number>),
    /// Members by their names, quoted, in the order of the names.
    Object(Vec<(String, Self)>),
    /// Something else, as JSON.
    Other(String),
}

impl Term {
    fn of(json: Json<'_>) -> Self {
        let other = || Self::Other(json.text().to_owned());
        match json.kind() {
            Kind::Number => Number::of(json).map_or_else(other, Self::Number),
            Kind::Array => {
                let numbers: Option<Vec<Number>> = json.elements().map(Number::of).collect();
                numbers.map_or_else(other, Self::Array)
            }
            Kind::Object => {
                let members = json
                    .members()
                    .map(|(name, value)| (name.to_owned(), Self::of(value)));
                let mut members: Vec<(String, Self)> = members.collect();
                members.sort_by(|one, other| one.0.cmp(&other.0));
                Self::Object(members)
            }
            _ => other(),
        }
    }

    /// The sum of two terms, or the JSON of the one that cannot be added.
    fn plus(self, other: Self) -> Result<Self, String> {
        Ok(match (self, other) {
            (Self::Number(one), Self::Number(other)) => Self::Number(one.plus(other)),
            (Self::Array(one), Self::Array(other)) => Self::Array(add_places(one, other)),
            (Self::Number(number), Self::Array(array))
            | (Self::Array(array), Self::Number(number)) => {
                Self::Array(add_places(array, vec![number]))
            }
            (Self::Object(one), Self::Object(other)) => Self::Object(add_members(one, other)?),
            (one, other) => {
                let wrong = if matches!(one, Self::Other(_)) {
                    one
                } else {
                    other
                };
                return Err(wrong.to_json());
            }
        })
    }

    fn to_json(&self) -> String {
        let listed = |items: Vec<String>| items.join(",");
        match self {
            Self::Number(number) => number.to_json(),
            Self::Array(numbers) => {
                format!(
                    "[{}]",
                    listed(numbers.iter().map(|it| it.to_json()).collect())
                )
            }
            Self::Object(members) => {
                let member = |(name, term): &(String, Self)| format!("{name}:{}", term.to_json());
                format!("{{{}}}", listed(members.iter().map(member).collect()))
            }
            Self::Other(json) => json.clone(),
        }
    }
}

fn add_places(mut one: Vec<Number>, mut other: Vec<Number>) -> Vec<Number> {
    if one.len() < other.len() {
        std::mem::swap(&mut one, &mut other);
    }
    for (sum, more) in one.iter_mut().zip(other) {
        *sum = sum.plus(more);
    }
    one
}

fn add_members(
    one: Vec<(String, Term)>,
    other: Vec<(String, Term)>,
) -> Result<Vec<(String, Term)>, String> {
    let (mut one, mut other) = (one.into_iter().peekable(), other.into_iter().peekable());
    let mut sums = Vec::new();
    loop {
        let order = match (one.peek(), other.peek()) {
            (None, None) => return Ok(sums),
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(one), Some(other)) => one.0.cmp(&other.0),
        };
        let left = if order.is_le() { one.next() } else { None };
        let right = if order.is_ge() { other.next() } else { None };
        match (left, right) {
            (Some((name, one)), Some((_, other))) => sums.push((name, one.plus(other)?)),
            (member, other) => sums.extend(member.or(other)),
        }
    }
}

/// A running sum.
#[derive(Debug, Clone)]
pub(crate) struct Total {
    /// The sum, or the error object that it is.
    sum: Result<Term, String>,
    rows: u64,
    /// Bytes of all that was added.
    input_bytes: usize,
}

impl Default for Total {
    fn default() -> Self {
        Self {
            sum: Ok(Term::Number(Number::ZERO)),
            rows: 0,
            input_bytes: 0,
        }
    }
}

impl Total {
    /// Adds a value.
    pub(super) fn add(&mut self, value: Json<'_>) {
        self.input_bytes += value.text().len();
        self.rows += 1;
        self.plus(Term::of(value));
        if self.rows.is_multiple_of(CHECKED_EVERY) {
            self.check_length();
        }
    }

    /// Adds another sum.
    pub(super) fn merge(&mut self, other: Self) {
        if other.rows == 0 {
            return;
        }
        self.input_bytes += other.input_bytes;
        self.rows += other.rows;
        match other.sum {
            Ok(term) => self.plus(term),
            Err(error) if self.sum.is_ok() => self.sum = Err(error),
            Err(_) => {}
        }
    }

    fn plus(&mut self, term: Term) {
        let Ok(sum) = &mut self.sum else { return };
        let before = std::mem::replace(sum, Term::Number(Number::ZERO));
        let added = match (before, term) {
            // Nothing yet: an object stands as it is.
            (Term::Number(Number::Integer(0)), Term::Object(members)) => Ok(Term::Object(members)),
            (before, term) => before.plus(term),
        };
        self.sum = added.map_err(|cause| {
            let reason = crate::json::quote(WRONG_VALUE);
            format!(r#"{{"error":"builtin_reduce_error","reason":{reason},"caused_by":{cause}}}"#)
        });
    }

    fn check_length(&mut self) {
        let Ok(sum) = &self.sum else { return };
        let (input, output) = (self.input_bytes, sum.to_json().len());
        if output > LENGTH_UNCHECKED_MAX && output * 2 > input {
            let reason = format!(
                "Reduce output must shrink more rapidly: input size: {input} output size: {output}"
            );
            self.sum = Err(format!(
                r#"{{"error":"builtin_reduce_error","reason":"{reason}"}}"#
            ));
        }
    }

    /// The sum as JSON.
    pub(super) fn finish(mut self) -> String {
        self.check_length();
        self.sum.map_or_else(|error| error, |sum| sum.to_json())
    }
}
