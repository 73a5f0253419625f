//! Time series: samples under a key, which are readings of a device's sensor where the key begins with a device.
//!
//! ```text
//! rest of a head = u64 little-endian: retention, milliseconds (0: all are kept) | policy | pairs of labels
//! label          = u16 little-endian: length | name | u16: length | value
//! ```
//!
//! Samples that came another way (MQTT, HTTP) have no head: such a series has no labels and keeps all of its samples. Times
//! are microseconds on storage and milliseconds here.

use super::{Call, integer, is, text};
use crate::encoding::{Tag, in_order, of_order};
use crate::failure::{Failure, Outcome, WRONG_TYPE};
use crate::head::{Head, Kind};
use crate::number::parse_double;

/// Kinds of values of readings; never renumber.
const FLOAT: u8 = 1;
const INTEGER: u8 = 2;
/// The first byte of a time is the tag; times up to the year 4253 fit into the seven behind it.
const MILLIS_END: u64 = (1 << 56) / 1000;
/// The length of a label is two bytes.
const LABEL_BYTES_MAX: usize = u16::MAX as usize;

pub(super) const NO_SERIES: Failure = Failure::new("ERR TSDB: the key does not exist");

/// What happens to a second sample of one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Policy {
    Block = 0,
    First = 1,
    Last = 2,
    Min = 3,
    Max = 4,
    Sum = 5,
}

const POLICIES: [(&str, Policy); 6] = [
    ("block", Policy::Block),
    ("first", Policy::First),
    ("last", Policy::Last),
    ("min", Policy::Min),
    ("max", Policy::Max),
    ("sum", Policy::Sum),
];

impl Policy {
    fn named(name: &[u8]) -> Outcome<Self> {
        let found = POLICIES.iter().find(|(it, _)| is(name, it));
        found
            .map(|it| it.1)
            .ok_or(Failure::new("ERR TSDB: Unknown DUPLICATE_POLICY"))
    }

    pub(super) fn name(self) -> &'static str {
        POLICIES
            .iter()
            .find(|it| it.1 == self)
            .map_or("block", |it| it.0)
    }
}

/// What a series was told.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) retention: u64,
    pub(super) policy: Policy,
    pub(super) labels: Vec<(Vec<u8>, Vec<u8>)>,
    over_at: Option<u64>,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            retention: 0,
            policy: Policy::Block,
            labels: Vec::new(),
            over_at: None,
        }
    }
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<2>()?;
    let (part, behind) = behind.split_at_checked(u16::from_le_bytes(*length).into())?;
    *rest = behind;
    Some(part)
}

impl Series {
    pub(super) fn of(head: &Head) -> Self {
        let mut series = Self {
            over_at: head.over_at,
            ..Self::default()
        };
        let Some((retention, rest)) = head.rest().split_first_chunk::<8>() else {
            return series;
        };
        series.retention = u64::from_le_bytes(*retention);
        let Some((policy, mut rest)) = rest.split_first() else {
            return series;
        };
        let known = POLICIES.iter().find(|it| it.1 as u8 == *policy);
        series.policy = known.map_or(Policy::Block, |it| it.1);
        while let (Some(name), Some(value)) = (part(&mut rest), part(&mut rest)) {
            series.labels.push((name.to_vec(), value.to_vec()));
        }
        series
    }

    fn put(&self, call: &mut Call<'_, '_>, key: &[u8]) -> Outcome {
        let mut rest = self.retention.to_le_bytes().to_vec();
        rest.push(self.policy as u8);
        for text in self.labels.iter().flat_map(|(name, value)| [name, value]) {
            // No label is longer: `with` refuses it.
            rest.extend_from_slice(&(text.len() as u16).to_le_bytes());
            rest.extend_from_slice(text);
        }
        call.work.put_head(key, Kind::Series, self.over_at, &rest)
    }

