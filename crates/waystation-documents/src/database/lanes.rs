//! Lanes: the parts of a query's way, gone at once, and merged into one order while they go.
//!
//! ```text
//!   lane 0   ▓▓▓▓▓▓▓▓░░░░│      ▓ merged   ░ found and waiting   │ how far the lane has come
//!   lane 1   ▓▓▓▓▓▓░│           what stands before the slowest lane's place can be merged
//! ```
//!
//! Each lane goes in steps ([`FindStep`]) and runs ahead of the merge until what it found fills its share of the
//! query's memory, or is as much as the query can still want. So a slow node holds up the answer's order, never the
//! other nodes' work, and a query's memory has a ceiling whatever matches.
//!
//! Steps on this machine are taken by the caller, and by helpers once a query proves long. Steps on drives are waited
//! for by threads of their own, which outlive the page that began them: the next page finds what they brought. They
//! hold nothing of this machine's shards.
//!
//! Invariants: what a lane has found lies at or before its `reached`; a lane without something ready, and not at its
//! end, is always allowed a step: so the merge goes on.

use super::part::Part;
use crate::error::{Error, Result};
use crate::mango::Groups;
use crate::shard::{FindQuery, FindStep, ScanOptions, ScanStats};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Documents that a step reads at most.
const STEP_DOCUMENTS: u64 = 256;
/// A step ends when what it found has this many bytes.
const STEP_BYTES: u64 = 1 << 20;
/// What all lanes of a query hold ready, at most (bytes), but for one document each.
const READY_BYTES: u64 = 16 << 20;
/// Steps of each lane that the caller takes alone, before helpers begin.
const STEPS_ALONE: u64 = 2;

/// Where a lane goes.
#[derive(Debug, Clone, Default)]
pub(super) struct Bounds {
    /// Which part of the database.
    pub(super) part: usize,
    /// Between which identifiers.
    pub(super) scan: ScanOptions,
}

struct Lane {
    bounds: Bounds,
    is_remote: bool,
    is_busy: bool,
    ready: VecDeque<(Vec<u8>, String)>,
    ready_bytes: u64,
    reached: Option<Vec<u8>>,
    is_end: bool,
    stats: ScanStats,
}

/// What a query may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Guard {
    /// Documents that are read.
    pub(super) documents: Option<u64>,
    /// Bytes of them.
    pub(super) bytes: Option<u64>,
}

impl Guard {
    fn check(self, documents: u64, bytes: u64) -> Result<()> {
        let exceeded = |what: &str, most: u64| {
            let reason = format!(
                "The query reads more than {most} {what}, which its `guard` allows; create an index for it, or narrow the selector."
            );
            Err(Error::query("guard_exceeded", reason))
        };
        match (self.documents, self.bytes) {
            (Some(most), _) if documents > most => exceeded("documents", most),
            (_, Some(most)) if bytes > most => exceeded("bytes", most),
            _ => Ok(()),
        }
    }
}

struct State {
    lanes: Vec<Lane>,
    /// Documents that the query can still want.
    wanted: u64,
    /// The page is over: no step begins.
    is_paused: bool,
    steps: u64,
    /// What was aggregated.
    groups: Groups,
    guard: Guard,
    failure: Option<Error>,
}

struct Shared {
    query: Arc<FindQuery>,
    state: Mutex<State>,
    /// Told of every step that has ended, and of what was merged.
    changed: Condvar,
}

/// The lanes of a query.
#[derive(Clone)]
pub(super) struct Lanes(Arc<Shared>);

/// What the merge comes to next.
enum Next {
    /// A document.
    Found(Vec<u8>, String),
    /// All lanes are at their ends.
    End,
    /// The slowest lane has to go on.
    Wait,
}

impl Lanes {
    /// Lanes of `query` within `bounds`, over `parts`, from behind the place `after`.
    pub(super) fn new(
        query: Arc<FindQuery>,
        bounds: Vec<Bounds>,
        parts: &[Part],
        after: Option<&[u8]>,
        guard: Guard,
    ) -> Self {
        let lane = |bounds: Bounds| Lane {
            is_remote: parts[bounds.part].is_remote(),
            bounds,
            is_busy: false,
            ready: VecDeque::new(),
            ready_bytes: 0,
            reached: after.map(<[u8]>::to_vec),
            is_end: false,
            stats: ScanStats::default(),
        };
        Self(Arc::new(Shared {
            query,
            state: Mutex::new(State {
                lanes: bounds.into_iter().map(lane).collect(),
                wanted: 0,
                is_paused: true,
                steps: 0,
                groups: Groups::default(),
                guard,
                failure: None,
            }),
            changed: Condvar::new(),
        }))
    }

    /// Takes what was aggregated so far.
    pub(super) fn take_groups(&self) -> Groups {
        std::mem::take(&mut self.0.lock().groups)
    }

