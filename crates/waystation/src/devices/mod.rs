//! Devices: data that arrives, stays a while, and settles or leaves.
//!
//! - the known facts: [`table`] of each [`device`], [`upper`], [`index`], [`residency`], [`ledger`]; on storage: [`record`], [`checkpoint`],
//!   [`index_snapshot`]; after an opening: [`replay`]
//! - what happens: [`events`], [`departures`], [`settle`], [`handoff`]
//! - the background work: [`maintenance`], and [`log_release`], which releases the log. What it is given by the engine above: [`context`]

pub(crate) mod check;
pub(crate) mod checkpoint;
pub(crate) mod clock;
mod contended;
pub(crate) mod context;
pub(crate) mod covering;
pub(crate) mod cursor;
pub(crate) mod deletions;
pub(crate) mod departures;
mod device;
pub(crate) mod events;
pub(crate) mod gather;
pub(crate) mod handoff;
pub(crate) mod index;
pub(crate) mod index_snapshot;
mod info;
pub(crate) mod inserters;
pub(crate) mod ledger;
pub(crate) mod log_release;
pub(crate) mod maintenance;
#[cfg(test)]
#[cfg(shuttle)]
mod model_tests;
mod prefix;
mod reaping;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod residency;
mod residents;
pub(crate) mod settle;
mod settle_plan;
pub(crate) mod table;
pub(crate) mod upper;
pub(crate) mod writes;

pub(crate) use info::describe;
pub use info::{DeviceInfo, DeviceLevel};
