//! Reads of time series: ranges, windows computed as the samples pass, the newest sample, what a series was told.

use super::scans::{Walk, bytes_under};
use super::series::{
    NO_SERIES, Series, newest, open, read_time, read_value, write_end, write_time,
};
use super::{Call, integer, is, text};
use crate::encoding::Tag;
use crate::failure::{Failure, Outcome};
use crate::head::Kind;
use crate::number::{parse_double, show_double};

/// What a series that fits takes in memory beside its key and labels.
const SERIES_BYTES: usize = 128;

/// One end of a range of times.
pub(super) fn bound(argument: &[u8]) -> Outcome<u64> {
    match argument {
        b"-" => Ok(0),
        b"+" => Ok(u64::MAX),
        number => {
            let invalid = Failure::new("ERR TSDB: wrong fromTimestamp or toTimestamp");
            let number = integer(number).map_err(|_| invalid.clone())?;
            u64::try_from(number).map_err(|_| invalid)
        }
    }
}

/// How the samples of a window become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregator {
    Average,
    Minimum,
    Maximum,
    Sum,
    Count,
    First,
    Last,
    Range,
}

impl Aggregator {
    fn named(name: &[u8]) -> Outcome<Self> {
        Ok(match name {
            it if is(it, "avg") => Self::Average,
            it if is(it, "min") => Self::Minimum,
            it if is(it, "max") => Self::Maximum,
            it if is(it, "sum") => Self::Sum,
            it if is(it, "count") => Self::Count,
            it if is(it, "first") => Self::First,
            it if is(it, "last") => Self::Last,
            it if is(it, "range") => Self::Range,
            _ => return Err(Failure::new("ERR TSDB: Unknown aggregation type")),
        })
    }
}

/// The samples of a window so far.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: u64,
    count: u64,
    sum: f64,
    least: f64,
    most: f64,
    first: f64,
    last: f64,
}

impl Window {
    fn new(start: u64, value: f64) -> Self {
        Self {
            start,
            count: 1,
            sum: value,
            least: value,
            most: value,
            first: value,
            last: value,
        }
    }

    /// Takes a sample, which comes behind the last one, or before the first.
    fn take(&mut self, value: f64, is_backward: bool) {
        self.count += 1;
        self.sum += value;
        self.least = self.least.min(value);
        self.most = self.most.max(value);
        if is_backward {
            self.first = value;
        } else {
            self.last = value;
        }
    }

    fn value(&self, aggregator: Aggregator) -> f64 {
        match aggregator {
            Aggregator::Average => self.sum / self.count as f64,
            Aggregator::Minimum => self.least,
            Aggregator::Maximum => self.most,
            Aggregator::Sum => self.sum,
            Aggregator::Count => self.count as f64,
            Aggregator::First => self.first,
            Aggregator::Last => self.last,
            Aggregator::Range => self.most - self.least,
        }
    }
}

/// What a range command asks for.
struct Asked<'a> {
    from: u64,
    to: u64,
    is_backward: bool,
    count: usize,
    values: Option<(f64, f64)>,
    /// How windows become samples, how long they are, and where one begins.
    windows: Option<(Aggregator, u64, u64)>,
    has_labels: bool,
    filters: Vec<&'a [u8]>,
}

impl<'a> Asked<'a> {
    fn parse(ends: [&'a [u8]; 2], options: &[&'a [u8]], is_backward: bool) -> Outcome<Self> {
        let mut asked = Self {
            from: bound(ends[0])?,
            to: bound(ends[1])?,
            is_backward,
            count: usize::MAX,
            values: None,
            windows: None,
            has_labels: false,
            filters: Vec::new(),
        };
        let mut align = 0;
        let mut rest = options.iter();
        let missing = Failure::new("ERR TSDB: an option has no value");
        while let Some(option) = rest.next() {
            let mut next = || rest.next().copied().ok_or_else(|| missing.clone());
            match option {
                it if is(it, "COUNT") => {
                    let count = integer(next()?)?;
                    asked.count = usize::try_from(count)
                        .map_err(|_| Failure::new("ERR TSDB: Couldn't parse COUNT"))?;
                }
                it if is(it, "FILTER_BY_VALUE") => {
                    let invalid = Failure::new("ERR TSDB: Couldn't parse MIN");
                    let (low, high) = (parse_double(next()?), parse_double(next()?));
                    asked.values = Some(low.zip(high).ok_or(invalid)?);
                }
                it if is(it, "ALIGN") => {
                    align = match next()? {
                        it if is(it, "start") || it == b"-" => asked.from,
                        it if is(it, "end") || it == b"+" => asked.to,
                        number => bound(number)?,
                    };
                }
                it if is(it, "AGGREGATION") => {
                    let aggregator = Aggregator::named(next()?)?;
                    let length = u64::try_from(integer(next()?)?).ok().filter(|it| *it > 0);
                    let length = length.ok_or(Failure::new(
                        "ERR TSDB: bucketDuration must be greater than zero",
                    ))?;
                    asked.windows = Some((aggregator, length, 0));
                }
                it if is(it, "WITHLABELS") => asked.has_labels = true,
                it if is(it, "LATEST") => {}
                it if is(it, "FILTER") => {
                    asked.filters = rest.as_slice().to_vec();
                    break;
                }
                other => {
                    let other = text(other);
                    return Err(Failure::of(format!("ERR TSDB: unknown option {other}")));
                }
            }
        }
        if let Some((_, length, start)) = &mut asked.windows {
            *start = align % *length;
        }
        Ok(asked)
    }
}

