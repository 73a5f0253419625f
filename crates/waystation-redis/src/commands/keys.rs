//! Keys of any kind: whether they exist, what they are, how long they live.

use super::{Call, check_keys, integer, is, scans};
use crate::encoding::Tag;
use crate::failure::{Failure, NO_KEY, Outcome, SYNTAX};
use crate::head::{Head, Kind};
use crate::number::parse_integer;
use crate::times::{MILLIS, MILLIS_AT, SECONDS, SECONDS_AT, Unit};

pub(super) fn del(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    check_keys(call, args[1..].iter().copied())?;
    let mut deleted = 0;
    for key in &args[1..] {
        if let Some(head) = call.work.head_or_samples(key)? {
            call.work.remove(key, head.kind)?;
            deleted += 1;
        }
    }
    call.out.count(deleted);
    Ok(())
}

pub(super) fn exists(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let mut found = 0;
    for key in &args[1..] {
        found += usize::from(call.work.head_or_samples(key)?.is_some());
    }
    call.out.count(found);
    Ok(())
}

pub(super) fn kind(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let head = call.work.head_or_samples(args[1])?;
    call.out.simple(head.map_or("none", |it| it.kind.name()));
    Ok(())
}

/// Writes a head again, with another time.
fn retime(call: &mut Call<'_, '_>, key: &[u8], head: &Head, over_at: Option<u64>) -> Outcome {
    if over_at.is_some_and(|it| it <= call.work.now) {
        return call.work.remove(key, head.kind);
    }
    call.work.put_head(key, head.kind, over_at, head.rest())
}

