//! Comma-separated values, described by their header or by a column map.
//!
//! The map is a list of `field=column`, where a column is a name in the header or a number from 1:
//! `issue=1,area=2,op=3,offset=4,length=5,latency=6`. Fields: `issue` or `time`, `complete` or `latency`, `area` or
//! `device`, `rwbs` or `op`, `offset` or `sector`, `length` or `sectors`, `pid`, `comm`. A unit may follow a time:
//! `issue:ns=1` (s, ms, us, ns; default us, or what the column's name ends in).

use super::{Collector, LineParser, Row, RowError};
use crate::error::{Error, Result};
use crate::event::{Flags, Op, parse_rwbs};

/// The fields that a column can hold.
const FIELDS: [&str; 14] = [
    "issue", "time", "complete", "latency", "area", "device", "rwbs", "op", "offset", "sector",
    "length", "sectors", "pid", "comm",
];

/// Which column holds which field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnMap {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    field: usize,
    unit_ns: Option<u64>,
    column: Column,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    Number(usize),
    Name(String),
}

impl ColumnMap {
    /// Reads `field[:unit]=column,...`.
    pub fn parse(text: &str) -> Result<Self> {
        let mut entries = Vec::new();
        for part in text.split(',') {
            let (left, column) = part.split_once('=').ok_or_else(|| {
                Error::Usage(format!(
                    "a column map is field=column,...; \"{part}\" has no ="
                ))
            })?;
            let (name, unit) = left
                .split_once(':')
                .map_or((left, None), |(name, unit)| (name, Some(unit)));
            let field = FIELDS
                .iter()
                .position(|field| *field == name)
                .ok_or_else(|| {
                    Error::Usage(format!(
                        "\"{name}\" is not a field of a trace; fields are {}",
                        FIELDS.join(", ")
                    ))
                })?;
            let unit_ns = unit
                .map(|unit| {
                    unit_ns(unit).ok_or_else(|| {
                        Error::Usage(format!("\"{unit}\" is not a unit of time (s, ms, us, ns)"))
                    })
                })
                .transpose()?;
            let column = match column.parse::<usize>() {
                Ok(0) => return Err(Error::Usage("columns are counted from 1".to_owned())),
                Ok(number) => Column::Number(number - 1),
                Err(_) => Column::Name(column.to_owned()),
            };
            entries.push(Entry {
                field,
                unit_ns,
                column,
            });
        }
        let map = Self { entries };
        let has = |names: [&str; 2]| {
            map.entries
                .iter()
                .any(|entry| names.contains(&FIELDS[entry.field]))
        };
        for names in [
            ["issue", "time"],
            ["rwbs", "op"],
            ["offset", "sector"],
            ["length", "sectors"],
        ] {
            if !has(names) {
                return Err(Error::Usage(format!(
                    "a column map needs {} or {}",
                    names[0], names[1]
                )));
            }
        }
        Ok(map)
    }

    fn has_names(&self) -> bool {
        self.entries
            .iter()
            .any(|entry| matches!(entry.column, Column::Name(_)))
    }
}

fn unit_ns(unit: &str) -> Option<u64> {
    match unit {
        "s" => Some(1_000_000_000),
        "ms" => Some(1_000_000),
        "us" => Some(1_000),
        "ns" => Some(1),
        _ => None,
    }
}

