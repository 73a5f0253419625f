//! What a little fast storage is worth, and where.
//!
//! The tool records the block requests of an application by *area* (file system, journal, swap), characterises
//! them, and simulates the application in a closed loop with a small fast device placed in every possible way. The
//! answer is a number of seconds, a size and a reason.
//!
//! ```text
//!   record / import  ->  native trace  ->  report       (what happens)
//!                                      ->  simulate     (what would happen)
//!                                      ->  advise       (what to do), explain (why)
//! ```
//! Source: Kim & Bahn, "Allocation Techniques for NVM-Based Fast Storage Considering Application Characteristics",
//! JIIBC 19(4), 2019.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures for people: 52 bits of a nanosecond count are 52 days, and no negative value is cast"
)]

pub mod advise;
pub mod command;
pub mod engine;
pub mod error;
pub mod event;
pub mod export;
pub mod import;
pub mod native;
pub mod record;
pub mod report;
pub mod simulate;
mod text;
pub mod units;
pub mod validate;

/// Where the system's tools are; a user's PATH often lacks sbin.
pub(crate) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub use command::{PlaceCommand, Show, run};
pub use error::{Error, Result};
