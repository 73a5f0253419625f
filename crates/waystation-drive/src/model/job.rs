//! One compaction: loading, merging, writing back.
//!
//! ```text
//! streams --reads in flight--> arrived --merge steps, a page each--> made --writes in flight--> written
//! ```
//!
//! A merge takes the next page of the input that is furthest behind, and waits for it if it has not arrived: with keys
//! drawn evenly all inputs are consumed alike. It begins as soon as each input has its first page. Inputs are refilled
//! as they are consumed, up to a window for each. What is merged into memory (see [`super::staging`]) is merged while
//! inputs of later merges are being loaded.
//!
//! The place decides what a read is and which way it takes: the manager in the drive reads pages; the host reads ahead
//! in pieces; the card is given chunks, which the host's thread reads from the drive and copies, and gives back chunks,
//! which the thread copies and writes. It has only so many chunks under way, and while it copies, for the part of the
//! time that does not overlap, it does nothing else.

use super::calendar::{Nanos, Server, transfer};
use super::config::{Load, Machine, ModelError};
use super::drive::{Drive, Side};
use super::layout::{Limits, Stage, Stream, behind, lay_out};
use super::shape::{Merge, Table};
use std::collections::VecDeque;

/// Where compactions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum Place {
    /// In LevelDB's background thread.
    Host,
    /// On the external card, with so many decoders.
    Card {
        /// Inputs of the engine.
        decoders: usize,
    },
    /// In the drive, with so many decoders.
    Drive {
        /// Inputs of the engine.
        decoders: usize,
    },
}

impl Place {
    /// How many inputs a merge may have.
    pub(super) fn inputs(self) -> usize {
        match self {
            Self::Host => usize::MAX,
            Self::Card { decoders } | Self::Drive { decoders } => decoders,
        }
    }
}

/// What a job waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// The job has been taken.
    Begin,
    /// The host's thread is free again.
    Wake,
    /// A page of that read of a stream is there.
    Page { read: u32 },
    /// A chunk is in the card's memory.
    Copied { stream: u32, pages: u32 },
    /// A page has been merged.
    Merged { stream: u32 },
    /// A chunk of output is in the host's memory.
    Back { pages: u32 },
    /// A page is on flash.
    Written,
}

struct Read {
    stream: usize,
    pages: usize,
    left: usize,
}

/// The host's processor time, and its threads.
#[derive(Debug, Default)]
pub(super) struct HostThreads {
    /// The background thread's work: merging on the host, building tables of level 0.
    pub(super) background: Server,
    /// Processor time of commands and copies.
    pub(super) commands_ns: Nanos,
}

/// A compaction under way.
pub(super) struct Job {
    place: Place,
    limits: Limits,
    merge: Merge,
    streams: Vec<Stream>,
    stages: Vec<Stage>,
    at: usize,
    merging: bool,
    reads: Vec<Read>,
    reads_free: Vec<u32>,
    in_flight: usize,
    /// Pages in memory that wait for a later merge.
    ahead: usize,
    outputs: Vec<u32>,
    /// Pages of the result: made, taken from the card, sent towards flash, on it.
    made: usize,
    returned: usize,
    sent: usize,
    written: usize,
    /// Pages that are still to be written of each chunk that left the card.
    chunks_left: VecDeque<usize>,
    /// When the host's thread is free, and whether it will be woken then.
    thread_free: Nanos,
    waking: bool,
    card_link: [Server; 2],
    machine: Machine,
    begun: Nanos,
}

impl Job {
    /// A job on tables that lie in these pages; the result goes to `outputs`.
    pub(super) fn new(
        place: Place,
        machine: &Machine,
        load: &Load,
        merge: Merge,
        pages: impl Fn(&Table) -> Vec<u32>,
        outputs: Vec<u32>,
    ) -> Self {
        let (streams, stages) = lay_out(place, machine, load, &merge, outputs.len(), pages);
        Self {
            place,
            limits: Limits::of(place, machine),
            streams,
            stages,
            at: 0,
            merging: false,
            reads: Vec::new(),
            reads_free: Vec::new(),
            in_flight: 0,
            ahead: 0,
            outputs,
            made: 0,
            returned: 0,
            sent: 0,
            written: 0,
            chunks_left: VecDeque::new(),
            thread_free: 0,
            waking: false,
            card_link: Default::default(),
            machine: machine.clone(),
            begun: 0,
            merge,
        }
    }

