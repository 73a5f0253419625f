//! Issue events meet their completion events.
//!
//! The kernel reports both with device, operation and first sector, and nothing else that names the request; two
//! outstanding requests with the same three are completed in order of issue. Requests leave in order of issue, so
//! one whose completion never comes would hold back all later ones: it leaves without completion after
//! [`PATIENCE_NS`] of trace time, or when [`OUTSTANDING_MAX`] are waiting.
//!
//! A driver that is full gives a request back: it is *requeued* and will be issued again, so that the earlier issue was
//! none.

use std::collections::{HashMap, VecDeque};

use super::{Collector, Row, RowError};
use crate::event::{Flags, Op};

const PATIENCE_NS: u64 = 120_000_000_000;
const OUTSTANDING_MAX: usize = 1 << 18;

struct Outstanding {
    issue_ns: u64,
    complete_ns: Option<u64>,
    /// It was given back, and never happened.
    requeued: bool,
    device: String,
    op: Op,
    flags: Flags,
    offset: u64,
    length: u64,
    pid: u32,
    comm: String,
}

type Key = (String, Op, u64);

#[derive(Default)]
pub(super) struct Pairs {
    outstanding: VecDeque<Outstanding>,
    /// Number of the queue's front.
    first: u64,
    open: HashMap<Key, VecDeque<u64>>,
}

fn key(device: &str, op: Op, offset: u64) -> Key {
    // Flushes have no address, and kernels write different things in its place.
    (
        device.to_owned(),
        op,
        if op == Op::Flush { 0 } else { offset },
    )
}

impl Pairs {
    pub(super) fn issue(&mut self, row: &Row<'_>, out: &mut Collector<'_>) -> Result<(), RowError> {
        let number = self.first + self.outstanding.len() as u64;
        self.open
            .entry(key(row.device, row.op, row.offset))
            .or_default()
            .push_back(number);
        self.outstanding.push_back(Outstanding {
            issue_ns: row.issue_ns,
            complete_ns: None,
            requeued: false,
            device: row.device.to_owned(),
            op: row.op,
            flags: row.flags,
            offset: row.offset,
            length: row.length,
            pid: row.pid,
            comm: row.comm.to_owned(),
        });
        self.leave(row.issue_ns, out)
    }

    pub(super) fn complete(
        &mut self,
        device: &str,
        op: Op,
        offset: u64,
        time_ns: u64,
        out: &mut Collector<'_>,
    ) -> Result<bool, RowError> {
        let key = key(device, op, offset);
        let Some(numbers) = self.open.get_mut(&key) else {
            return Ok(false);
        };
        let number = numbers.pop_front();
        if numbers.is_empty() {
            self.open.remove(&key);
        }
        let Some(request) = number
            .and_then(|number| number.checked_sub(self.first))
            .and_then(|index| self.outstanding.get_mut(index as usize))
        else {
            return Ok(false);
        };
        request.complete_ns = Some(time_ns);
        self.leave(time_ns, out)?;
        Ok(true)
    }

    /// Takes back the latest issue with this device, operation and address; `false` when none is waiting.
    pub(super) fn requeue(&mut self, device: &str, op: Op, offset: u64) -> bool {
        let key = key(device, op, offset);
        let Some(numbers) = self.open.get_mut(&key) else {
            return false;
        };
        let number = numbers.pop_back();
        if numbers.is_empty() {
            self.open.remove(&key);
        }
        let request = number
            .and_then(|number| number.checked_sub(self.first))
            .and_then(|index| self.outstanding.get_mut(index as usize));
        request.is_some_and(|request| {
            request.requeued = true;
            true
        })
    }

    /// Lets everything go.
    pub(super) fn finish(&mut self, out: &mut Collector<'_>) -> Result<(), RowError> {
        self.leave(u64::MAX, out)
    }

    fn leave(&mut self, now_ns: u64, out: &mut Collector<'_>) -> Result<(), RowError> {
        let mut result = Ok(());
        while let Some(front) = self.outstanding.front() {
            let patience_over = now_ns.saturating_sub(front.issue_ns) > PATIENCE_NS
                || self.outstanding.len() > OUTSTANDING_MAX;
            if front.complete_ns.is_none() && !front.requeued && !patience_over {
                break;
            }
            let Some(front) = self.outstanding.pop_front() else {
                break;
            };
            if front.requeued {
                self.first += 1;
                continue;
            }
            if front.complete_ns.is_none() {
                self.forget(&key(&front.device, front.op, front.offset), self.first);
            }
            self.first += 1;
            let pushed = out.push(&Row {
                issue_ns: front.issue_ns,
                complete_ns: front.complete_ns,
                device: &front.device,
                op: front.op,
                flags: front.flags,
                offset: front.offset,
                length: front.length,
                pid: front.pid,
                comm: &front.comm,
            });
            result = result.and(pushed);
        }
        result
    }

    fn forget(&mut self, key: &Key, number: u64) {
        if let Some(numbers) = self.open.get_mut(key) {
            numbers.retain(|open| *open != number);
            if numbers.is_empty() {
                self.open.remove(key);
            }
        }
    }
}