    /// What each part has cost so far.
    pub(super) fn stats(&self) -> BTreeMap<usize, ScanStats> {
        let mut parts: BTreeMap<usize, ScanStats> = BTreeMap::new();
        for lane in &self.0.lock().lanes {
            parts.entry(lane.bounds.part).or_default().add(lane.stats);
        }
        parts
    }

    /// Merges, handing each document and its place to `take`, until that says that the page is full, all lanes are at
    /// their ends, or lanes have read `examined_max` documents for the page. Returns whether the lanes are at their ends.
    pub(super) fn page(
        &self,
        parts: &[Part],
        wanted: u64,
        examined_max: u64,
        take: impl FnMut(Vec<u8>, String) -> bool,
    ) -> Result<bool> {
        let begun = {
            let mut state = self.0.lock();
            state.wanted = wanted;
            state.is_paused = false;
            state.examined()
        };
        let workers = self.local_workers();
        std::thread::scope(|scope| {
            let call_helpers = || {
                for _ in 1..workers {
                    scope.spawn(|| self.0.help(parts));
                }
            };
            let reached = self.reach_out(parts);
            let merged =
                reached.and_then(|()| self.merge(parts, begun + examined_max, take, call_helpers));
            self.0.lock().is_paused = true;
            self.0.changed.notify_all();
            merged
        })
    }

    fn merge(
        &self,
        parts: &[Part],
        examined_max: u64,
        mut take: impl FnMut(Vec<u8>, String) -> bool,
        call_helpers: impl FnOnce(),
    ) -> Result<bool> {
        let mut call_helpers = Some(call_helpers);
        let mut state = self.0.lock();
        loop {
            if let Some(failure) = state.failure.take() {
                return Err(failure);
            }
            match state.next(self.0.query.descending) {
                Next::End => return Ok(true),
                Next::Found(place, document) => {
                    state.wanted = state.wanted.saturating_sub(1);
                    let is_full = take(place, document);
                    self.0.changed.notify_all();
                    if is_full {
                        return Ok(false);
                    }
                }
                Next::Wait if state.examined() >= examined_max => return Ok(false),
                Next::Wait => {
                    let is_long = state.steps > STEPS_ALONE * state.lanes.len() as u64;
                    if is_long && let Some(call) = call_helpers.take() {
                        call();
                    }
                    state = match state.choose(false) {
                        Some((at, step)) => {
                            let step = step.with(&self.0.query);
                            drop(state);
                            self.0.take_step(parts, at, step);
                            self.0.lock()
                        }
                        None => self.0.wait(state),
                    };
                }
            }
        }
    }

    /// Threads that take steps on this machine, the caller's included.
    fn local_workers(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let state = self.0.lock();
        let local = state.lanes.iter().filter(|lane| !lane.is_remote);
        processors.min(local.count())
    }

    /// Starts a thread for each lane on a drive that has none at work.
    fn reach_out(&self, parts: &[Part]) -> Result<()> {
        let lanes = self.0.lock().lanes.len();
        for at in 0..lanes {
            let part = {
                let mut state = self.0.lock();
                let lane = &mut state.lanes[at];
                if !lane.is_remote || lane.is_busy || lane.is_end {
                    continue;
                }
                lane.is_busy = true;
                parts[lane.bounds.part].clone()
            };
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("waystation-find".to_owned());
            let started = thread.spawn(move || shared.follow(&part, at));
            if let Err(error) = started {
                self.0.lock().lanes[at].is_busy = false;
                return Err(Error::File {
                    operation: "start a thread for",
                    path: "a query".into(),
                    reason: error.to_string(),
                });
            }
        }
        Ok(())
    }
}

impl Shared {
    /// A panic in a step leaves a lane busy, and the failure of its own.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let state = self.changed.wait(state);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes steps of lanes on this machine while the page goes on.
    fn help(&self, parts: &[Part]) {
        let mut state = self.lock();
        while !state.is_paused {
            state = match state.choose(false) {
                Some((at, step)) => {
                    let step = step.with(&self.query);
                    drop(state);
                    self.take_step(parts, at, step);
                    self.lock()
                }
                None => self.wait(state),
            };
        }
    }

    /// Takes the steps of one lane on a drive, until the page is over or the lane at its end.
    fn follow(&self, part: &Part, at: usize) {
        loop {
            let step = {
                let mut state = self.lock();
                loop {
                    if state.is_paused || state.failure.is_some() || state.lanes[at].is_end {
                        state.lanes[at].is_busy = false;
                        return;
                    }
                    match state.step_of(at) {
                        Some(step) => break step.with(&self.query),
                        None => state = self.wait(state),
                    }
                }
            };
            let outcome = part.find(step);
            self.lock().absorb(at, outcome);
            self.changed.notify_all();
        }
    }

    fn take_step(&self, parts: &[Part], at: usize, step: FindStep) {
        let part = self.lock().lanes[at].bounds.part;
        let outcome = parts[part].find(step);
        let mut state = self.lock();
        state.absorb(at, outcome);
        state.lanes[at].is_busy = false;
        drop(state);
        self.changed.notify_all();
    }
}

