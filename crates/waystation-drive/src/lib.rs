//! The drive's side of offloaded compaction; its first room is the compaction engine in hardware.
//!
//! [`ip`] runs the engine of `hw/compaction_ip` in simulation on real tables, beside a software reference that does
//! the same work from the same descriptors (`docs/design/compaction-engine.md`). [`model`] simulates a whole drive around
//! such an engine, its host and an external card (`docs/design/drive-model.md`). [`command`] is `waystation ip` and
//! `waystation drive-model`.

pub mod command;
pub mod ip;
pub mod model;
pub mod offload;
