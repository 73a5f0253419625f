//! Sorted sets: each member with its score, and each score with its member, so that both ways are in order.

use super::{Call, is};
use crate::encoding::{Tag, in_order, of_order};
use crate::failure::{Failure, NOT_FLOAT, Outcome, SYNTAX};
use crate::head::{Head, Kind};
use crate::number::parse_double;

const SIGN: u64 = 1 << 63;

/// A score as bytes that have its order.
pub(super) fn write_score(score: f64) -> [u8; 8] {
    in_order(ordered(score))
}

/// A score as a number that has its order. Zero has one sign.
pub(super) fn ordered(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The score that [`write_score`] wrote.
pub(super) fn read_score(bytes: &[u8]) -> f64 {
    let bits = bytes.first_chunk::<8>().map_or(SIGN, |it| of_order(*it));
    f64::from_bits(if bits & SIGN == 0 {
        !bits
    } else {
        bits & !SIGN
    })
}

pub(super) fn head(call: &mut Call<'_, '_>, key: &[u8]) -> Outcome<Option<Head>> {
    call.work.head_of(key, Kind::SortedSet)
}

pub(super) fn score_of(call: &mut Call<'_, '_>, key: &[u8], member: &[u8]) -> Outcome<Option<f64>> {
    let score = call.work.get_under(key, Tag::Scored, member)?;
    Ok(score.map(|it| read_score(&it)))
}

fn index_entry(score: f64, member: &[u8]) -> Vec<u8> {
    [&write_score(score), member].concat()
}

/// Gives a member its score, in place of the one it had.
pub(super) fn put_member(
    call: &mut Call<'_, '_>,
    key: &[u8],
    member: &[u8],
    before: Option<f64>,
    score: f64,
) -> Outcome {
    if let Some(before) = before {
        call.work
            .delete_under(key, Tag::Score, &index_entry(before, member))?;
    }
    call.work
        .put_under(key, Tag::Scored, member, &write_score(score))?;
    call.work
        .put_under(key, Tag::Score, &index_entry(score, member), b"")
}

pub(super) fn delete_member(
    call: &mut Call<'_, '_>,
    key: &[u8],
    member: &[u8],
    score: f64,
) -> Outcome {
    call.work.delete_under(key, Tag::Scored, member)?;
    call.work
        .delete_under(key, Tag::Score, &index_entry(score, member))
}

/// Notes that members have gone.
pub(super) fn note_deleted(
    call: &mut Call<'_, '_>,
    key: &[u8],
    before: &Head,
    deleted: u64,
) -> Outcome {
    let count = before.count().saturating_sub(deleted);
    call.work
        .put_count(key, Kind::SortedSet, Some(before), count)
}

/// The options of `ZADD`.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are the command's own")]
struct AddOptions {
    only_new: bool,
    only_existing: bool,
    only_greater: bool,
    only_less: bool,
    counts_changed: bool,
    increments: bool,
}

impl AddOptions {
    /// The options, and how many arguments they are.
    fn parse(args: &[&[u8]]) -> Outcome<(Self, usize)> {
        let mut options = Self::default();
        let mut length = 0;
        for option in args {
            let flag = match option {
                it if is(it, "NX") => &mut options.only_new,
                it if is(it, "XX") => &mut options.only_existing,
                it if is(it, "GT") => &mut options.only_greater,
                it if is(it, "LT") => &mut options.only_less,
                it if is(it, "CH") => &mut options.counts_changed,
                it if is(it, "INCR") => &mut options.increments,
                _ => break,
            };
            *flag = true;
            length += 1;
        }
        Ok((options, length))
    }

    fn check(&self, pairs: usize) -> Outcome {
        if self.only_new && self.only_existing {
            return Err(Failure::new(
                "ERR XX and NX options at the same time are not compatible",
            ));
        }
        let is_mixed = (self.only_greater && self.only_less)
            || (self.only_new && (self.only_greater || self.only_less));
        if is_mixed {
            return Err(Failure::new(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.increments && pairs > 1 {
            return Err(Failure::new(
                "ERR INCR option supports a single increment-element pair",
            ));
        }
        Ok(())
    }

    /// The score that a member gets; `None`: it keeps its own, or stays away.
    fn score(&self, before: Option<f64>, given: f64) -> Outcome<Option<f64>> {
        let score = if self.increments {
            before.unwrap_or(0.0) + given
        } else {
            given
        };
        if score.is_nan() {
            return Err(Failure::new("ERR resulting score is not a number (NaN)"));
        }
        let is_refused = match before {
            None => self.only_existing,
            Some(before) => {
                self.only_new
                    || (self.only_greater && score <= before)
                    || (self.only_less && score >= before)
            }
        };
        Ok((!is_refused).then_some(score))
    }
}

fn add(
    call: &mut Call<'_, '_>,
    key: &[u8],
    options: &AddOptions,
    pairs: &[(f64, &[u8])],
) -> Outcome {
    let before = head(call, key)?;
    if before.is_none() && !options.only_existing {
        call.work.begin_collection(key)?;
    }
    let (mut added, mut changed, mut result) = (0, 0, None);
    for (given, member) in pairs {
        let old = match &before {
            // Of a new set only what was added by this call is there.
            None if added == 0 => None,
            _ => score_of(call, key, member)?,
        };
        let Some(score) = options.score(old, *given)? else {
            continue;
        };
        result = Some(score);
        if old != Some(score) {
            put_member(call, key, member, old, score)?;
            added += u64::from(old.is_none());
            changed += i64::from(old.is_some());
        }
    }
    let count = before.as_ref().map_or(0, Head::count) + added;
    if before.is_some() || count > 0 {
        call.work
            .put_count(key, Kind::SortedSet, before.as_ref(), count)?;
    }
    if options.increments {
        match result {
            Some(score) => call.out.double(score),
            None => call.out.null(),
        }
        return Ok(());
    }
    let counted = if options.counts_changed { changed } else { 0 };
    call.out.integer(added.cast_signed() + counted);
    Ok(())
}

pub(super) fn zadd(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (options, length) = AddOptions::parse(&args[2..])?;
    let (pairs, rest) = args[2 + length..].as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(SYNTAX);
    }
    options.check(pairs.len())?;
    let parsed: Option<Vec<(f64, &[u8])>> = pairs
        .iter()
        .map(|[score, member]| Some((parse_double(score)?, *member)))
        .collect();
    add(call, args[1], &options, &parsed.ok_or(NOT_FLOAT)?)
}

pub(super) fn zincrby(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let increment = parse_double(args[2]).ok_or(NOT_FLOAT)?;
    let options = AddOptions {
        increments: true,
        ..AddOptions::default()
    };
    add(call, args[1], &options, &[(increment, args[3])])
}

pub(super) fn zrem(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let before = head(call, args[1])?;
    let mut deleted = 0;
    if let Some(before) = &before {
        for member in &args[2..] {
            if let Some(score) = score_of(call, args[1], member)? {
                delete_member(call, args[1], member, score)?;
                deleted += 1;
            }
        }
        note_deleted(call, args[1], before, deleted)?;
    }
    call.out.integer(deleted.cast_signed());
    Ok(())
}

pub(super) fn zcard(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let head = head(call, args[1])?;
    call.out
        .integer(head.map_or(0, |it| it.count().cast_signed()));
    Ok(())
}

pub(super) fn zscore(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let score = match head(call, args[1])? {
        Some(_) => score_of(call, args[1], args[2])?,
        None => None,
    };
    match score {
        Some(score) => call.out.double(score),
        None => call.out.null(),
    }
    Ok(())
}

pub(super) fn zmscore(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let is_there = head(call, args[1])?.is_some();
    call.out.array(args.len() - 2);
    for member in &args[2..] {
        match is_there
            .then(|| score_of(call, args[1], member))
            .transpose()?
            .flatten()
        {
            Some(score) => call.out.double(score),
            None => call.out.null(),
        }
    }
    Ok(())
}

fn rank(call: &mut Call<'_, '_>, args: &[&[u8]], is_backward: bool) -> Outcome {
    let score = match head(call, args[1])? {
        Some(_) => score_of(call, args[1], args[2])?,
        None => None,
    };
    let Some(score) = score else {
        call.out.null();
        return Ok(());
    };
    let place = index_entry(score, args[2]);
    let behind = [&place[..], &[0]].concat();
    let range = if is_backward {
        (&behind[..], None)
    } else {
        (&[][..], Some(&place[..]))
    };
    let mut scan = call.work.scan_under(args[1], Tag::Score, range, false)?;
    let mut before = 0;
    while scan.advance()? {
        before += 1;
    }
    call.out.count(before);
    Ok(())
}

pub(super) fn zrank(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    rank(call, args, false)
}

pub(super) fn zrevrank(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    rank(call, args, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_keep_their_order() {
        let scores = [
            f64::NEG_INFINITY,
            -1.5,
            -1e-300,
            0.0,
            1e-300,
            1.0,
            f64::INFINITY,
        ];
        for pair in scores.windows(2) {
            assert!(write_score(pair[0]) < write_score(pair[1]), "{pair:?}");
        }
        for score in scores {
            assert!((read_score(&write_score(score)) - score).abs() < 1e-9 || score.is_infinite());
        }
        assert_eq!(write_score(-0.0), write_score(0.0));
    }
}
