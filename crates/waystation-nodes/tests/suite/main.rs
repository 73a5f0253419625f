//! Tests of nodes and drives, in one program: it links once, and its tests run beside each other.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod compaction;
mod copies;
mod equivalence;
mod faults;
mod stragglers;
mod support;
mod tls;