    /// What is being compacted.
    pub(super) fn merge(&self) -> &Merge {
        &self.merge
    }

    /// When the job was given.
    pub(super) fn begun(&self) -> Nanos {
        self.begun
    }

    /// How long pages were merged.
    pub(super) fn merging_ns(&self) -> Nanos {
        let merged = self.stages.iter().map(|it| it.consumed as u64 * it.page_ns);
        merged.sum()
    }

    /// Pages that are read from flash.
    pub(super) fn pages_read(&self) -> usize {
        let stored = self.streams.iter().filter(|stream| stream.pages.is_some());
        stored.map(|stream| stream.total).sum()
    }

    /// Pages that are written to it.
    pub(super) fn pages_written(&self) -> &[u32] {
        &self.outputs
    }

    /// Gives the job to its executor.
    pub(super) fn start<T: Copy>(
        &mut self,
        drive: &mut Drive<T>,
        host: &mut HostThreads,
        tag: impl Fn(Step) -> T,
    ) {
        self.begun = drive.now();
        let mut from = drive.now();
        if matches!(self.place, Place::Drive { .. }) {
            host.commands_ns += self.machine.host.command_ns;
            drive.command(0);
            from = drive.think(self.machine.engine.job_ns);
        }
        drive.at(from, tag(Step::Begin));
    }

    /// Goes on after a step; whether the job is done.
    pub(super) fn handle<T: Copy>(
        &mut self,
        step: Step,
        drive: &mut Drive<T>,
        host: &mut HostThreads,
        tag: &impl Fn(Step) -> T,
    ) -> Result<bool, ModelError> {
        match step {
            Step::Begin => {}
            Step::Wake => self.waking = false,
            Step::Page { read } => self.page_came(read, drive, host, tag),
            Step::Copied { stream, pages } => self.arrive(stream as usize, pages as usize),
            Step::Merged { stream } => self.merged(stream as usize, drive),
            Step::Back { pages } => {
                let to = self.sent + pages as usize;
                self.write_out(to, drive, host, tag)?;
            }
            Step::Written => self.page_written(),
        }
        // Results go first: they make room for what follows.
        self.send(drive, host, tag)?;
        self.load(drive, host, tag);
        self.step(drive, host, tag);
        Ok(self.at == self.stages.len() && self.written == self.outputs.len())
    }

    /// Issues reads while there may be more.
    fn load<T: Copy>(
        &mut self,
        drive: &mut Drive<T>,
        host: &mut HostThreads,
        tag: &impl Fn(Step) -> T,
    ) {
        while self.in_flight < self.limits.in_flight_max {
            let Some(stream) = self.next_read() else {
                return;
            };
            if self.place != Place::Host && self.thread_free > drive.now() {
                return self.wake(drive, tag);
            }
            let it = &mut self.streams[stream];
            let pages = self.limits.chunk.min(it.total - it.issued);
            let range = it.issued..it.issued + pages;
            it.issued += pages;
            if it.stage > self.at {
                self.ahead += pages;
            }
            let read = Read {
                stream,
                pages,
                left: pages,
            };
            let number = if let Some(number) = self.reads_free.pop() {
                self.reads[number as usize] = read;
                number
            } else {
                self.reads.push(read);
                self.reads.len() as u32 - 1
            };
            self.in_flight += 1;
            let (side, from) = if matches!(self.place, Place::Drive { .. }) {
                (Side::Inside, drive.now())
            } else {
                host.commands_ns += self.machine.host.command_ns;
                self.thread_free = self.thread_free.max(drive.now()) + self.machine.host.command_ns;
                let bytes = pages as u64 * self.machine.flash.page_bytes;
                (Side::Host, drive.command(bytes).max(self.thread_free))
            };
            let lie = self.streams[stream].pages.as_ref();
            for &page in lie.into_iter().flat_map(|pages| &pages[range.clone()]) {
                drive.read(page, side, from, tag(Step::Page { read: number }));
            }
        }
    }

