//! Unions, intersections and differences of sorted sets.

use super::zsets::put_member;
use super::ztake::{self, MEMBER_BYTES, check_held};
use super::{Call, integer, is};
use crate::encoding::Tag;
use crate::failure::{Failure, Outcome, SYNTAX, WRONG_TYPE};
use crate::head::Kind;
use crate::number::parse_double;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Union,
    Intersection,
    Difference,
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            // Infinities of both signs cancel out.
            Self::Sum if (one + other).is_nan() => 0.0,
            Self::Sum => one + other,
            Self::Min => one.min(other),
            Self::Max => one.max(other),
        }
    }
}

/// What is to be combined.
struct Asked<'a> {
    keys: Vec<&'a [u8]>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    has_scores: bool,
}

impl<'a> Asked<'a> {
    /// From the number of keys on.
    fn parse(args: &[&'a [u8]], rule: Rule, command: &str, stores: bool) -> Outcome<Self> {
        let keys = super::table::numbered_keys(args);
        let Some(keys) = keys.filter(|it| !it.is_empty()) else {
            integer(args[0])?;
            return Err(if integer(args[0])? < 1 {
                Failure::of(format!(
                    "ERR at least 1 input key is needed for '{command}' command"
                ))
            } else {
                SYNTAX
            });
        };
        let mut asked = Self {
            weights: vec![1.0; keys.len()],
            aggregate: Aggregate::Sum,
            has_scores: false,
            keys: keys.to_vec(),
        };
        let mut rest = args[1 + asked.keys.len()..].iter();
        while let Some(option) = rest.next() {
            if rule != Rule::Difference && is(option, "WEIGHTS") {
                for weight in &mut asked.weights {
                    let text = rest.next().ok_or(SYNTAX)?;
                    *weight = parse_double(text)
                        .ok_or(Failure::new("ERR weight value is not a float"))?;
                }
            } else if rule != Rule::Difference && is(option, "AGGREGATE") {
                asked.aggregate = match rest.next().ok_or(SYNTAX)? {
                    it if is(it, "SUM") => Aggregate::Sum,
                    it if is(it, "MIN") => Aggregate::Min,
                    it if is(it, "MAX") => Aggregate::Max,
                    _ => return Err(SYNTAX),
                };
            } else if !stores && is(option, "WITHSCORES") {
                asked.has_scores = true;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(asked)
    }
}

/// The members of a sorted set, or of a set, whose scores are 1.
fn members(call: &mut Call<'_, '_>, key: &[u8]) -> Outcome<Vec<(Vec<u8>, f64)>> {
    match call.work.head(key)?.map(|it| it.kind) {
        None => Ok(Vec::new()),
        Some(Kind::SortedSet) => ztake::members(call, key),
        Some(Kind::Set) => {
            let mut scan = call.work.scan_under(key, Tag::Member, (b"", None), false)?;
            let mut found = Vec::new();
            let mut bytes = 0;
            while scan.advance()? {
                let member = call.work.under_of(scan.key());
                bytes += member.len() + MEMBER_BYTES;
                check_held(bytes)?;
                found.push((member, 1.0));
            }
            Ok(found)
        }
        Some(_) => Err(WRONG_TYPE),
    }
}

/// The members of the combination, by score.
fn combine(call: &mut Call<'_, '_>, asked: &Asked<'_>, rule: Rule) -> Outcome<Vec<(Vec<u8>, f64)>> {
    let mut combined: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
    let mut bytes = 0;
    for (index, (key, weight)) in asked.keys.iter().zip(&asked.weights).enumerate() {
        let weighted = |score: f64| {
            let product = score * weight;
            if product.is_nan() { 0.0 } else { product }
        };
        let members = members(call, key)?
            .into_iter()
            .map(|(it, score)| (it, weighted(score)));
        match rule {
            _ if index == 0 => combined = members.collect(),
            Rule::Union => {
                for (member, score) in members {
                    bytes += member.len() + MEMBER_BYTES;
                    check_held(bytes)?;
                    let held = combined.entry(member);
                    held.and_modify(|it| *it = asked.aggregate.of(*it, score))
                        .or_insert(score);
                }
            }
            Rule::Intersection => {
                let mut both = BTreeMap::new();
                for (member, score) in members {
                    if let Some(held) = combined.get(&member) {
                        both.insert(member, asked.aggregate.of(*held, score));
                    }
                }
                combined = both;
            }
            Rule::Difference => {
                for (member, _) in members {
                    combined.remove(&member);
                }
            }
        }
    }
    let mut sorted: Vec<(Vec<u8>, f64)> = combined.into_iter().collect();
    sorted.sort_by(|one, other| one.1.total_cmp(&other.1));
    Ok(sorted)
}

fn store(call: &mut Call<'_, '_>, args: &[&[u8]], rule: Rule, command: &str) -> Outcome {
    let asked = Asked::parse(&args[2..], rule, command, true)?;
    let members = combine(call, &asked, rule)?;
    if let Some(old) = call.work.head(args[1])? {
        call.work.remove(args[1], old.kind)?;
    }
    if !members.is_empty() {
        call.work.begin_collection(args[1])?;
        for (member, score) in &members {
            put_member(call, args[1], member, None, *score)?;
        }
        call.work
            .put_count(args[1], Kind::SortedSet, None, members.len() as u64)?;
    }
    call.out.count(members.len());
    Ok(())
}

pub(super) fn zunionstore(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    store(call, args, Rule::Union, "zunionstore")
}

pub(super) fn zinterstore(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    store(call, args, Rule::Intersection, "zinterstore")
}

pub(super) fn zdiffstore(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    store(call, args, Rule::Difference, "zdiffstore")
}

fn show(call: &mut Call<'_, '_>, args: &[&[u8]], rule: Rule, command: &str) -> Outcome {
    let asked = Asked::parse(&args[1..], rule, command, false)?;
    let members = combine(call, &asked, rule)?;
    let begun = call.out.bytes.len();
    let is_flat = asked.has_scores && !call.out.is_third;
    call.out.array(if is_flat {
        2 * members.len()
    } else {
        members.len()
    });
    for (member, score) in members {
        if asked.has_scores && !is_flat {
            call.out.array(2);
        }
        call.out.bulk(&member);
        if asked.has_scores {
            call.out.double(score);
        }
        call.shared.check_answer(call.out.bytes.len() - begun)?;
    }
    Ok(())
}

pub(super) fn zunion(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    show(call, args, Rule::Union, "zunion")
}

pub(super) fn zinter(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    show(call, args, Rule::Intersection, "zinter")
}

pub(super) fn zdiff(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    show(call, args, Rule::Difference, "zdiff")
}
