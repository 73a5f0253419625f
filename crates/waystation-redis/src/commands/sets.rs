//! Sets: one entry of the engine for each member, and their number in the head.

use super::Call;
use crate::encoding::Tag;
use crate::failure::Outcome;
use crate::head::{Head, Kind};

pub(super) fn sadd(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let before = call.work.head_of(args[1], Kind::Set)?;
    if before.is_none() {
        call.work.begin_collection(args[1])?;
    }
    let mut added = 0;
    for member in &args[2..] {
        if call.work.get_under(args[1], Tag::Member, member)?.is_none() {
            call.work.put_under(args[1], Tag::Member, member, b"")?;
            added += 1;
        }
    }
    let count = before.as_ref().map_or(0, Head::count) + added;
    call.work
        .put_count(args[1], Kind::Set, before.as_ref(), count)?;
    call.out.integer(added.cast_signed());
    Ok(())
}

pub(super) fn srem(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let before = call.work.head_of(args[1], Kind::Set)?;
    let mut deleted = 0;
    if let Some(before) = &before {
        for member in &args[2..] {
            if call.work.get_under(args[1], Tag::Member, member)?.is_some() {
                call.work.delete_under(args[1], Tag::Member, member)?;
                deleted += 1;
            }
        }
        let count = before.count().saturating_sub(deleted);
        call.work
            .put_count(args[1], Kind::Set, Some(before), count)?;
    }
    call.out.integer(deleted.cast_signed());
    Ok(())
}

pub(super) fn scard(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let head = call.work.head_of(args[1], Kind::Set)?;
    call.out
        .integer(head.map_or(0, |it| it.count().cast_signed()));
    Ok(())
}

fn has(call: &mut Call<'_, '_>, key: &[u8], member: &[u8]) -> Outcome<bool> {
    Ok(call.work.get_under(key, Tag::Member, member)?.is_some())
}

pub(super) fn sismember(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let is_there = call.work.head_of(args[1], Kind::Set)?.is_some();
    let is_member = is_there && has(call, args[1], args[2])?;
    call.out.flag(is_member);
    Ok(())
}

pub(super) fn smismember(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let is_there = call.work.head_of(args[1], Kind::Set)?.is_some();
    call.out.array(args.len() - 2);
    for member in &args[2..] {
        let is_member = is_there && has(call, args[1], member)?;
        call.out.flag(is_member);
    }
    Ok(())
}

pub(super) fn smembers(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let is_there = call.work.head_of(args[1], Kind::Set)?.is_some();
    let begun = call.out.begin_array();
    let mut found = 0;
    if is_there {
        let mut scan = call
            .work
            .scan_under(args[1], Tag::Member, (b"", None), false)?;
        while scan.advance()? {
            let member = call.work.under_of(scan.key());
            call.out.bulk(&member);
            found += 1;
            call.shared.check_answer(call.out.bytes.len() - begun)?;
        }
    }
    call.out.end_set(begun, found);
    Ok(())
}