/// Where the window of a time begins, of windows that are so long and begin at `start`.
fn window_of(time: u64, length: u64, start: u64) -> u64 {
    if time < start {
        return 0;
    }
    (time - start) / length * length + start
}

fn show_sample(call: &mut Call<'_, '_>, time: u64, value: f64) {
    call.out.array(2);
    call.out.integer(time.cast_signed());
    if call.out.is_third {
        call.out.double(value);
    } else {
        call.out.simple(&show_double(value));
    }
}

/// Shows the samples of a series, or its windows, in an answer that began at `first`.
fn show_range(
    call: &mut Call<'_, '_>,
    key: &[u8],
    series: &Series,
    asked: &Asked<'_>,
    first: usize,
) -> Outcome {
    let begun = call.out.begin_array();
    let mut from = asked.from;
    if series.retention > 0 {
        let newest = newest(call, key)?.map_or(0, |it| it.0);
        from = from.max(newest.saturating_sub(series.retention));
    }
    let mut shown = 0;
    // Else the range ends before it begins, or behind all times.
    if from <= asked.to && write_end(from).is_some() {
        let (low, high) = (write_time(from), write_end(asked.to));
        let range = (&low[..], high.as_deref());
        let mut scan = call
            .work
            .scan_under(key, Tag::Sample, range, asked.is_backward)?;
        let mut window: Option<Window> = None;
        while shown < asked.count && scan.advance()? {
            let time = read_time(&call.work.under_of(scan.key()));
            let Some((time, value)) = time.zip(read_value(scan.value())) else {
                continue;
            };
            if asked
                .values
                .is_some_and(|(low, high)| value < low || value > high)
            {
                continue;
            }
            let Some((aggregator, length, start)) = asked.windows else {
                show_sample(call, time, value);
                shown += 1;
                call.shared.check_answer(call.out.bytes.len() - first)?;
                continue;
            };
            let start = window_of(time, length, start);
            match &mut window {
                Some(window) if window.start == start => window.take(value, asked.is_backward),
                _ => {
                    if let Some(full) = window.replace(Window::new(start, value)) {
                        show_sample(call, full.start, full.value(aggregator));
                        shown += 1;
                        call.shared.check_answer(call.out.bytes.len() - first)?;
                    }
                }
            }
        }
        if let (Some(last), Some((aggregator, ..))) = (window, asked.windows)
            && shown < asked.count
        {
            show_sample(call, last.start, last.value(aggregator));
            shown += 1;
        }
    }
    call.out.end_array(begun, shown);
    Ok(())
}

fn range(call: &mut Call<'_, '_>, args: &[&[u8]], is_backward: bool) -> Outcome {
    let asked = Asked::parse([args[2], args[3]], &args[4..], is_backward)?;
    let series = open(call, args[1])?.ok_or(NO_SERIES)?;
    let first = call.out.bytes.len();
    show_range(call, args[1], &series, &asked, first)
}

pub(super) fn ts_range(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    range(call, args, false)
}

pub(super) fn ts_revrange(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    range(call, args, true)
}

