//! One spindle: seek, rotation, read-ahead, a volatile write cache, and the nearest request first.
//!
//! Rotation follows the simulated clock, so a request that just missed its sector waits a whole turn; with
//! "sequential is free" instead, a synchronous log on a disk looks several times too cheap. A write is done when it
//! is in the cache; a flush when everything that was dirty at its arrival is on the media.

use std::collections::VecDeque;

use super::model::{DiskModel, transfer_ns, us};

/// What waits for a request: the caller's number for it.
pub(super) type Ticket = u32;

#[derive(Debug, Clone, Copy)]
struct Pending {
    ticket: Ticket,
    offset: u64,
    length: u64,
}

#[derive(Debug, Clone, Copy)]
struct Dirty {
    offset: u64,
    length: u64,
    number: u64,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Read(Pending),
    Destage(Dirty),
}

/// The state of the spindle.
pub(super) struct Disk {
    model: DiskModel,
    rotation_ns: u64,
    track_bytes: u64,
    head: u64,
    /// When the head was there.
    head_ns: u64,
    read_end: u64,
    reads: Vec<Pending>,
    dirty: Vec<Dirty>,
    dirty_bytes: u64,
    next_number: u64,
    blocked: VecDeque<Pending>,
    /// Tickets with the highest number of dirty data that they wait for.
    flushes: Vec<(Ticket, u64)>,
    active: Option<(Work, u64)>,
    /// Time in which the arm or the media worked.
    pub(super) busy_ns: u64,
}

impl Disk {
    pub(super) fn new(model: &DiskModel) -> Self {
        let rotation_ns = us(model.rotation_us).max(1);
        let track_bytes = (model.bandwidth.0 as f64 * model.rotation_us / 1e6) as u64;
        Self {
            model: model.clone(),
            rotation_ns,
            track_bytes: track_bytes.max(4096),
            head: 0,
            head_ns: 0,
            read_end: u64::MAX,
            reads: Vec::new(),
            dirty: Vec::new(),
            dirty_bytes: 0,
            next_number: 0,
            blocked: VecDeque::new(),
            flushes: Vec::new(),
            active: None,
            busy_ns: 0,
        }
    }

    /// Software and bus before the disk sees a request of `bytes`.
    pub(super) fn path_ns(&self, bytes: u64) -> u64 {
        us(self.model.path_us) + transfer_ns(bytes, self.model.path_bandwidth)
    }

    pub(super) fn read(
        &mut self,
        ticket: Ticket,
        offset: u64,
        length: u64,
        done: &mut Vec<Ticket>,
    ) {
        // What is still in the write cache is answered from it.
        let cached = self
            .dirty
            .iter()
            .any(|dirty| dirty.offset <= offset && offset + length <= dirty.offset + dirty.length);
        if cached {
            done.push(ticket);
        } else {
            self.reads.push(Pending {
                ticket,
                offset,
                length,
            });
        }
    }

    pub(super) fn write(
        &mut self,
        ticket: Ticket,
        offset: u64,
        length: u64,
        done: &mut Vec<Ticket>,
    ) {
        self.blocked.push_back(Pending {
            ticket,
            offset,
            length,
        });
        self.admit(done);
    }

    pub(super) fn flush(&mut self, ticket: Ticket, done: &mut Vec<Ticket>) {
        let waits_for = self.next_number + self.blocked.len() as u64;
        self.flushes.push((ticket, waits_for));
        self.answer_flushes(done);
    }

    /// Moves waiting writes into the cache while there is room.
    fn admit(&mut self, done: &mut Vec<Ticket>) {
        while let Some(write) = self.blocked.front().copied() {
            let through = self.model.write_cache.0 == 0;
            if self.dirty_bytes > 0
                && self.dirty_bytes + write.length > self.model.write_cache.0.max(1)
            {
                break;
            }
            self.blocked.pop_front();
            self.dirty.push(Dirty {
                offset: write.offset,
                length: write.length,
                number: self.next_number,
            });
            self.next_number += 1;
            self.dirty_bytes += write.length;
            if through {
                // Without a cache the write is answered like a flush behind it.
                self.flushes.push((write.ticket, self.next_number));
            } else {
                done.push(write.ticket);
            }
        }
    }

