//! Advice.
pub mod heat;
