//! Tests of merges that a worker runs: over a link in memory, with a worker that is honest, slow, dead or hostile.

mod crash;
mod engine;
mod far;
mod hostile;
mod resume;
mod shadow;

use crate::lsm::compaction::offload::{LocalReason, OffloadStats};
use crate::lsm::tree::Tree;
use crate::lsm::tree::conformance::{Desk, Near, job_directories};

/// What the tree tells of its worker.
pub(super) fn told(tree: &Tree) -> OffloadStats {
    tree.stats().offload.expect("a tree with a worker")
}

/// How many merges ran here for `reason`.
pub(super) fn kept(tree: &Tree, reason: LocalReason) -> u64 {
    told(tree).local.get(&reason).copied().unwrap_or(0)
}