/// Whether labels fit a filter: `l=v`, `l!=v`, `l=`, `l!=`, `l=(v,w)`, `l!=(v,w)`.
fn fits(labels: &[(Vec<u8>, Vec<u8>)], filter: &[u8]) -> Outcome<bool> {
    let at = filter.iter().position(|it| *it == b'=');
    let at = at
        .filter(|it| *it > 0)
        .ok_or(Failure::new("ERR TSDB: failed parsing labels"))?;
    let (name, value) = (&filter[..at], &filter[at + 1..]);
    let (name, is_negative) = match name.strip_suffix(b"!") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let own = labels.iter().find(|it| it.0 == name).map(|it| &it.1[..]);
    let list = value
        .strip_prefix(b"(")
        .and_then(|it| it.strip_suffix(b")"));
    let is_one = match (own, list) {
        (None, _) => value.is_empty(),
        (Some(_), _) if value.is_empty() => false,
        (Some(own), Some(list)) => list.split(|it| *it == b',').any(|it| it == own),
        (Some(own), None) => own == value,
    };
    Ok(is_one != is_negative)
}

/// The series that fit all filters. At least one filter has to name a value.
fn matching(call: &mut Call<'_, '_>, filters: &[&[u8]]) -> Outcome<Vec<(Vec<u8>, Series)>> {
    let names_value = |it: &&&[u8]| !it.ends_with(b"=") && !it.windows(2).any(|pair| pair == b"!=");
    if filters.iter().filter(names_value).count() == 0 {
        return Err(Failure::new(
            "ERR TSDB: please provide at least one matcher",
        ));
    }
    let mut walk = Walk::new(call, b"", b"")?;
    let mut found = Vec::new();
    let mut bytes = 0;
    while let Some((key, head)) = walk.next(call)? {
        if head.kind != Kind::Series {
            continue;
        }
        let series = Series::of(&head);
        let mut is_one = true;
        for filter in filters {
            is_one &= fits(&series.labels, filter)?;
        }
        if is_one {
            bytes += key.len() + head.rest().len() + SERIES_BYTES;
            call.shared.check_answer(bytes)?;
            found.push((key, series));
        }
    }
    Ok(found)
}

fn show_labels(call: &mut Call<'_, '_>, series: &Series, has_labels: bool) {
    let labels = if has_labels { &series.labels[..] } else { &[] };
    if call.out.is_third {
        call.out.map(labels.len());
    } else {
        call.out.array(labels.len());
    }
    for (name, value) in labels {
        if !call.out.is_third {
            call.out.array(2);
        }
        call.out.bulk(name);
        call.out.bulk(value);
    }
}

fn many(call: &mut Call<'_, '_>, args: &[&[u8]], is_backward: bool) -> Outcome {
    let asked = Asked::parse([args[1], args[2]], &args[3..], is_backward)?;
    let found = matching(call, &asked.filters)?;
    let first = call.out.bytes.len();
    if call.out.is_third {
        call.out.map(found.len());
    } else {
        call.out.array(found.len());
    }
    for (key, series) in found {
        if !call.out.is_third {
            call.out.array(3);
        }
        call.out.bulk(&key);
        if call.out.is_third {
            call.out.array(3);
        }
        show_labels(call, &series, asked.has_labels);
        if call.out.is_third {
            call.out.map(0);
        }
        show_range(call, &key, &series, &asked, first)?;
    }
    Ok(())
}

pub(super) fn ts_mrange(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    many(call, args, false)
}

pub(super) fn ts_mrevrange(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    many(call, args, true)
}

pub(super) fn ts_queryindex(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let found = matching(call, &args[1..])?;
    call.out.array(found.len());
    for (key, _) in found {
        call.out.bulk(&key);
    }
    Ok(())
}

pub(super) fn ts_get(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    open(call, args[1])?.ok_or(NO_SERIES)?;
    match newest(call, args[1])? {
        Some((time, value)) => show_sample(call, time, value),
        None => call.out.array(0),
    }
    Ok(())
}

pub(super) fn ts_info(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let series = open(call, args[1])?.ok_or(NO_SERIES)?;
    let mut scan = call
        .work
        .scan_under(args[1], Tag::Sample, (b"", None), false)?;
    let (mut count, mut first, mut last) = (0, 0, 0);
    while scan.advance()? {
        let time = read_time(&call.work.under_of(scan.key())).unwrap_or(0);
        if count == 0 {
            first = time;
        }
        last = time;
        count += 1;
    }
    let bytes = bytes_under(call, args[1])?;
    call.out.map(7);
    let numbers = [
        ("totalSamples", count),
        ("memoryUsage", bytes as u64),
        ("firstTimestamp", first),
        ("lastTimestamp", last),
        ("retentionTime", series.retention),
    ];
    for (name, number) in numbers {
        call.out.simple(name);
        call.out.integer(number.cast_signed());
    }
    call.out.simple("duplicatePolicy");
    call.out.simple(series.policy.name());
    call.out.simple("labels");
    show_labels(call, &series, true);
    Ok(())
}
