//! JSON as this database keeps it: canonical text.
//!
//! A body is parsed, deduplicated and validated once, when it is written, and kept as text from then on. Readers
//! rely on its form and check nothing again:
//!
//! - no white space between tokens; strings escape only `"`, `\` and control characters, the shortest way;
//! - numbers stand as their writer wrote them, however large;
//! - an object has no name twice: of several members of a name the last one stays, in its place;
//! - containers are nested at most [`DEPTH_MAX`] deep.

mod canonical;
mod number;
mod text;

pub use canonical::{DEPTH_MAX, JsonError, canonical};
pub use number::compare_numbers;
pub(crate) use text::member_of_run;
pub use text::{Json, Kind, quote, unquote};
