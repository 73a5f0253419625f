//! Engines for compaction workers: the hardware in simulation, and the modelled drive. They merge the tables of a live
//! database (`waystation compact-worker --engine`).
//!
//! ```text
//! worker --EngineTask--> tables, unpacked --stages--> Engine or reference --blocks--> worker writes tables
//!                                    ^                     |
//!                                    +-- merged tables ----+   in memory only, while there are too many inputs
//! ```
//!
//! The hardware takes uncompressed blocks; blocks that Snappy compressed are unpacked on the way, as a drive's firmware
//! would. What it cannot take at all (Zstandard, keys beyond 64 bytes) is refused, and the database merges it itself.

mod hardware;
mod modelled;
mod stages;
mod tables;

pub use hardware::Hardware;
pub use modelled::Modelled;

use crate::ip::{FailureKind, IpError};
use waystation::offload::EngineError;

/// Says to a worker why there is no result.
fn refusal(error: IpError) -> EngineError {
    let reason = error.to_string();
    match error {
        IpError::Refused(reason) => EngineError::Unfit(reason),
        IpError::Stopped => EngineError::Cancelled,
        IpError::Format(_) | IpError::Damaged(_) => EngineError::Inputs(reason),
        IpError::Failed(failure) => match failure.kind {
            FailureKind::Bus | FailureKind::Space | FailureKind::Watchdog => {
                EngineError::Failed(reason)
            }
            _ => EngineError::Inputs(reason),
        },
        IpError::NotBuilt
        | IpError::NoSuchSize(_)
        | IpError::Hanging(_)
        | IpError::Inconsistent(_) => EngineError::Failed(reason),
    }
}
