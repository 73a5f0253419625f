//! Strings.

use super::{Call, check_keys, integer, is, slice};
use crate::failure::{
    Failure, NOT_FLOAT, NOT_INTEGER, Outcome, SYNTAX, TOO_LONG_VALUE, WRONG_TYPE,
};
use crate::head::{Head, Kind};
use crate::number::{Digits, add_fractions, parse_integer};
use crate::times::{MILLIS, SECONDS, Unit};
use waystation::VALUE_BYTES_MAX;

pub(super) fn get(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let head = call.work.head_of(args[1], Kind::String)?;
    call.out.bulk_or_null(head.as_ref().map(Head::rest));
    Ok(())
}

/// The options of `SET`.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are the command's own")]
struct SetOptions {
    over_at: Option<u64>,
    keeps_time: bool,
    only_new: bool,
    only_existing: bool,
    gets: bool,
}

impl SetOptions {
    fn parse(options: &[&[u8]], now: u64) -> Outcome<Self> {
        let mut parsed = Self::default();
        let mut rest = options.iter();
        while let Some(option) = rest.next() {
            let has_time = parsed.over_at.is_some() || parsed.keeps_time;
            if is(option, "NX") && !parsed.only_existing {
                parsed.only_new = true;
            } else if is(option, "XX") && !parsed.only_new {
                parsed.only_existing = true;
            } else if is(option, "GET") {
                parsed.gets = true;
            } else if is(option, "KEEPTTL") && !has_time {
                parsed.keeps_time = true;
            } else if let Some(unit) = Unit::named(option).filter(|_| !has_time) {
                let time = rest.next().ok_or(SYNTAX)?;
                parsed.over_at = Some(unit.coming(time, now, "set")?);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(parsed)
    }

    fn reads(&self) -> bool {
        self.keeps_time || self.only_new || self.only_existing || self.gets
    }
}

/// Whether a `SET` with these arguments looks at what was there.
pub(super) fn set_reads(args: &[&[u8]]) -> bool {
    let options = args.get(3..).unwrap_or_default();
    let reading = ["NX", "XX", "GET", "KEEPTTL"];
    options
        .iter()
        .any(|option| reading.iter().any(|it| is(option, it)))
}

/// Puts a string; one that is over already is deleted instead.
fn put(call: &mut Call<'_, '_>, key: &[u8], value: &[u8], over_at: Option<u64>) -> Outcome {
    if over_at.is_some_and(|it| it <= call.work.now) {
        return call.work.remove(key, Kind::String);
    }
    call.work.put_string(key, value, over_at)
}

pub(super) fn set(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (key, value) = (args[1], args[2]);
    if args.len() == 3 {
        call.work.put_string(key, value, None)?;
        call.out.ok();
        return Ok(());
    }
    let options = SetOptions::parse(&args[3..], call.work.now)?;
    if !options.reads() {
        put(call, key, value, options.over_at)?;
        call.out.ok();
        return Ok(());
    }
    let before = call.work.head(key)?;
    if options.gets && before.as_ref().is_some_and(|it| it.kind != Kind::String) {
        return Err(WRONG_TYPE);
    }
    let is_refused =
        (options.only_new && before.is_some()) || (options.only_existing && before.is_none());
    if !is_refused {
        let kept = before.as_ref().and_then(|it| it.over_at);
        let over_at = options.over_at.or(kept.filter(|_| options.keeps_time));
        put(call, key, value, over_at)?;
    }
    if options.gets {
        call.out.bulk_or_null(before.as_ref().map(Head::rest));
    } else if is_refused {
        call.out.null();
    } else {
        call.out.ok();
    }
    Ok(())
}

pub(super) fn setnx(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let is_new = call.work.head(args[1])?.is_none();
    if is_new {
        call.work.put_string(args[1], args[2], None)?;
    }
    call.out.flag(is_new);
    Ok(())
}

fn set_for(call: &mut Call<'_, '_>, args: &[&[u8]], unit: Unit, command: &str) -> Outcome {
    let over_at = unit.coming(args[2], call.work.now, command)?;
    put(call, args[1], args[3], Some(over_at))?;
    call.out.ok();
    Ok(())
}

pub(super) fn setex(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    set_for(call, args, SECONDS, "setex")
}

pub(super) fn psetex(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    set_for(call, args, MILLIS, "psetex")
}

pub(super) fn getset(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let before = call.work.head_of(args[1], Kind::String)?;
    call.work.put_string(args[1], args[2], None)?;
    call.out.bulk_or_null(before.as_ref().map(Head::rest));
    Ok(())
}

pub(super) fn getdel(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let before = call.work.head_of(args[1], Kind::String)?;
    if before.is_some() {
        call.work.remove(args[1], Kind::String)?;
    }
    call.out.bulk_or_null(before.as_ref().map(Head::rest));
    Ok(())
}

pub(super) fn getex(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let key = args[1];
    let over_at = match &args[2..] {
        [] => None,
        [option] if is(option, "PERSIST") => Some(None),
        [option, time] => {
            let unit = Unit::named(option).ok_or(SYNTAX)?;
            Some(Some(unit.coming(time, call.work.now, "getex")?))
        }
        _ => return Err(SYNTAX),
    };
    let head = call.work.head_of(key, Kind::String)?;
    if let (Some(head), Some(over_at)) = (&head, over_at) {
        let value = head.rest().to_vec();
        put(call, key, &value, over_at)?;
    }
    call.out.bulk_or_null(head.as_ref().map(Head::rest));
    Ok(())
}

pub(super) fn mget(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let begun = call.out.bytes.len();
    call.out.array(args.len() - 1);
    for key in &args[1..] {
        let head = call.work.head(key)?;
        let string = head.filter(|it| it.kind == Kind::String);
        call.out.bulk_or_null(string.as_ref().map(Head::rest));
        call.shared.check_answer(call.out.bytes.len() - begun)?;
    }
    Ok(())
}

pub(super) fn mset(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (pairs, rest) = args[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Failure::arguments("mset"));
    }
    check_keys(call, pairs.iter().map(|it| it[0]))?;
    for [key, value] in pairs {
        call.work.put_string(key, value, None)?;
    }
    call.out.ok();
    Ok(())
}

pub(super) fn msetnx(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (pairs, rest) = args[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Failure::arguments("msetnx"));
    }
    let mut are_new = true;
    for [key, _] in pairs {
        are_new &= call.work.head(key)?.is_none();
    }
    if are_new {
        for [key, value] in pairs {
            call.work.put_string(key, value, None)?;
        }
    }
    call.out.flag(are_new);
    Ok(())
}

