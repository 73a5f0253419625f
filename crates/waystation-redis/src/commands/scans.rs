//! Walks over all keys of a database.
//!
//! A walk goes from head to head and jumps over what lies under collections. A `SCAN` shows every key once that is there
//! from its beginning to its end: it goes on behind the key that it showed last.

use super::{Call, integer, is};
use crate::encoding::{Decoded, Tag, in_order};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::glob;
use crate::head::{Head, Kind};
use crate::scan::Scan;

/// Entries that one `SCAN` looks at, if it does not say.
const COUNT: usize = 10;
/// The most that one looks at.
const COUNT_MAX: usize = 100_000;
/// A scan with longer answers ends early: its cursor goes on (bytes).
const ANSWER_BYTES: usize = 1 << 20;
/// Entries under a head that are passed one by one before a walk jumps.
const PATIENCE: usize = 8;

/// A walk over the keys that begin with some bytes.
pub(super) struct Walk {
    scan: Scan,
    prefix: Vec<u8>,
    /// What all entries of the key begin with that was shown.
    behind: Option<Vec<u8>>,
}

impl Walk {
    pub(super) fn new(call: &mut Call<'_, '_>, prefix: &[u8], from: &[u8]) -> Outcome<Self> {
        let shared = call.work.store.encoding.shared_prefix(prefix);
        let lower = shared.clone().max(from.to_vec());
        let scan = call.work.scan(lower, end_of(&shared), false)?;
        Ok(Self {
            scan,
            prefix: prefix.to_vec(),
            behind: None,
        })
    }

    /// The next key that is not over, with its head. Samples without one are a series.
    pub(super) fn next(&mut self, call: &Call<'_, '_>) -> Outcome<Option<(Vec<u8>, Head)>> {
        let encoding = call.work.store.encoding;
        let mut is_there = match self.behind.take() {
            Some(base) => self.jump(&base)?,
            None => self.scan.advance()?,
        };
        while is_there {
            let Some(Decoded { key, tag, .. }) = encoding.decode(self.scan.key()) else {
                is_there = self.scan.advance()?;
                continue;
            };
            let mut base = Vec::new();
            encoding.base(&key, &mut base)?;
            let head = match tag {
                Tag::Head => Head::read(self.scan.value().to_vec()),
                Tag::Sample => Some(Head::plain(Kind::Series)),
                // The rest of a collection that was overwritten.
                _ => None,
            };
            let head =
                head.filter(|it| !it.is_over(call.work.now) && key.starts_with(&self.prefix));
            if let Some(head) = head {
                self.behind = Some(base);
                return Ok(Some((key, head)));
            }
            is_there = self.jump(&base)?;
        }
        Ok(None)
    }

    /// Goes to the first entry that does not lie under the key with this base.
    fn jump(&mut self, base: &[u8]) -> Outcome<bool> {
        let end = [base, &[0, 0xff]].concat();
        for _ in 0..PATIENCE {
            if !self.scan.advance()? {
                return Ok(false);
            }
            if self.scan.key() >= &end[..] {
                return Ok(true);
            }
        }
        self.scan.seek(&end)
    }

    /// Where another walk goes on, after a key was shown.
    fn place(&self) -> Vec<u8> {
        let base = self.behind.as_deref().unwrap_or_default();
        [base, &[0, 0xff]].concat()
    }
}

/// The first key behind all keys that begin with `prefix`.
fn end_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

pub(super) fn keys(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let pattern = args[1];
    let mut walk = Walk::new(call, glob::literal_prefix(pattern), b"")?;
    let begun = call.out.begin_array();
    let mut found = 0;
    while let Some((key, _)) = walk.next(call)? {
        if glob::matches(pattern, &key) {
            call.out.bulk(&key);
            found += 1;
            call.shared.check_answer(call.out.bytes.len() - begun)?;
        }
    }
    call.out.end_array(begun, found);
    Ok(())
}

pub(super) fn dbsize(call: &mut Call<'_, '_>, _: &[&[u8]]) -> Outcome {
    let mut walk = Walk::new(call, b"", b"")?;
    let mut found = 0;
    while walk.next(call)?.is_some() {
        found += 1;
    }
    call.out.count(found);
    Ok(())
}

/// A key from behind a random place, or the first one.
pub(super) fn randomkey(call: &mut Call<'_, '_>, _: &[&[u8]]) -> Outcome {
    let first = Walk::new(call, b"", b"")?.next(call)?;
    let Some((first, _)) = first else {
        call.out.null();
        return Ok(());
    };
    let mut backward = call.work.scan(Vec::new(), None, true)?;
    let last = if backward.advance()? {
        backward.key().to_vec()
    } else {
        Vec::new()
    };
    let low = call.work.engine_key(&first, Tag::Head, b"")?;
    let alike = low
        .iter()
        .zip(&last)
        .take_while(|(one, other)| one == other)
        .count();
    let mut place = low[..alike].to_vec();
    place.extend_from_slice(&in_order(call.shared.random()));
    // What differs first lies between what it is in the first key and in the last.
    if let (Some(least), Some(most)) = (low.get(alike), last.get(alike))
        // Other clients may have deleted what lay behind the first key.
        && let Some(span) = most.checked_sub(*least)
    {
        let span = u16::from(span) + 1;
        place[alike] = least + (u16::from(place[alike]) % span) as u8;
    }
    let behind = Walk::new(call, b"", &place)?.next(call)?;
    call.out.bulk(behind.as_ref().map_or(&first, |it| &it.0));
    Ok(())
}

