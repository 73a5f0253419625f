//! The drive's side of offloaded compaction; its first room is the compaction engine in hardware.
//!
//! [`ip`] runs the engine of `hw/compaction_ip` in simulation on real tables, beside a software reference that does
//! the same work from the same descriptors. [`command`] is `waystation ip`. The engine is explained in
//! `docs/design/compaction-engine.md`.

pub mod command;
pub mod ip;
