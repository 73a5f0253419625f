//! The steps of a hand-off that need a word from the other side: admit, refuse, complete, abort.

use super::model::{FrozenBy, Known};
use super::{World, is_of_storage};
use std::sync::Arc;
use waystation::{Db, DeviceError, Error, Receipt, Refusal};

impl World<'_> {
    /// Whether the source waits for the end of this hand-off.
    fn is_open(&self, number: usize) -> bool {
        let hand_off = &self.hand_offs[number];
        self.known(hand_off.from, hand_off.device).frozen == Some(FrozenBy::HandOff(number))
    }

    /// What admitting a hand-off does.
    pub(super) fn admission(&self, number: usize) -> impl FnOnce(&mut Known) + use<> {
        let rows = Arc::clone(&self.hand_offs[number].rows);
        |it: &mut Known| {
            it.rows = Some(rows);
            it.stub = None;
        }
    }

    /// What its destination said to a stream.
    pub(super) fn take_receipt(&mut self, number: usize, answer: Result<Receipt, Error>) {
        let hand_off = &self.hand_offs[number];
        let (to, device) = (hand_off.to, hand_off.device);
        let is_here = self.known(to, device).rows.is_some();
        match answer {
            Ok(receipt) => {
                let is_same = hand_off.receipt.as_ref().is_none_or(|it| *it == receipt);
                self.expect(is_same, "another receipt for the same ticket");
                self.expect(hand_off.refusal.is_none(), "admitted after it was refused");
                self.expect(hand_off.from != to, "admitted where it came from");
                if !hand_off.is_admitted {
                    self.expect(!is_here, "admitted over what was here");
                    let admission = self.admission(number);
                    self.events(to).happen(device, admission);
                    self.events(to).note_durable();
                }
                let hand_off = &mut self.hand_offs[number];
                hand_off.is_admitted = true;
                hand_off.is_perhaps_refused = false;
                hand_off.receipt = Some(receipt);
            }
            Err(Error::Device(DeviceError::AlreadyHere { .. })) => {
                self.expect(!hand_off.is_admitted && is_here, "it is not here");
            }
            Err(Error::Device(DeviceError::Ticket { reason })) => {
                let is_own = hand_off.from == to;
                let is_refused = hand_off.refusal.is_some() || hand_off.is_perhaps_refused;
                let is_right = is_own || is_refused || hand_off.was_ended;
                self.expect(is_right, &format!("not admitted: {reason}"));
            }
            Err(error) => {
                let is_admitted = hand_off.is_admitted || is_here;
                let admission = self.admission(number);
                self.uncertain(to, device, &error, |it| {
                    if !is_admitted {
                        admission(it);
                    }
                });
            }
        }
    }

    /// What its destination said to a wish to have it refused.
    pub(super) fn take_refusal(&mut self, number: usize, answer: Result<Refusal, Error>) {
        let hand_off = &mut self.hand_offs[number];
        let to = hand_off.to;
        match answer {
            Ok(refusal) => {
                let is_admitted = hand_off.receipt.is_some() || hand_off.is_admitted;
                let is_new = hand_off.refusal.replace(refusal).is_none();
                self.expect(!is_admitted, "refused after it was admitted");
                if is_new && !self.hand_offs[number].is_perhaps_refused {
                    self.events(to).note_durable();
                }
            }
            Err(Error::Device(DeviceError::Ticket { reason })) => {
                let is_right = hand_off.is_admitted || hand_off.was_ended;
                self.expect(is_right, &format!("not refused: {reason}"));
            }
            Err(error) => {
                hand_off.is_perhaps_refused = true;
                let device = hand_off.device;
                self.uncertain(to, device, &error, |_| {});
            }
        }
    }

    pub(super) fn complete(&mut self, number: usize) {
        let hand_off = &self.hand_offs[number];
        let Some(receipt) = hand_off.receipt.clone() else {
            return;
        };
        let (from, device) = (hand_off.from, hand_off.device);
        let (was_open, known) = (self.is_open(number), self.known(from, device).clone());
        let was_completed = known.stub == Some(number) && known.frozen.is_none();
        let hand_on = move |it: &mut Known| {
            if was_open {
                *it = Known {
                    stub: Some(number),
                    ..Known::default()
                };
            }
        };
        self.hand_offs[number].was_ended |= was_open;
        let complete = |db: &Db| db.devices().complete(&receipt);
        let answers = self.call(from, device, hand_on, complete);
        let mut happened = false;
        for answer in answers.into_iter().flatten() {
            match answer {
                Ok(()) => {
                    self.expect(was_open || was_completed, "completed");
                    if was_open && !happened {
                        happened = true;
                        self.events(from).happen(device, hand_on);
                    }
                }
                Err(error) if is_of_storage(&error) => {
                    return self.uncertain(from, device, &error, hand_on);
                }
                Err(error) => self.expect(
                    !was_open
                        && !was_completed
                        && matches!(error, Error::Device(DeviceError::Ticket { .. })),
                    &format!("not completed: {error}"),
                ),
            }
        }
    }

    pub(super) fn abort(&mut self, number: usize) {
        let hand_off = &self.hand_offs[number];
        let Some(refusal) = hand_off.refusal.clone() else {
            return;
        };
        let (from, device) = (hand_off.from, hand_off.device);
        let was_open = self.is_open(number);
        let thaw = move |it: &mut Known| {
            if was_open {
                it.frozen = None;
            }
        };
        self.hand_offs[number].was_ended |= was_open;
        let Some(answers) = self.call(from, device, thaw, |db| db.devices().abort(&refusal)) else {
            return;
        };
        if let Some(error) = answers.into_iter().find_map(Result::err) {
            let is_right = is_of_storage(&error);
            self.expect(is_right, &format!("not aborted: {error}"));
            return self.uncertain(from, device, &error, thaw);
        }
        if was_open {
            self.events(from).happen(device, thaw);
        }
    }
}
