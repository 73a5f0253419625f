//! The plan: which job runs next, and when the next deadline comes. It knows no clock, no lock and no thread: events and
//! times come in, tasks and deadlines go out.
//!
//! ```text
//!            submit                     take                 done
//!    idle ------------> in the queue ----------> running ------------> idle, queued again, or waiting
//!      ^  a deadline passes  ^                                                        |
//!      +---------------------+--------------------------------------------------------+
//! ```
//!
//! Invariants:
//! - an event that comes while a job runs is not lost: the job runs once more after that;
//! - of each database at most as many jobs of a kind run at once as it asked for;
//! - in a lane the databases take turns: a job that is to run again goes behind all that wait;
//! - after a failure nothing of that kind and database begins before its pause is over, whatever happens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Deadlines are rounded up to a multiple of this: those of many databases then come together.
const GRAIN: Duration = Duration::from_millis(5);
/// The first pause after a failure; it doubles up to the longest.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Writes the log out, prepares its segments, heals it.
    Log,
    /// Writes full memtables to tables.
    Flush,
    /// Lets devices settle.
    Settle,
    /// Frees the log and the indexes that nothing needs, writes checkpoints and index snapshots, lets idle devices depart.
    Keep,
    /// Sees when writing stops, and which deletions are due.
    Watch,
    /// Merges tables.
    Compact,
    /// Brings to the fast tier what is read most.
    Place,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Log,
        Self::Flush,
        Self::Settle,
        Self::Keep,
        Self::Watch,
        Self::Compact,
        Self::Place,
    ];

    /// The threads that run it.
    pub(crate) fn lane(self) -> Lane {
        match self {
            Self::Log => Lane::Log,
            Self::Flush => Lane::Flush,
            Self::Settle => Lane::Settle,
            Self::Keep | Self::Watch => Lane::Keep,
            Self::Compact => Lane::Compact,
            Self::Place => Lane::Place,
        }
    }
}

/// Threads that run the same kinds of jobs. A job waits at most for jobs of lanes before its own (settling for a flush, a
/// flush for the log); as each lane has threads of its own, none keeps another from going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Log,
    Flush,
    Settle,
    Keep,
    Compact,
    Place,
}

impl Lane {
    pub(crate) const ALL: [Self; 6] = [
        Self::Log,
        Self::Flush,
        Self::Settle,
        Self::Keep,
        Self::Compact,
        Self::Place,
    ];
}

/// How many jobs of each kind a database has at once; 0: it has none of that kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits(pub(crate) [usize; Kind::ALL.len()]);

impl Limits {
    /// With up to `count` jobs of `kind`.
    #[must_use]
    pub(crate) fn with(mut self, kind: Kind, count: usize) -> Self {
        self.0[kind as usize] = count;
        self
    }

    /// How many jobs of `lane` there are at once.
    pub(crate) fn of(&self, lane: Lane) -> usize {
        let kinds = Kind::ALL.iter().filter(|kind| kind.lane() == lane);
        kinds.map(|kind| self.0[*kind as usize]).sum()
    }
}

/// What a job that ran wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until something happens.
    Idle,
    /// To run once more, when the others had their turn.
    Again,
    /// To run at this time, or before if something happens.
    At(Duration),
    /// It failed, and is tried again after a pause.
    Failed,
}

/// A database, as the plan knows it.
pub(crate) type Id = u64;

/// A job of a database.
pub(crate) type Task = (Id, Kind);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    members: BTreeMap<Id, [Job; Kind::ALL.len()]>,
    queues: [VecDeque<Task>; Lane::ALL.len()],
    deadlines: BTreeSet<(Duration, Id, Kind)>,
}

/// The jobs of one kind of a database.
#[derive(Debug, Default, Clone, Copy)]
struct Job {
    /// So many at once.
    limit: usize,
    /// So many have to look at what happened.
    pending: usize,
    /// How often it is in the queue.
    queued: usize,
    running: usize,
    due: Option<Duration>,
    /// How long the last pause was, after failures alone.
    pause: Duration,
    /// Whether a pause is under way, which ends when it is due.
    is_paused: bool,
}

