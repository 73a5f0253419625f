//! Public collections of comma-separated block traces. None of them records flushes.
//!
//! | collection | columns |
//! |---|---|
//! | MSR Cambridge | time (100 ns since 1601), host, disk, Read/Write, offset, bytes, response time (100 ns) |
//! | Alibaba | device, R/W, offset, bytes, time (us) |
//! | Tencent CBS | time (s), offset (sectors), size (sectors), 0/1, volume |

use super::csv::{sectors, time_ns};
use super::{Collector, LineParser, Row, RowError};
use crate::event::{Flags, Op};

fn columns<const N: usize>(line: &str) -> Result<[&str; N], RowError> {
    let mut found = [""; N];
    let mut parts = line.split(',');
    for slot in &mut found {
        *slot = parts
            .next()
            .map(str::trim)
            .ok_or_else(|| RowError::new("the row has too few columns", line))?;
    }
    if parts.next().is_some() {
        return Err(RowError::new("the row has too many columns", line));
    }
    Ok(found)
}

fn number(text: &str) -> Result<u64, RowError> {
    text.parse()
        .map_err(|_| RowError::new("a number does not parse", text))
}

fn time(text: &str, unit_ns: u64) -> Result<u64, RowError> {
    time_ns(text, unit_ns).ok_or_else(|| RowError::new("a time does not parse", text))
}

fn op(text: &str) -> Result<Op, RowError> {
    match text {
        "Read" | "R" | "0" => Ok(Op::Read),
        "Write" | "W" | "1" => Ok(Op::Write),
        _ => Err(RowError::new("the operation is unknown", text)),
    }
}

/// Whether a line is a header, which some distributions of these files have.
fn is_header(line: &str) -> bool {
    let first = line
        .split(',')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    matches!(first.as_str(), "timestamp" | "device_id")
}

pub(super) struct Msr;

impl LineParser for Msr {
    fn line(&mut self, line: &str, out: &mut Collector<'_>) -> Result<(), RowError> {
        if is_header(line) {
            out.other_row();
            return Ok(());
        }
        let [at, host, disk, kind, offset, bytes, response] = columns::<7>(line)?;
        let issue_ns = time(at, 100)?;
        out.push(&Row {
            issue_ns,
            complete_ns: Some(issue_ns.saturating_add(time(response, 100)?)),
            device: &format!("{host}.{disk}"),
            op: op(kind)?,
            flags: Flags::default(),
            offset: number(offset)?,
            length: number(bytes)?,
            pid: 0,
            comm: "",
        })
    }
}

pub(super) struct Alibaba;

impl LineParser for Alibaba {
    fn line(&mut self, line: &str, out: &mut Collector<'_>) -> Result<(), RowError> {
        if is_header(line) {
            out.other_row();
            return Ok(());
        }
        let [device, kind, offset, bytes, at] = columns::<5>(line)?;
        out.push(&Row {
            issue_ns: time(at, 1_000)?,
            complete_ns: None,
            device,
            op: op(kind)?,
            flags: Flags::default(),
            offset: number(offset)?,
            length: number(bytes)?,
            pid: 0,
            comm: "",
        })
    }
}

pub(super) struct Tencent;

impl LineParser for Tencent {
    fn line(&mut self, line: &str, out: &mut Collector<'_>) -> Result<(), RowError> {
        if is_header(line) {
            out.other_row();
            return Ok(());
        }
        let [at, offset, size, kind, volume] = columns::<5>(line)?;
        out.push(&Row {
            issue_ns: time(at, 1_000_000_000)?,
            complete_ns: None,
            device: volume,
            op: op(kind)?,
            flags: Flags::default(),
            offset: sectors(Some(number(offset)?))?,
            length: sectors(Some(number(size)?))?,
            pid: 0,
            comm: "",
        })
    }
}
