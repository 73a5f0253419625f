//! The hardware in simulation, as the engine of a worker.

use super::stages::{Merger, run};
use crate::ip::{Engine, IpError, Job, Output, Progress, sizes};
use std::sync::{Mutex, PoisonError};
use waystation::offload::{EngineError, EngineTask, JobControl, MergeEngine, Merged};

/// About so many bytes of a block hold a record: for the count of a job's progress.
const RECORD_BYTES: u64 = 100;

/// The simulated hardware. One job at a time: there is one.
pub struct Hardware {
    engine: Mutex<Engine>,
    /// Whether more inputs than it has are merged in stages, or refused.
    stages: bool,
}

impl Hardware {
    /// One with so many inputs; it refuses jobs with more, unless it `stages` them.
    pub fn new(inputs: usize, stages: bool) -> Result<Self, IpError> {
        Ok(Self {
            engine: Mutex::new(Engine::new(inputs)?),
            stages,
        })
    }

    /// The largest that this build has.
    pub fn largest(stages: bool) -> Result<Self, IpError> {
        let inputs = sizes().into_iter().max().ok_or(IpError::NotBuilt)?;
        Self::new(inputs, stages)
    }
}

impl MergeEngine for Hardware {
    fn merge(&self, task: &EngineTask, control: &JobControl) -> Result<Merged, EngineError> {
        // A job that panicked left registers that the next start sets anew.
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let inputs = engine.inputs();
        let mut simulated = Simulated {
            engine: &mut engine,
            control,
        };
        Ok(run(task, inputs, self.stages, &mut simulated)?.merged)
    }
}

struct Simulated<'a> {
    engine: &'a mut Engine,
    control: &'a JobControl,
}

impl Merger for Simulated<'_> {
    fn merge(&mut self, job: &Job) -> Result<Output, IpError> {
        let control = self.control;
        let mut seen = 0;
        let goes_on = |progress: Progress| {
            // At least one: that it runs is progress, too.
            let more = progress.bytes_in.saturating_sub(seen) / RECORD_BYTES;
            control.advance(more.max(1));
            seen = progress.bytes_in;
            !control.is_cancelled()
        };
        Ok(self.engine.run_while(job, goes_on)?.0)
    }
}
