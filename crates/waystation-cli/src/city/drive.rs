//! The run: the city's seconds go by as fast as the workers can.
//!
//! ```text
//!   open all cells -> audit each as a whole -> step, step, step ... -> close all cells      (again and again)
//!                                               |
//!                    all workers drive some seconds, then those vehicles settle that have stayed too long,
//!                    then everything is looked at
//! ```
//!
//! The clock is virtual and nobody waits for it. In a step of five seconds no vehicle is ahead of another by more
//! than that; between steps the coordinator alone is at work. Every half hour of the city, and at the end, all
//! engines are closed, opened again and audited.

use super::audit::{Audit, Verdict};
use super::edge::{Edge, Occupancy};
use super::error::{CityError, EdgeError};
use super::journey::Action;
use super::machine;
use super::meters::{Counts, Meters, Percentiles};
use super::reading::Plan;
use super::residents::Residents;
use super::worker::{CellResult, Common, Worker};
use serde::Serialize;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// How far vehicles may be apart in time (seconds).
const STEP: u32 = 5;
/// How often vehicles are sent to the tree (seconds).
const SETTLE_EVERY: u32 = 15;
/// How often everything is looked at (seconds).
const SAMPLE_EVERY: u32 = 30;

/// What is to be run.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) actions: &'a [Action],
    /// The cells' names in the trace.
    pub(crate) cells: &'a [String],
    pub(crate) plan: Plan,
    pub(crate) queries_per_million: u64,
    pub(crate) threads: usize,
    /// The run ends at the beginning of this second.
    pub(crate) until: u32,
    /// All engines are opened anew after so many seconds.
    pub(crate) reopen_every: u32,
    /// Where the engines' files are.
    pub(crate) directory: &'a Path,
}

/// Who looks on.
pub(crate) trait Watch {
    /// The city has come to the beginning of second `now`.
    fn tick(&mut self, now: u32, vehicles: usize, counts: &Counts);
    /// What goes on besides.
    fn say(&mut self, what: &'static str);
    /// Whether the run is to end early.
    fn is_stopped(&self) -> bool;
}

/// How things stood at one moment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    /// The city's time (seconds).
    pub(crate) city_s: u32,
    /// The time since the run began, without opening and closing (seconds).
    pub(crate) elapsed_s: f64,
    /// Vehicles in the city.
    pub(crate) vehicles: usize,
    /// Everything done so far.
    pub(crate) counts: Counts,
    /// Puts since the sample before.
    pub(crate) put: Percentiles,
    /// All engines together.
    pub(crate) occupancy: Occupancy,
    /// The engines' files (bytes).
    pub(crate) disk_bytes: u64,
    /// What the process has written to storage so far (bytes).
    pub(crate) written_bytes: u64,
    /// The cells' residencies by what they have learned: the least, the median and the most (seconds).
    pub(crate) residency_s: [u32; 3],
}

/// What one cell has seen.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CellFigures {
    /// Its name in the trace.
    pub(crate) cell: String,
    /// Vehicles that left it.
    pub(crate) visits: u64,
    /// Of them, those that had settled before.
    pub(crate) settled: u64,
    /// The residency that it has learned (seconds).
    pub(crate) residency_s: u32,
}

/// A run that came to its end.
pub(crate) struct Run {
    /// The city's time at the end (seconds).
    pub(crate) city_s: u32,
    pub(crate) was_stopped: bool,
    /// Driving, without opening, closing and auditing as a whole.
    pub(crate) elapsed: Duration,
    /// All of it.
    pub(crate) elapsed_in_all: Duration,
    /// Processor time of driving, without that of looking at the engines' files.
    pub(crate) driving_cpu: Duration,
    /// How often all engines were opened anew.
    pub(crate) reopened: u32,
    pub(crate) meters: Meters,
    pub(crate) samples: Vec<Sample>,
    pub(crate) cells: Vec<CellFigures>,
    pub(crate) verdict: Verdict,
}

/// Opens the engine of the cell in a place.
pub(crate) type Open<'a, E> = &'a (dyn Fn(usize) -> super::edge::Result<E> + Sync);

/// Runs the city on engines of one kind.
pub(crate) fn run<E: Edge>(
    setup: &Setup<'_>,
    audit: &Audit,
    open: Open<'_, E>,
    watch: &mut dyn Watch,
) -> Result<Run, CityError> {
    let started = machine::now();
    let mut state = State::new(setup);
    let mut reopened = 0;
    loop {
        watch.say("opening the engines");
        let cells = each_cell(setup, open)?;
        let is_final = state.now >= setup.until || watch.is_stopped();
        if state.now > 0 {
            reopened += 1;
            watch.say("auditing what the engines hold");
            each_cell(setup, |cell| {
                audit.cell(&cells[cell], cell, state.now, is_final)
            })?;
        }
        if is_final {
            close_all(setup, cells)?;
            break;
        }
        let end = state
            .now
            .saturating_add(setup.reopen_every)
            .min(setup.until);
        state.act(setup, audit, &cells, end, watch)?;
        watch.say("closing the engines");
        close_all(setup, cells)?;
    }
    Ok(Run {
        city_s: state.now,
        was_stopped: state.now < setup.until,
        elapsed: state.elapsed,
        elapsed_in_all: started.elapsed(),
        reopened,
        driving_cpu: state.driving_cpu.saturating_sub(state.gauge_cpu),
        verdict: audit.verdict(state.now),
        cells: state.residents.figures(setup.cells),
        meters: state.meters,
        samples: state.samples,
    })
}

