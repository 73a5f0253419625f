//! Layout: on which nodes the copies of a database's shards lie, and which of them move when the weights change.
//!
//! A node gets copies by its weight, by largest remainders, but never two of one shard. A plan moves as few copies as it
//! can; and it moves none unless the slowest node would become a tenth faster, so that weights which waver move nothing.

use super::shares::shares;
use super::{NodeState, nodes};
use std::collections::VecDeque;

/// A plan has to make the slowest node so many times faster.
const GAIN_MIN: f64 = 1.1;

/// How many of `copies` copies, of which no node has more than `each_max`, each node gets.
fn bounded_shares(weights: &[f64], copies: usize, each_max: usize) -> Vec<usize> {
    let mut given: Vec<Option<usize>> = vec![None; weights.len()];
    loop {
        let open: Vec<usize> = (0..weights.len())
            .filter(|at| given[*at].is_none())
            .collect();
        let taken: usize = given.iter().flatten().sum();
        let numbers: Vec<f64> = open.iter().map(|at| weights[*at]).collect();
        let shares = shares(&numbers, copies.saturating_sub(taken));
        let full = open
            .iter()
            .zip(&shares)
            .filter(|(_, share)| **share > each_max);
        let full: Vec<usize> = full.map(|(at, _)| *at).collect();
        if full.is_empty() {
            for (at, share) in open.into_iter().zip(shares) {
                given[at] = Some(share);
            }
            return given.into_iter().map(|it| it.unwrap_or(0)).collect();
        }
        for at in full {
            given[at] = Some(each_max);
        }
    }
}

/// The nodes of the copies of `shards` shards, `copies` of each, or as many as there are nodes with a weight.
pub(super) fn places(weights: &[(String, f64)], shards: usize, copies: usize) -> Vec<Vec<String>> {
    let numbers: Vec<f64> = weights.iter().map(|(_, weight)| *weight).collect();
    let weighty = numbers.iter().filter(|it| **it > 0.0).count().max(1);
    let copies = copies.clamp(1, weighty);
    let counts = bounded_shares(&numbers, shards * copies, shards);
    let row = weights.iter().zip(counts);
    let row = row.flat_map(|((name, _), count)| std::iter::repeat_n(name.clone(), count));
    let row: Vec<String> = row.collect();
    // A node's places in the row are beside each other, and no more than there are shards.
    let of = |shard: usize| row.iter().skip(shard).step_by(shards).cloned().collect();
    (0..shards).map(of).collect()
}

/// A copy that is to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedMove {
    /// The number of the shard.
    pub(super) shard: usize,
    pub(super) source: String,
    pub(super) target: String,
}

/// What a layout is, and what it is to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Plan {
    pub(super) moves: Vec<PlannedMove>,
    /// For each node: its name, copies that it is to have, copies that it has.
    pub(super) shares: Vec<(String, usize, usize)>,
}

/// Plans how the copies of shards, of which `copies` names the nodes, come to lie by `weights`. `is_forced`: also if
/// little is gained.
pub(super) fn plan(copies: &[Vec<String>], weights: &[(String, f64)], is_forced: bool) -> Plan {
    let mut weights = weights.to_vec();
    for node in copies.iter().flatten() {
        if !weights.iter().any(|(name, _)| name == node) {
            weights.push((node.clone(), 0.0));
        }
    }
    let numbers: Vec<f64> = weights.iter().map(|(_, weight)| *weight).collect();
    let total = copies.iter().map(Vec::len).sum();
    let wanted = bounded_shares(&numbers, total, copies.len());
    let count = |name: &String| copies.iter().flatten().filter(|node| *node == name).count();
    let real: Vec<usize> = weights.iter().map(|(name, _)| count(name)).collect();
    let names = weights.iter().map(|(name, _)| name.clone());
    let shares = names.zip(wanted.iter().zip(&real));
    let mut plan = Plan {
        moves: Vec::new(),
        shares: shares
            .map(|(name, (wanted, real))| (name, *wanted, *real))
            .collect(),
    };
    if is_forced || slowest(&real, &numbers) > GAIN_MIN * slowest(&wanted, &numbers) {
        plan.moves = moves(copies, &plan.shares);
    }
    plan
}

/// How long the slowest node takes.
fn slowest(counts: &[usize], weights: &[f64]) -> f64 {
    let largest = weights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let times = counts.iter().zip(weights).filter(|(count, _)| **count > 0);
    // A node without a weight takes as long as nobody waits.
    let times = times.map(|(count, weight)| *count as f64 / (weight / largest).max(1e-9));
    times.fold(0.0, f64::max)
}

fn moves(copies: &[Vec<String>], shares: &[(String, usize, usize)]) -> Vec<PlannedMove> {
    let mut copies = copies.to_vec();
    let names: Vec<&String> = shares.iter().map(|(name, _, _)| name).collect();
    let mut real: Vec<usize> = shares.iter().map(|(_, _, real)| *real).collect();
    let mut moves = Vec::new();
    loop {
        // From the node with most too many to the one with most too few.
        let surplus = |at: &usize| real[*at].saturating_sub(shares[*at].1);
        let lack = |at: &usize| shares[*at].1.saturating_sub(real[*at]);
        let source = (0..names.len())
            .max_by_key(surplus)
            .filter(|at| surplus(at) > 0);
        let target = (0..names.len()).max_by_key(lack).filter(|at| lack(at) > 0);
        let (Some(source), Some(target)) = (source, target) else {
            return moves;
        };
        let Some(way) = way(&copies, &names, source, target) else {
            return moves;
        };
        for pair in way.windows(2) {
            let (from, to) = (names[pair[0]], names[pair[1]]);
            if let Some(shard) = movable(&copies, from, to) {
                for node in copies[shard].iter_mut().filter(|it| *it == from) {
                    to.clone_into(node);
                }
                moves.push(PlannedMove {
                    shard,
                    source: from.clone(),
                    target: to.clone(),
                });
            }
        }
        real[source] -= 1;
        real[target] += 1;
    }
}

