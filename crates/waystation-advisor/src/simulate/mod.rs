//! Closed-loop simulation of an application's requests on other devices.
//!
//! A trace replayed at its recorded times cannot say how long the application would have taken: most requests are
//! issued *because* an earlier one completed. So each request keeps, from the trace, the event it followed and the
//! time the application thought in between ([`chain`]); devices are models ([`model`], [`disk`], [`flash`]); a
//! placement says which blocks are on the fast one ([`placement`]); and the run ends when the last request does
//! ([`run`]).
//!
//! What this cannot know: traffic that would itself change (a faster journal pins less memory, time-driven
//! write-back shifts), and anything the trace does not contain. The report says so next to every figure.

mod cache;
mod chain;
mod clocked;
mod copies;
mod disk;
mod flash;
pub mod model;
pub mod placement;
mod run;
mod steps;
#[cfg(test)]
mod tests;

pub use cache::{CacheMode, CacheOutcome, simulate_cache};
pub use chain::{Cause, Causes, Chain};
pub(crate) use clocked::Clocked;
pub use copies::simulate_copies;
pub use model::{DeviceModel, DiskModel, FlashModel, Machine};
pub use placement::{Placement, Residence};
pub use run::{Outcome, Step, simulate, simulate_steps};