/// A step without its query.
struct Planned {
    bounds: Bounds,
    after: Option<Vec<u8>>,
    found_max: u64,
    bytes_max: u64,
    examined_max: u64,
}

impl Planned {
    fn with(self, query: &Arc<FindQuery>) -> FindStep {
        FindStep {
            query: Arc::clone(query),
            scan: self.bounds.scan,
            after: self.after,
            found_max: self.found_max,
            bytes_max: self.bytes_max,
            examined_max: self.examined_max,
        }
    }
}

impl State {
    fn examined(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.stats.examined).sum()
    }

    /// The step that lane `at` may take; `None` if it has to wait for the merge.
    fn step_of(&self, at: usize) -> Option<Planned> {
        let lane = &self.lanes[at];
        let lanes = self.lanes.len() as u64;
        let share = READY_BYTES / lanes;
        let ready = lane.ready.len() as u64;
        if lane.is_end || ready > 0 && (ready >= self.wanted || lane.ready_bytes >= share) {
            return None;
        }
        // What one lane finds is rarely all that is wanted.
        let found_max = self.wanted.div_ceil(lanes).saturating_add(4);
        Some(Planned {
            bounds: lane.bounds.clone(),
            after: lane.reached.clone(),
            found_max: found_max.min(self.wanted.saturating_sub(ready)).max(1),
            bytes_max: STEP_BYTES.min(share),
            // One more than is allowed shows that it is not enough.
            examined_max: match self.guard.documents {
                Some(most) => {
                    let left = most.saturating_sub(self.examined());
                    STEP_DOCUMENTS.min(left.saturating_add(1))
                }
                None => STEP_DOCUMENTS,
            },
        })
    }

    /// Chooses the idle lane that has come least far, and marks it busy.
    fn choose(&mut self, remote: bool) -> Option<(usize, Planned)> {
        let may_go = |at: &usize| {
            let lane = &self.lanes[*at];
            !lane.is_busy && lane.is_remote == remote && self.step_of(*at).is_some()
        };
        let chosen = (0..self.lanes.len())
            .filter(may_go)
            .min_by_key(|at| (self.lanes[*at].ready.len(), self.lanes[*at].stats.examined))?;
        let step = self.step_of(chosen)?;
        self.lanes[chosen].is_busy = true;
        Some((chosen, step))
    }

    fn absorb(&mut self, at: usize, outcome: Result<crate::shard::FindPart>) {
        self.steps += 1;
        let lane = &mut self.lanes[at];
        match outcome {
            Ok(part) => {
                lane.stats.add(part.stats);
                lane.is_end = part.is_end;
                lane.reached = part.reached.or(lane.reached.take());
                lane.ready_bytes += part.found.iter().map(bytes_of).sum::<u64>();
                lane.ready.extend(part.found);
                let merged = self.groups.merge(part.groups);
                let bytes = self.lanes.iter().map(|lane| lane.stats.bytes).sum();
                let allowed = self.guard.check(self.examined(), bytes);
                if let Err(error) = merged.and(allowed) {
                    self.failure.get_or_insert(error);
                }
            }
            Err(error) => {
                lane.is_end = true;
                self.failure.get_or_insert(error);
            }
        }
    }

    /// What the merge comes to.
    fn next(&mut self, descending: bool) -> Next {
        let front = |at: &usize| self.lanes[*at].ready.front().map(|(place, _)| place);
        let there = (0..self.lanes.len()).filter(|at| front(at).is_some());
        let first = if descending {
            there.max_by_key(front)
        } else {
            there.min_by_key(front)
        };
        let Some(first) = first else {
            let is_end = self.lanes.iter().all(|lane| lane.is_end);
            return if is_end { Next::End } else { Next::Wait };
        };
        let place = front(&first);
        let may_come_before = |lane: &Lane| {
            let begin = lane.bounds.scan.from.as_ref().map(String::as_bytes);
            match (lane.reached.as_deref(), begin, place) {
                (Some(reached), _, Some(place)) if descending => reached > place.as_slice(),
                (Some(reached), _, Some(place)) => reached < place.as_slice(),
                (None, Some(begin), Some(place)) if descending => begin >= place.as_slice(),
                (None, Some(begin), Some(place)) => begin <= place.as_slice(),
                _ => true,
            }
        };
        let mut waiting = self.lanes.iter().filter(|lane| {
            let is_empty = lane.ready.is_empty() && !lane.is_end;
            is_empty && may_come_before(lane)
        });
        if waiting.next().is_some() {
            return Next::Wait;
        }
        let lane = &mut self.lanes[first];
        let Some(found) = lane.ready.pop_front() else {
            return Next::Wait;
        };
        lane.ready_bytes -= bytes_of(&found);
        Next::Found(found.0, found.1)
    }
}

fn bytes_of(found: &(Vec<u8>, String)) -> u64 {
    (found.0.len() + found.1.len()) as u64
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").finish_non_exhaustive()
    }
}
