//! The agenda of one database: what its upkeep does next, and when to look again. Pure functions of the sight and of the
//! time; `testdata/agenda.txt` holds their script.
//!
//! Two jobs look: the *watch*, after whose looks a database is busy or idle, and the *maintenance of devices*. An event brings
//! a look at once ([`Member::submit`](super::Member::submit)); the agenda names the deadline of the next look without one.
//!
//! ```text
//!           a write
//!    idle ----------> busy: a look after QUIET, then after twice as long each time that writes came
//!      ^                |
//!      +----------------+  no write for QUIET
//! ```
//!
//! A database that stays idle is looked at once more after REST, when it gives back room; or after [`SHARED_REST`], if tables
//! could lie there.
//!
//! Where only another program or time itself can change what stands in the way (a full disk, a flush that fails, dates in
//! spill files that pass one by one) the looks become rarer up to a limit, and nothing else is looked at again and again.

use std::time::Duration;

/// A database is idle when nothing was written for so long.
pub(crate) const QUIET: Duration = Duration::from_millis(240);
/// While writes come, the looks become as rare as this.
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(480);
/// With a deadline for deletions a look comes in every such part of it ...
const DEADLINE_PART: u32 = 16;
/// ... within these limits.
const DEADLINE_PAUSES: (Duration, Duration) =
    (Duration::from_millis(20), Duration::from_millis(80));
/// What an idle database waits for without a date is looked at after this pause, and then after twice as long each time,
const STUCK_PAUSE_MIN: Duration = QUIET;
/// but at least so often if a flush is in the way,
const STUCK_PAUSE_MAX: Duration = Duration::from_secs(1);
/// and so often if dates in spill files are to pass.
const SPILLED_PAUSE_MAX: Duration = Duration::from_secs(10);
/// A database that was idle for so long gives back the room that only writers need.
const REST: Duration = Duration::from_secs(2);
/// Or for so long, if its tables would take that room: what is merged in a pause is read in it.
const SHARED_REST: Duration = Duration::from_millis(240);
/// When a database becomes idle, a memtable is flushed that holds at least this part of what it could.
const WORTH_FLUSHING: usize = 4;
/// Or so many graves: what they hide may be large.
const MANY_GRAVES: usize = 1_000;

/// What happens to the devices within this time is looked at together.
pub(crate) const TICK: Duration = Duration::from_millis(20);
/// While the disk is full, which other programs may change, it is looked at after this pause and then after twice as long
/// each time, up to the second pause.
pub(super) const FULL_DISK_PAUSES: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_millis(1_600));

/// What a look at a database sees.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sight {
    /// The sequence number of the last visible write.
    pub(crate) last_write: u64,
    /// Bytes reserved in the memtable that takes writes, and what it can hold.
    pub(crate) memtable: (usize, usize),
    /// Deletions of keys in it, and whether ranges were deleted in it.
    pub(crate) graves: (usize, bool),
    /// Only the disk reserve is left of the disk.
    pub(crate) is_short_of_room: bool,
    /// The longest time that deleted data may stay.
    pub(crate) deletion_deadline: Option<Duration>,
    /// What keys with a time to live wait for.
    pub(crate) expiry: Expiry,
    /// Graves or spill files are to be looked at then; `None`: nothing of them changed since the last look.
    pub(crate) graves_at: Option<Duration>,
    /// A caller waits for the database to become idle.
    pub(crate) is_awaited: bool,
    /// Tables would take the room that only writers need, and it is more than a trickle of writes brings.
    pub(crate) shares_room: bool,
}

/// What keys with a time to live wait for, to be flushed as expired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// There are none.
    #[default]
    Nothing,
    /// Their time.
    Time(Duration),
    /// The release of a snapshot, which is an event.
    Snapshot,
    /// A flush that does not come to its end.
    Flush,
    /// The dates of spill files, which pass one by one.
    Spilled,
}

/// What a look comes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The database is idle.
    pub(crate) is_idle: bool,
    /// It has become idle now, after this write.
    pub(crate) idle_since: Option<u64>,
    /// Its memtable is to be flushed.
    pub(crate) flush: bool,
    /// It has been idle for long: it is to give room back, once.
    pub(crate) rest: bool,
    /// When to look again, if nothing happens before.
    pub(crate) look_at: Option<Duration>,
}

