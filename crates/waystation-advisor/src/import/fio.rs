//! fio's I/O log. Version 2 (`file action [offset length]`) has no times but `wait` lines; rows are given one
//! microsecond each. Version 3 begins each line with microseconds since the start. Neither has completions.

use super::{Collector, LineParser, Row, RowError};
use crate::event::{Flags, Op};

#[derive(Default)]
pub(super) struct Fio {
    version: Option<u8>,
    time_us: u64,
}

impl LineParser for Fio {
    fn line(&mut self, line: &str, out: &mut Collector<'_>) -> Result<(), RowError> {
        let Some(version) = self.version else {
            self.version = match line.trim() {
                "fio version 2 iolog" => Some(2),
                "fio version 3 iolog" => Some(3),
                _ => {
                    return Err(RowError::new(
                        "the first line is not \"fio version 2 iolog\" or 3",
                        line,
                    ));
                }
            };
            return Ok(());
        };
        let number = |text: Option<&str>| {
            text.and_then(|text| text.parse::<u64>().ok())
                .ok_or_else(|| RowError::new("a number does not parse", line))
        };
        let mut words = line.split_ascii_whitespace();
        if version == 3 {
            self.time_us = number(words.next())?;
        }
        let (Some(file), Some(action)) = (words.next(), words.next()) else {
            return Err(RowError::new("the row has too few columns", line));
        };
        let op = match action {
            "read" => Op::Read,
            "write" => Op::Write,
            "sync" | "datasync" => Op::Flush,
            "trim" => Op::Discard,
            "add" | "open" | "close" => {
                out.other_row();
                return Ok(());
            }
            "wait" => {
                self.time_us = self.time_us.saturating_add(number(words.next())?);
                return Ok(());
            }
            _ => return Err(RowError::new("the operation is unknown", action)),
        };
        let (offset, length) = if op == Op::Flush {
            (0, 0)
        } else {
            (number(words.next())?, number(words.next())?)
        };
        if version == 2 {
            self.time_us += 1;
        }
        out.push(&Row {
            issue_ns: self.time_us.saturating_mul(1_000),
            complete_ns: None,
            device: file,
            op,
            flags: Flags::default(),
            offset,
            length,
            pid: 0,
            comm: "",
        })
    }
}
