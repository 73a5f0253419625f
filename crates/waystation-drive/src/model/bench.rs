//! A load from its first put to its last: the host's writer, flushes and compactions on one simulated drive.
//!
//! The writer puts records into a memtable and their log into pages of the drive; a full memtable is written as a table
//! of level 0; one compaction at a time runs where [`Place`] says. As in LevelDB a writer waits while the memtable
//! before is not yet written or level 0 has too many tables, and each put waits a millisecond while it has many.
//! Only sizes and times are simulated: no record exists.

use super::calendar::Nanos;
use super::config::{Load, Machine, ModelError};
use super::drive::{Drive, Side, Usage};
use super::job::{HostThreads, Job, Place, Step};
use super::layout::pages_of;
use super::shape::{Shape, Table, Work};
use serde::Serialize;
use std::collections::HashMap;

/// LevelDB's delay of a put while level 0 has many tables.
const SLOW_PUT_NS: Nanos = 1_000_000;
/// Bytes of a record in the log and in its batch, beside key and value.
const LOG_RECORD_BYTES: u64 = 14;

#[derive(Debug, Clone, Copy)]
enum Tag {
    /// The writer has filled a page of the log.
    Filled,
    /// A page of the log is on flash.
    Logged,
    /// A page of a table of level 0 has been built.
    Built,
    /// It is on flash.
    Flushed,
    Job(Step),
}

/// What compactions of some levels took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Compactions {
    /// How many there were.
    pub count: u64,
    /// Their time.
    pub ns: Nanos,
    /// Bytes they read from flash.
    pub bytes_read: u64,
    /// Bytes they wrote to it.
    pub bytes_written: u64,
    /// Time during which the engine, or the host's thread in its place, merged.
    pub merging_ns: Nanos,
    /// What the drive did meanwhile, for the host's puts and flushes, too.
    pub usage: Usage,
}

impl Compactions {
    /// These and those.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            ns: self.ns + other.ns,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            merging_ns: self.merging_ns + other.merging_ns,
            usage: self.usage.plus(other.usage),
        }
    }

    /// Megabytes read and written per second of compaction.
    pub fn mb_s(&self) -> f64 {
        (self.bytes_read + self.bytes_written) as f64 * 1000.0 / self.ns.max(1) as f64
    }
}

/// What a run took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Where compactions ran.
    pub place: Place,
    /// Puts.
    pub records: u64,
    /// Time until the last put returned.
    pub ns: Nanos,
    /// Compactions of level 0.
    pub level0: Compactions,
    /// Compactions of deeper levels.
    pub deeper: Compactions,
    /// Most tables that a compaction of level 0 had from there.
    pub level0_tables_max: usize,
    /// Time during which the writer stood still or was slowed down.
    pub stalled_ns: Nanos,
    /// Processor time of the host.
    pub host_cpu_ns: Nanos,
    /// What the drive did.
    pub usage: Usage,
    /// Events of the simulation.
    pub events: u64,
    /// Records of each level at the end.
    pub level_records: Vec<u64>,
}

/// Runs the load on an empty drive. Without `priority` compaction in the drive has no lower queue.
pub fn run(
    machine: &Machine,
    load: &Load,
    place: Place,
    priority: bool,
) -> Result<Outcome, ModelError> {
    load.check()?;
    Bench::new(machine, load, place, priority)?.run()
}

struct Bench {
    machine: Machine,
    load: Load,
    place: Place,
    drive: Drive<Tag>,
    shape: Shape,
    files: HashMap<usize, Vec<u32>>,
    free: Vec<u32>,
    host: HostThreads,
    // The writer.
    put: u64,
    in_memtable: u64,
    filling: u64,
    waits_since: Option<Nanos>,
    log: Vec<u32>,
    old_log: Vec<u32>,
    // The flush under way: puts, pages to build, built and on flash.
    immutable: Option<u64>,
    flush: Option<Flush>,
    job: Option<Job>,
    /// What the drive had done when the job began.
    usage_before: Usage,
    outcome: Outcome,
}

struct Flush {
    puts: u64,
    pages: Vec<u32>,
    building: bool,
    built: usize,
    written: usize,
}

