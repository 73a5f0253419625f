//! Ranges of sorted sets: by rank, by score and by the order of members; shown, counted, removed, popped.

use super::zsets::{delete_member, head, note_deleted, ordered, read_score};
use super::{Call, integer, is, slice};
use crate::encoding::{Tag, in_order};
use crate::failure::{Failure, Outcome, SYNTAX, TOO_MUCH};
use crate::head::Head;
use crate::number::parse_double;
use crate::scan::Scan;
use crate::work::WRITTEN_BYTES_MAX;

/// What a member takes in an answer beside its bytes.
pub(super) const MEMBER_BYTES: usize = 48;

/// Refuses a command that would hold more members in memory than it may write (bytes).
pub(super) fn check_held(bytes: usize) -> Outcome {
    if bytes > WRITTEN_BYTES_MAX {
        return Err(TOO_MUCH);
    }
    Ok(())
}

/// A member and its score.
type Member = (Vec<u8>, f64);

/// Which members: the bytes under the tag, from the first to behind the last; `None`: to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Range {
    Rank(i64, i64),
    Score(Vec<u8>, Option<Vec<u8>>),
    Lex(Vec<u8>, Option<Vec<u8>>),
    Nothing,
}

/// A range of members as a command names it.
struct Query {
    range: Range,
    is_backward: bool,
    /// Members to pass, and to show; fewer than none: all.
    limit: (i64, i64),
}

fn score_bound(text: &[u8]) -> Outcome<(f64, bool)> {
    let (number, excluded) = match text.strip_prefix(b"(") {
        Some(number) => (number, true),
        None => (text, false),
    };
    let score = parse_double(number).ok_or(Failure::new("ERR min or max is not a float"))?;
    Ok((score, excluded))
}

fn score_range(low: &[u8], high: &[u8]) -> Outcome<Range> {
    let ((low, no_low), (high, no_high)) = (score_bound(low)?, score_bound(high)?);
    let first = ordered(low) + u64::from(no_low);
    let Some(last) = ordered(high).checked_sub(u64::from(no_high)) else {
        return Ok(Range::Nothing);
    };
    if first > last {
        return Ok(Range::Nothing);
    }
    let behind = last.checked_add(1).map(|it| in_order(it).to_vec());
    Ok(Range::Score(in_order(first).to_vec(), behind))
}

/// One end of a range of members; `None`: behind all.
fn lex_bound(text: &[u8], is_upper: bool) -> Outcome<Option<Vec<u8>>> {
    let after = |it: &[u8]| Some([it, &[0]].concat());
    Ok(match text {
        b"-" => Some(Vec::new()),
        b"+" => None,
        [b'[', member @ ..] if is_upper => after(member),
        [b'(', member @ ..] if !is_upper => after(member),
        [b'[' | b'(', member @ ..] => Some(member.to_vec()),
        _ => {
            return Err(Failure::new("ERR min or max not valid string range item"));
        }
    })
}

fn lex_range(low: &[u8], high: &[u8]) -> Outcome<Range> {
    let (low, high) = (lex_bound(low, false)?, lex_bound(high, true)?);
    Ok(match low {
        Some(low) if high.as_ref().is_none_or(|high| low < *high) => Range::Lex(low, high),
        _ => Range::Nothing,
    })
}

impl Query {
    fn whole(range: Range) -> Self {
        Self {
            range,
            is_backward: false,
            limit: (0, -1),
        }
    }

    /// The scan of the members, and how many of them to pass and to show; `None`: there are none.
    fn open(
        &self,
        call: &mut Call<'_, '_>,
        key: &[u8],
        head: &Head,
    ) -> Outcome<Option<(Scan, Tag, usize, usize)>> {
        let length = head.count() as usize;
        let (tag, low, high, skip, take) = match &self.range {
            Range::Nothing => return Ok(None),
            Range::Rank(start, end) => {
                let Some((start, end)) = slice(*start, *end, length) else {
                    return Ok(None);
                };
                (Tag::Score, &[][..], None, start, end - start + 1)
            }
            Range::Score(low, high) | Range::Lex(low, high) => {
                let Ok(skip) = usize::try_from(self.limit.0) else {
                    return Ok(None);
                };
                let take = usize::try_from(self.limit.1).unwrap_or(usize::MAX);
                let is_lex = matches!(self.range, Range::Lex(..));
                let tag = if is_lex { Tag::Scored } else { Tag::Score };
                (tag, &low[..], high.as_deref(), skip, take)
            }
        };
        let scan = call
            .work
            .scan_under(key, tag, (low, high), self.is_backward)?;
        Ok(Some((scan, tag, skip, take)))
    }

