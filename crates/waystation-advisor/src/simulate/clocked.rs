//! A device model that is asked from outside what is done by now: what an emulator of the device needs.
//!
//! The simulation owns its clock and its queue of events; here the caller has the clock (the wall), hands over
//! requests as they arrive, and fetches those that are done.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::disk::{Disk, Ticket};
use super::flash::Flash;
use super::model::DeviceModel;
use crate::event::Op;

enum State {
    Disk(Box<Disk>),
    Flash(Box<Flash>),
}

/// A device between its requests. The model's software path is left out: it stands before the device.
pub(crate) struct Clocked {
    state: State,
    /// When the arm will have finished what it does.
    arm_ns: Option<u64>,
    ready: BinaryHeap<Reverse<(u64, Ticket)>>,
    done: Vec<Ticket>,
}

impl Clocked {
    pub(crate) fn new(model: &DeviceModel) -> Self {
        Self {
            state: match model {
                DeviceModel::Disk(model) => State::Disk(Box::new(Disk::new(model))),
                DeviceModel::Flash(model) => State::Flash(Box::new(Flash::new(model))),
            },
            arm_ns: None,
            ready: BinaryHeap::new(),
            done: Vec::new(),
        }
    }

    /// A request reaches the device. The clock must have been advanced to `now_ns`.
    pub(crate) fn arrive(&mut self, now_ns: u64, ticket: Ticket, op: Op, offset: u64, bytes: u64) {
        match &mut self.state {
            State::Flash(flash) => {
                let end_ns = match op {
                    Op::Read => flash.read(now_ns, bytes),
                    Op::Write => flash.write(now_ns, bytes),
                    Op::Flush => flash.flush(now_ns),
                    Op::Discard => now_ns,
                };
                self.ready.push(Reverse((end_ns, ticket)));
            }
            State::Disk(disk) => {
                match op {
                    Op::Read => disk.read(ticket, offset, bytes, &mut self.done),
                    Op::Write => disk.write(ticket, offset, bytes, &mut self.done),
                    Op::Flush => disk.flush(ticket, &mut self.done),
                    Op::Discard => self.done.push(ticket),
                }
                self.after_disk(now_ns);
            }
        }
    }

    fn after_disk(&mut self, now_ns: u64) {
        if let State::Disk(disk) = &mut self.state
            && let Some(end_ns) = disk.begin(now_ns)
        {
            self.arm_ns = Some(end_ns);
        }
        for ticket in self.done.drain(..) {
            self.ready.push(Reverse((now_ns, ticket)));
        }
    }

    /// Lets the device work until `now_ns` and appends what is done by then to `done`.
    pub(crate) fn advance(&mut self, now_ns: u64, done: &mut Vec<Ticket>) {
        while let Some(end_ns) = self.arm_ns.filter(|end_ns| *end_ns <= now_ns) {
            self.arm_ns = None;
            if let State::Disk(disk) = &mut self.state {
                disk.finished(&mut self.done);
            }
            self.after_disk(end_ns);
        }
        while let Some(Reverse((_, ticket))) = self
            .ready
            .peek()
            .copied()
            .filter(|Reverse((at, _))| *at <= now_ns)
        {
            self.ready.pop();
            done.push(ticket);
        }
    }

    /// When something will be done next, if nothing else arrives.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let ready = self.ready.peek().map(|Reverse((at, _))| *at);
        match (ready, self.arm_ns) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Machine;
    use super::*;

    fn drain(device: &mut Clocked) -> Vec<(u64, Ticket)> {
        let mut all = Vec::new();
        while let Some(now_ns) = device.next_ns() {
            let mut done = Vec::new();
            device.advance(now_ns, &mut done);
            all.extend(done.into_iter().map(|ticket| (now_ns, ticket)));
        }
        all
    }

    #[test]
    fn a_cached_write_is_done_at_once_and_its_flush_when_the_arm_was_there() {
        let mut disk = Clocked::new(&Machine::laboratory().slow);
        disk.arrive(0, 1, Op::Write, 1 << 30, 4096);
        disk.arrive(0, 2, Op::Flush, 0, 0);
        let done = drain(&mut disk);
        assert_eq!(done[0], (0, 1));
        assert_eq!(done[1].1, 2);
        assert!((1_000_000..30_000_000).contains(&done[1].0), "{done:?}");
    }

    #[test]
    fn a_disk_asked_late_has_worked_in_between() {
        let reads = |disk: &mut Clocked| {
            for ticket in 0..8 {
                disk.arrive(0, ticket, Op::Read, u64::from(ticket) << 30, 4096);
            }
        };
        let model = Machine::laboratory().slow;
        let (mut often, mut late) = (Clocked::new(&model), Clocked::new(&model));
        reads(&mut often);
        reads(&mut late);
        let last_ns = drain(&mut often).last().unwrap().0;
        let mut done = Vec::new();
        late.advance(last_ns, &mut done);
        assert_eq!(done.len(), 8, "asked once, at the end");
        assert_eq!(late.next_ns(), None);
    }

    #[test]
    fn flash_answers_in_parallel_as_far_as_it_has_channels() {
        let mut flash = Clocked::new(&DeviceModel::preset("sata-ssd").unwrap());
        for ticket in 0..16 {
            flash.arrive(0, ticket, Op::Read, 0, 4096);
        }
        let done = drain(&mut flash);
        assert_eq!(done.len(), 16);
        let last_us = done.last().unwrap().0 / 1_000;
        assert!(
            (180..280).contains(&last_us),
            "{last_us}: two rounds of 90 us"
        );
    }
}
