//! The modelled drive, as the engine of a worker: bytes by the software reference, times by the model.
//!
//! Each job is answered no earlier than the drive would answer: the model says how long reading from flash, merging in
//! stages and writing back take, and the worker waits for what the merge in software did not take itself. Jobs of one drive
//! run one after another.

use super::stages::{Merger, Shape, run};
use crate::ip::{IpError, Job, Output, reference};
use crate::model::single::{Records, single};
use crate::model::{Load, Machine, ModelError, Nanos, Place};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use waystation::offload::{EngineError, EngineTask, JobControl, MergeEngine, Merged};
use waystation::storage::{OsStorage, Storage};

/// A wait is interrupted so often, to see whether the job was given up.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of a block's record beside key and value.
const HEADER_BYTES: u64 = 4;

/// A modelled drive.
pub struct Modelled {
    machine: Machine,
    decoders: usize,
    /// Held while a job runs.
    turn: Mutex<()>,
    clock: std::sync::Arc<OsStorage>,
}

impl Modelled {
    /// A drive of this description, whose engine has so many decoders.
    pub fn new(machine: Machine, decoders: usize) -> Result<Self, ModelError> {
        machine.check()?;
        Ok(Self {
            machine,
            decoders,
            turn: Mutex::new(()),
            clock: OsStorage::new(),
        })
    }

    /// How long the drive takes for a job of this shape.
    fn time_of(&self, shape: &Shape) -> Result<Nanos, ModelError> {
        let inputs = shape.upper.iter().chain(&shape.lower);
        let (records, bytes) = inputs.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        let record_bytes = bytes.div_ceil(records.max(1));
        let load = Load::default();
        let records = Records {
            upper: shape.upper.iter().map(|input| input.0).collect(),
            lower: shape.lower.map(|input| input.0),
            made: shape.made.0,
            value_bytes: record_bytes.saturating_sub(load.key_bytes + HEADER_BYTES),
        };
        let place = Place::Drive {
            decoders: self.decoders,
        };
        single(&self.machine, place, &records)
    }
}

impl MergeEngine for Modelled {
    fn merge(&self, task: &EngineTask, control: &JobControl) -> Result<Merged, EngineError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = self.clock.now();
        let staged = run(task, self.decoders, true, &mut Software { control })?;
        let time = self.time_of(&staged.shape);
        let time = time.map_err(|error| EngineError::Unfit(error.to_string()))?;
        let answers_at = begun + Duration::from_nanos(time);
        loop {
            if control.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let left = answers_at.saturating_sub(self.clock.now());
            if left.is_zero() {
                return Ok(staged.merged);
            }
            // The drive gets on, though this thread does not.
            control.advance(1);
            self.clock.sleep(left.min(LOOK));
        }
    }
}

struct Software<'a> {
    control: &'a JobControl,
}

impl Merger for Software<'_> {
    fn merge(&mut self, job: &Job) -> Result<Output, IpError> {
        if self.control.is_cancelled() {
            return Err(IpError::Stopped);
        }
        let output = reference::run(job)?;
        self.control.advance(output.counters.records_in);
        Ok(output)
    }
}