    /// The stream that is read next: of the merge at hand the one furthest behind; else of later merges, as far as
    /// memory goes.
    fn next_read(&self) -> Option<usize> {
        let wanted = |&stream: &usize| {
            let it = &self.streams[stream];
            it.pages.is_some() && it.issued < it.total
        };
        let at_hand = self.stages.get(self.at)?.streams.iter().copied();
        let now = at_hand
            .filter(wanted)
            .filter(|&stream| {
                let it = &self.streams[stream];
                it.issued < it.consumed + self.limits.window
            })
            .min_by(|&a, &b| behind(&self.streams[a], &self.streams[b], |it| it.issued));
        now.or_else(|| {
            let room = self.ahead + self.limits.chunk <= self.limits.ahead_max;
            let later = self.stages[self.at + 1..]
                .iter()
                .flat_map(|stage| &stage.streams);
            later.copied().find(|stream| room && wanted(stream))
        })
    }

    fn wake<T: Copy>(&mut self, drive: &mut Drive<T>, tag: &impl Fn(Step) -> T) {
        if !self.waking {
            self.waking = true;
            drive.at(self.thread_free, tag(Step::Wake));
        }
    }

    /// A page of a read is there; with the last one the read is done.
    fn page_came<T: Copy>(
        &mut self,
        read: u32,
        drive: &mut Drive<T>,
        host: &mut HostThreads,
        tag: &impl Fn(Step) -> T,
    ) {
        let it = &mut self.reads[read as usize];
        it.left -= 1;
        if it.left > 0 {
            return;
        }
        let (stream, pages) = (it.stream, it.pages);
        self.reads_free.push(read);
        self.in_flight -= 1;
        if matches!(self.place, Place::Card { .. }) {
            let done = self.copy(0, pages, drive.now(), host);
            let step = Step::Copied {
                stream: stream as u32,
                pages: pages as u32,
            };
            drive.at(done, tag(step));
        } else {
            self.arrive(stream, pages);
        }
    }

    /// A page of the result is on flash; with the last one of a chunk of the card's the host's thread goes on.
    fn page_written(&mut self) {
        self.written += 1;
        if let Some(left) = self.chunks_left.front_mut() {
            *left -= 1;
            if *left == 0 {
                self.chunks_left.pop_front();
                self.in_flight -= 1;
            }
        }
    }

    fn arrive(&mut self, stream: usize, pages: usize) {
        self.streams[stream].arrived += pages;
    }

