//! The event loop.
//!
//! Three kinds of events: a piece reaches its device (after the software path), the spindle finishes a piece of
//! work, a piece completes. When the last piece of a request completes, its followers are issued after their gap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::chain::{Cause, Chain};
use super::disk::{Disk, Ticket};
use super::flash::Flash;
use super::model::{DeviceModel, Machine};
use super::placement::{Piece, Placement, route};
use crate::event::{Flags, NOT_COMPLETED, Op, Request, TraceInfo};

/// What a simulation found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// From the start to the last completion that somebody waited for.
    pub run_ns: u64,
    /// Time in which the slow device worked.
    pub slow_busy_ns: u64,
    /// Bytes written to the fast device.
    pub fast_written: u64,
    /// Bytes read from the fast device.
    pub fast_read: u64,
    /// Per request: when it was issued and when it completed (only on request).
    pub times_ns: Vec<(u64, u64)>,
}

/// One thing that a device has to do for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The request.
    pub request: u32,
    /// On the fast device.
    pub fast: bool,
    /// What.
    pub op: Op,
    /// The area that the offset counts in.
    pub area: u8,
    /// First byte in the area.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Whether the request waits for it; if not, it only occupies the device.
    pub waited_for: bool,
}

enum Device {
    Disk(Box<Disk>),
    Flash(Box<Flash>),
}

impl Device {
    fn new(model: &DeviceModel) -> Self {
        match model {
            DeviceModel::Disk(model) => Self::Disk(Box::new(Disk::new(model))),
            DeviceModel::Flash(model) => Self::Flash(Box::new(Flash::new(model))),
        }
    }

    fn path_ns(&self, bytes: u64) -> u64 {
        match self {
            Self::Disk(disk) => disk.path_ns(bytes),
            Self::Flash(flash) => flash.path_ns(bytes),
        }
    }

    fn busy_ns(&self) -> u64 {
        match self {
            Self::Disk(disk) => disk.busy_ns,
            Self::Flash(flash) => flash.busy_ns,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Complete(Ticket),
    SpindleDone(bool),
    Arrive(Ticket),
    Issue(u32),
}

struct Loop<'a> {
    chain: &'a Chain,
    steps: &'a [Step],
    first: &'a [u32],
    devices: [Device; 2],
    heap: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    sequence: u64,
    outstanding: Vec<u16>,
    done: Vec<Ticket>,
    /// When the last request completed, waited for or not.
    last_ns: u64,
    outcome: Outcome,
}

impl Loop<'_> {
    fn schedule(&mut self, time_ns: u64, happening: Happening) {
        self.sequence += 1;
        self.heap.push(Reverse((time_ns, self.sequence, happening)));
    }

    fn follow(&mut self, now_ns: u64, cause: Cause) {
        let chain = self.chain;
        for request in chain.followers(cause) {
            self.schedule(
                now_ns + chain.gap_ns(*request as usize),
                Happening::Issue(*request),
            );
        }
    }

    fn issue(&mut self, now_ns: u64, request: u32) {
        if let Some(times) = self.outcome.times_ns.get_mut(request as usize) {
            times.0 = now_ns;
        }
        let steps = self.first[request as usize]..self.first[request as usize + 1];
        let waits = self.steps[steps.start as usize..steps.end as usize]
            .iter()
            .filter(|step| step.waited_for)
            .count();
        self.outstanding[request as usize] = waits as u16;
        for ticket in steps {
            let step = &self.steps[ticket as usize];
            let path_ns = self.devices[usize::from(step.fast)].path_ns(step.length);
            self.schedule(now_ns + path_ns, Happening::Arrive(ticket));
        }
        self.follow(now_ns, Cause::Issue(request));
        if waits == 0 {
            self.completed(now_ns, request);
        }
    }

    fn arrive(&mut self, now_ns: u64, ticket: Ticket) {
        let step = self.steps[ticket as usize];
        let side = usize::from(step.fast);
        if step.fast && step.op == Op::Write {
            self.outcome.fast_written += step.length;
        } else if step.fast && step.op == Op::Read {
            self.outcome.fast_read += step.length;
        }
        match &mut self.devices[side] {
            Device::Flash(flash) => {
                let end_ns = match step.op {
                    Op::Read => flash.read(now_ns, step.length),
                    Op::Write => flash.write(now_ns, step.length),
                    Op::Flush => flash.flush(now_ns),
                    Op::Discard => now_ns,
                };
                self.schedule(end_ns, Happening::Complete(ticket));
            }
            Device::Disk(disk) => {
                match step.op {
                    Op::Read => disk.read(ticket, step.offset, step.length, &mut self.done),
                    Op::Write => disk.write(ticket, step.offset, step.length, &mut self.done),
                    Op::Flush => disk.flush(ticket, &mut self.done),
                    Op::Discard => self.done.push(ticket),
                }
                self.after_disk(now_ns, step.fast);
            }
        }
    }

    fn after_disk(&mut self, now_ns: u64, fast: bool) {
        if let Device::Disk(disk) = &mut self.devices[usize::from(fast)]
            && let Some(end_ns) = disk.begin(now_ns)
        {
            self.schedule(end_ns, Happening::SpindleDone(fast));
        }
        let mut done = std::mem::take(&mut self.done);
        for ticket in done.drain(..) {
            self.schedule(now_ns, Happening::Complete(ticket));
        }
        self.done = done;
    }

