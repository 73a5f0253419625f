//! The threads: each lane's take jobs and run them, and one waits for deadlines.
//!
//! The lock is a leaf: no job runs with it held, and nothing that is a database's is dropped under it.

use super::Jobs;
use super::plan::{Id, Kind, Lane, Limits, Next, Plan, Task};
use crate::error::{Error, Result};
use crate::storage::{Storage, processors, stand_back, wake_soon};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock, wait, wait_for};
use std::collections::BTreeMap;
use std::time::Duration;

/// Threads that write logs out. Two would keep a device busy, but where writers take all of the processor a thread has to
/// wait for it after every write.
const LOG_THREADS: usize = 4;
/// Threads of each of the lanes between log and compaction, when many databases share them.
const LANE_THREADS_MIN: usize = 2;
const LANE_THREADS_MAX: usize = 4;
/// A clock that is not the machine's is let pass in such steps ...
const STEP: Duration = Duration::from_millis(100);
/// ... with a moment between them in which others get on.
const STEP_PAUSE: Duration = Duration::from_micros(20);

/// The scheduler of some databases.
pub(super) struct Scheduler {
    state: Mutex<State>,
    /// With `state`, for each lane: a job may begin, or its threads are to end.
    work: [Condvar; Lane::ALL.len()],
    /// With `state`: a deadline comes before the one that is waited for, or the timer is to end.
    timer: Condvar,
    /// With `state`: a job has ended.
    ended: Condvar,
    clock: Arc<dyn Storage>,
}

#[derive(Default)]
pub(super) struct State {
    plan: Plan,
    members: BTreeMap<Id, Joined>,
    last_id: Id,
    /// Threads that wait for work, by lane.
    idle: [usize; Lane::ALL.len()],
    /// The timer sleeps until then; `None`: until it is told of a deadline.
    sleeps_until: Option<Duration>,
    /// How many threads each lane has.
    started: [usize; Lane::ALL.len()],
    threads: Vec<JoinHandle<()>>,
    is_ending: bool,
}

/// A database that joined.
struct Joined {
    limits: Limits,
    /// What it does, once it has started.
    jobs: Option<Arc<dyn Jobs>>,
    /// The first of its jobs that panicked.
    panicked: Option<Kind>,
}