    /// The series with what options say, and what `ON_DUPLICATE` says.
    fn with(mut self, options: &[&[u8]]) -> Outcome<(Self, Option<Policy>)> {
        let mut once = None;
        let mut rest = options.iter();
        while let Some(option) = rest.next() {
            if is(option, "LABELS") {
                let (pairs, odd) = rest.as_slice().as_chunks::<2>();
                if !odd.is_empty() {
                    return Err(Failure::new("ERR TSDB: Couldn't parse LABELS"));
                }
                if rest.as_slice().iter().any(|it| it.len() > LABEL_BYTES_MAX) {
                    return Err(Failure::new("ERR TSDB: a label has over 65535 bytes"));
                }
                let pair = |[name, value]: &[&[u8]; 2]| (name.to_vec(), value.to_vec());
                self.labels = pairs.iter().map(pair).collect();
                return Ok((self, once));
            }
            let value = rest
                .next()
                .ok_or(Failure::new("ERR TSDB: an option has no value"))?;
            match option {
                it if is(it, "RETENTION") => {
                    self.retention = u64::try_from(integer(value)?)
                        .map_err(|_| Failure::new("ERR TSDB: Couldn't parse RETENTION"))?;
                }
                it if is(it, "DUPLICATE_POLICY") => self.policy = Policy::named(value)?,
                it if is(it, "ON_DUPLICATE") => once = Some(Policy::named(value)?),
                // The engine compresses as it is told elsewhere.
                it if is(it, "ENCODING") || is(it, "CHUNK_SIZE") => {}
                other => {
                    let other = text(other);
                    return Err(Failure::of(format!("ERR TSDB: unknown option {other}")));
                }
            }
        }
        Ok((self, once))
    }
}

/// The time of a sample as it lies under its key.
pub(super) fn write_time(millis: u64) -> Vec<u8> {
    in_order(millis * 1000)[1..].to_vec()
}

/// The first time behind `millis` that lies under a key; `None`: there is none.
pub(super) fn write_end(millis: u64) -> Option<Vec<u8>> {
    let end = millis.saturating_add(1);
    (end < MILLIS_END).then(|| write_time(end))
}

pub(super) fn read_time(under: &[u8]) -> Option<u64> {
    let time: [u8; 7] = under.try_into().ok()?;
    let mut whole = [0; 8];
    whole[1..].copy_from_slice(&time);
    Some(of_order(whole) / 1000)
}

/// The number that a sample is; `None`: it is text, or another thing that MQTT brought.
pub(super) fn read_value(bytes: &[u8]) -> Option<f64> {
    let (kind, rest) = bytes.split_first()?;
    let rest = *rest.first_chunk::<8>()?;
    match *kind {
        FLOAT => Some(f64::from_le_bytes(rest)),
        INTEGER => Some(i64::from_le_bytes(rest) as f64),
        _ => None,
    }
}

fn time(call: &Call<'_, '_>, argument: &[u8]) -> Outcome<u64> {
    if argument == b"*" {
        return Ok(call.work.now);
    }
    let invalid = Failure::new("ERR TSDB: invalid timestamp");
    let number = integer(argument).map_err(|_| invalid.clone())?;
    u64::try_from(number)
        .ok()
        .filter(|it| *it < MILLIS_END)
        .ok_or(invalid)
}

/// The series of a key; `None`: there is none.
pub(super) fn open(call: &mut Call<'_, '_>, key: &[u8]) -> Outcome<Option<Series>> {
    match call.work.head_or_samples(key)? {
        Some(head) if head.kind != Kind::Series => Err(WRONG_TYPE),
        head => Ok(head.as_ref().map(Series::of)),
    }
}

/// The newest sample.
pub(super) fn newest(call: &mut Call<'_, '_>, key: &[u8]) -> Outcome<Option<(u64, f64)>> {
    let mut scan = call.work.scan_under(key, Tag::Sample, (b"", None), true)?;
    while scan.advance()? {
        let time = read_time(&call.work.under_of(scan.key()));
        if let (Some(time), Some(value)) = (time, read_value(scan.value())) {
            return Ok(Some((time, value)));
        }
    }
    Ok(None)
}

/// Adds a sample to a series that is there, or that `made` makes.
fn add(
    call: &mut Call<'_, '_>,
    key: &[u8],
    (millis, value): (u64, f64),
    made: &Series,
    once: Option<Policy>,
) -> Outcome {
    let head = call.work.head_of(key, Kind::Series)?;
    let series = head.as_ref().map_or_else(|| made.clone(), Series::of);
    let under = write_time(millis);
    let before = call.work.get_under(key, Tag::Sample, &under)?;
    let value = match before.as_deref().and_then(read_value) {
        None => value,
        Some(before) => match once.unwrap_or(series.policy) {
            Policy::Block => {
                return Err(Failure::new(
                    "ERR TSDB: Error at upsert, update is not supported when DUPLICATE_POLICY is set to BLOCK mode",
                ));
            }
            Policy::First => before,
            Policy::Last => value,
            Policy::Min => before.min(value),
            Policy::Max => before.max(value),
            Policy::Sum => before + value,
        },
    };
    if series.retention > 0 {
        retain(call, key, millis, series.retention)?;
    }
    if head.is_none() {
        call.work.begin_series(key)?;
        series.put(call, key)?;
    }
    let bytes = [&[FLOAT][..], &value.to_le_bytes()].concat();
    call.work.put_under(key, Tag::Sample, &under, &bytes)
}

