//! Background work of all databases of a process: one scheduler, a few threads, events and deadlines.
//!
//! A database joins ([`Member`]) with the jobs it has ([`Jobs`]): writing the log out, flushing, settling, keeping, watching,
//! compacting. What happens to it (a memtable is full, a device departs, a snapshot is released) is submitted as an
//! event, and what time brings is a deadline. Nothing polls: a database to which nothing happens wakes no thread.
//!
//! - [`plan`]: which job is next, and when the next deadline comes; a pure function of events and times, tested by
//!   scripts in `testdata/`
//! - [`scheduler`]: the threads that run what the plan says
//! - [`member`]: a database among the others: how it joins, submits and leaves
//! - [`agenda`]: what the upkeep of one database does next, and when to look again; pure functions as well; [`idle`]: the
//!   watch that looks
//! - [`settle_round`]: which devices settle next, together, and when to look again; pure functions as well
//! - [`backoff`]: how often something runs that goes over everything there is
//! - [`memory`]: what databases take of the memory that they share, and how they give it back close to its ceiling
//! - [`throttle`]: how writers are held back while the background falls behind
//! - [`disk_reserve`] and [`reserve_file`]: the part of the disk that is kept for what gives room back
//!
//! All databases on the operating system's storage share one scheduler, which begins with the first of them and ends with
//! the last. A storage with a clock of its own (the simulated machine) has its own, whose timer lets that clock pass.

mod agenda;
mod backoff;
mod disk_reserve;
mod idle;
mod member;
mod memory;
#[cfg(test)]
#[cfg(shuttle)]
mod model_tests;
mod plan;
mod reserve_file;
mod scheduler;
mod settle_round;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
mod throttle;

pub(crate) use agenda::{DeviceAgenda, DeviceSight, Expiry, Sight, TICK};
pub(crate) use backoff::Backoff;
pub(crate) use disk_reserve::{
    DiskReserve, DiskSizes, TOGETHER_BYTES, Writing, check_limit, kept_beside_segments,
    short_segment_bytes,
};
pub(crate) use idle::IdleWatch;
pub(crate) use member::Member;
pub(crate) use memory::{Account, Charge, Elastic, Ledger, Use};
pub(crate) use plan::{Kind, Limits, Next};
pub(crate) use reserve_file::give_back;
pub(crate) use settle_round::{MORE_TOGETHER, SettleRound, SettleSight};
pub(crate) use throttle::{FULL_MEMTABLES_MAX, Fill, LEVEL0_SLOW, Throttle};

/// What a database does in the background.
pub(crate) trait Jobs: Send + Sync {
    /// Runs one job of `kind`. It may wait for jobs of lanes before its own.
    fn run(&self, kind: Kind) -> Next;

    /// A job of `kind` panicked. None of this database begins any more; other databases go on.
    fn panicked(&self, kind: Kind);
}
