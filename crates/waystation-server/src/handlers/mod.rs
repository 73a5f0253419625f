//! Handlers: one file for each topic of the interface.

pub(crate) mod all_docs;
pub(crate) mod attachments;
pub(crate) mod bulk;
pub(crate) mod changes;
pub(crate) mod cors;
pub(crate) mod databases;
pub(crate) mod documents;
pub(crate) mod find;
pub(crate) mod local;
pub(crate) mod maintenance;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod open;
pub(crate) mod partitions;
pub(crate) mod replicate;
pub(crate) mod replication;
pub(crate) mod rows;
pub(crate) mod server;
pub(crate) mod sessions;
pub(crate) mod validation;
pub(crate) mod views;