/// How a thread is started: its name, and what it does.
pub(super) type Spawn<'a> =
    dyn FnMut(String, Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> + 'a;

pub(super) fn spawn(
    name: String,
    body: Box<dyn FnOnce() + Send>,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(body)
}

impl Scheduler {
    /// A scheduler without databases and threads, by the clock of `clock`.
    pub(super) fn new(clock: Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            work: std::array::from_fn(|_| Condvar::new()),
            timer: Condvar::new(),
            ended: Condvar::new(),
            clock,
        })
    }

    /// Takes in a database that may have so many jobs; none begins before [`Self::start`].
    pub(super) fn join(&self, limits: &Limits) -> Id {
        let mut state = lock(&self.state);
        state.last_id += 1;
        let id = state.last_id;
        let joined = Joined {
            limits: *limits,
            jobs: None,
            panicked: None,
        };
        state.members.insert(id, joined);
        id
    }

    /// Has the jobs of a database run, each once as a beginning.
    pub(super) fn start(
        self: &Arc<Self>,
        id: Id,
        jobs: Arc<dyn Jobs>,
        spawn: &mut Spawn<'_>,
    ) -> Result<()> {
        let mut state = lock(&self.state);
        self.start_threads(&mut state, spawn)?;
        if let Some(joined) = state.members.get_mut(&id) {
            joined.jobs = Some(jobs);
            let limits = joined.limits;
            state.plan.join(id, &limits);
        }
        for kind in Kind::ALL {
            state.plan.submit(id, kind);
        }
        self.wake(&mut state);
        Ok(())
    }

    /// Starts the threads that are missing for the databases there are.
    fn start_threads(self: &Arc<Self>, state: &mut State, spawn: &mut Spawn<'_>) -> Result<()> {
        if state.threads.is_empty() {
            let timer = Arc::clone(self);
            let body = Box::new(move || timer.keep_time());
            state.threads.push(started("waystation-time", body, spawn)?);
        }
        for lane in Lane::ALL {
            while state.started[lane as usize] < state.threads_for(lane) {
                let shared = Arc::clone(self);
                let body = Box::new(move || shared.work_in(lane));
                state.threads.push(started(thread_name(lane), body, spawn)?);
                state.started[lane as usize] += 1;
            }
        }
        Ok(())
    }

    /// Something happened to a database.
    pub(super) fn submit(&self, id: Id, kind: Kind) {
        let mut state = lock(&self.state);
        state.plan.submit(id, kind);
        self.wake_lane(&mut state, kind.lane());
    }

    /// Something is to be done for a database by `at`.
    pub(super) fn by(&self, id: Id, kind: Kind, at: Duration) {
        let mut state = lock(&self.state);
        state.plan.by(id, kind, at);
        self.wake_timer(&mut state);
    }

    /// Lets no job of these kinds begin any more, and waits until none runs. Fails if any of the database has panicked.
    pub(super) fn end(&self, id: Id, kinds: &[Kind]) -> Result<()> {
        let mut state = lock(&self.state);
        state.plan.stop(id, kinds);
        while !state.plan.is_quiet(id, kinds) {
            state = wait(&self.ended, state);
        }
        let panicked = state.members.get(&id).and_then(|joined| joined.panicked);
        panicked.map_or(Ok(()), |kind| {
            let cause = std::io::Error::other("a background job panicked");
            Err(Error::io("run", thread_name(kind.lane()), cause))
        })
    }

    /// Forgets a database of which nothing runs. Returns whether it was the last, and then the threads, which end.
    pub(super) fn leave(&self, id: Id) -> (bool, Vec<JoinHandle<()>>) {
        let mut state = lock(&self.state);
        state.plan.leave(id);
        let left = state.members.remove(&id);
        let is_last = state.members.is_empty();
        let mut threads = Vec::new();
        if is_last {
            state.is_ending = true;
            self.work.iter().for_each(Condvar::notify_all);
            self.timer.notify_all();
            threads = std::mem::take(&mut state.threads);
        }
        drop(state);
        drop(left);
        (is_last, threads)
    }

    /// Has as many threads look as there are jobs that may begin.
    fn wake(&self, state: &mut State) {
        for lane in Lane::ALL {
            self.wake_lane(state, lane);
        }
        self.wake_timer(state);
    }

    fn wake_lane(&self, state: &mut State, lane: Lane) {
        let idle = &mut state.idle[lane as usize];
        for _ in 0..state.plan.waiting(lane).min(*idle) {
            *idle -= 1;
            self.work[lane as usize].notify_one();
        }
    }

    fn wake_timer(&self, state: &mut State) {
        let is_early = |at| state.sleeps_until.is_none_or(|until| at < until);
        if state.plan.deadline().is_some_and(is_early) {
            // Told once.
            state.sleeps_until = state.plan.deadline();
            self.timer.notify_one();
        }
    }

    /// The work of one thread of `lane`.
    fn work_in(&self, lane: Lane) {
        match lane {
            Lane::Compact => stand_back(),
            // Writers wait for the ring while a thread that has written it out waits for the processor.
            Lane::Log => wake_soon(),
            Lane::Flush | Lane::Settle | Lane::Keep | Lane::Place => {}
        }
        let mut state = lock(&self.state);
        loop {
            if let Some(task) = state.plan.take(lane) {
                state = self.run(state, task);
            } else if state.is_ending {
                return;
            } else {
                state.idle[lane as usize] += 1;
                state = wait(&self.work[lane as usize], state);
            }
        }
    }

    fn run<'a>(&'a self, state: MutexGuard<'a, State>, task: Task) -> MutexGuard<'a, State> {
        let (id, kind) = task;
        let jobs = state.members.get(&id).and_then(|it| it.jobs.clone());
        drop(state);
        let mut next = Next::Idle;
        if let Some(jobs) = jobs {
            match run_caught(&*jobs, kind) {
                Some(after) => next = after,
                None => self.give_up(id, kind, &*jobs),
            }
        }
        let now = self.clock.now();
        let mut state = lock(&self.state);
        state.plan.done(task, next, now);
        // This thread takes one of the jobs that wait now.
        if state.plan.waiting(kind.lane()) > 1 {
            self.wake_lane(&mut state, kind.lane());
        }
        self.wake_timer(&mut state);
        self.ended.notify_all();
        state
    }

    /// A job of `kind` of database `id` panicked.
    fn give_up(&self, id: Id, kind: Kind, jobs: &dyn Jobs) {
        let mut state = lock(&self.state);
        if let Some(joined) = state.members.get_mut(&id) {
            joined.panicked.get_or_insert(kind);
        }
        state.plan.stop(id, &Kind::ALL);
        drop(state);
        // A thread that hears of it finds that it has ended.
        tell_of_panic(jobs, kind);
    }

    /// The timer's work.
    fn keep_time(&self) {
        let is_machines = self.clock.has_machine_clock();
        let mut state = lock(&self.state);
        while !state.is_ending {
            let now = self.clock.now();
            state.plan.pass(now);
            for lane in Lane::ALL {
                self.wake_lane(&mut state, lane);
            }
            state.sleeps_until = state.plan.deadline();
            state = match state.sleeps_until {
                None => wait(&self.timer, state),
                Some(at) if is_machines => {
                    wait_for(&self.timer, &self.state, state, at.saturating_sub(now))
                }
                Some(at) => {
                    drop(state);
                    self.clock.sleep(at.saturating_sub(now).min(STEP));
                    let state = lock(&self.state);
                    if state.is_ending {
                        return;
                    }
                    wait_for(&self.timer, &self.state, state, STEP_PAUSE)
                }
            };
        }
    }
}