/// What earlier looks saw.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// The last write, and when it was seen first.
    seen: Option<(u64, Duration)>,
    /// The last write before the database became idle.
    idle_after: Option<u64>,
    /// When it is to give room back, unless that is done.
    rest_at: Option<Duration>,
    /// The pause after the last look, which grows.
    pause: Duration,
}

impl Agenda {
    /// Whether a look `now` that sees no later write than `last_write` finds the database idle.
    pub(crate) fn is_quiet(&self, last_write: u64, now: Duration) -> bool {
        let is_over = |(seen, since)| seen == last_write && now >= since + QUIET;
        self.idle_after == Some(last_write) || self.seen.is_some_and(is_over)
    }

    /// Looks at a database, `now`.
    pub(crate) fn look(&mut self, sight: &Sight, now: Duration) -> Decision {
        if self.idle_after == Some(sight.last_write) {
            return self.look_at_idle(sight, now);
        }
        if self.idle_after.take().is_some() {
            self.pause = Duration::ZERO;
        }
        if self.is_quiet(sight.last_write, now) {
            self.idle_after = Some(sight.last_write);
            let rest = if sight.shares_room { SHARED_REST } else { REST };
            self.rest_at = Some(now + rest);
            self.pause = Duration::ZERO;
            return Decision {
                idle_since: Some(sight.last_write),
                flush: is_worth_flushing(sight),
                ..self.look_at_idle(sight, now)
            };
        }
        match self.seen {
            Some((seen, since)) if seen == sight.last_write => {
                busy((since + QUIET).min(now + self.busy_pause(sight)))
            }
            _ => {
                self.seen = Some((sight.last_write, now));
                let longest = if sight.is_awaited {
                    QUIET
                } else {
                    BUSY_PAUSE_MAX
                };
                self.pause = (self.pause * 2).clamp(QUIET, longest);
                busy(now + self.busy_pause(sight))
            }
        }
    }

    fn busy_pause(&self, sight: &Sight) -> Duration {
        let (low, high) = DEADLINE_PAUSES;
        let deadline = sight.deletion_deadline;
        deadline.map_or(self.pause, |it| (it / DEADLINE_PART).clamp(low, high))
    }

    fn look_at_idle(&mut self, sight: &Sight, now: Duration) -> Decision {
        let expiry = match sight.expiry {
            Expiry::Nothing | Expiry::Snapshot => None,
            Expiry::Time(at) => Some((at, STUCK_PAUSE_MAX)),
            Expiry::Flush => Some((now, STUCK_PAUSE_MAX)),
            Expiry::Spilled => Some((now, SPILLED_PAUSE_MAX)),
        };
        let graves = sight.graves_at.map(|at| (at, STUCK_PAUSE_MAX));
        let due = [expiry, graves].into_iter().flatten();
        let stuck = due.clone().filter(|(at, _)| *at <= now);
        let longest = stuck.map(|(_, longest)| longest).min();
        self.pause = longest.map_or(Duration::ZERO, |longest| {
            (self.pause * 2).clamp(STUCK_PAUSE_MIN, longest)
        });
        let at = due.map(|(at, _)| if at > now { at } else { now + self.pause });
        let rest = self.rest_at.take_if(|at| *at <= now).is_some();
        Decision {
            is_idle: true,
            rest,
            look_at: at.chain(self.rest_at).min(),
            ..Decision::default()
        }
    }
}

fn busy(look_at: Duration) -> Decision {
    Decision {
        look_at: Some(look_at),
        ..Decision::default()
    }
}

/// Whether the memtable of a database that has become idle is worth a table.
fn is_worth_flushing(sight: &Sight) -> bool {
    let (reserved, capacity) = sight.memtable;
    let (graves, has_ranges) = sight.graves;
    // A deleted range hides much, for all that is known, and nothing comes back before it is flushed.
    let hides_much = has_ranges || graves >= MANY_GRAVES;
    let has_deadline = sight.deletion_deadline.is_some();
    reserved >= capacity / WORTH_FLUSHING
        || hides_much
        || sight.is_short_of_room
        || has_deadline && graves > 0
}

/// What the maintenance of devices waits for, each if there is anything of the kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceSight {
    /// An index snapshot is being drawn, or due.
    pub(crate) is_drawing: bool,
    /// Only the disk reserve is left of the disk.
    pub(crate) is_short_of_room: bool,
    /// A stream has stalled for too long by then, at the earliest.
    pub(crate) stream_at: Option<Duration>,
    /// A device departs by itself, or departures are to be looked at.
    pub(crate) departure_at: Option<Duration>,
    /// A checkpoint is due.
    pub(crate) checkpoint_at: Option<Duration>,
    /// A surplus segment of the log can be removed.
    pub(crate) removal_at: Option<Duration>,
}

