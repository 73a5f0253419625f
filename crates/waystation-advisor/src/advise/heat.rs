//! What each block costs the application today.
//!
//! A request's waiting time is charged to the blocks it touches. A write on a device with a cache seems to cost
//! nothing; its price appears in the next flush, so a flush is charged to the blocks written since the last one.
//! A block's *saving* is what it costs now less what the same would take on the fast device.

use std::collections::HashMap;

use waystation_planner::Heat;

use crate::event::{Op, Request};

/// Costs by block, one map per area, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct BlockCosts {
    /// By area number: block to cost.
    pub areas: Vec<HashMap<u64, BlockCost>>,
}

/// What one block was charged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockCost {
    /// Requests that read it.
    pub reads: u32,
    /// Requests that wrote it.
    pub writes: u32,
    /// Its share of latencies, in nanoseconds.
    pub waited_ns: u64,
    /// Its share of flushes.
    pub flushed_ns: u64,
}

impl BlockCost {
    /// What is saved when the block is on a device that takes `fast_ns` per access and nothing per flush.
    fn saved_ns(&self, fast_ns: u64) -> u64 {
        let fast_ns = u64::from(self.reads + self.writes) * fast_ns;
        (self.waited_ns + self.flushed_ns).saturating_sub(fast_ns)
    }
}

impl BlockCosts {
    /// Charges every request of a trace; `latency_ns` tells how long each took.
    pub fn of(areas: usize, requests: &[Request], latency_ns: impl Fn(usize) -> u64) -> Self {
        let mut costs = Self {
            areas: vec![HashMap::new(); areas],
        };
        let mut unflushed: Vec<Vec<u64>> = vec![Vec::new(); areas];
        for (index, request) in requests.iter().enumerate() {
            let area = usize::from(request.area);
            let latency = latency_ns(index);
            if request.op == Op::Flush {
                let blocks = std::mem::take(&mut unflushed[area]);
                let share = latency / (blocks.len() as u64).max(1);
                for block in blocks {
                    costs.areas[area].entry(block).or_default().flushed_ns += share;
                }
                continue;
            }
            if !request.moves_data() {
                continue;
            }
            let blocks = request.blocks();
            let share = latency / (blocks.end - blocks.start).max(1);
            for block in blocks {
                let cost = costs.areas[area].entry(block).or_default();
                cost.waited_ns += share;
                if request.op == Op::Write {
                    cost.writes += 1;
                    unflushed[area].push(block);
                } else {
                    cost.reads += 1;
                }
            }
        }
        costs
    }

    /// The savings of one area's blocks.
    pub fn heat(&self, area: usize, fast_ns: u64) -> Vec<Heat> {
        self.areas[area]
            .iter()
            .map(|(block, cost)| Heat {
                block: *block,
                saved: cost.saved_ns(fast_ns),
            })
            .collect()
    }
}