    /// Has `visit` look at each member; it says whether to go on.
    fn each(
        &self,
        call: &mut Call<'_, '_>,
        key: &[u8],
        mut visit: impl FnMut(&mut Call<'_, '_>, &[u8], f64) -> Outcome,
    ) -> Outcome<u64> {
        let Some(head) = head(call, key)? else {
            return Ok(0);
        };
        let Some((mut scan, tag, skip, take)) = self.open(call, key, &head)? else {
            return Ok(0);
        };
        let mut passed = 0;
        let mut shown = 0;
        while (shown as usize) < take && scan.advance()? {
            if passed < skip {
                passed += 1;
                continue;
            }
            let under = call.work.under_of(scan.key());
            if tag == Tag::Scored {
                visit(call, &under, read_score(scan.value()))?;
            } else {
                let (score, member) = under.split_at(under.len().min(8));
                visit(call, member, read_score(score))?;
            }
            shown += 1;
        }
        Ok(shown)
    }
}

/// Shows the members of a query, with their scores if asked.
fn show(call: &mut Call<'_, '_>, key: &[u8], query: &Query, has_scores: bool) -> Outcome {
    let begun = call.out.begin_array();
    let found = query.each(call, key, |call, member, score| {
        // Pairs are arrays of their own in the third version.
        if has_scores && call.out.is_third {
            call.out.array(2);
        }
        call.out.bulk(member);
        if has_scores {
            call.out.double(score);
        }
        call.shared.check_answer(call.out.bytes.len() - begun)
    })?;
    let answers = if has_scores && !call.out.is_third {
        2 * found
    } else {
        found
    };
    call.out.end_array(begun, answers as usize);
    Ok(())
}

/// How the ends of a range are to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// Options behind the ends of a range.
struct Options {
    by: By,
    is_backward: bool,
    has_scores: bool,
    limit: Option<(i64, i64)>,
}

