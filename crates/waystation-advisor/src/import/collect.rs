//! Where the rows of every format meet: areas, names, order.
//!
//! Traces written by several processors or in order of completion are slightly out of order. Rows pass through a
//! heap of [`REORDER_ROWS`]; one that is older than what has already left it means that the clock went backwards,
//! and is rejected as that.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::{Path, PathBuf};

use super::areas::{AreaRules, Resolver};
use super::pairs::Pairs;
use super::reject::Rejections;
use super::{Row, RowError};
use crate::error::{Error, Result};
use crate::event::{NOT_COMPLETED, Request, TraceInfo};
use crate::native::{Trace, Writer};

/// Rows that may overtake each other.
const REORDER_ROWS: usize = 65_536;

/// Command names kept; further ones are "(other)".
const COMMS_MAX: usize = 65_536;

/// Where requests go, in order of issue.
pub trait Sink {
    /// The description, to add areas and names to.
    fn info_mut(&mut self) -> &mut TraceInfo;
    /// One request.
    fn push(&mut self, request: Request) -> Result<()>;
}

impl Sink for Writer {
    fn info_mut(&mut self) -> &mut TraceInfo {
        Writer::info_mut(self)
    }
    fn push(&mut self, request: Request) -> Result<()> {
        Writer::push(self, request)
    }
}

