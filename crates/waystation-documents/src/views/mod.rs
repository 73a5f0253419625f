//! Views: rows that the functions of design documents make of documents, in the order of their keys.
//!
//! ```text
//!   design     a design document: its views, filters and validation, and the signature of its rows
//!   script     the sandbox in which its functions run
//!   memory     the memory of a sandbox
//!   query      what is asked of a view
//!   row        a row, and the order of rows
//!   merge      rows of several shards in one order
//!   groups     rows reduced: within a shard, then over several
//!   reduce     the reducers
//!   function   validation of updates, and filters of changes
//! ```
//!
//! A shard keeps the rows ([`Shard::build_views`](crate::Shard::build_views)) and reads them
//! ([`Shard::view_rows`](crate::Shard::view_rows)); all that is here knows no engine. A query over a database asks
//! each of its shards and merges:
//!
//! ```
//! use waystation::{Durability, Options};
//! use waystation_documents::views::{DesignDocument, Limits, MergedRows, ViewQuery};
//! use waystation_documents::{Document, Edits, Shard};
//! # let dir = tempfile::tempdir()?;
//! let shard = Shard::open(dir.path(), Options::default())?;
//! let cars = [r#"{"_id":"car-7","speed":52}"#, r#"{"_id":"car-8","speed":38}"#];
//! let cars: Vec<Document> = cars.iter().map(|car| Document::parse(car.as_bytes())).collect::<Result<_, _>>()?;
//! shard.update(&cars, Edits::Interactive, Durability::ProcessCrash)?;
//!
//! let body = r#"{"views":{"by_speed":{"map":"car => emit(car.speed)"}}}"#;
//! let design = DesignDocument::parse("_design/cars", body)?;
//! let query = ViewQuery::default();
//! let rows = shard.view_rows(&design, "by_speed", &query, Limits::default())?;
//! let ids: Vec<String> = MergedRows::new(vec![rows], &query).map(|row| Ok(row?.id)).collect::<Result<_, waystation_documents::Error>>()?;
//! assert_eq!(ids, ["car-8", "car-7"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod design;
mod function;
mod groups;
mod memory;
mod merge;
mod order;
mod query;
mod reduce;
mod row;
mod script;

pub(crate) use design::PREFIX;
pub use design::{DesignDocument, Signature, View};
pub use function::DesignFunctions;
pub use groups::{MergedGroups, ViewGroup};
pub use merge::MergedRows;
pub(crate) use order::RowOrder;
pub use query::{Update, ViewQuery};
pub use row::{Link, ViewRow};
pub(crate) use script::{Defined, Sandbox};
pub use script::{Limits, ScriptError};

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers hand queries from thread to thread.
    #[test]
    fn what_answers_are_read_from_can_change_threads() {
        fn can_move<T: Send + 'static>() {}
        can_move::<MergedRows>();
        can_move::<MergedGroups>();
        can_move::<DesignFunctions>();
    }
}
