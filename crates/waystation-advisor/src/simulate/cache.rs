//! The alternative: the fast device as an LRU cache over all areas, instead of as storage of one.
//!
//! The cache begins empty, so everything accessed once is a miss; fills and dirty evictions are charged to both
//! devices although nobody waits for them. (Storage has the advantage that its data was placed before the run: any
//! comparison must say so.)

use std::collections::HashMap;

use super::chain::Chain;
use super::model::Machine;
use super::run::Outcome;
use super::steps::Steps;
use crate::event::{BLOCK_BYTES, Op, Request, TraceInfo};

/// What a write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMode {
    /// It is done when it is in the cache; the cache survives a crash, so flushes stop there.
    WriteBack,
    /// It is done when it is on the slow device too.
    WriteThrough,
}

/// What a simulation with a cache found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOutcome {
    /// Times and traffic.
    pub outcome: Outcome,
    /// Blocks read from the cache.
    pub read_hits: u64,
    /// Blocks read.
    pub reads: u64,
}

const NONE: u32 = u32::MAX;

struct Entry {
    area: u8,
    block: u64,
    dirty: bool,
    older: u32,
    newer: u32,
}

/// Least recently used blocks, as a doubly linked list in a vector.
struct Lru {
    capacity: usize,
    at: HashMap<(u8, u64), u32>,
    entries: Vec<Entry>,
    oldest: u32,
    newest: u32,
}

impl Lru {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            at: HashMap::new(),
            entries: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }

    fn unlink(&mut self, index: u32) {
        let (older, newer) = (
            self.entries[index as usize].older,
            self.entries[index as usize].newer,
        );
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
    }

    fn link_newest(&mut self, index: u32) {
        self.entries[index as usize].older = self.newest;
        self.entries[index as usize].newer = NONE;
        match self.newest {
            NONE => self.oldest = index,
            newest => self.entries[newest as usize].newer = index,
        }
        self.newest = index;
    }

    /// Whether the block is there; makes it the newest.
    fn touch(&mut self, area: u8, block: u64, dirty: bool) -> bool {
        let Some(index) = self.at.get(&(area, block)).copied() else {
            return false;
        };
        self.unlink(index);
        self.link_newest(index);
        self.entries[index as usize].dirty |= dirty;
        true
    }

    /// Puts a block that is not there; returns a dirty block that had to go.
    fn insert(&mut self, area: u8, block: u64, dirty: bool) -> Option<(u8, u64)> {
        let entry = Entry {
            area,
            block,
            dirty,
            older: NONE,
            newer: NONE,
        };
        if self.entries.len() < self.capacity {
            let index = self.entries.len() as u32;
            self.entries.push(entry);
            self.at.insert((area, block), index);
            self.link_newest(index);
            return None;
        }
        let index = self.oldest;
        self.unlink(index);
        let old = std::mem::replace(&mut self.entries[index as usize], entry);
        self.at.remove(&(old.area, old.block));
        self.at.insert((area, block), index);
        self.link_newest(index);
        old.dirty.then_some((old.area, old.block))
    }
}

/// Runs the trace with an LRU cache of `bytes` on the fast device.
pub fn simulate_cache(
    info: &TraceInfo,
    requests: &[Request],
    chain: &Chain,
    bytes: u64,
    mode: CacheMode,
    machine: &Machine,
) -> CacheOutcome {
    let mut lru = Lru::new(((bytes / BLOCK_BYTES) as usize).max(1));
    let mut steps = Steps::new(requests.len());
    let (mut read_hits, mut reads) = (0, 0);
    for request in requests {
        steps.begin();
        if !request.moves_data() {
            let fast = mode == CacheMode::WriteBack && request.op == Op::Flush;
            steps.push((fast, request.op), (request.area, request.offset, 0), true);
            continue;
        }
        let area = request.area;
        for block in request.blocks() {
            let is_write = request.op == Op::Write;
            let dirty = is_write && mode == CacheMode::WriteBack;
            let hit = lru.touch(area, block, dirty);
            if !is_write {
                reads += 1;
                read_hits += u64::from(hit);
            }
            let evicted = if hit {
                None
            } else {
                lru.insert(area, block, dirty)
            };
            let mut push = |fast, op, area, block, waited_for| {
                steps.push_block((fast, op), (area, block), waited_for);
            };
            if let Some((area, block)) = evicted {
                push(true, Op::Read, area, block, false);
                push(false, Op::Write, area, block, false);
            }
            match (is_write, hit) {
                (false, true) => push(true, Op::Read, area, block, true),
                (false, false) => {
                    push(false, Op::Read, area, block, true);
                    push(true, Op::Write, area, block, false);
                }
                (true, _) => {
                    push(true, Op::Write, area, block, dirty);
                    if !dirty {
                        push(false, Op::Write, area, block, true);
                    }
                }
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
