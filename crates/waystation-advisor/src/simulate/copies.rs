//! The engine's fast directory: copies of the blocks that callers read most, chosen by their heat.
//!
//! The rules are the engine's, by the planner's [`heat`](waystation_planner::heat): only reads that somebody waits for
//! count; a block gets a place while there is free room, or if it is hotter than a block that has one; heat is halved
//! as time and reads pass. Two things are simpler: blocks are all of one length, and a place is filled at once.

use std::collections::HashMap;
use std::time::Duration;

use waystation_planner::heat::{HEAT_MAX, HEAT_MIN, Histogram, is_to_be_halved, sum, takes_over};

use super::cache::CacheOutcome;
use super::chain::Chain;
use super::model::Machine;
use super::steps::Steps;
use crate::event::{BLOCK_BYTES, Flags, Op, Request, TraceInfo};

/// The threshold is found anew after so many reads for each eighth of the blocks that fit.
const PLANNED_AFTER_SHARE: u64 = 8;

type Key = (u8, u64);

/// One block that was read.
#[derive(Debug, Clone, Copy, Default)]
struct Block {
    before: u8,
    recent: u8,
    has_place: bool,
}

impl Block {
    fn heat(self) -> u8 {
        sum(self.before, self.recent)
    }
}

/// Which blocks have a place, and how hot all are.
struct Copies {
    capacity: u64,
    placed: u64,
    blocks: HashMap<Key, Block>,
    threshold: u8,
    /// Blocks with a place as the last plan found them, the coldest last.
    coldest: Vec<Key>,
    reads_since_plan: u64,
    reads_since_halving: u64,
    halved_ns: u64,
}

impl Copies {
    fn new(capacity: u64) -> Self {
        Self {
            capacity,
            placed: 0,
            blocks: HashMap::new(),
            threshold: HEAT_MIN,
            coldest: Vec::new(),
            reads_since_plan: 0,
            reads_since_halving: 0,
            halved_ns: 0,
        }
    }

    /// Counts a read. Returns whether the block has a place already, and whether it gets one now.
    fn read(&mut self, key: Key, now_ns: u64) -> (bool, bool) {
        self.age(now_ns);
        let block = self.blocks.entry(key).or_default();
        block.recent = block.recent.saturating_add(1).min(HEAT_MAX);
        let (heat, has_place) = (block.heat(), block.has_place);
        if has_place {
            return (true, false);
        }
        let is_let_in = self.placed < self.capacity || self.takes_place(heat);
        if is_let_in {
            self.placed += 1;
            if let Some(block) = self.blocks.get_mut(&key) {
                block.has_place = true;
            }
        }
        (false, is_let_in)
    }

    /// Makes room for a block of `heat`, if one with a place is cold enough.
    fn takes_place(&mut self, heat: u8) -> bool {
        if heat < self.threshold {
            return false;
        }
        while let Some(coldest) = self.coldest.pop() {
            let Some(present) = self.blocks.get_mut(&coldest) else {
                continue;
            };
            if !present.has_place {
                continue;
            }
            if takes_over(heat, present.heat()) {
                present.has_place = false;
                self.placed -= 1;
                return true;
            }
            self.coldest.push(coldest);
            return false;
        }
        false
    }

    /// A block is written, or is no more: what was known of it says nothing.
    fn forget(&mut self, key: Key) {
        if let Some(block) = self.blocks.remove(&key) {
            self.placed -= u64::from(block.has_place);
        }
    }

    fn age(&mut self, now_ns: u64) {
        self.reads_since_plan += 1;
        self.reads_since_halving += 1;
        let since = Duration::from_nanos(now_ns - self.halved_ns);
        if is_to_be_halved(since, self.reads_since_halving, self.capacity) {
            self.halved_ns = now_ns;
            self.reads_since_halving = 0;
            for block in self.blocks.values_mut() {
                block.before = block.heat() / 2;
                block.recent = 0;
            }
            self.blocks
                .retain(|_, block| block.before > 0 || block.has_place);
        } else if self.reads_since_plan < self.capacity.div_ceil(PLANNED_AFTER_SHARE) {
            return;
        }
        self.plan();
    }

