//! Offloading: merges that a worker runs, in another process that sees the same directory, or that is sent the tables.
//!
//! ```text
//!   engine                                                         worker
//!   pick ─ claim ─ create the job's directory
//!                  begin (job)                ──── link ────>      opens the listed tables, reads
//!                  watch ... watch            <─── link ────       merges into the job's directory
//!                  compare the report with the job                 reports tables and counts
//!                  take the tables over: rename, sync, verify
//!                  remove the job's directory
//!   install ─ give the claim up
//! ```
//!
//! A worker that does not see the directory says so once. From then on the engine sends the tables that a job reads, and
//! fetches the tables that it made into the job's directory (`transfer.rs`).
//!
//! Invariants:
//! - a worker writes under the directory of one run of one job, which the engine creates and removes. It removes nothing
//!   else, and names no path: a report has numbers. So a worker at fault loses its own tables alone;
//! - one run counts at most once. Name and attempt stand in every message and in the directory's name; when the engine
//!   gives an attempt up, it removes the directory, and a worker that lives on finds no place for its tables;
//! - nothing that a worker says is believed: see [`adopt`] and `verify.rs`;
//! - a worker that fails has often made tables already, and told of them. They are taken over as at the end, and the rest of
//!   the keys alone is merged, at the worker again or here (`resume.rs`);
//! - every failure ends as a merge in this process, counted by its reason ([`LocalReason`]). Foreground work never
//!   notices: the thread that waits for a worker is the one that would merge.
//!
//! The engine opens no sockets. It speaks through a [`Link`], which the program gives; `waystation-nodes` has one for TCP and
//! Unix sockets. A worker's program gives each job to a [`Worker`], which may have another [`MergeEngine`] than its processor.

mod adopt;
mod engine;
mod link;
mod remote;
mod resume;
mod shadow;
mod stats;
mod transfer;
mod watched;
mod worker;

pub use engine::{EngineError, EngineTask, MergeEngine, Merged};
pub use link::{Link, LinkError, Session};
pub(crate) use remote::RemoteExecutor;
pub use stats::{LocalReason, OffloadStats};
pub use worker::{JobControl, Worker};

use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::fmt;
use std::time::Duration;

/// How much of a worker's tables the engine reads before it installs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verification {
    /// What the tables say of themselves: footer, index, properties.
    Metadata,
    /// Also the checksum of every block.
    #[default]
    Checksums,
    /// Also every entry: order, bounds, counts, sequence numbers.
    Entries,
}

/// Which merges a worker runs, and how far it is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffloadSettings {
    /// How much of a worker's tables the engine verifies. Default: checksums.
    pub verification: Verification,
    /// Merges into this level and deeper ones go to the worker. Default: 1, all of them.
    pub level_min: usize,
    /// The engine takes a worker for dead that says nothing for so long, and a worker gives a job up whose engine says
    /// nothing for so long. At least 1 s. Default: 10 s.
    pub lease: Duration,
    /// So many of a hundred merges of the worker, drawn at random, run in this process as well. The two are compared entry by
    /// entry, and the tables of this process are installed. Default: 0.
    pub shadow_percent: u8,
}

impl Default for OffloadSettings {
    fn default() -> Self {
        Self {
            verification: Verification::default(),
            level_min: 1,
            lease: Duration::from_secs(10),
            shadow_percent: 0,
        }
    }
}

/// The lease is no shorter: a worker that waits for a device says nothing meanwhile.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// A worker, for any number of databases. Clones are the same.
#[derive(Clone)]
pub struct Offload(Arc<Shared>);

struct Shared {
    link: Box<dyn Link>,
    settings: OffloadSettings,
    is_on: AtomicBool,
}

impl Offload {
    /// Merges go through `link` as `settings` say.
    pub fn new(link: impl Link + 'static, settings: OffloadSettings) -> Self {
        let lease = settings.lease.max(LEASE_MIN);
        Self(Arc::new(Shared {
            link: Box::new(link),
            settings: OffloadSettings { lease, ..settings },
            is_on: AtomicBool::new(true),
        }))
    }

    /// Has merges that begin from now on stay in this process, or go to the worker again.
    pub fn set_on(&self, is_on: bool) {
        self.0.is_on.store(is_on, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    fn link(&self) -> &dyn Link {
        &*self.0.link
    }

    fn settings(&self) -> &OffloadSettings {
        &self.0.settings
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offload")
            .field("settings", self.settings())
            .field("is_on", &self.is_on())
            .finish_non_exhaustive()
    }
}

/// The same worker by the same link, not one like it.
impl PartialEq for Offload {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Offload {}