impl Options {
    /// `is_open`: the options say how the ends are read, too.
    fn parse(args: &[&[u8]], by: By, is_backward: bool, is_open: bool) -> Outcome<Self> {
        let mut options = Self {
            by,
            is_backward,
            has_scores: false,
            limit: None,
        };
        let mut rest = args.iter();
        while let Some(option) = rest.next() {
            if is(option, "WITHSCORES") {
                options.has_scores = true;
            } else if is(option, "LIMIT") {
                let (Some(skip), Some(take)) = (rest.next(), rest.next()) else {
                    return Err(SYNTAX);
                };
                options.limit = Some((integer(skip)?, integer(take)?));
            } else if is_open && is(option, "BYSCORE") {
                options.by = By::Score;
            } else if is_open && is(option, "BYLEX") {
                options.by = By::Lex;
            } else if is_open && is(option, "REV") {
                options.is_backward = true;
            } else {
                return Err(SYNTAX);
            }
        }
        if options.limit.is_some() && options.by == By::Rank {
            return Err(Failure::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if options.has_scores && options.by == By::Lex {
            return Err(Failure::new(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        Ok(options)
    }

    fn query(&self, start: &[u8], end: &[u8]) -> Outcome<Query> {
        // Backwards, the higher end is named first.
        let (low, high) = if self.is_backward && self.by != By::Rank {
            (end, start)
        } else {
            (start, end)
        };
        let range = match self.by {
            By::Rank => Range::Rank(integer(low)?, integer(high)?),
            By::Score => score_range(low, high)?,
            By::Lex => lex_range(low, high)?,
        };
        Ok(Query {
            range,
            is_backward: self.is_backward,
            limit: self.limit.unwrap_or((0, -1)),
        })
    }
}

fn range(
    call: &mut Call<'_, '_>,
    args: &[&[u8]],
    by: By,
    is_backward: bool,
    is_open: bool,
) -> Outcome {
    let options = Options::parse(&args[4..], by, is_backward, is_open)?;
    let query = options.query(args[2], args[3])?;
    show(call, args[1], &query, options.has_scores)
}

pub(super) fn zrange(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    range(call, args, By::Rank, false, true)
}

pub(super) fn zrevrange(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    range(call, args, By::Rank, true, false)
}

pub(super) fn zrangebyscore(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    range(call, args, By::Score, false, false)
}

pub(super) fn zrevrangebyscore(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    range(call, args, By::Score, true, false)
}

pub(super) fn zrangebylex(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    range(call, args, By::Lex, false, false)
}

pub(super) fn zrevrangebylex(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    range(call, args, By::Lex, true, false)
}

fn count(call: &mut Call<'_, '_>, args: &[&[u8]], range: Range) -> Outcome {
    let found = Query::whole(range).each(call, args[1], |_, _, _| Ok(()))?;
    call.out.integer(found.cast_signed());
    Ok(())
}

pub(super) fn zcount(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let range = score_range(args[2], args[3])?;
    if range == score_range(b"-inf", b"+inf")? {
        return super::zsets::zcard(call, args);
    }
    count(call, args, range)
}

pub(super) fn zlexcount(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let range = lex_range(args[2], args[3])?;
    count(call, args, range)
}

/// Takes the members of a query out of the set. Those that are `shown` have to fit into an answer.
fn take(call: &mut Call<'_, '_>, key: &[u8], query: &Query, shown: bool) -> Outcome<Vec<Member>> {
    let before = head(call, key)?;
    let mut taken = Vec::new();
    let mut bytes = 0;
    query.each(call, key, |call, member, score| {
        taken.push((member.to_vec(), score));
        bytes += member.len() + MEMBER_BYTES;
        if shown {
            call.shared.check_answer(bytes)?;
        }
        check_held(bytes)
    })?;
    if let Some(before) = &before {
        for (member, score) in &taken {
            delete_member(call, key, member, *score)?;
        }
        note_deleted(call, key, before, taken.len() as u64)?;
    }
    Ok(taken)
}

fn remove(call: &mut Call<'_, '_>, args: &[&[u8]], range: Range) -> Outcome {
    let taken = take(call, args[1], &Query::whole(range), false)?;
    call.out.count(taken.len());
    Ok(())
}

pub(super) fn zremrangebyrank(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let range = Range::Rank(integer(args[2])?, integer(args[3])?);
    remove(call, args, range)
}

pub(super) fn zremrangebyscore(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let range = score_range(args[2], args[3])?;
    remove(call, args, range)
}

pub(super) fn zremrangebylex(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let range = lex_range(args[2], args[3])?;
    remove(call, args, range)
}

fn pop(call: &mut Call<'_, '_>, args: &[&[u8]], is_backward: bool) -> Outcome {
    let invalid = Failure::new("ERR value is out of range, must be positive");
    let count = args.get(2).map_or(Ok(1), |it| integer(it));
    let count = count.ok().filter(|it| *it >= 0).ok_or(invalid)?;
    let (low, high) = (Vec::new(), None);
    let query = Query {
        range: Range::Score(low, high),
        is_backward,
        limit: (0, count),
    };
    let taken = take(call, args[1], &query, true)?;
    let has_pairs = call.out.is_third && args.len() > 2;
    call.out.array(if has_pairs {
        taken.len()
    } else {
        2 * taken.len()
    });
    for (member, score) in taken {
        if has_pairs {
            call.out.array(2);
        }
        call.out.bulk(&member);
        call.out.double(score);
    }
    Ok(())
}

pub(super) fn zpopmin(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    pop(call, args, false)
}

pub(super) fn zpopmax(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    pop(call, args, true)
}

/// All members of a sorted set.
pub(super) fn members(call: &mut Call<'_, '_>, key: &[u8]) -> Outcome<Vec<Member>> {
    let mut found = Vec::new();
    let mut bytes = 0;
    Query::whole(Range::Rank(0, -1)).each(call, key, |_, member, score| {
        found.push((member.to_vec(), score));
        bytes += member.len() + MEMBER_BYTES;
        check_held(bytes)
    })?;
    Ok(found)
}