    fn plan(&mut self) {
        self.reads_since_plan = 0;
        let mut histogram = Histogram::default();
        let mut placed: Vec<(u8, Key)> = Vec::new();
        for (key, block) in &self.blocks {
            histogram.add(block.before, block.recent);
            if block.has_place {
                placed.push((block.heat(), *key));
            }
        }
        self.threshold = histogram.threshold(self.capacity);
        // By address among equals, so that the answer is always the same.
        placed.sort_unstable_by(|one, other| other.cmp(one));
        self.coldest = placed.into_iter().map(|(_, key)| key).collect();
    }
}

/// Runs the trace with copies of at most `bytes` of the areas that `may_have` says, on the fast device.
pub fn simulate_copies(
    info: &TraceInfo,
    requests: &[Request],
    chain: &Chain,
    (bytes, may_have): (u64, impl Fn(u8) -> bool),
    machine: &Machine,
) -> CacheOutcome {
    let mut copies = Copies::new((bytes / BLOCK_BYTES).max(1));
    let mut steps = Steps::new(requests.len());
    let (mut read_hits, mut reads) = (0, 0);
    for request in requests {
        steps.begin();
        let (op, area) = (request.op, request.area);
        let is_counted = op == Op::Read && request.flags.has(Flags::SYNC) && may_have(area);
        if !is_counted {
            if op != Op::Read {
                request.blocks().for_each(|it| copies.forget((area, it)));
            }
            let length = if request.moves_data() {
                request.length
            } else {
                0
            };
            let bytes = (area, request.offset, u64::from(length));
            steps.push((false, op), bytes, true);
            continue;
        }
        for block in request.blocks() {
            let key = (area, block);
            let (has_copy, gets_copy) = copies.read(key, request.issue_ns);
            reads += 1;
            read_hits += u64::from(has_copy);
            steps.push_block((has_copy, Op::Read), key, true);
            if gets_copy {
                steps.push_block((true, Op::Write), key, false);
            }
        }
        steps.merge();
    }
    CacheOutcome {
        outcome: steps.simulate(info, requests, chain, machine),
        read_hits,
        reads,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn free_room_takes_what_is_read_and_then_heat_decides() {
        let mut copies = Copies::new(2);
        assert_eq!(copies.read((1, 1), 0), (false, true));
        assert_eq!(copies.read((1, 2), 0), (false, true));
        for _ in 0..5 {
            assert_eq!(copies.read((1, 1), 0), (true, false));
        }
        // Read once, it takes nobody's place; read more often than the colder of the two, it takes that one's.
        assert_eq!(copies.read((1, 3), 0), (false, false));
        assert_eq!(copies.read((1, 3), 0), (false, true));
        assert_eq!(copies.read((1, 2), 0), (false, false));
        assert_eq!(copies.read((1, 1), 0), (true, false));
    }

    #[test]
    fn an_old_phase_loses_its_places() {
        let mut copies = Copies::new(4);
        for round in 0..20 {
            for block in 0..4 {
                copies.read((1, block), round);
            }
        }
        let mut served = 0;
        for round in 0..400 {
            for block in 10..14 {
                served += u64::from(copies.read((1, block), (round + 1) * SECOND).0);
            }
        }
        assert!(served > 1200, "{served} of 1600");
    }

    #[test]
    fn what_is_written_has_no_copy() {
        let mut copies = Copies::new(1);
        assert_eq!(copies.read((1, 1), 0), (false, true));
        copies.forget((1, 1));
        assert_eq!(copies.read((1, 1), 0), (false, true));
        assert_eq!(copies.placed, 1);
    }
}
