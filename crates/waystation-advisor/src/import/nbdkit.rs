//! The log of nbdkit's log filter: a begin and an end line per request, per connection and id.
//!
//! The export of a connection is its area. No process is known. A request whose end is not in the log stays without
//! completion.

use std::collections::HashMap;

use super::csv::time_ns;
use super::{Collector, LineParser, Row, RowError};
use crate::event::{Flags, Op};

struct Begun {
    issue_ns: u64,
    export: String,
    op: Op,
    flags: Flags,
    offset: u64,
    length: u64,
}

#[derive(Default)]
pub(super) struct Nbdkit {
    exports: HashMap<String, String>,
    begun: HashMap<(String, String), Begun>,
}

/// The value of `key=value` among the words of a line.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split(' ')
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn number(line: &str, key: &str) -> Result<u64, RowError> {
    let text = value(line, key).unwrap_or("0");
    text.strip_prefix("0x")
        .map_or_else(
            || text.parse().ok(),
            |hex| u64::from_str_radix(hex, 16).ok(),
        )
        .ok_or_else(|| RowError::new("a number does not parse", text))
}

/// Nanoseconds since 1970 of `YYYY-MM-DD hh:mm:ss.ffffff`, without time zone.
fn stamp_ns(date: &str, time: &str) -> Option<u64> {
    let mut parts = date.split('-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days of the proleptic Gregorian calendar, with years that begin in March.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let mut parts = time.split(':');
    let (hours, minutes) = (
        parts.next()?.parse::<u64>().ok()?,
        parts.next()?.parse::<u64>().ok()?,
    );
    let seconds_ns = time_ns(parts.next()?, 1_000_000_000)?;
    if hours > 23 || minutes > 59 {
        return None;
    }
    // Nanoseconds since 1970 in 64 bits end in the year 2554.
    (days * 86_400 + hours * 3_600 + minutes * 60)
        .checked_mul(1_000_000_000)?
        .checked_add(seconds_ns)
}

impl LineParser for Nbdkit {
    fn line(&mut self, line: &str, out: &mut Collector<'_>) -> Result<(), RowError> {
        let mut words = line.split(' ');
        let (date, time) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let time_ns = stamp_ns(date, time)
            .ok_or_else(|| RowError::new("a time does not parse", format!("{date} {time}")))?;
        let Some(connection) = value(line, "connection") else {
            out.other_row();
            return Ok(());
        };
        let Some(what) = words.find(|word| !word.starts_with("connection=")) else {
            return Err(RowError::new("the row has too few columns", line));
        };
        let begins = !what.starts_with("...");
        let op = match what.trim_start_matches("...") {
            "Connect" if begins => {
                self.exports.insert(
                    connection.to_owned(),
                    value(line, "export").unwrap_or("disk").to_owned(),
                );
                out.other_row();
                return Ok(());
            }
            "Read" => Op::Read,
            "Write" => Op::Write,
            "Flush" => Op::Flush,
            "Trim" | "Zero" => Op::Discard,
            _ => {
                out.other_row();
                return Ok(());
            }
        };
        let id =
            value(line, "id").ok_or_else(|| RowError::new("the row has no request id", line))?;
        let key = (connection.to_owned(), id.to_owned());
        if begins {
            let export = self
                .exports
                .get(connection)
                .map_or("disk", String::as_str)
                .to_owned();
            let flags = if value(line, "fua") == Some("1") {
                Flags::FUA
            } else {
                Flags::default()
            };
            let begun = Begun {
                issue_ns: time_ns,
                export,
                op,
                flags,
                offset: number(line, "offset")?,
                length: number(line, "count")?,
            };
            return match self.begun.insert(key, begun) {
                // The id is used again although its end was never told.
                Some(unended) => unended.push(None, out),
                None => Ok(()),
            };
        }
        let begun = self
            .begun
            .remove(&key)
            .ok_or_else(|| RowError::new("a completion has no issue before it", line))?;
        begun.push(Some(time_ns), out)
    }

    fn finish(&mut self, out: &mut Collector<'_>) -> Result<(), RowError> {
        let mut unended: Vec<Begun> = self.begun.drain().map(|(_, begun)| begun).collect();
        unended.sort_by_key(|begun| (begun.issue_ns, begun.offset));
        unended.iter().try_for_each(|begun| begun.push(None, out))
    }
}

impl Begun {
    fn push(&self, complete_ns: Option<u64>, out: &mut Collector<'_>) -> Result<(), RowError> {
        out.push(&Row {
            issue_ns: self.issue_ns,
            complete_ns,
            device: &self.export,
            op: self.op,
            flags: self.flags,
            offset: self.offset,
            length: self.length,
            pid: 0,
            comm: "",
        })
    }
}