/// Whether the conditions of `EXPIRE` let the time of a key change.
fn may_change(conditions: &[&[u8]], before: Option<u64>, over_at: u64) -> Outcome<bool> {
    let (mut only_none, mut only_some, mut only_later, mut only_earlier) =
        (false, false, false, false);
    for condition in conditions {
        let flag = match condition {
            it if is(it, "NX") => &mut only_none,
            it if is(it, "XX") => &mut only_some,
            it if is(it, "GT") => &mut only_later,
            it if is(it, "LT") => &mut only_earlier,
            other => {
                let other = super::text(other);
                return Err(Failure::of(format!("ERR Unsupported option {other}")));
            }
        };
        *flag = true;
    }
    if only_none && (only_some || only_later || only_earlier) {
        return Err(Failure::new(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if only_later && only_earlier {
        return Err(Failure::new(
            "ERR GT and LT options at the same time are not compatible",
        ));
    }
    let is_refused = (only_none && before.is_some())
        || (only_some && before.is_none())
        || (only_later && before.is_none_or(|it| over_at <= it))
        || (only_earlier && before.is_some_and(|it| over_at >= it));
    Ok(!is_refused)
}

fn expire_by(call: &mut Call<'_, '_>, args: &[&[u8]], unit: Unit, command: &str) -> Outcome {
    let over_at = unit.time(args[2], call.work.now, command)?;
    let head = call.work.head_or_samples(args[1])?;
    let before = head.as_ref().and_then(|it| it.over_at);
    let is_allowed = may_change(&args[3..], before, over_at)?;
    let changed = head.filter(|_| is_allowed);
    if let Some(head) = &changed {
        retime(call, args[1], head, Some(over_at))?;
    }
    call.out.flag(changed.is_some());
    Ok(())
}

pub(super) fn expire(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    expire_by(call, args, SECONDS, "expire")
}

pub(super) fn pexpire(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    expire_by(call, args, MILLIS, "pexpire")
}

pub(super) fn expireat(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    expire_by(call, args, SECONDS_AT, "expireat")
}

pub(super) fn pexpireat(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    expire_by(call, args, MILLIS_AT, "pexpireat")
}

pub(super) fn persist(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let head = call.work.head(args[1])?.filter(|it| it.over_at.is_some());
    if let Some(head) = &head {
        retime(call, args[1], head, None)?;
    }
    call.out.flag(head.is_some());
    Ok(())
}

/// Says when a key is over: -2, there is none; -1, never.
fn time_left(call: &mut Call<'_, '_>, key: &[u8], say: impl Fn(u64, u64) -> u64) -> Outcome {
    let left = match call.work.head_or_samples(key)? {
        None => -2,
        Some(head) => head
            .over_at
            .map_or(-1, |it| say(it, call.work.now).cast_signed()),
    };
    call.out.integer(left);
    Ok(())
}

pub(super) fn ttl(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    time_left(call, args[1], |over_at, now| (over_at - now + 500) / 1000)
}

pub(super) fn pttl(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    time_left(call, args[1], |over_at, now| over_at - now)
}

pub(super) fn expiretime(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    time_left(call, args[1], |over_at, _| (over_at + 500) / 1000)
}

pub(super) fn pexpiretime(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    time_left(call, args[1], |over_at, _| over_at)
}

pub(super) fn flush(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    match &args[1..] {
        [] => {}
        [how] if is(how, "SYNC") || is(how, "ASYNC") => {}
        _ => return Err(SYNTAX),
    }
    call.work.delete_range(b"", None);
    call.out.ok();
    Ok(())
}

/// Copies all that lies under `source` to `target`.
fn copy_to(call: &mut Call<'_, '_>, source: &[u8], target: &[u8], head: &Head) -> Outcome {
    if let Some(old) = call.work.head_or_samples(target)? {
        call.work.remove(target, old.kind)?;
    }
    if head.kind != Kind::String {
        call.work.begin_collection(target)?;
        let tags: &[Tag] = match head.kind {
            Kind::String => &[],
            Kind::Hash => &[Tag::Field],
            Kind::Set => &[Tag::Member],
            Kind::SortedSet => &[Tag::Scored, Tag::Score],
            Kind::Series => &[Tag::Sample],
        };
        for tag in tags {
            let mut scan = call.work.scan_under(source, *tag, (b"", None), false)?;
            while scan.advance()? {
                let under = call.work.under_of(scan.key());
                call.work.put_under(target, *tag, &under, scan.value())?;
            }
        }
    }
    call.work
        .put_head(target, head.kind, head.over_at, head.rest())
}

fn rename_to(call: &mut Call<'_, '_>, args: &[&[u8]], only_new: bool) -> Outcome<bool> {
    let (source, target) = (args[1], args[2]);
    let head = call.work.head_or_samples(source)?.ok_or(NO_KEY)?;
    if only_new && call.work.head_or_samples(target)?.is_some() {
        return Ok(false);
    }
    if source != target {
        copy_to(call, source, target, &head)?;
        call.work.remove(source, head.kind)?;
    }
    Ok(true)
}

pub(super) fn rename(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    rename_to(call, args, false)?;
    call.out.ok();
    Ok(())
}

pub(super) fn renamenx(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let is_renamed = rename_to(call, args, true)?;
    call.out.flag(is_renamed);
    Ok(())
}

pub(super) fn copy(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (source, target) = (args[1], args[2]);
    let mut replaces = false;
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        if is(option, "REPLACE") {
            replaces = true;
        } else if is(option, "DB") {
            let number = integer(options.next().ok_or(SYNTAX)?)?;
            if usize::try_from(number) != Ok(call.client.database) {
                return Err(Failure::new(
                    "ERR COPY goes to a key of the same database only",
                ));
            }
        } else {
            return Err(SYNTAX);
        }
    }
    if source == target {
        return Err(Failure::new(
            "ERR source and destination objects are the same",
        ));
    }
    let head = call.work.head_or_samples(source)?;
    let is_taken = !replaces && call.work.head_or_samples(target)?.is_some();
    let copied = head.filter(|_| !is_taken);
    if let Some(head) = &copied {
        copy_to(call, source, target, head)?;
    }
    call.out.flag(copied.is_some());
    Ok(())
}

/// How Redis would keep a key of this size.
fn encoding_name(call: &mut Call<'_, '_>, key: &[u8], head: &Head) -> Outcome<&'static str> {
    const SMALL: u64 = 128;
    Ok(match head.kind {
        Kind::String if parse_integer(head.rest()).is_some() => "int",
        Kind::String if head.rest().len() <= 44 => "embstr",
        Kind::String | Kind::Series => "raw",
        Kind::Set if has_few_integers(call, key, head)? => "intset",
        Kind::Hash | Kind::SortedSet if head.count() <= SMALL => "listpack",
        Kind::Hash | Kind::Set => "hashtable",
        Kind::SortedSet => "skiplist",
    })
}

/// Whether the members of a set are integers, and not many.
fn has_few_integers(call: &mut Call<'_, '_>, key: &[u8], head: &Head) -> Outcome<bool> {
    const FEW: u64 = 512;
    if head.count() > FEW {
        return Ok(false);
    }
    let mut scan = call.work.scan_under(key, Tag::Member, (b"", None), false)?;
    while scan.advance()? {
        if parse_integer(&call.work.under_of(scan.key())).is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn object(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    if is(args[1], "HELP") {
        let lines = [
            "OBJECT ENCODING|REFCOUNT|IDLETIME <key>",
            "    Tells about a key.",
        ];
        call.out.array(lines.len());
        for line in lines {
            call.out.simple(line);
        }
        return Ok(());
    }
    let key = *args.get(2).ok_or_else(|| Failure::arguments("object"))?;
    let Some(head) = call.work.head_or_samples(key)? else {
        call.out.null();
        return Ok(());
    };
    match args[1] {
        it if is(it, "ENCODING") => {
            let name = encoding_name(call, key, &head)?;
            call.out.bulk(name.as_bytes());
        }
        it if is(it, "REFCOUNT") => call.out.integer(1),
        it if is(it, "IDLETIME") => call.out.integer(0),
        other => {
            let other = super::text(other);
            return Err(Failure::of(format!(
                "ERR unknown subcommand '{other}'. Try OBJECT HELP."
            )));
        }
    }
    Ok(())
}

/// `MEMORY USAGE`: the bytes of a key and all that lies under it, as the engine keeps them.
pub(super) fn memory(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    if !is(args[1], "USAGE") || args.len() < 3 {
        let other = super::text(args[1]);
        return Err(Failure::of(format!(
            "ERR unknown subcommand '{other}'. Try MEMORY USAGE <key>."
        )));
    }
    if call.work.head_or_samples(args[2])?.is_none() {
        call.out.null();
        return Ok(());
    }
    let bytes = scans::bytes_under(call, args[2])?;
    call.out.count(bytes);
    Ok(())
}