/// What earlier rounds of the maintenance of devices saw.
#[derive(Debug, Default)]
pub(crate) struct DeviceAgenda {
    /// The pause while the disk is full.
    pause: Duration,
}

impl DeviceAgenda {
    /// When the maintenance has its next round, if nothing happens before.
    pub(crate) fn next(&mut self, sight: &DeviceSight, now: Duration) -> Option<Duration> {
        let (low, high) = FULL_DISK_PAUSES;
        self.pause = if sight.is_short_of_room {
            (self.pause * 2).clamp(low, high)
        } else {
            Duration::ZERO
        };
        let times = [
            sight.is_drawing.then_some(now),
            sight.is_short_of_room.then_some(now + self.pause),
            sight.stream_at,
            sight.departure_at,
            sight.checkpoint_at,
            sight.removal_at,
        ];
        let first = times.into_iter().flatten().min();
        first.map(|at| at.max(now + TICK))
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::background::tests::script;
    use std::fmt::Write as _;

    #[test]
    fn scripts_answer_as_written() {
        script::run("agenda", answer);
    }

    /// One database: `look` and `devices` with their facts, as `name=value` or `name`; times in milliseconds.
    fn answer(question: &str) -> String {
        let (mut agenda, mut devices) = (Agenda::default(), DeviceAgenda::default());
        let mut out = String::new();
        for line in question.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let facts = &words[1..];
            let now = time(facts, "now").unwrap();
            match words[0] {
                "look" => tell(&mut out, agenda.look(&sight(facts), now)),
                "devices" => {
                    let next = devices.next(&device_sight(facts), now);
                    let _ = writeln!(out, "{}", at(next));
                }
                other => panic!("{other} is no look"),
            }
        }
        out
    }

    fn tell(out: &mut String, decision: Decision) {
        let state = match (decision.idle_since, decision.is_idle) {
            (Some(_), _) => "has become idle",
            (None, true) => "idle",
            (None, false) => "busy",
        };
        let flush = if decision.flush { ", flush" } else { "" };
        let rest = if decision.rest { ", rest" } else { "" };
        let _ = writeln!(out, "{state}{flush}{rest}, {}", at(decision.look_at));
    }

    fn at(time: Option<Duration>) -> String {
        time.map_or("no look".into(), |at| format!("look at {}", at.as_millis()))
    }

    fn value<'a>(facts: &[&'a str], name: &str) -> Option<&'a str> {
        let mut values = facts.iter().filter_map(|fact| fact.split_once('='));
        values.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn number(facts: &[&str], name: &str) -> Option<u64> {
        value(facts, name).map(|value| value.parse().unwrap())
    }

    fn time(facts: &[&str], name: &str) -> Option<Duration> {
        number(facts, name).map(Duration::from_millis)
    }

    fn sight(facts: &[&str]) -> Sight {
        let expiry = match value(facts, "expiry") {
            None => Expiry::Nothing,
            Some("snapshot") => Expiry::Snapshot,
            Some("flush") => Expiry::Flush,
            Some("spilled") => Expiry::Spilled,
            Some(at) => Expiry::Time(Duration::from_millis(at.parse().unwrap())),
        };
        let count = |name| number(facts, name).unwrap_or(0) as usize;
        Sight {
            last_write: number(facts, "write").unwrap_or(0),
            memtable: (count("bytes"), 1_000),
            graves: (count("graves"), facts.contains(&"ranges")),
            is_short_of_room: facts.contains(&"short"),
            deletion_deadline: time(facts, "deadline"),
            expiry,
            graves_at: time(facts, "graves-at"),
            is_awaited: facts.contains(&"awaited"),
            shares_room: facts.contains(&"shared"),
        }
    }

    fn device_sight(facts: &[&str]) -> DeviceSight {
        DeviceSight {
            is_drawing: facts.contains(&"drawing"),
            is_short_of_room: facts.contains(&"short"),
            stream_at: time(facts, "stream"),
            departure_at: time(facts, "departure"),
            checkpoint_at: time(facts, "checkpoint"),
            removal_at: time(facts, "removal"),
        }
    }
}
