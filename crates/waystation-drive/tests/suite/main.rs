//! Tests of the compaction engine and its drive, in one program: it links once, and its tests run beside each other.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod command;
mod common;
mod control;
mod damage;
mod equivalence;
mod leveldb;
mod offload;
mod speed;
mod waves;