    /// Copies to (0) or from (1) the card; when that is done. The thread is blocked for what does not overlap.
    #[expect(
        clippy::cast_sign_loss,
        reason = "a part of a time is no less than nothing"
    )]
    fn copy(&mut self, way: usize, pages: usize, now: Nanos, host: &mut HostThreads) -> Nanos {
        let card = &self.machine.card;
        let bytes = pages as u64 * self.machine.flash.page_bytes;
        let service = card.link_setup_ns + transfer(bytes, card.link_mb_s);
        let begin = self.thread_free.max(now);
        let blocked = (service as f64 * (1.0 - card.overlap)).round() as Nanos;
        self.thread_free = begin + blocked;
        host.commands_ns += self.machine.host.command_ns;
        self.card_link[way].serve(begin, service)
    }

    /// Begins the next step of the merge at hand, if its page is there and its result has room.
    fn step<T: Copy>(
        &mut self,
        drive: &mut Drive<T>,
        host: &mut HostThreads,
        tag: &impl Fn(Step) -> T,
    ) {
        let Some(stage) = self.stages.get(self.at) else {
            return;
        };
        if self.merging || self.made - self.written >= self.limits.unwritten_max {
            return;
        }
        let streams = stage.streams.iter().copied();
        let next = streams
            .filter(|&stream| self.streams[stream].consumed < self.streams[stream].total)
            .min_by(|&a, &b| behind(&self.streams[a], &self.streams[b], |it| it.consumed));
        let Some(stream) = next.filter(|&it| self.streams[it].consumed < self.streams[it].arrived)
        else {
            return;
        };
        self.merging = true;
        let now = drive.now();
        let done = match self.place {
            Place::Host => host.background.serve(now, stage.page_ns),
            _ => now + stage.page_ns,
        };
        let stream = stream as u32;
        drive.at(done, tag(Step::Merged { stream }));
    }

    /// A page has been merged; what that makes.
    fn merged<T: Copy>(&mut self, stream: usize, drive: &mut Drive<T>) {
        self.merging = false;
        self.streams[stream].consumed += 1;
        let stage = &mut self.stages[self.at];
        stage.consumed += 1;
        let made = stage.pages_out * stage.consumed / stage.pages_in;
        let fresh = made - stage.made;
        stage.made = made;
        let done = stage.consumed == stage.pages_in;
        match stage.makes {
            Some(result) => {
                self.streams[result].arrived += fresh;
                if let Place::Drive { .. } = self.place {
                    // Written there now, read there later.
                    drive.cross_memory(2 * fresh as u64 * self.machine.flash.page_bytes);
                }
            }
            None => self.made += fresh,
        }
        if done {
            self.at += 1;
            let of_this = |it: &&Stream| it.stage == self.at && it.pages.is_some();
            let loaded: usize = self
                .streams
                .iter()
                .filter(of_this)
                .map(|it| it.issued)
                .sum();
            self.ahead -= loaded.min(self.ahead);
        }
    }

    /// Sends finished pages on their way: in the card's case a chunk at a time.
    fn send<T: Copy>(
        &mut self,
        drive: &mut Drive<T>,
        host: &mut HostThreads,
        tag: &impl Fn(Step) -> T,
    ) -> Result<(), ModelError> {
        if !matches!(self.place, Place::Card { .. }) {
            return self.write_out(self.made, drive, host, tag);
        }
        let ended = self.at == self.stages.len();
        loop {
            let ready = self.made - self.returned;
            let some = ready >= self.limits.chunk || (ready > 0 && ended);
            if !some || self.in_flight >= self.limits.in_flight_max {
                return Ok(());
            }
            if self.thread_free > drive.now() {
                self.wake(drive, tag);
                return Ok(());
            }
            let pages = ready.min(self.limits.chunk);
            self.returned += pages;
            self.in_flight += 1;
            self.chunks_left.push_back(pages);
            let done = self.copy(1, pages, drive.now(), host);
            let pages = pages as u32;
            drive.at(done, tag(Step::Back { pages }));
        }
    }

    /// Writes pages of the result up to `to`.
    fn write_out<T: Copy>(
        &mut self,
        to: usize,
        drive: &mut Drive<T>,
        host: &mut HostThreads,
        tag: &impl Fn(Step) -> T,
    ) -> Result<(), ModelError> {
        let pages = to - self.sent;
        if pages == 0 {
            return Ok(());
        }
        let (side, from) = if matches!(self.place, Place::Drive { .. }) {
            (Side::Inside, drive.now())
        } else {
            // Files are written back in pieces as large as those that are read.
            let page = self.machine.flash.page_bytes;
            let bytes = pages as u64 * page;
            let share =
                self.machine.host.command_ns * bytes / self.machine.host.read_bytes.max(page);
            host.commands_ns += share;
            (Side::Host, drive.command(bytes))
        };
        for index in self.sent..to {
            drive.write(self.outputs[index], side, from, tag(Step::Written))?;
        }
        self.sent = to;
        Ok(())
    }
}
