//! Placement: which parts of the database's files lie in a small, fast directory: copies of blocks, and, if the directory is
//! durable, the staging ring, segments of the log and new tables.
//!
//! ```text
//!                      read                                 a read that was slow
//!   TieredFile ------------------> slabs (fast directory)   heats its block
//!        |        not there?  |                                   |
//!        +------------------> main file                           | hot enough
//!                                                                 v
//!                                    round (background): write, evict, plan <-- offers
//! ```
//!
//! Tables and files of spilled graves never change, and every one of them lies in the main directory, whole and durable. The
//! fast directory holds copies of their *blocks*, the ones that are read most: what it loses costs time and nothing else. So
//! it may be memory, a drive without power-loss protection, or one that goes away. It begins empty at each opening.
//!
//! The rule comes from Kim and Bahn (2019): 80 to 90 % of blocks are read once, so a cache that takes whatever was read gains
//! little, and fast storage has to follow the application. A block takes a place from another one when it was read again, and
//! slowly (reads that memory serves gain nothing from a fast tier), and is hotter. What to do is
//! decided by [`waystation_planner`], which the placement tool uses, too.
//!
//! Segments of the log are written and hardly read, so copies spare them nothing. A durable directory may hold new ones alone
//! ([`spread`]). Log and copies share the capacity by what either gains ([`log_share`]). New tables lie there in the room that
//! both have left, and make room for both ([`moves`]). They come before a log that no writer waits for. The ring lies there if it
//! fits ([`ring_share`]).
//!
//! Invariants:
//! - a block from the fast tier is handed out only if its checksum holds, and if it still had the same place after the read:
//!   else the main file is read;
//! - no call of a reader fails, waits for a write, or waits for a lock of the round because of the fast tier;
//! - a place has one block at most, and a block one place.
//!
//! - [`options`]: what a user says; [`storage`] and [`file`]: where reads come in
//! - [`blocks`]: heat and place of each block of a file; [`slabs`]: the places, and their bytes
//! - [`tier`]: what all share; [`round`]: what happens in the background; [`health`]: when the fast directory fails or is slow
//! - [`meters`]: how long reads take; [`report`]: what users see
//! - [`spread`]: files in two directories; [`spread_file`], [`placed_table`]: a segment and a table there; [`table_share`]: which
//!   tables; [`link`]: which two directories belong together; [`text`]: small files

mod blocks;
mod file;
mod health;
mod link;
mod log_share;
mod meters;
mod moves;
mod names;
mod options;
mod placed_table;
mod report;
mod ring_share;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod ring_tests;
mod round;
mod slabs;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod slow_main_tests;
mod spread;
mod spread_file;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod spread_tests;
mod storage;
mod table_share;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod table_tests;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
mod text;
mod tier;

pub use options::FastTier;
pub use report::{
    AreaPlacement, LogPlacement, PlacementDecision, PlacementPrediction, PlacementStats,
    TablePlacement,
};
pub(crate) use spread::Spread;
pub(crate) use storage::Tiered;
pub(crate) use tier::Tier;
pub use waystation_planner::division::Division as PlacementDivision;