impl Sink for Trace {
    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }
    fn push(&mut self, request: Request) -> Result<()> {
        self.info.note(&request);
        self.requests.push(request);
        Ok(())
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    issue_ns: u64,
    number: u64,
    row: Packed,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Packed {
    complete_ns: u64,
    offset: u64,
    length: u32,
    pid: u32,
    comm: u32,
    area: u8,
    op: u8,
    flags: u8,
}

/// Takes rows, gives requests to a sink.
pub(crate) struct Collector<'a> {
    sink: &'a mut dyn Sink,
    resolver: Resolver,
    comms: HashMap<String, u32>,
    heap: BinaryHeap<Reverse<Waiting>>,
    number: u64,
    origin_ns: Option<u64>,
    left_ns: u64,
    rejections: Rejections,
    file: PathBuf,
    line: u64,
    failure: Option<Error>,
    pub(super) pairs: Pairs,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink, rules: AreaRules) -> Result<Self> {
        Ok(Self {
            sink,
            resolver: Resolver::new(rules)?,
            comms: HashMap::new(),
            heap: BinaryHeap::with_capacity(REORDER_ROWS + 1),
            number: 0,
            origin_ns: None,
            left_ns: 0,
            rejections: Rejections::default(),
            file: PathBuf::new(),
            line: 0,
            failure: None,
            pairs: Pairs::default(),
        })
    }

    pub(super) fn begin_file(&mut self, file: &Path) {
        self.file = file.to_path_buf();
        self.line = 0;
    }

    pub(crate) fn at_line(&mut self, line: u64) {
        self.line = line;
    }

    /// Records that the current row was not understood.
    pub(crate) fn reject(&mut self, error: &RowError) {
        self.rejections.add(&self.file, self.line, error);
    }

    /// Records that the current row is not a request and need not be one.
    pub(super) fn other_row(&mut self) {
        self.rejections.other_rows += 1;
    }

    /// Records events that the recorder reports as lost.
    pub(crate) fn lost(&mut self, events: u64) {
        self.sink.info_mut().lost_events += events;
    }

    /// The sink's failure, if there was one.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// An issue event of a format that reports issue and completion apart.
    pub(super) fn issued(&mut self, row: &Row<'_>) -> Result<(), RowError> {
        let mut pairs = std::mem::take(&mut self.pairs);
        let result = pairs.issue(row, self);
        self.pairs = pairs;
        result
    }

    /// The completion event that belongs to an issue. One whose issue is not in the trace is counted: the request was
    /// under way when the recording began, or is the end of a sequence of flush and write whose parts were recorded.
    pub(super) fn completed(
        &mut self,
        device: &str,
        op: crate::event::Op,
        offset: u64,
        time_ns: u64,
    ) -> Result<(), RowError> {
        let mut pairs = std::mem::take(&mut self.pairs);
        let result = pairs.complete(device, op, offset, time_ns, self);
        self.pairs = pairs;
        self.rejections.unmatched_completions += u64::from(!result?);
        Ok(())
    }

    /// An issue event that was none: the driver gave the request back.
    pub(super) fn requeued(&mut self, device: &str, op: crate::event::Op, offset: u64) {
        // One that was issued before the recording began need not be taken back.
        let _ = self.pairs.requeue(device, op, offset);
    }

    /// Takes one whole row.
    pub(crate) fn push(&mut self, row: &Row<'_>) -> Result<(), RowError> {
        let length = u32::try_from(row.length).map_err(|_| {
            RowError::new(
                "the length does not fit into 32 bits",
                row.length.to_string(),
            )
        })?;
        if row.offset.checked_add(row.length).is_none() {
            return Err(RowError::new(
                "the range ends beyond 64 bits",
                row.offset.to_string(),
            ));
        }
        if row
            .complete_ns
            .is_some_and(|complete| complete < row.issue_ns)
        {
            return Err(RowError::new(
                "it completes before it is issued",
                format!(
                    "{} ns before {} ns",
                    row.complete_ns.unwrap_or(0),
                    row.issue_ns
                ),
            ));
        }
        if self.origin_ns.is_some() && row.issue_ns < self.left_ns {
            return Err(RowError::new(
                "the clock goes backwards by more than rows can be sorted",
                format!("{} ns after {} ns", row.issue_ns, self.left_ns),
            ));
        }
        let area = self
            .resolver
            .area(row.device, row.offset, &mut self.sink.info_mut().areas)?;
        let comm = self.comm(row.comm);
        self.number += 1;
        self.heap.push(Reverse(Waiting {
            issue_ns: row.issue_ns,
            number: self.number,
            row: Packed {
                complete_ns: row.complete_ns.unwrap_or(NOT_COMPLETED),
                offset: row.offset,
                length,
                pid: row.pid,
                comm,
                area,
                op: row.op as u8,
                flags: row.flags.0,
            },
        }));
        if self.heap.len() > REORDER_ROWS {
            self.leave();
        }
        Ok(())
    }

    /// Hands everything on and closes the account.
    pub(crate) fn finish(mut self) -> Result<Rejections> {
        let mut pairs = std::mem::take(&mut self.pairs);
        if let Err(error) = pairs.finish(&mut self) {
            self.reject(&error);
        }
        while !self.heap.is_empty() {
            self.leave();
        }
        self.check()?;
        Ok(self.rejections)
    }

    fn leave(&mut self) {
        let Some(Reverse(waiting)) = self.heap.pop() else {
            return;
        };
        let origin = *self.origin_ns.get_or_insert(waiting.issue_ns);
        self.left_ns = waiting.issue_ns;
        let row = waiting.row;
        let request = Request {
            issue_ns: waiting.issue_ns - origin,
            complete_ns: if row.complete_ns == NOT_COMPLETED {
                NOT_COMPLETED
            } else {
                row.complete_ns - origin
            },
            offset: row.offset,
            length: row.length,
            pid: row.pid,
            comm: row.comm,
            area: row.area,
            op: crate::event::Op::from_code(row.op).unwrap_or(crate::event::Op::Read),
            flags: crate::event::Flags(row.flags),
        };
        if self.failure.is_none()
            && let Err(error) = self.sink.push(request)
        {
            self.failure = Some(error);
        }
    }

    fn comm(&mut self, name: &str) -> u32 {
        if let Some(known) = self.comms.get(name) {
            return *known;
        }
        let name = if self.comms.len() < COMMS_MAX {
            name
        } else {
            "(other)"
        };
        if let Some(known) = self.comms.get(name) {
            return *known;
        }
        let comms = &mut self.sink.info_mut().comms;
        let index = comms.len() as u32;
        comms.push(name.to_owned());
        self.comms.insert(name.to_owned(), index);
        index
    }
}