pub(super) fn strlen(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let head = call.work.head_of(args[1], Kind::String)?;
    call.out.count(head.map_or(0, |it| it.rest().len()));
    Ok(())
}

pub(super) fn append(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let head = call.work.head_of(args[1], Kind::String)?;
    let before = head.as_ref().map(Head::rest).unwrap_or_default();
    check_length(before.len() + args[2].len())?;
    let value = [before, args[2]].concat();
    let over_at = head.as_ref().and_then(|it| it.over_at);
    call.work.put_string(args[1], &value, over_at)?;
    call.out.count(value.len());
    Ok(())
}

/// The longest string is a little shorter than the engine's longest value.
fn check_length(length: usize) -> Outcome {
    if length > VALUE_BYTES_MAX - 64 {
        return Err(TOO_LONG_VALUE);
    }
    Ok(())
}

pub(super) fn getrange(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (start, end) = (integer(args[2])?, integer(args[3])?);
    let head = call.work.head_of(args[1], Kind::String)?;
    let value = head.as_ref().map(Head::rest).unwrap_or_default();
    // Redis takes two negative ends in the wrong order for nothing before it looks at the length.
    let is_void = start < 0 && end < 0 && start > end;
    // An end before the first byte is the first byte.
    let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let end = end.max(-length);
    let part = slice(start, end, value.len()).filter(|_| !is_void);
    call.out
        .bulk(part.map_or(&[][..], |(start, end)| &value[start..=end]));
    Ok(())
}

pub(super) fn setrange(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let offset = integer(args[2])?;
    let offset = usize::try_from(offset).map_err(|_| Failure::new("ERR offset is out of range"))?;
    let head = call.work.head_of(args[1], Kind::String)?;
    let mut value = head.as_ref().map(Head::rest).unwrap_or_default().to_vec();
    if !args[3].is_empty() {
        let end = offset.saturating_add(args[3].len());
        check_length(end)?;
        if value.len() < end {
            value.resize(end, 0);
        }
        value[offset..end].copy_from_slice(args[3]);
        let over_at = head.and_then(|it| it.over_at);
        call.work.put_string(args[1], &value, over_at)?;
    }
    call.out.count(value.len());
    Ok(())
}

fn add(call: &mut Call<'_, '_>, key: &[u8], increment: i64) -> Outcome {
    let head = call.work.head_of(key, Kind::String)?;
    let before = match &head {
        Some(head) => parse_integer(head.rest()).ok_or(NOT_INTEGER)?,
        None => 0,
    };
    let sum = before
        .checked_add(increment)
        .ok_or(Failure::new("ERR increment or decrement would overflow"))?;
    let over_at = head.and_then(|it| it.over_at);
    call.work
        .put_string(key, Digits::signed(sum).as_bytes(), over_at)?;
    call.out.integer(sum);
    Ok(())
}

pub(super) fn incr(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    add(call, args[1], 1)
}

pub(super) fn decr(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    add(call, args[1], -1)
}

pub(super) fn incrby(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    add(call, args[1], integer(args[2])?)
}

pub(super) fn decrby(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let decrement = integer(args[2])?;
    let increment = decrement
        .checked_neg()
        .ok_or(Failure::new("ERR decrement would overflow"))?;
    add(call, args[1], increment)
}

pub(super) fn incrbyfloat(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let head = call.work.head_of(args[1], Kind::String)?;
    let before = head.as_ref().map_or(&b"0"[..], Head::rest);
    let sum = add_fractions(before, args[2])
        .ok_or(NOT_FLOAT)?
        .ok_or(Failure::new("ERR increment would produce NaN or Infinity"))?;
    let over_at = head.as_ref().and_then(|it| it.over_at);
    call.work.put_string(args[1], sum.as_bytes(), over_at)?;
    call.out.bulk(sum.as_bytes());
    Ok(())
}