/// Runs `work` for all cells, some at a time.
fn each_cell<T: Send>(
    setup: &Setup<'_>,
    work: impl Fn(usize) -> super::edge::Result<T> + Sync,
) -> Result<Vec<T>, CityError> {
    let share = setup.cells.len().div_ceil(setup.threads);
    let places: Vec<usize> = (0..setup.cells.len()).collect();
    let work = &work;
    let done = thread::scope(|scope| {
        let threads: Vec<_> = places
            .chunks(share)
            .map(|places| {
                scope.spawn(move || {
                    let one = |place: &usize| work(*place).map_err(|error| (*place, error));
                    places.iter().map(one).collect::<CellResult<Vec<T>>>()
                })
            })
            .collect();
        let results = threads.into_iter().map(thread::ScopedJoinHandle::join);
        results.collect::<Vec<_>>()
    });
    let mut all = Vec::with_capacity(places.len());
    for result in done {
        let some = result.map_err(|_| CityError::Worker)?;
        all.extend(some.map_err(|failure| named(setup, failure))?);
    }
    Ok(all)
}

fn close_all<E: Edge>(setup: &Setup<'_>, cells: Vec<E>) -> Result<(), CityError> {
    let cells: Vec<_> = cells
        .into_iter()
        .map(|cell| std::sync::Mutex::new(Some(cell)))
        .collect();
    each_cell(setup, |place| {
        let cell = cells[place].lock().ok().and_then(|mut cell| cell.take());
        cell.map_or(Ok(()), Edge::close)
    })
    .map(|_| ())
}

fn named(setup: &Setup<'_>, (place, source): (usize, EdgeError)) -> CityError {
    CityError::Engine {
        cell: setup.cells[place].clone(),
        source,
    }
}

/// What a worker is told.
enum Task {
    /// Drive from one second up to another.
    Drive(u32, u32),
    /// Send vehicles to the tree of a cell.
    Settle(Vec<(usize, Vec<u32>)>),
}

/// A worker's thread as the coordinator sees it.
struct Line {
    tasks: Sender<(Worker, Task)>,
    done: Receiver<(Worker, CellResult<()>)>,
    /// The worker, when it has nothing to do.
    worker: Option<Worker>,
}

/// What lasts from opening to opening.
struct State {
    now: u32,
    workers: Vec<Worker>,
    residents: Residents,
    meters: Meters,
    /// Meters since the last sample.
    recent: Meters,
    samples: Vec<Sample>,
    elapsed: Duration,
    /// Processor time of driving, and the part of it that looked at the engines' files.
    driving_cpu: Duration,
    gauge_cpu: Duration,
    /// What the engines had written and read when they were closed last.
    closed: Occupancy,
    /// What the last sample saw.
    latest: Occupancy,
    written_before: u64,
}

impl State {
    fn new(setup: &Setup<'_>) -> Self {
        Self {
            now: 0,
            workers: Worker::deal(setup.actions, setup.threads),
            residents: Residents::new(setup.cells.len()),
            meters: Meters::default(),
            recent: Meters::default(),
            samples: Vec::new(),
            elapsed: Duration::ZERO,
            driving_cpu: Duration::ZERO,
            gauge_cpu: Duration::ZERO,
            closed: Occupancy::default(),
            latest: Occupancy::default(),
            written_before: machine::written_bytes(),
        }
    }

    /// Everything from one opening to the next closing.
    fn act<E: Edge>(
        &mut self,
        setup: &Setup<'_>,
        audit: &Audit,
        cells: &[E],
        end: u32,
        watch: &mut dyn Watch,
    ) -> Result<(), CityError> {
        let common = Common {
            plan: setup.plan,
            audit,
            queries_per_million: setup.queries_per_million,
        };
        let workers = std::mem::take(&mut self.workers);
        let common = &common;
        watch.say("");
        thread::scope(|scope| {
            let mut lines: Vec<Line> = Vec::with_capacity(workers.len());
            for worker in workers {
                let (tasks, wanted) = channel();
                let (answer, done) = channel();
                scope.spawn(move || serve(common, cells, &wanted, &answer));
                lines.push(Line {
                    tasks,
                    done,
                    worker: Some(worker),
                });
            }
            let finished = self.steps(setup, cells, end, &mut lines, watch);
            self.workers = lines.into_iter().filter_map(|line| line.worker).collect();
            finished
        })
    }