/// A shard that has a copy on `from` and none on `to`.
fn movable(copies: &[Vec<String>], from: &String, to: &String) -> Option<usize> {
    let fits = |nodes: &Vec<String>| nodes.contains(from) && !nodes.contains(to);
    copies.iter().position(fits)
}

/// The shortest way from node `source` to node `target` on which each step can move a copy: more than one step where all
/// shards of the source have a copy on the target already.
fn way(
    copies: &[Vec<String>],
    names: &[&String],
    source: usize,
    target: usize,
) -> Option<Vec<usize>> {
    let mut before: Vec<Option<usize>> = vec![None; names.len()];
    let mut open = VecDeque::from([source]);
    while let Some(at) = open.pop_front() {
        if at == target {
            let mut way = vec![target];
            while let Some(earlier) = before[way[way.len() - 1]] {
                way.push(earlier);
            }
            way.reverse();
            return Some(way);
        }
        for next in (0..names.len()).filter(|next| *next != source) {
            if before[next].is_none() && movable(copies, names[at], names[next]).is_some() {
                before[next] = Some(at);
                open.push_back(next);
            }
        }
    }
    None
}

/// The weights of nodes that are given, or that were measured.
pub(super) fn weights_of(
    given: Option<&[(String, f64)]>,
    states: &[NodeState],
) -> Vec<(String, f64)> {
    given.map_or_else(|| nodes::measured_weights(states), <[_]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weights(weights: &[(&str, f64)]) -> Vec<(String, f64)> {
        let weights = weights.iter();
        weights
            .map(|(name, it)| ((*name).to_owned(), *it))
            .collect()
    }

    #[test]
    fn copies_of_a_shard_lie_on_different_nodes() {
        let all = weights(&[("a", 10.0), ("b", 1.0), ("c", 1.0)]);
        let places = places(&all, 4, 2);
        assert!(
            places
                .iter()
                .all(|nodes| nodes.len() == 2 && nodes[0] != nodes[1]),
            "{places:?}"
        );
        let on_a = places.iter().flatten().filter(|node| *node == "a").count();
        assert_eq!(on_a, 4);
        assert_eq!(super::places(&all[..1], 2, 3), [["a"], ["a"]]);
    }

    #[test]
    fn a_plan_moves_few_copies_and_none_for_little() {
        let all = weights(&[("a", 3.0), ("b", 1.0)]);
        let lie = |nodes: &str| -> Vec<Vec<String>> {
            nodes.chars().map(|it| vec![it.to_string()]).collect()
        };
        let planned = plan(&lie("aabb"), &all, false);
        assert_eq!(
            planned.shares,
            [("a".to_owned(), 3, 2), ("b".to_owned(), 1, 2)]
        );
        assert_eq!(planned.moves.len(), 1);
        assert_eq!(
            (
                planned.moves[0].source.as_str(),
                planned.moves[0].target.as_str()
            ),
            ("b", "a")
        );
        // 3 and 1 of 4 are within a tenth of what 2.8 to 1 would be.
        assert!(
            plan(&lie("aaab"), &weights(&[("a", 2.8), ("b", 1.0)]), false)
                .moves
                .is_empty()
        );
        // A node without a weight is emptied.
        let emptied = plan(&lie("aabc"), &weights(&[("a", 1.0), ("b", 1.0)]), false);
        assert_eq!(emptied.moves.len(), 1);
        assert_eq!(emptied.moves[0].source, "c");
    }

    proptest! {
        #[test]
        fn moves_lead_to_the_shares_and_keep_copies_apart(
            weights in prop::collection::vec(0.1..10.0f64, 1..6),
            before in prop::collection::vec(0.1..10.0f64, 6),
            shards in 1..20usize,
            copies in 1..4usize,
        ) {
            let name = |at: usize| format!("n{at}");
            let all: Vec<(String, f64)> = weights.iter().enumerate().map(|(at, it)| (name(at), *it)).collect();
            let earlier: Vec<(String, f64)> =
                before[..weights.len()].iter().enumerate().map(|(at, it)| (name(at), *it)).collect();
            let mut lie = places(&earlier, shards, copies);
            let planned = plan(&lie, &all, true);
            for it in &planned.moves {
                prop_assert!(!lie[it.shard].contains(&it.target));
                let node = lie[it.shard].iter_mut().find(|node| **node == it.source);
                *node.expect("the source has it") = it.target.clone();
            }
            for (name, wanted, _) in &planned.shares {
                let real = lie.iter().flatten().filter(|node| *node == name).count();
                prop_assert_eq!(real, *wanted, "{}", name);
            }
        }
    }
}
