//! Cursors over parts of the tree: a level, and any part of the tree as one type.

mod level;
mod source;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

pub(crate) use level::{LevelIterator, Run};
pub(crate) use source::Source;
