//! What each request waited for, read from the trace.
//!
//! A request follows the latest earlier event (issue or completion of any request), and the time between the two
//! is the application's own: it thought, or copied, or slept. That needs no knowledge of the application and keeps
//! its parallelism: a request issued right behind another one's *issue* does not wait for a completion.
//!
//! One kind of request is left out: the *asynchronous* write. Nobody waits for write-back, so that a request comes right
//! after one is chance; taking it for a cause ties readers to the write-back of others (measured on the recorded runs:
//! median error 7.3 % with their completions, 5.9 % without, same devices). Nor does a write-back follow a request: the
//! kernel writes back by the clock. So it is issued when it was recorded, causes nothing, and what is left of it when all
//! others have ended is no part of the run. Tied to requests, all of it would be squeezed into a run that is shorter,
//! and hold up the slow device.

use crate::event::{Flags, NOT_COMPLETED, Op, Request};

/// The event that a request follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The start of the run.
    Start,
    /// Another request was issued.
    Issue(u32),
    /// Another request completed.
    Completion(u32),
}

/// Which completions may cause a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Causes {
    /// Those that somebody may have waited for: all but those of asynchronous writes.
    WaitedFor,
    /// All of them.
    Every,
}

/// Who follows whom, and after how long.
#[derive(Debug, Clone)]
pub struct Chain {
    causes: Vec<Cause>,
    gaps_ns: Vec<u64>,
    /// Requests that come by the clock, whatever the others do.
    clocked: Vec<bool>,
    /// Followers of issue `i` at `2 i`, of completion `i` at `2 i + 1`, of the start at the end.
    first: Vec<u32>,
    followers: Vec<u32>,
}

impl Causes {
    fn contain_completion_of(self, request: &Request) -> bool {
        request.complete_ns != NOT_COMPLETED && !self.leave_to_the_clock(request)
    }

    /// Whether a request is write-back, which nobody waits for and nobody asks for.
    fn leave_to_the_clock(self, request: &Request) -> bool {
        let asynchronous = request.op == Op::Write && !request.flags.has(Flags::SYNC);
        self == Self::WaitedFor && asynchronous
    }
}

impl Chain {
    /// Reads the chain of `requests`, which are in order of issue.
    pub fn of(requests: &[Request]) -> Self {
        Self::following(requests, Causes::WaitedFor)
    }

    /// The same, with a choice of what counts as a cause.
    pub fn following(requests: &[Request], allowed: Causes) -> Self {
        let mut completions: Vec<(u64, u32)> = requests
            .iter()
            .enumerate()
            .filter(|(_, request)| allowed.contain_completion_of(request))
            .map(|(index, request)| (request.complete_ns, index as u32))
            .collect();
        completions.sort_unstable();
        let mut causes = Vec::with_capacity(requests.len());
        let mut gaps_ns = Vec::with_capacity(requests.len());
        let mut passed = 0;
        let mut before: Option<usize> = None;
        let clocked: Vec<bool> = requests
            .iter()
            .map(|request| allowed.leave_to_the_clock(request))
            .collect();
        for (index, request) in requests.iter().enumerate() {
            if clocked[index] {
                causes.push(Cause::Start);
                gaps_ns.push(request.issue_ns);
                continue;
            }
            while completions
                .get(passed)
                .is_some_and(|(time, _)| *time <= request.issue_ns)
            {
                passed += 1;
            }
            // A completion at the very instant of the issue may be the request's own (latency 0).
            let completion = completions[..passed]
                .iter()
                .rev()
                .find(|(_, other)| *other != index as u32 && (*other as usize) < index);
            let issue = before.map(|before| (before as u32, requests[before].issue_ns));
            before = Some(index);
            let (cause, time_ns) = match (completion, issue) {
                (Some((time, other)), Some((_, issue))) if *time >= issue => {
                    (Cause::Completion(*other), *time)
                }
                (_, Some((before, issue))) => (Cause::Issue(before), issue),
                (_, None) => (Cause::Start, 0),
            };
            causes.push(cause);
            gaps_ns.push(request.issue_ns - time_ns);
        }
        Self::index(causes, gaps_ns, clocked)
    }

    fn index(causes: Vec<Cause>, gaps_ns: Vec<u64>, clocked: Vec<bool>) -> Self {
        let slots = causes.len() * 2 + 1;
        let slot = |cause: &Cause| match cause {
            Cause::Start => slots - 1,
            Cause::Issue(other) => *other as usize * 2,
            Cause::Completion(other) => *other as usize * 2 + 1,
        };
        let mut first = vec![0_u32; slots + 1];
        for cause in &causes {
            first[slot(cause) + 1] += 1;
        }
        for at in 0..slots {
            first[at + 1] += first[at];
        }
        let mut next = first.clone();
        let mut followers = vec![0; causes.len()];
        for (index, cause) in causes.iter().enumerate() {
            let at = &mut next[slot(cause)];
            followers[*at as usize] = index as u32;
            *at += 1;
        }
        Self {
            causes,
            gaps_ns,
            clocked,
            first,
            followers,
        }
    }

    /// Who follows an event.
    pub(super) fn followers(&self, cause: Cause) -> &[u32] {
        let slot = match cause {
            Cause::Start => self.causes.len() * 2,
            Cause::Issue(other) => other as usize * 2,
            Cause::Completion(other) => other as usize * 2 + 1,
        };
        &self.followers[self.first[slot] as usize..self.first[slot + 1] as usize]
    }

    /// Whether the run has not ended before this request has.
    pub(super) fn is_waited_for(&self, request: u32) -> bool {
        !self.clocked[request as usize]
    }

    /// What a request follows.
    pub fn cause(&self, request: usize) -> Cause {
        self.causes[request]
    }

    /// The application's own time before a request.
    pub fn gap_ns(&self, request: usize) -> u64 {
        self.gaps_ns[request]
    }
}
