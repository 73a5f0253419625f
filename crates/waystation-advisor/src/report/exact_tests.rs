//! What is kept by the chunk, against the same figures worked out block by block.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::event::{Area, NOT_COMPLETED, Role};

/// Times far enough from each other for working sets to differ.
const STEP_NS: u64 = 3_000_000_000;
const AREAS: u8 = 2;

fn info(end_ns: u64) -> TraceInfo {
    let area = |name: &str| Area {
        name: name.to_owned(),
        device: name.to_owned(),
        role: Role::FileSystem,
        extent_bytes: 1 << 24,
    };
    TraceInfo {
        areas: vec![area("one"), area("two")],
        comms: vec![String::new()],
        end_ns,
        ..TraceInfo::default()
    }
}

/// One area, block by block.
#[derive(Default)]
struct Plain {
    /// Reads, writes, and the time of the last access.
    blocks: BTreeMap<u64, (u64, u64, u64)>,
    /// The least recently used last.
    stack: Vec<u64>,
    first: f64,
    classes: Vec<f64>,
    presence: [u64; 3],
}

const WINDOWS_NS: [u64; 3] = [1_000_000_000, 10_000_000_000, 60_000_000_000];

impl Plain {
    fn touch(&mut self, block: u64, is_write: bool, now_ns: u64) {
        if let Some(distance) = self.stack.iter().position(|other| *other == block) {
            self.stack.remove(distance);
            let class = (64 - (distance as u64).leading_zeros()) as usize;
            self.classes.resize(self.classes.len().max(class + 1), 0.0);
            self.classes[class] += 1.0;
        } else {
            self.first += 1.0;
        }
        self.stack.insert(0, block);
        let known = self.blocks.entry(block).or_insert((0, 0, now_ns));
        for (sum, window) in self.presence.iter_mut().zip(WINDOWS_NS) {
            *sum += (now_ns - known.2).min(window);
        }
        known.0 += u64::from(!is_write);
        known.1 += u64::from(is_write);
        known.2 = now_ns;
    }

    fn working_set(&self, end_ns: u64) -> [u64; 3] {
        let mut sums = self.presence;
        for (_, _, last_ns) in self.blocks.values() {
            for (sum, window) in sums.iter_mut().zip(WINDOWS_NS) {
                *sum += (end_ns - last_ns).min(window);
            }
        }
        sums.map(|sum| sum * 4096 / end_ns)
    }

    fn single_of_blocks(&self) -> f64 {
        let single = self.blocks.values().filter(|block| block.0 + block.1 == 1);
        single.count() as f64 / self.blocks.len().max(1) as f64
    }

    fn written_once(&self) -> f64 {
        let times = |wanted: fn(u64) -> bool| {
            self.blocks.values().filter(|block| wanted(block.1)).count() as f64
        };
        times(|writes| writes == 1) / times(|writes| writes > 0).max(1.0)
    }

    fn reuse(&self) -> Vec<f64> {
        let mut all = vec![self.first];
        all.extend(&self.classes);
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn chunks_give_the_same_figures_as_single_blocks(
        requests in prop::collection::vec(
            (0..AREAS, 0..400_000_u64, 1..200_000_u32, any::<bool>(), 0..8_u64),
            1..150,
        )
    ) {
        let mut rows = Vec::new();
        let mut issue_ns = 0;
        for (area, offset, length, is_write, steps) in requests {
            issue_ns += steps * STEP_NS;
            let op = if is_write { Op::Write } else { Op::Read };
            rows.push(Request {
                issue_ns,
                complete_ns: NOT_COMPLETED,
                offset,
                length,
                pid: 0,
                comm: 0,
                area,
                op,
                flags: Flags::default(),
            });
        }
        let end_ns = issue_ns + STEP_NS;
        let mut characteriser = Characteriser::new(&info(end_ns));
        let mut plain: [Plain; AREAS as usize] = Default::default();
        for row in &rows {
            characteriser.add(row);
            for block in row.blocks() {
                plain[usize::from(row.area)].touch(block, row.op == Op::Write, row.issue_ns);
            }
        }
        let report = characteriser.finish();
        for (area, plain) in report.areas.iter().zip(&plain) {
            prop_assert_eq!(area.unique_bytes, plain.blocks.len() as u64 * 4096);
            prop_assert_eq!(&area.reuse, &plain.reuse());
            prop_assert_eq!(area.working_set, plain.working_set(end_ns));
            let once = &area.multiplicity;
            prop_assert!((once.single_of_blocks - plain.single_of_blocks()).abs() < 1e-9);
            prop_assert!((once.written_once_of_written - plain.written_once()).abs() < 1e-9);
        }
    }
}
