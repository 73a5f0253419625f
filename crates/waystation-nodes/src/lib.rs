//! Nodes: drives that hold shards of document databases, and evaluate queries beside them.
//!
//! ```text
//!   host                                          drive
//!   Database ── Drives ── pool of connections ═══ Agent ── Shard ── engine directory
//!                                            TCP, one request at a time on each connection
//! ```
//!
//! A host asks a drive what it asks a shard of its own: [`Request`](waystation_documents::shard::Request) and
//! [`Reply`](waystation_documents::shard::Reply) travel as bytes. Answers come in pages that the host asks for one after
//! the other, so a host that is slow is never flooded, and only what matches travels.
//!
//! [`compaction`] is for compactions in another process: a worker that listens, and the way of an engine to it.
//!
//! Both sides prove that they know the token before anything else is said. Connections speak TLS where the agent has a
//! certificate and the host an authority; otherwise they are not encrypted. The host does not believe a drive what cannot be true, and an agent takes no names that lead out of its directory.

mod agent;
pub mod compaction;
mod connections;
mod cursor;
mod drives;
mod error;
mod frame;
mod greeting;
mod link;
#[cfg(test)]
mod lying;
mod message;
mod store;
mod tls;

pub use agent::{Agent, AgentSettings, Stopper};
pub use drives::{DriveSettings, Drives};
pub use error::{AgentError, Result};
pub use greeting::Token;
pub use tls::{Authorities, Identity};
