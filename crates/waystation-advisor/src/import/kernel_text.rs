//! The kernel's text for block events, as `trace_pipe` and `perf script` print it.
//!
//! ```text
//!   dd-22816   [000] .N...  1113.317912: block_rq_issue: 7,0 RM 4096 () 71944 + 8 be,0,4 [dd]
//!   dd 22816 [000]  1113.317912: block:block_rq_issue: 7,0 RM 4096 () 71944 + 8 be,0,4 [dd]
//! ```
//! Older kernels print no priority, and no byte count with a completion. Other events are passed over and counted.

use super::csv::{sectors, time_ns};
use super::{Collector, LineParser, Row, RowError};
use crate::event::{Op, parse_rwbs};

/// Parser of the kernel's text.
#[derive(Default)]
pub(crate) struct KernelText {}

impl LineParser for KernelText {
    fn line(&mut self, line: &str, out: &mut Collector<'_>) -> Result<(), RowError> {
        Self::take(line, out)
    }
}

impl KernelText {
    /// Takes one line; also the recorder's way in.
    pub(crate) fn take(line: &str, out: &mut Collector<'_>) -> Result<(), RowError> {
        if let Some(lost) = line.split_once("[LOST ").map(|(_, rest)| rest) {
            let count = lost.split(' ').next().and_then(|count| count.parse().ok());
            out.lost(count.unwrap_or(1));
            return Ok(());
        }
        let issue = line.split_once("block_rq_issue: ");
        let complete = line.split_once("block_rq_complete: ");
        let requeue = line.split_once("block_rq_requeue: ");
        let Some((head, event)) = issue.or(complete).or(requeue) else {
            if line.trim_start().starts_with('#') || line.contains("block_") {
                out.other_row();
                return Ok(());
            }
            return Err(RowError::new(
                "the row is no event of the block layer",
                line,
            ));
        };
        let time = head
            .trim_end()
            .trim_end_matches("block:")
            .trim_end()
            .trim_end_matches(':');
        let time = time.rsplit(' ').next().unwrap_or("");
        let time_ns = time_ns(time, 1_000_000_000)
            .ok_or_else(|| RowError::new("a time does not parse", time))?;
        let (device, rest) = event
            .split_once(' ')
            .ok_or_else(|| RowError::new("the row has too few columns", line))?;
        let (rwbs, rest) = rest
            .split_once(' ')
            .ok_or_else(|| RowError::new("the row has too few columns", line))?;
        let (op, flags) =
            parse_rwbs(rwbs).ok_or_else(|| RowError::new("the operation is unknown", rwbs))?;
        let (before, after) = rest
            .rsplit_once(" + ")
            .ok_or_else(|| RowError::new("the row has no address", line))?;
        let number = |text: Option<&str>| {
            text.and_then(|text| text.parse::<u64>().ok())
                .ok_or_else(|| RowError::new("a number does not parse", line))
        };
        let device = device.replace(',', ":");
        let offset = if op == Op::Flush {
            0
        } else {
            sectors(Some(number(before.rsplit(' ').next())?))?
        };
        if requeue.is_some() {
            out.requeued(&device, op, offset);
            return Ok(());
        }
        if complete.is_some() {
            return out.completed(&device, op, offset, time_ns);
        }
        let (pid, comm) = task(head);
        out.issued(&Row {
            issue_ns: time_ns,
            complete_ns: None,
            device: &device,
            op,
            flags,
            offset,
            length: sectors(Some(number(after.split(' ').next())?))?,
            pid,
            comm: after
                .rsplit_once('[')
                .map_or(comm, |(_, name)| name.trim_end().trim_end_matches(']')),
        })
    }
}

/// Process and command from what stands before the processor's number: `name-pid` or `name pid`.
fn task(head: &str) -> (u32, &str) {
    let before = head
        .split_once(" [")
        .map_or("", |(before, _)| before)
        .trim();
    let (comm, pid) = before.rsplit_once(['-', ' ']).unwrap_or((before, "0"));
    (pid.trim().parse().unwrap_or(0), comm.trim())
}
