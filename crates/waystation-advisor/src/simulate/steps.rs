//! What devices have to do for a trace whose blocks a cache or copies serve: steps, gathered request by request.

use super::chain::Chain;
use super::model::Machine;
use super::run::{Outcome, Step, simulate_steps};
use crate::event::{BLOCK_BYTES, Op, Request, TraceInfo};

/// The steps of the requests so far.
pub(super) struct Steps {
    /// Where those of each request begin.
    first: Vec<u32>,
    steps: Vec<Step>,
}

impl Steps {
    /// For a trace of `requests`.
    pub(super) fn new(requests: usize) -> Self {
        Self {
            first: Vec::with_capacity(requests + 1),
            steps: Vec::new(),
        }
    }

    /// Goes on to the next request.
    pub(super) fn begin(&mut self) {
        self.first.push(self.steps.len() as u32);
    }

    fn begun(&self) -> usize {
        self.first.last().map_or(0, |first| *first as usize)
    }

    /// Adds `length` bytes from `offset` on of an area, on the fast device or the slow one; the last step takes them in if they
    /// continue it.
    pub(super) fn push(
        &mut self,
        (fast, op): (bool, Op),
        (area, offset, length): (u8, u64, u64),
        waited_for: bool,
    ) {
        let step = Step {
            request: self.first.len().saturating_sub(1) as u32,
            fast,
            op,
            area,
            offset,
            length,
            waited_for,
        };
        self.append(step);
    }

    /// Adds one block.
    pub(super) fn push_block(
        &mut self,
        kind: (bool, Op),
        (area, block): (u8, u64),
        waited_for: bool,
    ) {
        self.push(kind, (area, block * BLOCK_BYTES, BLOCK_BYTES), waited_for);
    }

    fn append(&mut self, step: Step) {
        let begun = self.begun();
        if let Some(last) = self.steps[begun..].last_mut()
            && last.fast == step.fast
            && last.op == step.op
            && last.area == step.area
            && last.waited_for == step.waited_for
            && last.offset + last.length == step.offset
        {
            last.length += step.length;
            return;
        }
        self.steps.push(step);
    }

    /// Joins the steps of this request that touch each other: of one kind, block by block, they are one request to the device.
    pub(super) fn merge(&mut self) {
        let mut tail = self.steps.split_off(self.begun());
        tail.sort_by_key(|step| {
            (
                step.waited_for,
                step.fast,
                step.op as u8,
                step.area,
                step.offset,
            )
        });
        for step in tail {
            self.append(step);
        }
    }

    /// Runs the trace with these steps.
    pub(super) fn simulate(
        mut self,
        info: &TraceInfo,
        requests: &[Request],
        chain: &Chain,
        machine: &Machine,
    ) -> Outcome {
        self.begin();
        let steps = (&*self.first, &mut *self.steps);
        simulate_steps(info, requests, chain, machine, steps, false)
    }
}