impl Bench {
    fn new(
        machine: &Machine,
        load: &Load,
        place: Place,
        priority: bool,
    ) -> Result<Self, ModelError> {
        let drive = Drive::new(machine, priority)?;
        let page = machine.flash.page_bytes;
        if load.table_bytes < 4 * page {
            return Err(ModelError::Figure {
                field: "load.table_bytes",
                value: load.table_bytes.to_string(),
                expected: format!("must be at least four pages ({} bytes)", 4 * page),
            });
        }
        let free = (0..drive.capacity() as u32).rev().collect();
        Ok(Self {
            machine: machine.clone(),
            load: load.clone(),
            place,
            drive,
            shape: Shape::new(load),
            files: HashMap::new(),
            free,
            host: HostThreads::default(),
            put: 0,
            in_memtable: 0,
            filling: 0,
            waits_since: None,
            log: Vec::new(),
            old_log: Vec::new(),
            immutable: None,
            flush: None,
            job: None,
            usage_before: Usage::default(),
            outcome: Outcome {
                place,
                records: load.records,
                ns: 0,
                level0: Compactions::default(),
                deeper: Compactions::default(),
                level0_tables_max: 0,
                stalled_ns: 0,
                host_cpu_ns: 0,
                usage: Usage::default(),
                events: 0,
                level_records: Vec::new(),
            },
        })
    }

    fn run(mut self) -> Result<Outcome, ModelError> {
        self.fill();
        while self.put < self.load.records {
            let stuck = ModelError::Stuck(self.drive.now());
            match self.drive.next_done().ok_or(stuck)? {
                Tag::Filled => self.filled()?,
                Tag::Logged => {}
                Tag::Built => self.built()?,
                Tag::Flushed => self.flushed(),
                Tag::Job(step) => self.job_step(step)?,
            }
            self.begin_flush()?;
            self.begin_job()?;
            self.fill();
        }
        let puts_ns = self.load.records * self.machine.host.put_ns;
        Ok(Outcome {
            ns: self.drive.now(),
            host_cpu_ns: puts_ns + self.host.background.busy() + self.host.commands_ns,
            usage: self.drive.usage(),
            events: self.drive.events(),
            level_records: self.shape.records(),
            ..self.outcome
        })
    }

    // ---- The writer.

    /// Lets the writer fill a page of the log, if nothing holds it up.
    fn fill(&mut self) {
        if self.filling > 0 || self.put == self.load.records {
            return;
        }
        if self.in_memtable >= self.load.table_records() {
            let stopped = self.shape.level0() >= self.load.level0[2];
            if self.immutable.is_some() || self.flush.is_some() || stopped {
                self.waits_since.get_or_insert(self.drive.now());
                return;
            }
            self.immutable = Some(std::mem::take(&mut self.in_memtable));
            self.old_log = std::mem::take(&mut self.log);
        }
        if let Some(since) = self.waits_since.take() {
            self.outcome.stalled_ns += self.drive.now() - since;
        }
        let bytes = self.load.key_bytes + self.load.value_bytes + LOG_RECORD_BYTES;
        let in_page = (self.machine.flash.page_bytes / bytes).max(1);
        let room = self.load.table_records() - self.in_memtable;
        self.filling = in_page.min(room).min(self.load.records - self.put);
        let slow = self.shape.level0() >= self.load.level0[1];
        let wait = if slow { SLOW_PUT_NS * self.filling } else { 0 };
        self.outcome.stalled_ns += wait;
        let done = self.drive.now() + self.filling * self.machine.host.put_ns + wait;
        self.drive.at(done, Tag::Filled);
    }

    fn filled(&mut self) -> Result<(), ModelError> {
        let puts = std::mem::take(&mut self.filling);
        self.put += puts;
        self.in_memtable += puts;
        let page = self.take_page()?;
        self.log.push(page);
        self.write(page, Tag::Logged)
    }

    fn take_page(&mut self) -> Result<u32, ModelError> {
        let pages = self.drive.capacity();
        self.free.pop().ok_or(ModelError::Full { pages })
    }

    fn give_back(&mut self, pages: Vec<u32>) {
        for page in pages {
            self.drive.trim(page);
            self.free.push(page);
        }
    }

    /// Writes a page of a file of the host.
    fn write(&mut self, page: u32, tag: Tag) -> Result<(), ModelError> {
        let bytes = self.machine.flash.page_bytes;
        self.host.commands_ns +=
            self.machine.host.command_ns * bytes / self.machine.host.read_bytes.max(bytes);
        let from = self.drive.command(bytes);
        self.drive.write(page, Side::Host, from, tag)
    }

    // ---- Flushes.

