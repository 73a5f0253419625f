//! The document server on one machine: filters without an index, loads, memory.
//!
//! ```text
//!   this program ── HTTP over loopback ──> `waystation serve`, a process of its own
//!      bodies, queries, clocks                 processor time and memory, as the kernel counts them
//! ```
//!
//! A filter is repeated until the server has worked for a second, as the kernel counts processor time in hundredths.
//! Each answer is checked: a filter that finds another number of documents than it should measures nothing.

mod body;
mod feeds;
mod process;
mod rows;

pub(crate) use process::ServerProcess;
pub(crate) use rows::{DocumentsRow, Subject, find_rows, load_rows, memory_rows};
