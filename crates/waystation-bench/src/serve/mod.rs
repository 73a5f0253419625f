//! The daemon beside Redis, and behind Mosquitto.
//!
//! ```text
//!   core 0   the server: `waystation serve` or `redis-server`; Mosquitto
//!   core 1   the load: `redis-benchmark` or this program; behind Mosquitto also the subscriber
//! ```
//!
//! Every server is a real program in a process and a directory of its own, on the same file system. The engines take
//! turns: each does all of a run before the next run begins, so that a machine that slows down slows all of them. A
//! server has the same core, the same load and the same durability as the others: what is written is on storage
//! before the answer (`always`), or a second later (`everysec`).

mod broker;
mod daemon;
mod footprint;
mod instance;
mod keys;
mod large;
mod load;
mod messages;
mod mix;
mod mqtt;
mod process;
mod redis;
mod resp;
mod rows;

pub(crate) use footprint::{memory_rows, start_rows};
pub(crate) use instance::{Cores, Durability, Engine, Rig};
pub(crate) use keys::{Suite, suite_rows};
pub(crate) use large::large_rows;
pub(crate) use messages::message_rows;
pub(crate) use rows::{ServeRow, medians};

/// The whole part of a number that is not negative.
#[expect(
    clippy::cast_sign_loss,
    reason = "numbers here count requests, messages and bytes"
)]
pub(crate) fn whole(number: f64) -> u64 {
    number as u64
}
