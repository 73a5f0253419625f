//! blkparse's default text: `maj,min cpu sequence seconds pid action rwbs sector + count [process]`.

use super::csv::{sectors, time_ns};
use super::{Collector, LineParser, Row, RowError};
use crate::event::{Op, parse_rwbs};

#[derive(Default)]
pub(super) struct Blkparse {
    /// The summary at the end has begun.
    summary: bool,
}

impl LineParser for Blkparse {
    fn line(&mut self, line: &str, out: &mut Collector<'_>) -> Result<(), RowError> {
        let trimmed = line.trim_start();
        self.summary |= trimmed.starts_with("CPU") || trimmed.starts_with("Total (");
        if self.summary {
            out.other_row();
            return Ok(());
        }
        let mut words = trimmed.split_ascii_whitespace();
        let mut next = || {
            words
                .next()
                .ok_or_else(|| RowError::new("the row has too few columns", line))
        };
        let device = next()?;
        let (_cpu, _sequence, time, pid, action) = (next()?, next()?, next()?, next()?, next()?);
        let time_ns = time_ns(time, 1_000_000_000)
            .ok_or_else(|| RowError::new("a time does not parse", time))?;
        if !is_device(device) {
            return Err(RowError::new(
                "the row does not begin with a device (major,minor)",
                device,
            ));
        }
        if !matches!(action, "D" | "C" | "R") {
            out.other_row();
            return Ok(());
        }
        let rwbs = next()?;
        let (op, flags) =
            parse_rwbs(rwbs).ok_or_else(|| RowError::new("the operation is unknown", rwbs))?;
        let (sector, count) = match line.split_once(" + ") {
            Some((before, after)) => (
                before.rsplit(' ').next().unwrap_or(""),
                after.split(' ').next().unwrap_or(""),
            ),
            None if op == Op::Flush => ("0", "0"),
            None => return Err(RowError::new("the row has no address", line)),
        };
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| RowError::new("a number does not parse", text))
        };
        let device = device.replace(',', ":");
        let offset = if op == Op::Flush {
            0
        } else {
            sectors(Some(number(sector)?))?
        };
        if action == "C" {
            return out.completed(&device, op, offset, time_ns);
        }
        if action == "R" {
            out.requeued(&device, op, offset);
            return Ok(());
        }
        let comm = line
            .rsplit_once('[')
            .map_or("", |(_, name)| name.trim_end_matches(']'));
        out.issued(&Row {
            issue_ns: time_ns,
            complete_ns: None,
            device: &device,
            op,
            flags,
            offset,
            length: sectors(Some(number(count)?))?,
            pid: pid
                .parse()
                .map_err(|_| RowError::new("a number does not parse", pid))?,
            comm,
        })
    }
}

/// Whether `text` is `major,minor`.
fn is_device(text: &str) -> bool {
    text.split_once(',').is_some_and(|(major, minor)| {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
        is_number(major) && is_number(minor)
    })
}
