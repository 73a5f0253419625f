//! Which step comes next, and the calls that are made at once.

use super::crash::Left;
use super::model::{HandOff, Known};
use super::{DEVICES, EDGES, World, is_of_storage};
use crate::twice::both;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use waystation::{Db, DeviceError, Durability, Error, WriteBatch};

/// How two calls at once were answered.
pub(super) struct Race<T> {
    /// The answer of either; or, if the machine ended with the first answer, that one.
    pub(super) answers: Vec<Result<T, Error>>,
    /// What is left of the machine then.
    pub(super) left: Option<Left>,
}

impl World<'_> {
    pub(super) fn step(&mut self) {
        self.count += 1;
        for edge in 0..EDGES {
            if self.edges[edge].rules.is_halted() {
                self.end(edge, None);
            }
        }
        let edge = self.random.below(EDGES as u64) as usize;
        let device = self.random.below(DEVICES as u64) as usize;
        let other = (edge + usize::from(!self.random.one_in(10))) % EDGES;
        match self.random.below(60) {
            0..14 => self.write(edge, device),
            14..16 => self.export_under_writes(edge, device, other),
            16 => self.depart(edge, device),
            17..20 => self.settle(edge, device),
            20 => self.lift(edge, device),
            21..26 => drop(self.export(edge, device, other)),
            26..30 => self.export_twice(edge, device, other),
            30..35 => {
                // All of it.
                if let Some(number) = self.export(edge, device, other) {
                    self.deliver(number);
                    self.complete(number);
                }
            }
            35 => self.reopen(edge),
            36 | 37 => self.end(edge, None),
            38 => self.flush(edge),
            39 => self.sync(edge),
            _ if self.hand_offs.is_empty() => {}
            at => {
                let is_answer = at < 51;
                let number = self.pick(is_answer);
                match at {
                    40..46 => self.deliver(number),
                    46..49 => self.refuse(number),
                    49..51 => self.deliver_and_refuse(number),
                    51..57 => self.complete(number),
                    _ => self.abort(number),
                }
            }
        }
        for edge in 0..EDGES {
            self.check(edge);
        }
    }

    /// A hand-off, mostly one of the last; for an answer one that has none yet, mostly.
    fn pick(&mut self, is_answer: bool) -> usize {
        let count = self.hand_offs.len() as u64;
        let is_unanswered = |it: &&HandOff| it.receipt.is_none() && it.refusal.is_none();
        let unanswered = self.hand_offs.iter().filter(is_unanswered).count() as u64;
        let count_back = if self.random.one_in(3) {
            count
        } else {
            count.min(2)
        };
        if is_answer && unanswered > 0 && !self.random.one_in(4) {
            let at = self.random.below(unanswered) as usize;
            let numbered = self.hand_offs.iter().enumerate();
            let mut open = numbered.filter(|(_, it)| is_unanswered(it));
            return open.nth(at).map_or(0, |(number, _)| number);
        }
        (count - 1 - self.random.below(count_back)) as usize
    }

    /// A stream arrives: whole, twice at once, or cut before.
    fn deliver(&mut self, number: usize) {
        let hand_off = &self.hand_offs[number];
        let (to, stream) = (hand_off.to, hand_off.stream.clone());
        if self.random.one_in(8) {
            let length = self.random.below(stream.len() as u64) as usize;
            match self.db(to).devices().admit(&stream[..length]) {
                Err(Error::Device(DeviceError::Stream { .. })) => {}
                // What it begins with may be answered already.
                answer => self.take_receipt(number, answer),
            }
            return;
        }
        if self.random.one_in(2) {
            let answer = self.db(to).devices().admit(&stream[..]);
            return self.take_receipt(number, answer);
        }
        let admit = |db: &Db| db.devices().admit(&stream[..]);
        let race = self.race(to, admit, admit);
        let Some(left) = race.left else {
            return self.take_all(race.answers, |world, answer| {
                world.take_receipt(number, answer);
            });
        };
        for answer in race.answers {
            match answer {
                Ok(_) => self.take_receipt(number, answer),
                Err(_) => self.perhaps_admitted(number),
            }
        }
        self.end(to, Some(left));
    }

    fn perhaps_admitted(&mut self, number: usize) {
        let hand_off = &self.hand_offs[number];
        let (to, device) = (hand_off.to, hand_off.device);
        let is_possible = !hand_off.is_admitted && self.known(to, device).rows.is_none();
        if is_possible {
            let admission = self.admission(number);
            self.events(to).may_happen(device, admission);
        }
    }

    fn refuse(&mut self, number: usize) {
        let hand_off = &self.hand_offs[number];
        let (to, ticket) = (hand_off.to, hand_off.ticket.clone());
        let refuse = |db: &Db| db.devices().refuse(&ticket);
        if self.random.one_in(4) {
            let answer = refuse(self.db(to));
            return self.take_refusal(number, answer);
        }
        let race = self.race(to, refuse, refuse);
        let is_unknown = race.left.is_some() && race.answers.iter().any(Result::is_err);
        self.hand_offs[number].is_perhaps_refused |= is_unknown;
        if !is_unknown {
            self.take_all(race.answers, |world, answer| {
                world.take_refusal(number, answer);
            });
        }
        if race.left.is_some() {
            self.end(to, race.left);
        }
    }

    /// Judges the answers to equal calls: first those that tell what happened; and none after one that the storage failed,
    /// as the edge ends with that.
    fn take_all<T>(
        &mut self,
        answers: Vec<Result<T, Error>>,
        mut take: impl FnMut(&mut Self, Result<T, Error>),
    ) {
        let (done, failed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        for answer in done.into_iter().chain(failed) {
            let is_last = answer.as_ref().err().is_some_and(is_of_storage);
            take(self, answer);
            if is_last {
                return;
            }
        }
    }

    /// A stream arrives while its ticket is being refused: one of the two.
    fn deliver_and_refuse(&mut self, number: usize) {
        let hand_off = &self.hand_offs[number];
        let (to, stream, ticket) = (
            hand_off.to,
            hand_off.stream.clone(),
            hand_off.ticket.clone(),
        );
        let race = self.race(
            to,
            |db| db.devices().admit(&stream[..]).map(Ok),
            |db| db.devices().refuse(&ticket).map(Err),
        );
        let is_cut = race.left.is_some();
        let (yes, no): (Vec<_>, Vec<_>) = race.answers.into_iter().partition(Result::is_ok);
        for answer in yes.into_iter().flatten() {
            match answer {
                Ok(receipt) => self.take_receipt(number, Ok(receipt)),
                Err(refusal) => self.take_refusal(number, Ok(refusal)),
            }
        }
        let is_decided = |it: &HandOff| it.is_admitted || it.refusal.is_some();
        if is_cut && !is_decided(&self.hand_offs[number]) {
            self.hand_offs[number].is_perhaps_refused = true;
            self.perhaps_admitted(number);
        }
        if is_cut {
            return self.end(to, race.left);
        }
        let failed = no.into_iter().filter_map(Result::err);
        if let Some(error) = failed.into_iter().find(is_of_storage) {
            self.hand_offs[number].is_perhaps_refused = true;
            self.perhaps_admitted(number);
            self.expect(self.edges[to].may_end, &format!("{error}"));
            self.end(to, None);
        }
    }

    /// Makes a call that does `change` to what is known of a device: once, or twice at once. Returns what was answered, for
    /// the caller to judge, unless the machine ended with the first answer.
    pub(super) fn call<T: Send>(
        &mut self,
        edge: usize,
        device: usize,
        change: impl FnOnce(&mut Known),
        call: impl Fn(&Db) -> Result<T, Error> + Sync,
    ) -> Option<Vec<Result<T, Error>>> {
        if !self.random.one_in(3) {
            return Some(vec![call(self.db(edge))]);
        }
        let race = self.race(edge, &call, &call);
        let Some(left) = race.left else {
            return Some(race.answers);
        };
        if race.answers.iter().all(Result::is_ok) {
            self.events(edge).happen(device, change);
        } else {
            self.events(edge).may_happen(device, change);
        }
        self.end(edge, Some(left));
        None
    }

    /// Makes two calls at once. Sometimes the machine ends as soon as one of them has its answer.
    pub(super) fn race<T: Send>(
        &mut self,
        edge: usize,
        one: impl Fn(&Db) -> Result<T, Error> + Sync,
        other: impl Fn(&Db) -> Result<T, Error>,
    ) -> Race<T> {
        let crash = (!self.random.one_in(3)).then(|| self.random_crash());
        let (seed, is_busy) = (self.random.next(), self.random.one_in(2));
        let (db, machine) = (self.db(edge), &self.edges[edge].machine);
        let first: Mutex<Option<(Result<T, Error>, Left)>> = Mutex::default();
        let answer = |answer: Result<T, Error>| {
            let Some(crash) = crash else {
                return Some(answer);
            };
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| (answer, (machine.crash(seed, crash), crash)));
            None
        };
        let (one, other) = beside_writes(db, is_busy, || {
            both(|| answer(one(db)), || answer(other(db)))
        });
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((answer, left)) => Race {
                answers: vec![answer],
                left: Some(left),
            },
            None => Race {
                answers: [one, other].into_iter().flatten().collect(),
                left: None,
            },
        }
    }
}

/// Runs `act` while, if it `is_busy`, others write long batches that no device has: what comes behind one of them in the
/// log is visible later than it is decided.
fn beside_writes<T>(db: &Db, is_busy: bool, act: impl FnOnce() -> T) -> T {
    const WRITERS: u8 = 2;
    if !is_busy {
        return act();
    }
    let is_over = AtomicBool::new(false);
    let write = |writer: u8| {
        let mut batch = WriteBatch::new();
        for number in 0..200_u8 {
            batch.put(&[b'x', writer, number], b"beside");
        }
        while !is_over.load(SeqCst) && db.write(&batch, Durability::ProcessCrash).is_ok() {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let write = &write;
            scope.spawn(move || write(writer));
        }
        let acted = act();
        is_over.store(true, SeqCst);
        acted
    })
}
