//! Spilled graves: graves that left memory, in spill files, which never change.
//!
//! A spill file is a table in `LevelDB`'s format, read through the same cache as the others: filter and index stay in
//! memory, some two bytes a grave. Its entries are graves, by key, of one key the latest first:
//!
//! ```text
//! key, sequence number, deletion    one that counts    value: varint, what tables must be purged through beyond the
//!                                                      number of the deletion; empty if nothing
//! key, sequence number, value       one with a date    value: varint, its date (microseconds since 1970)
//! ```
//!
//! One spill file has graves of one kind. The facts that are known without reading it are its *label*, which stands in
//! `GRAVES`. When all dates of a spill file are past for every reader, its label says so, with the number that the flushed
//! graves went through by then: all of its graves count from then on, and nothing is written but that.
//!
//! - [`label`]: the known facts about one; [`file`](mod@file): reading one; [`writer`]: writing one
//! - [`list`]: all of them; [`walk`]: key after key; [`rewrite`]: from some to others

pub(crate) mod file;
pub(crate) mod label;
pub(crate) mod list;
pub(crate) mod rewrite;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
pub(crate) mod walk;
pub(crate) mod writer;

pub(crate) use file::{SpillDirectory, SpillFile, SpillHandle, open, remove_others};
pub(crate) use label::{GraveKind, SpillLabel};
pub(crate) use list::SpilledGraves;
pub(crate) use walk::SpillCursors;
