//! Devices: data that arrives, stays a while, and settles or leaves.

pub(crate) mod checkpoint;
pub(crate) mod cursor;
pub(crate) mod deletions;
pub(crate) mod extractor;
pub(crate) mod floors;
pub(crate) mod gather;
pub(crate) mod handoff;
pub(crate) mod image;
pub(crate) mod index;
pub(crate) mod ledger;
#[cfg(test)]
#[cfg(shuttle)]
mod model_tests;
mod reaping;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod residency;
pub(crate) mod resident;
mod staying;
pub(crate) mod table;
pub(crate) mod upper;

pub use extractor::{Extractor, UnknownExtractor};