impl Plan {
    /// Takes a database in, of which nothing is to be done yet.
    pub(crate) fn join(&mut self, id: Id, limits: &Limits) {
        let jobs = limits.0.map(|limit| Job {
            limit,
            ..Job::default()
        });
        self.members.insert(id, jobs);
    }

    /// Forgets a database of which nothing runs.
    pub(crate) fn leave(&mut self, id: Id) {
        self.stop(id, &Kind::ALL);
        self.members.remove(&id);
    }

    /// Something happened that jobs of `kind` have to look at: as many of them as there may be.
    pub(crate) fn submit(&mut self, id: Id, kind: Kind) {
        if let Some(job) = self.job(id, kind) {
            job.pending = job.limit;
            self.enqueue(id, kind);
        }
    }

    /// Has a job of `kind` run at `at`, if none is to run before.
    pub(crate) fn by(&mut self, id: Id, kind: Kind, at: Duration) {
        let Some(job) = self.job(id, kind) else {
            return;
        };
        let at = rounded_up(at);
        if job.limit > 0 && !job.is_paused && job.due.is_none_or(|due| at < due) {
            self.set_due(id, kind, Some(at));
        }
    }

    /// It is `now`: due jobs go into the queues.
    pub(crate) fn pass(&mut self, now: Duration) {
        while let Some((at, id, kind)) = self.deadlines.first().copied()
            && at <= now
        {
            self.set_due(id, kind, None);
            if let Some(job) = self.job(id, kind) {
                job.is_paused = false;
                job.pending = job.pending.max(1).min(job.limit);
                self.enqueue(id, kind);
            }
        }
    }

    /// The next deadline.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, ..)| *at)
    }

    /// How many jobs could begin in `lane`.
    pub(crate) fn waiting(&self, lane: Lane) -> usize {
        self.queues[lane as usize].len()
    }

    /// The next job of `lane`, which runs from now on.
    pub(crate) fn take(&mut self, lane: Lane) -> Option<Task> {
        let (id, kind) = self.queues[lane as usize].pop_front()?;
        let job = self.job(id, kind)?;
        job.queued -= 1;
        job.pending -= 1;
        job.running += 1;
        Some((id, kind))
    }

    /// A job that was taken has ended, `now`, and wants `next`.
    pub(crate) fn done(&mut self, (id, kind): Task, next: Next, now: Duration) {
        let Some(job) = self.job(id, kind) else {
            return;
        };
        job.running -= 1;
        if next == Next::Failed {
            job.pause = (job.pause * 2).clamp(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX);
            self.pause(id, kind, now);
            return;
        }
        job.pause = Duration::ZERO;
        match next {
            Next::Again => job.pending = job.pending.max(1).min(job.limit),
            Next::At(at) => self.by(id, kind, at),
            Next::Idle | Next::Failed => {}
        }
        self.enqueue(id, kind);
    }

    /// No job of these kinds begins any more.
    pub(crate) fn stop(&mut self, id: Id, kinds: &[Kind]) {
        for kind in kinds {
            self.set_due(id, *kind, None);
            self.unqueue(id, *kind);
            if let Some(job) = self.job(id, *kind) {
                (job.limit, job.pending) = (0, 0);
            }
        }
    }

    /// Whether no job of these kinds runs.
    pub(crate) fn is_quiet(&self, id: Id, kinds: &[Kind]) -> bool {
        let jobs = self.members.get(&id);
        jobs.is_none_or(|jobs| kinds.iter().all(|kind| jobs[*kind as usize].running == 0))
    }

    fn job(&mut self, id: Id, kind: Kind) -> Option<&mut Job> {
        self.members
            .get_mut(&id)
            .map(|jobs| &mut jobs[kind as usize])
    }

    /// Queues as many jobs as may begin.
    fn enqueue(&mut self, id: Id, kind: Kind) {
        let Some(job) = self.job(id, kind).filter(|job| !job.is_paused) else {
            return;
        };
        let may_begin = job.pending.min(job.limit.saturating_sub(job.running));
        let more = may_begin.saturating_sub(job.queued);
        job.queued += more;
        let queue = &mut self.queues[kind.lane() as usize];
        queue.extend(std::iter::repeat_n((id, kind), more));
    }

    fn unqueue(&mut self, id: Id, kind: Kind) {
        self.queues[kind.lane() as usize].retain(|task| *task != (id, kind));
        if let Some(job) = self.job(id, kind) {
            job.queued = 0;
        }
    }

    /// Lets the pause that the job has begin `now`.
    fn pause(&mut self, id: Id, kind: Kind, now: Duration) {
        self.unqueue(id, kind);
        let Some(job) = self.job(id, kind).filter(|job| job.limit > 0) else {
            return;
        };
        job.is_paused = true;
        job.pending = job.limit;
        let until = rounded_up(now + job.pause);
        self.set_due(id, kind, Some(until));
    }

    fn set_due(&mut self, id: Id, kind: Kind, due: Option<Duration>) {
        let Some(job) = self.job(id, kind) else {
            return;
        };
        let before = std::mem::replace(&mut job.due, due);
        if let Some(before) = before {
            self.deadlines.remove(&(before, id, kind));
        }
        if let Some(due) = due {
            self.deadlines.insert((due, id, kind));
        }
    }
}

