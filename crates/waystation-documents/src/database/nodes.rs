//! The nodes beside this process: drives that hold shards, and answer for them.
//!
//! This crate opens no sockets. What speaks with drives implements [`Nodes`], and is given to the
//! [catalogue](super::Catalogue) with its settings.

use super::meter::Meter;
use crate::error::{Error, NodeFault, Result};
use crate::shard::{CopySource, Replica, Request, Told, Turn, ViewRows, ViewSource};
use crate::views::{DesignDocument, Limits, ViewQuery};
use std::sync::Arc;

/// The name of this process among the nodes.
pub const LOCAL_NODE: &str = "nonode@nohost";

/// Where a shard lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardPlace {
    /// The name of its node.
    pub node: String,
    /// The uuid of its database.
    pub database: String,
    /// The name of its range.
    pub range: String,
}

/// What is known of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeState {
    /// Its name.
    pub name: String,
    /// Documents that its scans read in a second, all of them together; `None`: it has scanned too little to say.
    pub documents_per_second: Option<f64>,
    /// Bytes that its scans read in a second.
    pub bytes_per_second: Option<f64>,
}

/// The nodes beside this process.
pub trait Nodes: Send + Sync + std::fmt::Debug {
    /// What is known of the nodes: of this process ([`LOCAL_NODE`]) first, then of the drives as they were named.
    fn states(&self) -> Vec<NodeState>;

    /// What measures the scans of `node`, also of this process.
    fn meter(&self, node: &str) -> Option<Arc<Meter>>;

    /// The copy of a shard at `place`. It need not be reachable yet.
    ///
    /// # Errors
    /// [`Error::Node`] if there is no such node.
    fn reach(&self, place: &ShardPlace) -> Result<Arc<dyn Replica>>;

    /// Makes the copy of a shard at `place`, if it is not there; it survives a power cut when this returns.
    ///
    /// # Errors
    /// [`Error::Node`].
    fn create(&self, place: &ShardPlace) -> Result<()>;

    /// Removes the copy of a shard at `place`. What is not there is no error.
    ///
    /// # Errors
    /// [`Error::Node`].
    fn remove_shard(&self, place: &ShardPlace) -> Result<()>;

    /// Removes all that `node` has of the database `database`, a uuid. What is not there is no error.
    ///
    /// # Errors
    /// [`Error::Node`].
    fn remove(&self, node: &str, database: &str) -> Result<()>;
}

/// The error of a shard whose node is not there.
pub(super) fn unknown(node: &str) -> Error {
    Error::Node {
        fault: NodeFault::Down,
        reason: format!(
            "the database has shards on the node {node}, which this server does not know; start the server with --drive {node}=ADDRESS"
        ),
    }
}

/// The copy of a shard on a node that is not known.
pub(super) struct Unknown(pub(super) String);

impl Replica for Unknown {
    fn follow(&self, _turn: Turn, _request: Request) -> Result<Told> {
        Err(unknown(&self.0))
    }

    fn begin_copy(&self) -> Result<Box<dyn CopySource>> {
        Err(unknown(&self.0))
    }
}

impl ViewSource for Unknown {
    fn view_rows(
        &self,
        _design: &DesignDocument,
        _name: &str,
        _query: &ViewQuery,
        _limits: Limits,
    ) -> Result<ViewRows> {
        Err(unknown(&self.0))
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// The weights of this process and of drives that were measured: each its speed. A node that was not, and this process
/// among them, counts as the slowest that was: the least harm if it is slower still.
pub(super) fn measured_weights(states: &[NodeState]) -> Vec<(String, f64)> {
    let measured = states.iter().filter_map(|state| state.documents_per_second);
    let slowest = measured.fold(f64::INFINITY, f64::min);
    let slowest = if slowest.is_finite() { slowest } else { 1.0 };
    let weight = |state: &NodeState| {
        let weight = state.documents_per_second.unwrap_or(slowest);
        (state.name.clone(), weight)
    };
    states.iter().map(weight).collect()
}
