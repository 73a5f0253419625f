//! The flash interface layer: queues, channels and dies.
//!
//! A channel carries one thing at a time. A die does one operation at a time, and holds what it read until the channel
//! has carried it away. Each channel has two classes of queues: work of the host goes strictly first, work of offloaded
//! compaction only where no work of the host can begin. An operation that has begun is not interrupted. Within a class
//! reads are triggered first, so that dies work while the channel carries data; then erases and writes, then data that
//! was read.
//!
//! ```text
//! read     command on the channel, the die senses,   data on the channel
//! write    command and data on the channel, the die programs
//! erase    command on the channel, the die erases
//! ```
//!
//! A die that holds data of the lower class, while work of the host waits for that die, hands them over as work of the
//! host would be: else the lower class would keep the host from the die.

use super::calendar::{Calendar, Nanos, transfer};
use super::config::FlashConfig;
use std::collections::VecDeque;

/// Whose work an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The host's: always first.
    High,
    /// Compaction in the drive.
    Low,
}

/// What a die does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Write,
    Erase,
}

/// An operation, with what its owner calls it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation<T> {
    pub(super) action: Action,
    pub(super) class: Class,
    pub(super) tag: T,
}

/// Something in the flash ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum FlashEvent {
    /// A channel has carried what it was carrying, for that die.
    Carried { channel: usize, die: usize },
    /// A die has sensed, programmed or erased.
    Worked { channel: usize, die: usize },
}

enum State<T> {
    Idle,
    /// The command is on its way, or the die works.
    Busy(Operation<T>),
    /// Data waits for the channel.
    Holds(Operation<T>),
    /// Data is on the channel.
    Sends(Operation<T>),
}

struct Die<T> {
    state: State<T>,
    /// Reads, and writes with erases, of each class.
    queues: [[VecDeque<Operation<T>>; 2]; 2],
    busy: Nanos,
}

struct Channel<T> {
    dies: Vec<Die<T>>,
    carries: bool,
    /// Where the search for work begins.
    turn: usize,
    /// Operations that have not begun.
    waiting: usize,
    /// Dies that hold data.
    holding: usize,
    busy: Nanos,
}

/// All channels.
pub(super) struct Flash<T> {
    channels: Vec<Channel<T>>,
    command: Nanos,
    carry: Nanos,
    sense: Nanos,
    program: Nanos,
    erase: Nanos,
    priority: bool,
}

/// What a channel does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin {
        die: usize,
        class: usize,
        queue: usize,
    },
    Fetch {
        die: usize,
    },
}

const READS: usize = 0;
const WRITES: usize = 1;

impl<T: Copy> Flash<T> {
    pub(super) fn new(config: &FlashConfig, priority: bool) -> Self {
        let die = || Die {
            state: State::Idle,
            queues: Default::default(),
            busy: 0,
        };
        let channel = || Channel {
            dies: (0..config.dies_per_channel).map(|_| die()).collect(),
            carries: false,
            turn: 0,
            waiting: 0,
            holding: 0,
            busy: 0,
        };
        Self {
            channels: (0..config.channels).map(|_| channel()).collect(),
            command: config.command_ns,
            carry: transfer(
                config.page_bytes + config.page_spare_bytes,
                config.transfer_mb_s,
            ),
            sense: config.read_ns,
            program: config.program_ns,
            erase: config.erase_ns,
            priority,
        }
    }

    /// Queues an operation for a die; dies are numbered across channels first.
    pub(super) fn submit<E>(
        &mut self,
        die: usize,
        operation: Operation<T>,
        calendar: &mut Calendar<E>,
        event: impl Fn(FlashEvent) -> E,
    ) {
        let channel = die % self.channels.len();
        let die = die / self.channels.len();
        let class = usize::from(self.priority && operation.class == Class::Low);
        let queue = usize::from(operation.action != Action::Read);
        let lane = &mut self.channels[channel];
        lane.dies[die].queues[class][queue].push_back(operation);
        lane.waiting += 1;
        self.go_on(channel, calendar, &event);
    }