/// Deletes what is older than the retention, a part of it at a time, as a range.
fn retain(call: &mut Call<'_, '_>, key: &[u8], millis: u64, retention: u64) -> Outcome {
    const PARTS: u64 = 8;
    let newest = newest(call, key)?.map_or(millis, |it| it.0);
    if millis < newest.saturating_sub(retention) {
        return Err(Failure::new("ERR TSDB: Timestamp is older than retention"));
    }
    let part = (retention / PARTS).max(1);
    if millis > newest && millis / part != newest / part {
        let lower = call.work.engine_key(key, Tag::Sample, b"")?;
        let end = write_time(millis.saturating_sub(retention));
        let upper = call.work.engine_key(key, Tag::Sample, &end)?;
        if lower < upper {
            call.work.delete_range(&lower, Some(&upper));
        }
    }
    Ok(())
}

pub(super) fn ts_create(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (series, _) = Series::default().with(&args[2..])?;
    if call.work.head(args[1])?.is_some() {
        return Err(Failure::new("ERR TSDB: key already exists"));
    }
    call.work.begin_series(args[1])?;
    series.put(call, args[1])?;
    call.out.ok();
    Ok(())
}

pub(super) fn ts_alter(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let series = open(call, args[1])?.ok_or(NO_SERIES)?;
    let (series, _) = series.with(&args[2..])?;
    series.put(call, args[1])?;
    call.out.ok();
    Ok(())
}

fn number(argument: &[u8]) -> Outcome<f64> {
    parse_double(argument).ok_or(Failure::new("ERR TSDB: invalid value"))
}

pub(super) fn ts_add(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let millis = time(call, args[2])?;
    let value = number(args[3])?;
    let (made, once) = Series::default().with(&args[4..])?;
    add(call, args[1], (millis, value), &made, once)?;
    call.out.integer(millis.cast_signed());
    Ok(())
}

pub(super) fn ts_madd(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (triples, rest) = args[1..].as_chunks::<3>();
    if !rest.is_empty() || triples.is_empty() {
        return Err(Failure::arguments("ts.madd"));
    }
    call.out.array(triples.len());
    for [key, millis, value] in triples {
        let sample = time(call, millis).and_then(|millis| Ok((millis, number(value)?)));
        let added = sample.and_then(|sample| {
            add(call, key, sample, &Series::default(), None)?;
            Ok(sample.0)
        });
        match added {
            Ok(millis) => call.out.integer(millis.cast_signed()),
            Err(failure) => call.out.error(&failure.0),
        }
    }
    Ok(())
}

pub(super) fn ts_del(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    open(call, args[1])?.ok_or(NO_SERIES)?;
    let (from, to) = (
        super::series_read::bound(args[2])?,
        super::series_read::bound(args[3])?,
    );
    let mut deleted = 0;
    // Else the range ends before it begins, or behind all times.
    if from <= to && from < MILLIS_END {
        let low = write_time(from);
        // No time has as many bytes.
        let high = write_end(to).unwrap_or_else(|| vec![0xff; 8]);
        let lower = call.work.engine_key(args[1], Tag::Sample, &low)?;
        let upper = call.work.engine_key(args[1], Tag::Sample, &high)?;
        let mut scan = call.work.scan(lower.clone(), Some(upper.clone()), false)?;
        while scan.advance()? {
            deleted += 1;
        }
        if deleted > 0 {
            call.work.delete_range(&lower, Some(&upper));
        }
    }
    call.out.count(deleted);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_order_and_are_read_back() {
        for pair in [0, 1, 255, 1_700_000_000_000, MILLIS_END - 1].windows(2) {
            assert!(write_time(pair[0]) < write_time(pair[1]));
            assert_eq!(read_time(&write_time(pair[1])), Some(pair[1]));
        }
        assert_eq!(write_end(MILLIS_END - 1), None);
        assert_eq!(read_value(&[FLOAT, 1]), None);
        assert_eq!(
            read_value(&[&[INTEGER][..], &7i64.to_le_bytes()].concat()),
            Some(7.0)
        );
    }
}
