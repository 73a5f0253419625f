//! Placement decisions as pure functions: which storage area gets how much of a small fast tier.
//!
//! An area's worth is a *curve*: seconds (or any other gain) saved with so many bytes. Curves have steps (a log is
//! worth nothing until it fits, then everything), so giving the next megabyte to whoever gains most per byte goes
//! wrong; [`split`] therefore chooses one point per area exactly. [`hottest`] picks blocks within an area.
//! Nothing here knows where curves come from: the advisor simulates them, the engine measures them ([`heat`]).

pub mod division;
pub mod heat;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// One choice for an area: so many bytes, so much gain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Fast bytes that it takes.
    pub bytes: u64,
    /// What it gains, in any unit that adds up.
    pub gain: f64,
}

/// What an area gains by size. Points need no order; taking nothing for no gain is always a choice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The choices.
    pub points: Vec<Point>,
}

/// One way to divide the capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Per curve: the index of the chosen point, or nothing.
    pub chosen: Vec<Option<usize>>,
    /// Bytes used.
    pub bytes: u64,
    /// Sum of the gains.
    pub gain: f64,
}

/// More combinations than this are thinned out, keeping the best of each size class.
const FRONTIER_MAX: usize = 4096;

/// The best divisions of `capacity` bytes, best first: for every amount of bytes that pays, the one that gains most.
///
/// Exact for gains that add up: combinations are merged area by area, and one that costs no less and gains no more
/// than another is dropped (a multiple-choice knapsack by its Pareto frontier). Gains of areas that share a device
/// do not quite add up; a caller who can simulate should check the first few answers.
pub fn split(curves: &[Curve], capacity: u64) -> Vec<Split> {
    let mut frontier = vec![Split {
        chosen: Vec::new(),
        bytes: 0,
        gain: 0.0,
    }];
    for curve in curves {
        let mut next = Vec::with_capacity(frontier.len() * (curve.points.len() + 1));
        for known in &frontier {
            let mut without = known.clone();
            without.chosen.push(None);
            next.push(without);
            for (index, point) in curve.points.iter().enumerate() {
                let bytes = known.bytes.saturating_add(point.bytes);
                if bytes <= capacity && point.gain > 0.0 {
                    let mut chosen = known.chosen.clone();
                    chosen.push(Some(index));
                    next.push(Split {
                        chosen,
                        bytes,
                        gain: known.gain + point.gain,
                    });
                }
            }
        }
        frontier = pareto(next);
    }
    frontier.reverse();
    frontier
}

/// Keeps what gains more than everything cheaper; cheapest first.
fn pareto(mut splits: Vec<Split>) -> Vec<Split> {
    splits.sort_by(|one, other| {
        one.bytes
            .cmp(&other.bytes)
            .then(other.gain.total_cmp(&one.gain))
    });
    let mut kept: Vec<Split> = Vec::new();
    for split in splits {
        if kept.last().is_none_or(|last| split.gain > last.gain) {
            kept.push(split);
        }
    }
    if kept.len() > FRONTIER_MAX {
        let every = kept.len().div_ceil(FRONTIER_MAX);
        let last = kept.len() - 1;
        kept = kept
            .into_iter()
            .enumerate()
            .filter_map(|(index, split)| (index % every == 0 || index == last).then_some(split))
            .collect();
    }
    kept
}

/// A block and what having it on the fast device would save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heat {
    /// The block's number.
    pub block: u64,
    /// What it saves, in any unit.
    pub saved: u64,
}

/// The `count` blocks that save most. Among equals the lower number comes first, so that the answer is always the
/// same and tends to be contiguous.
pub fn hottest(mut blocks: Vec<Heat>, count: usize) -> Vec<Heat> {
    blocks.sort_unstable_by(|one, other| {
        other
            .saved
            .cmp(&one.saved)
            .then(one.block.cmp(&other.block))
    });
    blocks.truncate(count);
    blocks
}

/// Gain per byte between neighbouring points of a curve, cheapest first: the marginal worth.
pub fn marginal(curve: &Curve) -> Vec<(u64, f64)> {
    let mut points = curve.points.clone();
    points.sort_by_key(|point| point.bytes);
    let mut before = Point {
        bytes: 0,
        gain: 0.0,
    };
    let mut steps = Vec::with_capacity(points.len());
    for point in points {
        if point.bytes > before.bytes {
            let bytes = precise(point.bytes - before.bytes);
            steps.push((point.bytes, (point.gain - before.gain) / bytes));
            before = point;
        }
    }
    steps
}

#[expect(
    clippy::cast_precision_loss,
    reason = "capacities are far below 2^52 bytes, and this is a ratio for people"
)]
fn precise(bytes: u64) -> f64 {
    bytes as f64
}
