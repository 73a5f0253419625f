//! biosnoop of bcc and of libbpf-tools: one line a request, printed at completion, columns by header.

use super::csv::{process, sectors, time_ns};
use super::{Collector, LineParser, Row, RowError};
use crate::event::parse_rwbs;

#[derive(Default)]
pub(super) struct Biosnoop {
    header: Vec<String>,
}

impl Biosnoop {
    fn is_header(line: &str) -> bool {
        line.trim_start().starts_with("TIME") && line.contains("COMM")
    }
}

impl LineParser for Biosnoop {
    fn line(&mut self, line: &str, out: &mut Collector<'_>) -> Result<(), RowError> {
        if Self::is_header(line) {
            self.header = line.split_ascii_whitespace().map(str::to_owned).collect();
            let has = |title: &str| self.header.iter().any(|column| column == title);
            if !(has("SECTOR") && has("BYTES") && has("DISK") && has("T")) {
                self.header.clear();
                return Err(RowError::new(
                    "the header lacks SECTOR, BYTES, DISK or T",
                    line,
                ));
            }
            return Ok(());
        }
        if self.header.is_empty() {
            return Err(RowError::new(
                "the row comes before biosnoop's header",
                line,
            ));
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.len() < self.header.len() {
            return Err(RowError::new("the row has too few columns", line));
        }
        // A command name may hold spaces: columns after it are counted from the right.
        let comm_at = self
            .header
            .iter()
            .position(|title| title == "COMM")
            .unwrap_or(1);
        let extra = words.len() - self.header.len();
        let word = |title: &str| {
            self.header
                .iter()
                .position(|column| column == title)
                .map(|at| {
                    if at > comm_at {
                        words[at + extra]
                    } else {
                        words[at]
                    }
                })
        };
        let number = |title: &str| {
            let text = word(title).unwrap_or("");
            text.parse::<u64>()
                .map_err(|_| RowError::new("a number does not parse", text))
        };
        let time_column = words[0];
        let complete_ns = time_ns(time_column, 1_000_000_000)
            .ok_or_else(|| RowError::new("a time does not parse", time_column))?;
        let latency_ns = match word("LAT(ms)") {
            None => None,
            Some(text) => Some(
                time_ns(text, 1_000_000)
                    .ok_or_else(|| RowError::new("a time does not parse", text))?,
            ),
        };
        let kind = word("T").unwrap_or("");
        let (op, flags) =
            parse_rwbs(kind).ok_or_else(|| RowError::new("the operation is unknown", kind))?;
        // The first line's time is 0 although its request was issued before: shift all by a minute.
        let shifted_ns = complete_ns + 60_000_000_000;
        out.push(&Row {
            issue_ns: shifted_ns.saturating_sub(latency_ns.unwrap_or(0)),
            complete_ns: latency_ns.map(|_| shifted_ns),
            device: word("DISK").unwrap_or("disk"),
            op,
            flags,
            offset: sectors(Some(number("SECTOR")?))?,
            length: number("BYTES")?,
            pid: process(number("PID")?)?,
            comm: &words[comm_at..=comm_at + extra].join(" "),
        })
    }
}