    /// Goes on after an event; the operation that it ended.
    pub(super) fn handle<E>(
        &mut self,
        happened: FlashEvent,
        calendar: &mut Calendar<E>,
        event: impl Fn(FlashEvent) -> E,
    ) -> Option<Operation<T>> {
        let (channel, ended) = match happened {
            FlashEvent::Carried { channel, die } => {
                let lane = &mut self.channels[channel];
                lane.carries = false;
                let sent = match lane.dies[die].state {
                    State::Sends(operation) => Some(operation),
                    _ => None,
                };
                if sent.is_some() {
                    lane.dies[die].state = State::Idle;
                }
                (channel, sent)
            }
            FlashEvent::Worked { channel, die } => {
                let lane = &mut self.channels[channel];
                let State::Busy(done) = lane.dies[die].state else {
                    return None;
                };
                if done.action == Action::Read {
                    lane.dies[die].state = State::Holds(done);
                    lane.holding += 1;
                    (channel, None)
                } else {
                    lane.dies[die].state = State::Idle;
                    (channel, Some(done))
                }
            }
        };
        self.go_on(channel, calendar, &event);
        ended
    }

    /// Gives the channel its next work, if it is free.
    fn go_on<E>(
        &mut self,
        channel: usize,
        calendar: &mut Calendar<E>,
        event: &impl Fn(FlashEvent) -> E,
    ) {
        let lane = &mut self.channels[channel];
        if lane.carries || (lane.waiting == 0 && lane.holding == 0) {
            return;
        }
        let Some(step) = next(lane, self.priority) else {
            return;
        };
        let now = calendar.now();
        let (die, carried) = match step {
            Step::Fetch { die } => {
                let unit = &mut lane.dies[die];
                if let State::Holds(operation) = unit.state {
                    unit.state = State::Sends(operation);
                }
                lane.holding -= 1;
                unit.busy += self.carry;
                (die, self.carry)
            }
            Step::Begin { die, class, queue } => {
                let unit = &mut lane.dies[die];
                let Some(operation) = unit.queues[class][queue].pop_front() else {
                    return;
                };
                lane.waiting -= 1;
                unit.state = State::Busy(operation);
                let (carried, work) = match operation.action {
                    Action::Read => (self.command, self.sense),
                    Action::Write => (self.command + self.carry, self.program),
                    Action::Erase => (self.command, self.erase),
                };
                unit.busy += carried + work;
                let worked = FlashEvent::Worked { channel, die };
                calendar.enter(now + carried + work, event(worked));
                (die, carried)
            }
        };
        lane.turn = (die + 1) % lane.dies.len();
        lane.carries = true;
        lane.busy += carried;
        let done = FlashEvent::Carried { channel, die };
        calendar.enter(now + carried, event(done));
    }

    /// How long channels were busy, all together.
    pub(super) fn channels_busy(&self) -> Nanos {
        self.channels.iter().map(|channel| channel.busy).sum()
    }

    /// How long dies were busy, all together; a die that holds data is not.
    pub(super) fn dies_busy(&self) -> Nanos {
        let dies = self.channels.iter().flat_map(|channel| &channel.dies);
        dies.map(|die| die.busy).sum()
    }
}

/// What a free channel does next: a pure decision.
fn next<T>(lane: &Channel<T>, priority: bool) -> Option<Step> {
    let count = lane.dies.len();
    let order = || (0..count).map(|step| (lane.turn + step) % count);
    let begin = |class: usize, queue: usize| {
        order()
            .find(|&die| {
                let unit = &lane.dies[die];
                matches!(unit.state, State::Idle) && !unit.queues[class][queue].is_empty()
            })
            .map(|die| Step::Begin { die, class, queue })
    };
    let classes = if priority { 2 } else { 1 };
    (0..classes).find_map(|class| {
        begin(class, READS)
            .or_else(|| begin(class, WRITES))
            .or_else(|| {
                order()
                    .find(|&die| holds_for(&lane.dies[die], class, priority))
                    .map(|die| Step::Fetch { die })
            })
    })
}

/// Whether a die holds data that this class may hand over.
fn holds_for<T>(die: &Die<T>, class: usize, priority: bool) -> bool {
    let State::Holds(operation) = &die.state else {
        return false;
    };
    let host_waits = die.queues[0].iter().any(|queue| !queue.is_empty());
    let own = usize::from(priority && operation.class == Class::Low);
    own == class || (class == 0 && host_waits)
}

#[cfg(test)]
#[path = "flash_tests.rs"]
mod tests;