    fn spindle_done(&mut self, now_ns: u64, fast: bool) {
        if let Device::Disk(disk) = &mut self.devices[usize::from(fast)] {
            disk.finished(&mut self.done);
        }
        self.after_disk(now_ns, fast);
    }

    fn piece_done(&mut self, now_ns: u64, ticket: Ticket) {
        let step = self.steps[ticket as usize];
        if !step.waited_for {
            return;
        }
        let outstanding = &mut self.outstanding[step.request as usize];
        *outstanding -= 1;
        if *outstanding == 0 {
            self.completed(now_ns, step.request);
        }
    }

    fn completed(&mut self, now_ns: u64, request: u32) {
        self.last_ns = self.last_ns.max(now_ns);
        if self.chain.is_waited_for(request) {
            self.outcome.run_ns = self.outcome.run_ns.max(now_ns);
        }
        if let Some(times) = self.outcome.times_ns.get_mut(request as usize) {
            times.1 = now_ns;
        }
        self.follow(now_ns, Cause::Completion(request));
    }

    fn run(mut self) -> Outcome {
        self.follow(0, Cause::Start);
        while let Some(Reverse((now_ns, _, happening))) = self.heap.pop() {
            match happening {
                Happening::Issue(request) => self.issue(now_ns, request),
                Happening::Arrive(ticket) => self.arrive(now_ns, ticket),
                Happening::SpindleDone(fast) => self.spindle_done(now_ns, fast),
                Happening::Complete(ticket) => self.piece_done(now_ns, ticket),
            }
        }
        // A trace of nothing but write-back is as long as that takes.
        if self.outcome.run_ns == 0 {
            self.outcome.run_ns = self.last_ns;
        }
        self.outcome.slow_busy_ns = self.devices[0].busy_ns();
        self.outcome
    }
}

/// Where each area begins on the slow device: as the layout says, the others one after the other behind.
fn bases(info: &TraceInfo, machine: &Machine) -> Vec<u64> {
    let mut next = 0;
    for area in &info.areas {
        if let Some(base) = machine.layout.get(&area.name) {
            next = next.max(base.0.saturating_add(area.extent_bytes));
        }
    }
    info.areas
        .iter()
        .map(|area| {
            machine.layout.get(&area.name).map_or_else(
                || {
                    let base = next;
                    next = next.saturating_add(area.extent_bytes);
                    base
                },
                |base| base.0,
            )
        })
        .collect()
}

/// Runs the trace with its blocks placed as `placement` says. `keep_times` fills [`Outcome::times_ns`].
pub fn simulate(
    info: &TraceInfo,
    requests: &[Request],
    chain: &Chain,
    placement: &Placement,
    machine: &Machine,
    keep_times: bool,
) -> Outcome {
    let (first, pieces) = route(requests, placement);
    let mut steps = Vec::with_capacity(pieces.len());
    let mut first_step = Vec::with_capacity(first.len());
    for (index, request) in requests.iter().enumerate() {
        first_step.push(steps.len() as u32);
        for piece in &pieces[first[index] as usize..first[index + 1] as usize] {
            push_steps(request, piece, &mut steps);
        }
    }
    first_step.push(steps.len() as u32);
    simulate_steps(
        info,
        requests,
        chain,
        machine,
        (&first_step, &mut steps),
        keep_times,
    )
}

/// A piece as device work: a pre-flush goes before its write, forced unit access makes a flush behind it.
fn push_steps(request: &Request, piece: &Piece, steps: &mut Vec<Step>) {
    let step = |op, length| Step {
        request: piece.request,
        fast: piece.fast,
        op,
        area: request.area,
        offset: piece.offset,
        length,
        waited_for: true,
    };
    if request.op == Op::Write && request.flags.has(Flags::PREFLUSH) {
        steps.push(step(Op::Flush, 0));
    }
    steps.push(step(request.op, piece.length));
    if request.op == Op::Write && request.flags.has(Flags::FUA) {
        steps.push(step(Op::Flush, 0));
    }
}

/// Runs arbitrary device work per request: `first[i]..first[i + 1]` are the steps of request `i`. Offsets are within
/// their area; they are moved to where the area lies.
pub fn simulate_steps(
    info: &TraceInfo,
    requests: &[Request],
    chain: &Chain,
    machine: &Machine,
    (first, steps): (&[u32], &mut [Step]),
    keep_times: bool,
) -> Outcome {
    let bases = bases(info, machine);
    for step in steps.iter_mut() {
        step.offset = step.offset.saturating_add(bases[usize::from(step.area)]);
    }
    let state = Loop {
        chain,
        steps,
        first,
        devices: [Device::new(&machine.slow), Device::new(&machine.fast)],
        heap: BinaryHeap::new(),
        sequence: 0,
        outstanding: vec![0; requests.len()],
        done: Vec::new(),
        last_ns: 0,
        outcome: Outcome {
            times_ns: if keep_times {
                vec![(0, NOT_COMPLETED); requests.len()]
            } else {
                Vec::new()
            },
            ..Outcome::default()
        },
    };
    state.run()
}