    fn answer_flushes(&mut self, done: &mut Vec<Ticket>) {
        if self.flushes.is_empty() {
            return;
        }
        let active = match self.active {
            Some((Work::Destage(dirty), _)) => Some(dirty.number),
            _ => None,
        };
        let oldest = self
            .dirty
            .iter()
            .map(|dirty| dirty.number)
            .chain(active)
            .min()
            .unwrap_or(self.next_number);
        self.flushes.retain(|(ticket, waits_for)| {
            let answered = oldest >= *waits_for;
            if answered {
                done.push(*ticket);
            }
            !answered
        });
    }

    /// Begins the next piece of work if the spindle is idle; returns when it will be finished.
    pub(super) fn begin(&mut self, now_ns: u64) -> Option<u64> {
        if self.active.is_some() {
            return None;
        }
        let depth = self.model.queue_depth as usize;
        let mut best: Option<(u64, Work, usize)> = None;
        for (index, read) in self.reads.iter().enumerate().take(depth) {
            let cost = self.position_ns(now_ns, read.offset, true);
            if best.as_ref().is_none_or(|(known, ..)| cost < *known) {
                best = Some((cost, Work::Read(*read), index));
            }
        }
        for (index, dirty) in self.dirty.iter().enumerate().take(depth) {
            let cost = self.position_ns(now_ns, dirty.offset, false);
            if best.as_ref().is_none_or(|(known, ..)| cost < *known) {
                best = Some((cost, Work::Destage(*dirty), index));
            }
        }
        let (position_ns, work, index) = best?;
        let (offset, length) = match work {
            Work::Read(read) => {
                self.reads.remove(index);
                self.read_end = read.offset + read.length;
                (read.offset, read.length)
            }
            Work::Destage(dirty) => {
                self.dirty.remove(index);
                (dirty.offset, dirty.length)
            }
        };
        let service_ns =
            us(self.model.command_us) + position_ns + transfer_ns(length, self.model.bandwidth);
        self.head = offset + length;
        self.busy_ns += service_ns;
        let end_ns = now_ns + service_ns;
        self.head_ns = end_ns;
        self.active = Some((work, end_ns));
        Some(end_ns)
    }

    /// The work that [`Disk::begin`] announced is finished.
    pub(super) fn finished(&mut self, done: &mut Vec<Ticket>) {
        match self.active.take() {
            Some((Work::Read(read), _)) => done.push(read.ticket),
            Some((Work::Destage(dirty), _)) => {
                self.dirty_bytes -= dirty.length;
                self.admit(done);
                self.answer_flushes(done);
            }
            None => {}
        }
    }

    /// From now until the first byte of `offset` passes under the head.
    fn position_ns(&self, now_ns: u64, offset: u64, read: bool) -> u64 {
        let now_ns = now_ns + us(self.model.command_us);
        if read && offset >= self.read_end && offset - self.read_end <= self.model.read_ahead.0 {
            return transfer_ns(offset - self.read_end, self.model.bandwidth);
        }
        // The next sector at the very moment that the head reaches it.
        if offset == self.head && now_ns == self.head_ns {
            return 0;
        }
        let seek_ns = if offset / self.track_bytes == self.head / self.track_bytes {
            0
        } else {
            let distance = offset.abs_diff(self.head) as f64 / self.model.span.0 as f64;
            us(self.model.seek_min_us + self.model.seek_sqrt_us * distance.sqrt())
        };
        let wanted_ns = offset % self.track_bytes * self.rotation_ns / self.track_bytes;
        let there_ns = (now_ns + seek_ns) % self.rotation_ns;
        let wait_ns = (wanted_ns + self.rotation_ns - there_ns) % self.rotation_ns;
        seek_ns + wait_ns
    }
}
