//! Indexes of views: the rows of groups of views, kept by the shard whose documents they come from.
//!
//! ```text
//!   record    the bytes: a group, a row, the rows of a document
//!   build     documents through the map functions into rows; removal of what nothing names
//!   rows      rows in the ranges of a query
//! ```
//!
//! Invariants: the rows of a group are what its map functions make of all documents up to the group's sequence, and of
//! purged documents nothing; for each document that has rows there is one record that names them. Rows, these records
//! and the group's sequence change in one batch, so that they agree after any crash. A power cut keeps a prefix of all
//! batches: no index is ahead of its documents.

mod build;
mod record;
mod rows;

pub(super) use build::Builds;
pub use build::ViewsInfo;
pub(super) use record::check_record;
pub use rows::{RowSource, ViewRows};

#[cfg(test)]
pub(super) mod tests;