impl State {
    /// How many threads `lane` needs for the databases there are.
    fn threads_for(&self, lane: Lane) -> usize {
        let jobs = self.members.values().map(|it| it.limits.of(lane));
        let processors = processors();
        let most = match lane {
            Lane::Log => LOG_THREADS,
            Lane::Flush | Lane::Settle | Lane::Keep | Lane::Place => {
                processors.clamp(LANE_THREADS_MIN, LANE_THREADS_MAX)
            }
            // As many as the database that asks for most.
            Lane::Compact => jobs
                .clone()
                .max()
                .map_or(processors, |it| it.max(processors)),
        };
        jobs.sum::<usize>().min(most)
    }
}

fn started(
    name: &'static str,
    body: Box<dyn FnOnce() + Send>,
    spawn: &mut Spawn<'_>,
) -> Result<JoinHandle<()>> {
    spawn(name.to_owned(), body).map_err(|error| Error::io("start thread", name, error))
}

fn thread_name(lane: Lane) -> &'static str {
    match lane {
        Lane::Log => "waystation-log",
        Lane::Flush => "waystation-flush",
        Lane::Settle => "waystation-settle",
        Lane::Keep => "waystation-keep",
        Lane::Compact => "waystation-compact",
        Lane::Place => "waystation-place",
    }
}

/// Runs a job; `None` if it panicked.
#[cfg(not(any(loom, shuttle)))]
fn run_caught(jobs: &dyn Jobs, kind: Kind) -> Option<Next> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    // What it has left broken is behind locks that are poisoned now, and all of it belongs to one database.
    catch_unwind(AssertUnwindSafe(|| jobs.run(kind))).ok()
}

#[cfg(not(any(loom, shuttle)))]
fn tell_of_panic(jobs: &dyn Jobs, kind: Kind) {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    log::error!(
        "a background job ({kind:?}) panicked; its database does nothing more in the background"
    );
    if catch_unwind(AssertUnwindSafe(|| jobs.panicked(kind))).is_err() {
        log::error!("the callers that wait for it cannot be told");
    }
}

/// Runs a job. In a model a panic ends everything.
#[cfg(any(loom, shuttle))]
fn run_caught(jobs: &dyn Jobs, kind: Kind) -> Option<Next> {
    Some(jobs.run(kind))
}

#[cfg(any(loom, shuttle))]
fn tell_of_panic(jobs: &dyn Jobs, kind: Kind) {
    jobs.panicked(kind);
}