/// What a scan was asked for.
struct Asked<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    kind: Option<&'a [u8]>,
}

impl<'a> Asked<'a> {
    fn parse(options: &[&'a [u8]], may_have_kind: bool) -> Outcome<Self> {
        let (mut pattern, mut count, mut kind) = (None, COUNT, None);
        let (pairs, rest) = options.as_chunks::<2>();
        for [option, value] in pairs {
            if is(option, "MATCH") {
                pattern = Some(*value);
            } else if is(option, "COUNT") {
                let number = integer(value)?;
                count = usize::try_from(number)
                    .ok()
                    .filter(|it| *it > 0)
                    .ok_or(SYNTAX)?;
            } else if is(option, "TYPE") && may_have_kind {
                kind = Some(*value);
            } else {
                return Err(SYNTAX);
            }
        }
        if !rest.is_empty() {
            return Err(SYNTAX);
        }
        Ok(Self {
            pattern,
            count: count.min(COUNT_MAX),
            kind,
        })
    }

    fn fits(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|it| glob::matches(it, name))
    }
}

fn place(call: &Call<'_, '_>, cursor: &[u8]) -> Outcome<Vec<u8>> {
    let invalid = Failure::new("ERR invalid cursor");
    let number = std::str::from_utf8(cursor)
        .ok()
        .and_then(|it| it.parse().ok());
    match number.ok_or_else(|| invalid.clone())? {
        0 => Ok(Vec::new()),
        number => call.work.store.place(number).ok_or(invalid),
    }
}

/// Puts the cursor before the answers.
fn end_scan(call: &mut Call<'_, '_>, begun: usize, cursor: u64, found: usize) {
    call.out.end_array(begun, found);
    let answers = call.out.bytes.split_off(begun);
    call.out.array(2);
    call.out.bulk(cursor.to_string().as_bytes());
    call.out.bytes.extend_from_slice(&answers);
}

pub(super) fn scan(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let from = place(call, args[1])?;
    let asked = Asked::parse(&args[2..], true)?;
    let prefix = asked.pattern.map(glob::literal_prefix).unwrap_or_default();
    let mut walk = Walk::new(call, prefix, &from)?;
    let begun = call.out.begin_array();
    let (mut found, mut seen, mut cursor) = (0, 0, 0);
    while let Some((key, head)) = walk.next(call)? {
        if asked.fits(&key) && asked.kind.is_none_or(|it| is(it, head.kind.name())) {
            call.out.bulk(&key);
            found += 1;
        }
        seen += 1;
        if seen >= asked.count || call.out.bytes.len() - begun >= ANSWER_BYTES {
            cursor = call.work.store.keep_place(walk.place());
            break;
        }
    }
    end_scan(call, begun, cursor, found);
    Ok(())
}

/// `HSCAN`, `SSCAN` and `ZSCAN`.
fn scan_under(
    call: &mut Call<'_, '_>,
    args: &[&[u8]],
    (kind, tag): (Kind, Tag),
    show: fn(&mut Call<'_, '_>, &[u8], &[u8]) -> usize,
) -> Outcome {
    let from = place(call, args[2])?;
    let asked = Asked::parse(&args[3..], false)?;
    let begun = call.out.begin_array();
    let (mut found, mut seen, mut cursor) = (0, 0, 0);
    if call.work.head_of(args[1], kind)?.is_some() {
        let mut scan = call.work.scan_under(args[1], tag, (&from, None), false)?;
        while scan.advance()? {
            let under = call.work.under_of(scan.key());
            if asked.fits(&under) {
                found += show(call, &under, scan.value());
            }
            seen += 1;
            if seen >= asked.count || call.out.bytes.len() - begun >= ANSWER_BYTES {
                cursor = call.work.store.keep_place([&under[..], &[0]].concat());
                break;
            }
        }
    }
    end_scan(call, begun, cursor, found);
    Ok(())
}

pub(super) fn hscan(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    scan_under(
        call,
        args,
        (Kind::Hash, Tag::Field),
        |call, field, value| {
            call.out.bulk(field);
            call.out.bulk(value);
            2
        },
    )
}

pub(super) fn sscan(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    scan_under(call, args, (Kind::Set, Tag::Member), |call, member, _| {
        call.out.bulk(member);
        1
    })
}

pub(super) fn zscan(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    scan_under(
        call,
        args,
        (Kind::SortedSet, Tag::Scored),
        |call, member, score| {
            let score = super::zsets::read_score(score);
            call.out.bulk(member);
            call.out.bulk(crate::number::show_double(score).as_bytes());
            2
        },
    )
}

/// The bytes of a key and of all that lies under it.
pub(super) fn bytes_under(call: &mut Call<'_, '_>, key: &[u8]) -> Outcome<usize> {
    let lower = call.work.engine_key(key, Tag::Head, b"")?;
    let upper = [&lower[..lower.len() - 1], &[0xff]].concat();
    let mut scan = call.work.scan(lower, Some(upper), false)?;
    let mut bytes = 0;
    while scan.advance()? {
        bytes += scan.key().len() + scan.value().len();
    }
    Ok(bytes)
}
