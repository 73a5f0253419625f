//! The drive as its users see it: pages read and written, from the host or from within.
//!
//! ```text
//! host  --link--> memory --firmware--> flash          a write of the host
//! host <--link--- memory <-------------flash <--firmware-- command      a read of the host
//!                 memory <-------------flash <--firmware-- manager      a read of the compaction manager
//! ```
//!
//! Link, memory and firmware serve one request after another in the order in which these come. What the owner of a
//! request calls it (`T`) comes back when the request is done; [`Drive::at`] gives the owner's own dates the same way.

use super::calendar::{Calendar, Nanos, Server, transfer};
use super::config::{Machine, ModelError};
use super::flash::{Action, Class, Flash, FlashEvent, Operation};
use super::ftl::Ftl;

/// Where a page comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The host, over the link.
    Host,
    /// The drive's own memory.
    Inside,
}

impl Side {
    /// Work of the host goes first.
    fn class(self) -> Class {
        match self {
            Self::Host => Class::High,
            Self::Inside => Class::Low,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Event<T> {
    Flash(FlashEvent),
    /// The firmware has handed an operation to the flash.
    Submit(usize, Operation<Origin<T>>),
    Done(T),
}

/// Whom an operation of the flash serves.
#[derive(Debug, Clone, Copy)]
enum Origin<T> {
    User(Side, T),
    /// Emptying of blocks.
    Cleaning,
}

/// How much went where, and how long everything was busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    /// Pages that were read, by the host and by compaction inside.
    pub pages_read: [u64; 2],
    /// Pages that were written, likewise.
    pub pages_written: [u64; 2],
    /// Pages moved to empty blocks.
    pub pages_moved: u64,
    /// Blocks that were erased.
    pub erased: u64,
    /// Busy time of all channels together.
    pub channels_ns: Nanos,
    /// Busy time of all dies together.
    pub dies_ns: Nanos,
    /// Busy time of the firmware's core.
    pub firmware_ns: Nanos,
    /// Busy time of the memory.
    pub memory_ns: Nanos,
    /// Busy time of the link, to and from the host.
    pub link_ns: [Nanos; 2],
}

impl Usage {
    /// Each figure of two usages, by `with`.
    fn each(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let pair = |a: [u64; 2], b: [u64; 2]| [with(a[0], b[0]), with(a[1], b[1])];
        Self {
            pages_read: pair(self.pages_read, other.pages_read),
            pages_written: pair(self.pages_written, other.pages_written),
            pages_moved: with(self.pages_moved, other.pages_moved),
            erased: with(self.erased, other.erased),
            channels_ns: with(self.channels_ns, other.channels_ns),
            dies_ns: with(self.dies_ns, other.dies_ns),
            firmware_ns: with(self.firmware_ns, other.firmware_ns),
            memory_ns: with(self.memory_ns, other.memory_ns),
            link_ns: pair(self.link_ns, other.link_ns),
        }
    }

    /// Both together.
    pub(super) fn plus(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    /// What came after `before`.
    pub(super) fn minus(self, before: Self) -> Self {
        self.each(before, |a, b| a - b)
    }
}

/// A drive under simulation.
pub struct Drive<T> {
    calendar: Calendar<Event<T>>,
    flash: Flash<Origin<T>>,
    ftl: Ftl,
    machine: Machine,
    /// To the host, and from it.
    link: [Server; 2],
    memory: Server,
    firmware: Server,
    usage: Usage,
}

impl<T: Copy> Drive<T> {
    /// An empty drive. Without `priority` there is one queue for the host's work and for compaction.
    pub fn new(machine: &Machine, priority: bool) -> Result<Self, ModelError> {
        machine.check()?;
        Ok(Self {
            calendar: Calendar::new(),
            flash: Flash::new(&machine.flash, priority),
            ftl: Ftl::new(&machine.flash),
            machine: machine.clone(),
            link: Default::default(),
            memory: Server::default(),
            firmware: Server::default(),
            usage: Usage::default(),
        })
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.calendar.now()
    }

    /// How many pages the drive offers.
    pub fn capacity(&self) -> usize {
        self.ftl.capacity()
    }

    /// How many events there were.
    pub fn events(&self) -> u64 {
        self.calendar.entered()
    }

    /// What was done so far.
    pub fn usage(&self) -> Usage {
        Usage {
            channels_ns: self.flash.channels_busy(),
            dies_ns: self.flash.dies_busy(),
            firmware_ns: self.firmware.busy(),
            memory_ns: self.memory.busy(),
            link_ns: [self.link[0].busy(), self.link[1].busy()],
            ..self.usage
        }
    }

    /// Gives `tag` back at that time.
    pub fn at(&mut self, at: Nanos, tag: T) {
        self.calendar.enter(at, Event::Done(tag));
    }

    /// Time of the firmware for a command of the host with so many bytes; when the last part of it is fetched.
    pub fn command(&mut self, bytes: u64) -> Nanos {
        let front = &self.machine.front;
        let commands = bytes.div_ceil(front.command_bytes_max).max(1);
        self.firmware
            .serve(self.calendar.now(), commands * front.command_ns)
    }

    /// Time of the firmware, beside commands and operations.
    pub fn think(&mut self, service: Nanos) -> Nanos {
        self.firmware.serve(self.calendar.now(), service)
    }

    /// Reads a page, not before `from`. A page that was never written comes from the first die.
    pub fn read(&mut self, page: u32, side: Side, from: Nanos, tag: T) {
        self.usage.pages_read[side as usize] += 1;
        let die = self.ftl.find(page).unwrap_or(0);
        self.submit(die, Action::Read, side, from, tag);
    }

    /// Writes a page, not before `from`.
    pub fn write(&mut self, page: u32, side: Side, from: Nanos, tag: T) -> Result<(), ModelError> {
        self.usage.pages_written[side as usize] += 1;
        let placed = self.ftl.write(page)?;
        if let Some(moved) = placed.moved {
            self.clean(placed.die, moved);
        }
        let bytes = self.machine.flash.page_bytes;
        let now = self.calendar.now().max(from);
        let there = match side {
            Side::Host => {
                let front = &self.machine.front;
                let sent = front.link_setup_ns + transfer(bytes, front.link_mb_s);
                self.link[1].serve(now, sent)
            }
            Side::Inside => now,
        };
        // Into memory, and out of it again to the flash.
        let stored = self
            .memory
            .serve(there, transfer(2 * bytes, self.machine.memory.mb_s));
        self.submit(placed.die, Action::Write, side, stored, tag);
        Ok(())
    }

    /// Forgets a page.
    pub fn trim(&mut self, page: u32) {
        self.ftl.trim(page);
    }

    /// Time of the memory for bytes that only cross it.
    pub fn cross_memory(&mut self, bytes: u64) -> Nanos {
        let service = transfer(bytes, self.machine.memory.mb_s);
        self.memory.serve(self.calendar.now(), service)
    }

    /// The next request that is done; none when nothing is under way.
    pub fn next_done(&mut self) -> Option<T> {
        loop {
            match self.calendar.take()? {
                Event::Done(tag) => return Some(tag),
                Event::Submit(die, operation) => {
                    self.flash
                        .submit(die, operation, &mut self.calendar, Event::Flash);
                }
                Event::Flash(event) => {
                    let done = self.flash.handle(event, &mut self.calendar, Event::Flash);
                    if let Some(operation) = done
                        && let Origin::User(side, tag) = operation.tag
                        && let Some(tag) = self.finish(operation.action, side, tag)
                    {
                        return Some(tag);
                    }
                }
            }
        }
    }

    fn submit(&mut self, die: usize, action: Action, side: Side, from: Nanos, tag: T) {
        let service = self.machine.front.operation_ns;
        let handed = self.firmware.serve(self.calendar.now().max(from), service);
        let operation = Operation {
            action,
            class: side.class(),
            tag: Origin::User(side, tag),
        };
        self.calendar.enter(handed, Event::Submit(die, operation));
    }

    /// What comes after the flash: a page that was read goes through memory and over the link.
    fn finish(&mut self, action: Action, side: Side, tag: T) -> Option<T> {
        if action != Action::Read {
            return Some(tag);
        }
        let (now, bytes) = (self.calendar.now(), self.machine.flash.page_bytes);
        // Into memory, and out of it again to the link or the engine.
        let service = transfer(2 * bytes, self.machine.memory.mb_s);
        let mut there = self.memory.serve(now, service);
        if side == Side::Host {
            let front = &self.machine.front;
            let sent = front.link_setup_ns + transfer(bytes, front.link_mb_s);
            there = self.link[0].serve(there, sent);
        }
        self.calendar.enter(there, Event::Done(tag));
        None
    }

    /// Moves pages within a die and erases a block, ahead of what comes after it.
    fn clean(&mut self, die: usize, moved: usize) {
        self.usage.pages_moved += moved as u64;
        self.usage.erased += 1;
        let steps = (0..moved).flat_map(|_| [Action::Read, Action::Write]);
        for action in steps.chain([Action::Erase]) {
            let operation = Operation {
                action,
                class: Class::High,
                tag: Origin::Cleaning,
            };
            self.flash
                .submit(die, operation, &mut self.calendar, Event::Flash);
        }
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