/// A number with an optional fraction, in units of `unit_ns`, without going through floating point.
pub(super) fn time_ns(text: &str, unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut value = whole.parse::<u64>().ok()?.checked_mul(unit_ns)?;
    let mut place = unit_ns;
    for digit in fraction.bytes() {
        if !digit.is_ascii_digit() {
            return None;
        }
        place /= 10;
        value = value.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(value)
}

#[derive(Default)]
pub(super) struct Csv {
    map: Option<ColumnMap>,
    /// Per field: column and unit.
    at: [Option<(usize, u64)>; FIELDS.len()],
    ready: bool,
}

impl Csv {
    pub(super) fn new(map: Option<ColumnMap>) -> Self {
        Self {
            map,
            ..Self::default()
        }
    }

    /// Settles the columns; `true` when `line` was the header.
    fn settle(&mut self, line: &str) -> Result<bool, RowError> {
        let header: Vec<&str> = line.split(',').map(str::trim).collect();
        if let Some(map) = &self.map {
            for entry in &map.entries {
                let column = match &entry.column {
                    Column::Number(number) => *number,
                    Column::Name(name) => header
                        .iter()
                        .position(|title| title == name)
                        .ok_or_else(|| {
                            RowError::new(
                                "the header lacks a column that the map names",
                                name.as_str(),
                            )
                        })?,
                };
                self.at[entry.field] = Some((column, entry.unit_ns.unwrap_or(1_000)));
            }
            self.ready = true;
            return Ok(map.has_names());
        }
        for (column, title) in header.iter().enumerate() {
            let title = title.to_ascii_lowercase();
            let plain = title.strip_prefix("t_").unwrap_or(&title);
            let (name, suffix) = plain.rsplit_once('_').unwrap_or((plain, ""));
            let known = |name: &str| FIELDS.iter().position(|field| *field == name);
            if let Some(field) = known(plain).or_else(|| known(name)) {
                self.at[field] = Some((column, unit_ns(suffix).unwrap_or(1_000)));
            }
        }
        let needed = [
            ["issue", "time"],
            ["rwbs", "op"],
            ["offset", "sector"],
            ["length", "sectors"],
        ];
        for names in needed {
            if !names.iter().any(|name| self.field(name).is_some()) {
                return Err(RowError::new(
                    "the first line is no header of a block trace (use --columns)",
                    line,
                ));
            }
        }
        self.ready = true;
        Ok(true)
    }

    fn field(&self, name: &str) -> Option<(usize, u64)> {
        FIELDS
            .iter()
            .position(|field| *field == name)
            .and_then(|field| self.at[field])
    }
}

impl LineParser for Csv {
    fn line(&mut self, line: &str, out: &mut Collector<'_>) -> Result<(), RowError> {
        if !self.ready && self.settle(line)? {
            return Ok(());
        }
        let columns: Vec<&str> = line.split(',').map(str::trim).collect();
        let text = |name: &str| match self.field(name) {
            None => Ok(None),
            Some((column, unit)) => columns
                .get(column)
                .map(|text| Some((*text, unit)))
                .ok_or_else(|| RowError::new("the row has too few columns", line)),
        };
        let number = |name: &str| match text(name)? {
            None => Ok(None),
            Some((text, _)) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| RowError::new("a number does not parse", text)),
        };
        let time = |name: &str| match text(name)? {
            None | Some(("", _)) => Ok(None),
            Some((text, unit)) => time_ns(text, unit)
                .map(Some)
                .ok_or_else(|| RowError::new("a time does not parse", text)),
        };
        let issue_ns = match time("issue")? {
            Some(time) => time,
            None => time("time")?.ok_or_else(|| RowError::new("the row has no time", line))?,
        };
        let complete_ns = match time("complete")? {
            Some(time) => Some(time),
            None => time("latency")?.map(|latency| issue_ns.saturating_add(latency)),
        };
        let operation = match text("rwbs")? {
            Some((text, _)) => text,
            None => text("op")?.map_or("", |(text, _)| text),
        };
        let (op, flags) = operation_of(operation)?;
        let offset = match number("offset")? {
            Some(bytes) => bytes,
            None => sectors(number("sector")?)?,
        };
        let length = match number("length")? {
            Some(bytes) => bytes,
            None => sectors(number("sectors")?)?,
        };
        let device = match text("area")? {
            Some((text, _)) => text,
            None => text("device")?.map_or("disk", |(text, _)| text),
        };
        out.push(&Row {
            issue_ns,
            complete_ns,
            device,
            op,
            flags,
            offset,
            length,
            pid: process(number("pid")?.unwrap_or(0))?,
            comm: text("comm")?.map_or("", |(text, _)| text),
        })
    }
}

/// A process number, which has 32 bits.
pub(super) fn process(number: u64) -> Result<u32, RowError> {
    u32::try_from(number)
        .map_err(|_| RowError::new("a process number is out of range", number.to_string()))
}

/// A count of 512-byte sectors in bytes.
pub(super) fn sectors(count: Option<u64>) -> Result<u64, RowError> {
    count.unwrap_or(0).checked_mul(512).ok_or_else(|| {
        RowError::new(
            "a sector number is out of range",
            count.unwrap_or(0).to_string(),
        )
    })
}

/// The kernel's letters, or a word.
pub(super) fn operation_of(text: &str) -> Result<(Op, Flags), RowError> {
    if let Some(found) = parse_rwbs(text) {
        return Ok(found);
    }
    let op = match text.to_ascii_lowercase().as_str() {
        "read" | "r" | "0" => Op::Read,
        "write" | "w" | "1" => Op::Write,
        "flush" | "f" | "sync" => Op::Flush,
        "discard" | "trim" | "d" => Op::Discard,
        _ => return Err(RowError::new("the operation is unknown", text)),
    };
    Ok((op, Flags::default()))
}
