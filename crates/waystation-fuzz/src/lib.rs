//! Hostile bytes for every parser, and single flipped bits for every file.
//!
//! - [`fixture`]: small databases with a file of every kind; [`image`]: directories as bytes
//! - [`flips`]: every bit of every file, turned over
//! - [`targets`]: every parser, with what must hold whatever it reads; [`drive`] and [`mutate`]: a bounded run of one

pub mod drive;
pub mod fixture;
pub mod flips;
pub mod image;
pub mod mutate;
pub mod targets;