    fn steps<E: Edge>(
        &mut self,
        setup: &Setup<'_>,
        cells: &[E],
        end: u32,
        lines: &mut [Line],
        watch: &mut dyn Watch,
    ) -> Result<(), CityError> {
        let started = machine::now();
        let before = self.elapsed;
        let cpu_before = machine::cpu_time();
        while self.now < end && !watch.is_stopped() {
            let until = (self.now + STEP).min(end);
            let drive = |_| Task::Drive(self.now, until);
            all_at_once(setup, lines, drive)?;
            let had_settled = self.now / SETTLE_EVERY;
            let had_looked = self.now / SAMPLE_EVERY;
            self.now = until;
            for line in lines.iter_mut().filter_map(|line| line.worker.as_mut()) {
                self.residents.moved(&mut line.moves);
            }
            if until / SETTLE_EVERY > had_settled {
                self.settle(setup, lines)?;
            }
            self.elapsed = before + started.elapsed();
            if until / SAMPLE_EVERY > had_looked {
                self.look(setup, cells, lines)?;
            } else {
                self.gather(lines);
            }
            let mut counts = self.meters.counts;
            counts += self.recent.counts;
            watch.tick(until, vehicles(lines), &counts);
        }
        self.elapsed = before + started.elapsed();
        // What was done since the last sample counts, too.
        let last = self.samples.last().map_or(0, |sample| sample.city_s);
        if last < self.now {
            self.look(setup, cells, lines)?;
        }
        self.driving_cpu += machine::cpu_time().saturating_sub(cpu_before);
        self.closed = self.latest;
        Ok(())
    }

    /// Sends those to the tree who have stayed longer than their cell's residency.
    fn settle(&mut self, setup: &Setup<'_>, lines: &mut [Line]) -> Result<(), CityError> {
        let mut shares: Vec<Vec<(usize, Vec<u32>)>> = vec![Vec::new(); lines.len()];
        for (index, due) in self.residents.due(self.now).into_iter().enumerate() {
            let shares_count = shares.len();
            shares[index % shares_count].push(due);
        }
        let mut shares = shares.into_iter();
        all_at_once(setup, lines, |_| {
            Task::Settle(shares.next().unwrap_or_default())
        })
    }

    /// Takes in what the workers have counted.
    fn gather(&mut self, lines: &mut [Line]) {
        for worker in lines.iter_mut().filter_map(|line| line.worker.as_mut()) {
            self.recent.add(&worker.take_meters());
        }
    }

    /// Takes a sample.
    fn look<E: Edge>(
        &mut self,
        setup: &Setup<'_>,
        cells: &[E],
        lines: &mut [Line],
    ) -> Result<(), CityError> {
        self.gather(lines);
        let recent = std::mem::take(&mut self.recent);
        self.meters.add(&recent);
        let mut occupancy = Occupancy::default();
        for (place, cell) in cells.iter().enumerate() {
            occupancy += cell
                .occupancy()
                .map_err(|error| named(setup, (place, error)))?;
        }
        let written = self.closed;
        occupancy.settled_records += written.settled_records;
        occupancy.log_written += written.log_written;
        occupancy.tables_written += written.tables_written;
        occupancy.storage_read += written.storage_read;
        self.latest = occupancy;
        let cpu_before = machine::thread_cpu_time();
        let disk_bytes = machine::disk_bytes(setup.directory);
        self.gauge_cpu += machine::thread_cpu_time().saturating_sub(cpu_before);
        self.samples.push(Sample {
            city_s: self.now,
            elapsed_s: self.elapsed.as_secs_f64(),
            vehicles: vehicles(lines),
            counts: self.meters.counts,
            put: recent.put.percentiles(),
            occupancy,
            disk_bytes,
            written_bytes: machine::written_bytes() - self.written_before,
            residency_s: self.residents.residencies(),
        });
        Ok(())
    }
}

fn vehicles(lines: &[Line]) -> usize {
    let workers = lines.iter().filter_map(|line| line.worker.as_ref());
    workers.map(Worker::present).sum()
}

/// Gives every worker a task and waits for all.
fn all_at_once(
    setup: &Setup<'_>,
    lines: &mut [Line],
    mut task: impl FnMut(usize) -> Task,
) -> Result<(), CityError> {
    for (index, line) in lines.iter_mut().enumerate() {
        let worker = line.worker.take().ok_or(CityError::Worker)?;
        let sent = line.tasks.send((worker, task(index)));
        sent.map_err(|_| CityError::Worker)?;
    }
    let mut failed = None;
    for line in lines {
        let (worker, result) = line.done.recv().map_err(|_| CityError::Worker)?;
        line.worker = Some(worker);
        failed = failed.or(result.err());
    }
    failed.map_or(Ok(()), |failure| Err(named(setup, failure)))
}

/// A worker's thread: task by task, until the coordinator has gone.
fn serve<E: Edge>(
    common: &Common<'_>,
    cells: &[E],
    wanted: &Receiver<(Worker, Task)>,
    answer: &Sender<(Worker, CellResult<()>)>,
) {
    while let Ok((mut worker, task)) = wanted.recv() {
        let result = match task {
            Task::Drive(from, until) => worker.drive(common, cells, from, until),
            Task::Settle(shares) => shares.iter().try_for_each(|(cell, vehicles)| {
                let settled = worker.settle(&cells[*cell], vehicles);
                settled.map_err(|error| (*cell, error))
            }),
        };
        if answer.send((worker, result)).is_err() {
            return;
        }
    }
}
