//! Mango: queries as JSON.
//!
//! A [`Selector`] is parsed once, normalised as CouchDB does, and matched against many documents. What it needs of a
//! document it asks by name, so that whoever stores documents decides how much of one is read.

mod aggregate;
mod condition;
mod matching;
mod normal;
mod path;
mod plan;
mod projection;
mod range;
mod selector;
mod term;

pub use aggregate::{Aggregate, Groups};
pub use path::FieldPath;
pub use plan::{Candidate, Direction, Plan, Sort};
pub use projection::Projection;
pub use range::{IdRange, KeyRange};
pub use selector::Selector;

use crate::json::{Json, Kind};

/// What a selector is matched against.
pub trait Fields {
    /// The value of the top-level field `name`.
    fn field(&self, name: &str) -> Option<Json<'_>>;

    /// Goes along `steps`, of which there is one at least, as far as that reads less than the values on the way: what
    /// stands there, if anything does, and how many steps were gone.
    fn go(&self, steps: &[String]) -> (Option<Json<'_>>, usize) {
        (steps.first().and_then(|name| self.field(name)), 1)
    }

    /// All of it as one value, for conditions that name no field.
    fn whole(&self) -> Json<'_>;

    /// Whether it is an object, as documents are.
    fn is_object(&self) -> bool;
}

impl Fields for Json<'_> {
    fn field(&self, name: &str) -> Option<Json<'_>> {
        self.member(name)
    }

    fn whole(&self) -> Json<'_> {
        *self
    }

    fn is_object(&self) -> bool {
        self.kind() == Kind::Object
    }
}

#[cfg(test)]
mod tests;