    fn begin_flush(&mut self) -> Result<(), ModelError> {
        let offloaded = self.job.is_some() && self.place != Place::Host;
        if self.flush.is_some() || (offloaded && !self.machine.host.flush_during_offload) {
            return Ok(());
        }
        let Some(puts) = self.immutable.take() else {
            return Ok(());
        };
        let count = pages_of(puts, &self.load, &self.machine);
        let pages = (0..count)
            .map(|_| self.take_page())
            .collect::<Result<_, _>>()?;
        self.flush = Some(Flush {
            puts,
            pages,
            building: false,
            built: 0,
            written: 0,
        });
        self.build();
        Ok(())
    }

    /// Builds the next page of the table, if the drive is not too far behind.
    fn build(&mut self) {
        let Some(flush) = &mut self.flush else { return };
        let behind = flush.built - flush.written >= self.machine.host.writes_in_flight;
        if flush.building || behind || flush.built == flush.pages.len() {
            return;
        }
        flush.building = true;
        let work = self.machine.flash.page_bytes * self.machine.host.flush_ns_per_kib / 1024;
        let done = self.host.background.serve(self.drive.now(), work);
        self.drive.at(done, Tag::Built);
    }

    fn built(&mut self) -> Result<(), ModelError> {
        let Some(flush) = &mut self.flush else {
            return Ok(());
        };
        flush.building = false;
        let page = flush.pages[flush.built];
        flush.built += 1;
        self.write(page, Tag::Flushed)?;
        self.build();
        Ok(())
    }

    fn flushed(&mut self) {
        let Some(flush) = &mut self.flush else { return };
        flush.written += 1;
        if flush.written < flush.pages.len() {
            return self.build();
        }
        if let Some(flush) = self.flush.take() {
            let table = self.shape.flush(flush.puts);
            self.files.insert(table.id, flush.pages);
            let log = std::mem::take(&mut self.old_log);
            self.give_back(log);
        }
    }

    // ---- Compactions.

    fn begin_job(&mut self) -> Result<(), ModelError> {
        if self.job.is_some() {
            return Ok(());
        }
        let merge = loop {
            match self.shape.pick() {
                Work::Rest => return Ok(()),
                Work::Move { level, at } => self.shape.shift(level, at),
                Work::Merge(merge) => break merge,
            }
        };
        if merge.level == 0 {
            let most = &mut self.outcome.level0_tables_max;
            *most = merge.upper.len().max(*most);
        }
        let count = pages_of(merge.records_out, &self.load, &self.machine);
        let outputs = (0..count)
            .map(|_| self.take_page())
            .collect::<Result<_, _>>()?;
        let files = &self.files;
        let pages = |table: &Table| files.get(&table.id).cloned().unwrap_or_default();
        let mut job = Job::new(self.place, &self.machine, &self.load, merge, pages, outputs);
        job.start(&mut self.drive, &mut self.host, Tag::Job);
        self.job = Some(job);
        self.usage_before = self.drive.usage();
        Ok(())
    }

    fn job_step(&mut self, step: Step) -> Result<(), ModelError> {
        let Some(job) = &mut self.job else {
            return Ok(());
        };
        if !job.handle(step, &mut self.drive, &mut self.host, &Tag::Job)? {
            return Ok(());
        }
        if let Some(job) = self.job.take() {
            self.install(&job);
        }
        Ok(())
    }

    fn install(&mut self, job: &Job) {
        let merge = job.merge();
        let page = self.machine.flash.page_bytes;
        let sum = if merge.level == 0 {
            &mut self.outcome.level0
        } else {
            &mut self.outcome.deeper
        };
        let outputs = job.pages_written();
        sum.merging_ns += job.merging_ns();
        sum.usage = sum.usage.plus(self.drive.usage().minus(self.usage_before));
        sum.count += 1;
        sum.ns += self.drive.now() - job.begun();
        sum.bytes_read += job.pages_read() as u64 * page;
        sum.bytes_written += outputs.len() as u64 * page;
        for table in merge.upper.iter().chain(&merge.lower) {
            let pages = self.files.remove(&table.id).unwrap_or_default();
            self.give_back(pages);
        }
        let tables = self.shape.install(merge);
        let cut = |part: usize| part * outputs.len() / tables.len();
        for (part, table) in tables.iter().enumerate() {
            let pages = outputs[cut(part)..cut(part + 1)].to_vec();
            self.files.insert(table.id, pages);
        }
    }
}

#[cfg(test)]
#[path = "bench_tests.rs"]
mod tests;
