//! Documents: CouchDB's model over the engine.
//!
//! ```text
//!   database     shards of one name, and the catalogue of names
//!   shard        documents, changes, local documents, attachments: keys and batches of the engine
//!   views        map and reduce: rows that a design document's functions make of documents
//!   document     a document as its clients write it; render: as they read it
//!   partition    what stands before the colon in identifiers of partitioned databases
//!   mango        selectors: what they mean, and which documents they match
//!   tree         revisions of one document, and which of them wins
//!   json         bodies as canonical text, walked without parsing
//!   collate      CouchDB's order of JSON values
//!   wire         the bytes in which requests and replies of a shard travel
//! ```
//!
//! This crate speaks no HTTP and knows no async: it is what a server, a drive and a test have in common.

mod attachment;
pub mod collate;
pub mod database;
mod document;
mod error;
pub mod json;
pub mod mango;
pub mod partition;
mod render;
mod revision;
pub mod shard;
pub mod tree;
pub mod views;
pub mod wire;

pub use attachment::{Attachment, AttachmentInfo, ContentDigest, Given};
pub use database::{Catalogue, Database};
pub use document::Document;
pub use error::{Absence, Error, NodeFault, Result};
pub use render::{Rendering, Shown, array, render};
pub use revision::{DIGEST_BYTES, Revision, RevisionId};
pub use shard::{Edits, Shard, Updated};
