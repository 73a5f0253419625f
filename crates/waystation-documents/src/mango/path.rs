//! Names of fields: steps with dots between them.
//!
//! `a.b` is the member `b` of the member `a`; `a\.b` is one name with a dot. A step that is a number goes to that
//! place of an array.

use super::Fields;
use crate::error::{Error, Result};
use crate::json::{Json, Kind};

/// The way to a field of a document.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FieldPath(Vec<String>);

/// What stands at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Value(Json<'a>),
    /// An object on the way has no such member.
    Absent,
    /// A step leads into something that is neither object nor array, or behind an array's end.
    NoWay,
}

impl FieldPath {
    /// Reads a field's name.
    ///
    /// # Errors
    /// The protocol's `invalid_field_name` if a step is empty.
    pub fn parse(name: &str) -> Result<Self> {
        let mut steps = vec![String::new()];
        let mut characters = name.chars();
        while let Some(character) = characters.next() {
            let step = steps.last_mut().expect("there is always a step");
            match character {
                '.' => steps.push(String::new()),
                // A backslash keeps a dot; before anything else it means nothing.
                '\\' => step.extend(characters.next().filter(|next| *next != '\\')),
                other => step.push(other),
            }
        }
        if steps.iter().any(String::is_empty) {
            let reason = format!("Invalid field name: {name}");
            return Err(Error::query("invalid_field_name", reason));
        }
        Ok(Self(steps))
    }

    /// Its steps.
    pub fn steps(&self) -> &[String] {
        &self.0
    }

    /// The path that goes on from here by `other`.
    pub(super) fn then(&self, other: &Self) -> Self {
        Self([self.steps(), other.steps()].concat())
    }

    /// Whether it is the document's identifier.
    pub(super) fn is_id(&self) -> bool {
        self.0 == ["_id"]
    }

    /// The value at its end in `document`, if there is one.
    pub fn value<'a>(&self, document: &'a (impl Fields + ?Sized)) -> Option<Json<'a>> {
        match self.find(document) {
            Found::Value(value) => Some(value),
            Found::Absent | Found::NoWay => None,
        }
    }

    /// Goes there in `document`.
    pub(super) fn find<'a>(&self, document: &'a (impl Fields + ?Sized)) -> Found<'a> {
        let Some(first) = self.0.first() else {
            return Found::Value(document.whole());
        };
        let (value, gone) = document.go(&self.0);
        let mut found = match value {
            Some(value) => Found::Value(value),
            None if document.is_object() => return Found::Absent,
            None => return step(document.whole(), first),
        };
        for name in self.0.iter().skip(gone) {
            match found {
                Found::Value(value) => found = step(value, name),
                other => return other,
            }
        }
        found
    }
}

fn step<'a>(value: Json<'a>, name: &str) -> Found<'a> {
    match value.kind() {
        Kind::Object => value.member(name).map_or(Found::Absent, Found::Value),
        Kind::Array => {
            let at = name.parse().ok().and_then(|at| value.element(at));
            at.map_or(Found::NoWay, Found::Value)
        }
        _ => Found::NoWay,
    }
}

impl std::fmt::Display for FieldPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_dots() {
        let steps = |name: &str| {
            FieldPath::parse(name)
                .map(|path| path.0)
                .unwrap_or_default()
        };
        assert_eq!(steps("ab"), ["ab"]);
        assert_eq!(steps("a.b.c"), ["a", "b", "c"]);
        assert_eq!(steps("a\\.b"), ["a.b"]);
        assert_eq!(steps("a.b\\.c"), ["a", "b.c"]);
        for name in ["", ".", "a..b", "a.", ".a"] {
            let refused = FieldPath::parse(name).expect_err(name);
            assert_eq!(refused.word(), "invalid_field_name");
        }
    }
}