/// The first multiple of the grain at `time` or later.
fn rounded_up(time: Duration) -> Duration {
    let grain = GRAIN.as_micros() as u64;
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX - grain);
    let rest = micros % grain;
    let is_exact = rest == 0 && time.subsec_nanos().is_multiple_of(1000);
    let up = if is_exact { 0 } else { grain - rest };
    Duration::from_micros(micros.saturating_add(up))
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::background::tests::script;
    use std::fmt::Write as _;

    /// Blocks of events on one plan; below the dashes, the plan's answers to `take` and `deadline`.
    #[test]
    fn scripts_answer_as_written() {
        for name in ["order", "stop", "time"] {
            script::run(name, answer);
        }
    }

    fn answer(question: &str) -> String {
        let (mut plan, mut now, mut out) = (Plan::default(), Duration::ZERO, String::new());
        for line in question.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let id = || words[1].parse::<Id>().unwrap();
            match words[0] {
                "join" => plan.join(id(), &limits(&words[2..])),
                "leave" => plan.leave(id()),
                "submit" => plan.submit(id(), kind(words[2])),
                "by" => plan.by(id(), kind(words[2]), millis(words[3])),
                "now" => {
                    now = millis(words[1]);
                    plan.pass(now);
                }
                "done" => {
                    let next = match words[3] {
                        "idle" => Next::Idle,
                        "again" => Next::Again,
                        "failed" => Next::Failed,
                        at => Next::At(millis(at)),
                    };
                    plan.done((id(), kind(words[2])), next, now);
                }
                "stop" => plan.stop(id(), &[kind(words[2])]),
                "quiet" => {
                    let _ = writeln!(out, "{}", plan.is_quiet(id(), &[kind(words[2])]));
                }
                "take" => match plan.take(kind(words[1]).lane()) {
                    Some((id, kind)) => {
                        let _ = writeln!(out, "{id} {kind:?}");
                    }
                    None => out.push_str("nothing\n"),
                },
                "deadline" => match plan.deadline() {
                    Some(at) => {
                        let _ = writeln!(out, "{} ms", at.as_millis());
                    }
                    None => out.push_str("none\n"),
                },
                other => panic!("{other} is no event"),
            }
        }
        out
    }

    fn kind(name: &str) -> Kind {
        let mut kinds = Kind::ALL.into_iter();
        let found = kinds.find(|kind| format!("{kind:?}").eq_ignore_ascii_case(name));
        found.unwrap_or_else(|| panic!("{name} is no kind"))
    }

    fn millis(text: &str) -> Duration {
        Duration::from_millis(text.parse().unwrap())
    }

    /// `flush log:4`
    fn limits(words: &[&str]) -> Limits {
        words.iter().fold(Limits::default(), |limits, word| {
            let (name, count) = word.split_once(':').unwrap_or((word, "1"));
            limits.with(kind(name), count.parse().unwrap())
        })
    }

    #[test]
    fn deadlines_are_never_early() {
        let nanos = Duration::from_nanos;
        assert_eq!(rounded_up(nanos(1)), GRAIN);
        assert_eq!(rounded_up(GRAIN), GRAIN);
        assert_eq!(rounded_up(GRAIN + nanos(1)), 2 * GRAIN);
        assert!(rounded_up(Duration::MAX) > Duration::from_secs(1 << 40));
    }
}
