//! The Redis protocol over databases of the engine.
//!
//! ```text
//!   server       the listener, what all connections share, stopping
//!   connection   bytes of one connection, in and out
//!   session      commands of one client, run by run: what was sent at once is one batch
//!   commands     what commands do, and the table of all of them
//!   work         what a run reads and writes; scan: entries with uncommitted ones; ranges: ranges that it deleted
//!   store        one database: which commands exclude each other, watches, syncs; dates: keys that are over; waits: whether
//!                storage is slow
//!   encoding     from keys of clients to keys of the engine; head: what a key is
//!   client, users, pubsub    who is there, who may do what, who listens
//!   resp         the bytes of the protocol; number, glob, times: of its arguments
//! ```
//!
//! The engine blocks, and mostly for no longer than it takes to copy some bytes: short commands run where their bytes
//! arrived. Commands that may take long hand the thread's other connections to another thread first, and while storage is
//! slow (`waits`), all commands do. A sync is waited for without a thread, by all connections together.

mod client;
mod clock;
mod commands;
mod connection;
mod dates;
mod encoding;
mod failure;
mod glob;
mod head;
mod number;
mod pubsub;
mod ranges;
mod resp;
mod scan;
mod server;
mod session;
mod settings;
mod store;
mod times;
mod users;
mod waits;
mod work;

pub use resp::{Limits, Parsed, Parser, ProtocolError};
pub use server::{Database, Figures, Handle, Server, ServerError};
pub use settings::{Durability, Live, Settings};
