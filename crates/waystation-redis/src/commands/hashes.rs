//! Hashes: one entry of the engine for each field, and their number in the head.

use super::{Call, integer};
use crate::encoding::Tag;
use crate::failure::{Failure, NOT_FLOAT, Outcome};
use crate::head::{Head, Kind};
use crate::number::{Digits, add_fractions, parse_integer};

fn head(call: &mut Call<'_, '_>, key: &[u8]) -> Outcome<Option<Head>> {
    call.work.head_of(key, Kind::Hash)
}

fn value(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome<Option<Vec<u8>>> {
    match head(call, args[1])? {
        Some(_) => call.work.get_under(args[1], Tag::Field, args[2]),
        None => Ok(None),
    }
}

/// Puts fields; how many of them are new.
fn put(call: &mut Call<'_, '_>, key: &[u8], pairs: &[[&[u8]; 2]]) -> Outcome<u64> {
    let before = head(call, key)?;
    if before.is_none() {
        call.work.begin_collection(key)?;
    }
    let mut added = 0;
    for [field, value] in pairs {
        added += u64::from(call.work.get_under(key, Tag::Field, field)?.is_none());
        call.work.put_under(key, Tag::Field, field, value)?;
    }
    let count = before.as_ref().map_or(0, Head::count) + added;
    call.work
        .put_count(key, Kind::Hash, before.as_ref(), count)?;
    Ok(added)
}

fn pairs<'a, 'b>(args: &'b [&'a [u8]], command: &str) -> Outcome<&'b [[&'a [u8]; 2]]> {
    match args[2..].as_chunks::<2>() {
        (pairs, []) if !pairs.is_empty() => Ok(pairs),
        _ => Err(Failure::arguments(command)),
    }
}

pub(super) fn hset(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let pairs = pairs(args, "hset")?;
    let added = put(call, args[1], pairs)?;
    call.out.integer(added.cast_signed());
    Ok(())
}

pub(super) fn hmset(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let pairs = pairs(args, "hmset")?;
    put(call, args[1], pairs)?;
    call.out.ok();
    Ok(())
}

pub(super) fn hsetnx(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let is_new = value(call, args)?.is_none();
    if is_new {
        put(call, args[1], &[[args[2], args[3]]])?;
    }
    call.out.flag(is_new);
    Ok(())
}

pub(super) fn hget(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let value = value(call, args)?;
    call.out.bulk_or_null(value.as_deref());
    Ok(())
}

pub(super) fn hmget(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let is_there = head(call, args[1])?.is_some();
    let begun = call.out.bytes.len();
    call.out.array(args.len() - 2);
    for field in &args[2..] {
        let value = if is_there {
            call.work.get_under(args[1], Tag::Field, field)?
        } else {
            None
        };
        call.out.bulk_or_null(value.as_deref());
        call.shared.check_answer(call.out.bytes.len() - begun)?;
    }
    Ok(())
}

pub(super) fn hexists(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let value = value(call, args)?;
    call.out.flag(value.is_some());
    Ok(())
}

pub(super) fn hstrlen(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let value = value(call, args)?;
    call.out.count(value.map_or(0, |it| it.len()));
    Ok(())
}

pub(super) fn hlen(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let head = head(call, args[1])?;
    call.out
        .integer(head.map_or(0, |it| it.count().cast_signed()));
    Ok(())
}

pub(super) fn hdel(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let before = head(call, args[1])?;
    let mut deleted = 0;
    if let Some(before) = &before {
        for field in &args[2..] {
            if call.work.get_under(args[1], Tag::Field, field)?.is_some() {
                call.work.delete_under(args[1], Tag::Field, field)?;
                deleted += 1;
            }
        }
        let count = before.count().saturating_sub(deleted);
        call.work
            .put_count(args[1], Kind::Hash, Some(before), count)?;
    }
    call.out.integer(deleted.cast_signed());
    Ok(())
}

/// Shows fields, values or both.
fn all(call: &mut Call<'_, '_>, key: &[u8], shows: (bool, bool)) -> Outcome {
    let is_there = head(call, key)?.is_some();
    let begun = call.out.begin_array();
    let mut found = 0;
    if is_there {
        let mut scan = call.work.scan_under(key, Tag::Field, (b"", None), false)?;
        while scan.advance()? {
            if shows.0 {
                let field = call.work.under_of(scan.key());
                call.out.bulk(&field);
            }
            if shows.1 {
                call.out.bulk(scan.value());
            }
            found += 1;
            call.shared.check_answer(call.out.bytes.len() - begun)?;
        }
    }
    if shows == (true, true) {
        call.out.end_map(begun, found);
    } else {
        call.out.end_array(begun, found);
    }
    Ok(())
}

pub(super) fn hgetall(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    all(call, args[1], (true, true))
}

pub(super) fn hkeys(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    all(call, args[1], (true, false))
}

pub(super) fn hvals(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    all(call, args[1], (false, true))
}

pub(super) fn hincrby(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let increment = integer(args[3])?;
    let before = match value(call, args)? {
        Some(text) => {
            parse_integer(&text).ok_or(Failure::new("ERR hash value is not an integer"))?
        }
        None => 0,
    };
    let sum = before
        .checked_add(increment)
        .ok_or(Failure::new("ERR increment or decrement would overflow"))?;
    put(call, args[1], &[[args[2], Digits::signed(sum).as_bytes()]])?;
    call.out.integer(sum);
    Ok(())
}

pub(super) fn hincrbyfloat(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let increment = crate::number::parse_double(args[3]).ok_or(NOT_FLOAT)?;
    if !increment.is_finite() {
        return Err(Failure::new("ERR value is NaN or Infinity"));
    }
    let before = value(call, args)?.unwrap_or_else(|| b"0".to_vec());
    let sum = add_fractions(&before, args[3])
        .ok_or(Failure::new("ERR hash value is not a float"))?
        .ok_or(Failure::new("ERR increment would produce NaN or Infinity"))?;
    put(call, args[1], &[[args[2], sum.as_bytes()]])?;
    call.out.bulk(sum.as_bytes());
    Ok(())
}
