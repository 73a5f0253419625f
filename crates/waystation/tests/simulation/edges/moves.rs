//! What an edge does to its own devices: writes, departures, settles, exports.

use super::model::{FrozenBy, HandOff, Known};
use super::{World, destination, is_of_storage, name};
use crate::support::Content;
use std::io::Read;
use std::sync::{Arc, Barrier};
use waystation::{Db, DeviceError, Digest, Durability, Error, Ticket, WriteBatch};

/// What an export gave.
pub(super) struct Exported {
    ticket: Ticket,
    stream: Vec<u8>,
    digest: Digest,
}

/// Exports a device and reads the stream to its end.
pub(super) fn export(db: &Db, device: usize, to: usize) -> Result<Exported, Error> {
    let mut export = db
        .devices()
        .export(&name(device), &destination(to), Durability::PowerLoss)?;
    let mut stream = Vec::new();
    if let Err(error) = export.read_to_end(&mut stream) {
        let inner = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
        return Err(inner
            .cloned()
            .unwrap_or_else(|| Error::io("read", "stream", error)));
    }
    let digest = export.digest().expect("it was read to its end");
    let ticket = export.ticket().clone();
    Ok(Exported {
        ticket,
        stream,
        digest,
    })
}

impl World<'_> {
    /// One batch for one device.
    pub(super) fn write(&mut self, edge: usize, device: usize) {
        let mut batch = WriteBatch::new();
        let known = self.known(edge, device).clone();
        let mut rows = known.rows.as_deref().cloned().unwrap_or_default();
        let prefix = [&name(device)[..], b":"].concat();
        if self.random.one_in(15) {
            batch.delete_range(&prefix, Some(&[&name(device)[..], b";"].concat()));
            rows.clear();
        } else {
            for _ in 0..=self.random.below(4) {
                let key = [
                    &prefix[..],
                    format!("{:02}", self.random.below(10)).as_bytes(),
                ]
                .concat();
                if self.random.one_in(4) {
                    batch.delete(&key);
                    rows.remove(&key);
                } else {
                    let value = self.value();
                    batch.put(&key, &value);
                    rows.insert(key, value);
                }
            }
        }
        let is_range = batch.iter().any(|it| it.range().is_some());
        let is_synced = self.random.one_in(8);
        let durability = if is_synced {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        let change = |it: &mut Known| {
            // A range belongs to no device, and makes none arrive.
            if it.rows.is_some() || !is_range {
                it.rows = Some(Arc::new(rows));
            }
        };
        match self.db(edge).write(&batch, durability) {
            Ok(()) => {
                let is_barred = known.frozen.is_some() || known.stub.is_some() && !is_range;
                self.expect(!is_barred, "a device that was handed on takes a write");
                self.events(edge).happen(device, change);
                if is_synced {
                    self.events(edge).note_durable();
                }
            }
            Err(Error::Device(DeviceError::Moving { .. })) => {
                self.expect(known.frozen.is_some(), "not moving");
            }
            Err(Error::Device(DeviceError::Moved { .. })) => {
                self.expect(known.stub.is_some(), "not moved");
            }
            Err(error) => self.uncertain(edge, device, &error, change),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.below(12) {
            0 => 1_000 + self.random.below(9_000),
            _ => self.random.below(60),
        };
        [self.count.to_le_bytes().to_vec(), vec![7; length as usize]].concat()
    }

    /// A call failed with the storage, which has ended, and may have changed what is known of a device.
    pub(super) fn uncertain(
        &mut self,
        edge: usize,
        device: usize,
        error: &Error,
        change: impl FnOnce(&mut Known),
    ) {
        let is_expected = is_of_storage(error) && self.edges[edge].may_end;
        self.expect(is_expected, &format!("edge {edge}: {error}"));
        self.events(edge).may_happen(device, change);
        self.end(edge, None);
    }

    pub(super) fn depart(&mut self, edge: usize, device: usize) {
        let known = self.known(edge, device).clone();
        let leave = |it: &mut Known| it.rows = None;
        let depart = move |db: &Db| db.devices().depart(&name(device));
        let Some(answers) = self.call(edge, device, leave, depart) else {
            return;
        };
        let is_departed = answers.iter().any(Result::is_ok);
        if is_departed {
            self.expect(known.frozen.is_none() && known.rows.is_some(), "it departs");
            self.events(edge).happen(device, leave);
        }
        for error in answers.into_iter().filter_map(Result::err) {
            match error {
                Error::Device(DeviceError::Moving { .. }) => {
                    self.expect(known.frozen.is_some(), "not moving");
                }
                Error::Device(DeviceError::Moved { .. }) => {
                    self.expect(known.stub.is_some(), "not moved");
                }
                Error::Device(DeviceError::Unknown { .. }) => {
                    self.expect(known.rows.is_none() || is_departed, "it is there");
                }
                error => return self.uncertain(edge, device, &error, leave),
            }
        }
    }

    pub(super) fn settle(&mut self, edge: usize, device: usize) {
        let is_there = self.known(edge, device).rows.is_some();
        let settle = move |db: &Db| db.devices().settle(&name(device));
        for answer in self
            .call(edge, device, |_| {}, settle)
            .into_iter()
            .flatten()
        {
            match answer {
                Err(error) if is_of_storage(&error) => {
                    return self.uncertain(edge, device, &error, |_| {});
                }
                answer => self.expect(answer.is_ok() == is_there, "settle"),
            }
        }
    }

    pub(super) fn lift(&mut self, edge: usize, device: usize) {
        let was_there = self.known(edge, device).stub.is_some();
        let remove = |it: &mut Known| it.stub = None;
        let lift = move |db: &Db| db.devices().lift_stub(&name(device));
        let Some(answers) = self.call(edge, device, remove, lift) else {
            return;
        };
        let lifted = answers.iter().filter(|it| it.is_ok()).count();
        for error in answers.into_iter().filter_map(Result::err) {
            if is_of_storage(&error) {
                return self.uncertain(edge, device, &error, remove);
            }
        }
        self.expect(lifted == usize::from(was_there), "stubs are lifted once");
        if was_there {
            self.events(edge).happen(device, remove);
        }
    }

    pub(super) fn flush(&mut self, edge: usize) {
        match self.db(edge).flush() {
            Ok(()) => self.events(edge).note_durable(),
            Err(error) => self.uncertain(edge, 0, &error, |_| {}),
        }
    }

    pub(super) fn sync(&mut self, edge: usize) {
        match self.db(edge).sync() {
            Ok(()) => self.events(edge).note_durable(),
            Err(error) => self.uncertain(edge, 0, &error, |_| {}),
        }
    }

    /// Exports a device. Returns the number of the hand-off.
    pub(super) fn export(&mut self, edge: usize, device: usize, to: usize) -> Option<usize> {
        let answer = export(self.db(edge), device, to);
        self.take_export(edge, device, to, answer)
    }

    /// Exports a device from two callers at once, sometimes while others write to it.
    pub(super) fn export_twice(&mut self, edge: usize, device: usize, to: usize) {
        if !self.random.one_in(3) {
            return self.export_under_writes(edge, device, to);
        }
        let race = self.race(
            edge,
            move |db| export(db, device, to),
            move |db| export(db, device, to),
        );
        let Some(left) = race.left else {
            for answer in race.answers {
                if self.take_export(edge, device, to, answer).is_none() {
                    return;
                }
            }
            return;
        };
        for answer in race.answers {
            match answer {
                Ok(_) => drop(self.take_export(edge, device, to, answer)),
                Err(_) => self.events(edge).may_happen(device, freeze),
            }
        }
        self.end(edge, Some(left));
    }

    /// Two exports at once, while writers put keys of their own until they are refused: whatever was acknowledged is in
    /// both streams.
    pub(super) fn export_under_writes(&mut self, edge: usize, device: usize, to: usize) {
        const WRITERS: u8 = 6;
        let known = self.known(edge, device).clone();
        let is_here = known.rows.is_some() && known.frozen.is_none();
        if !is_here || self.edges[edge].rules.is_halted() {
            return;
        }
        // Nobody could tell which of the puts were there.
        self.edges[edge].rules.clear();
        let head_start = self.random.below(20);
        let start = Barrier::new(usize::from(WRITERS) + 2);
        let db = self.db(edge);
        let (start, export) = (&start, &|| {
            start.wait();
            (0..head_start).for_each(|_| std::thread::yield_now());
            export(db, device, to)
        });
        let (written, exported) = std::thread::scope(|scope| {
            let write = |writer| {
                scope.spawn(move || {
                    start.wait();
                    put_until_refused(db, device, writer)
                })
            };
            let writers: Vec<_> = (0..WRITERS).map(write).collect();
            let exports = [0, 1].map(|_| scope.spawn(export));
            let joined = writers.into_iter().map(|it| it.join().expect("writer"));
            let written: Vec<Content> = joined.collect();
            (written, exports.map(|it| it.join().expect("exporter")))
        });
        let mut rows = known.rows.as_deref().cloned().unwrap_or_default();
        rows.extend(written.into_iter().flatten());
        let rows = Some(Arc::new(rows));
        self.events(edge).happen(device, |it| it.rows = rows);
        for answer in exported {
            self.take_export(edge, device, to, answer);
        }
    }

    fn take_export(
        &mut self,
        edge: usize,
        device: usize,
        to: usize,
        answer: Result<Exported, Error>,
    ) -> Option<usize> {
        let known = self.known(edge, device).clone();
        let exported = match answer {
            Ok(exported) => exported,
            Err(Error::Device(DeviceError::Moving { .. })) => {
                let is_elsewhere = match known.frozen {
                    Some(FrozenBy::HandOff(number)) => self.hand_offs[number].to != to,
                    _ => false,
                };
                self.expect(is_elsewhere, "it moves elsewhere");
                return None;
            }
            Err(Error::Device(DeviceError::Moved { .. })) => {
                self.expect(known.stub.is_some(), "not moved");
                return None;
            }
            Err(Error::Device(DeviceError::Unknown { .. })) => {
                self.expect(known.rows.is_none(), "it is there");
                return None;
            }
            Err(error) => {
                if known.frozen.is_some() {
                    self.uncertain(edge, device, &error, |_| {});
                } else {
                    self.uncertain(edge, device, &error, freeze);
                }
                return None;
            }
        };
        let Exported {
            ticket,
            stream,
            digest,
        } = exported;
        let Some(rows) = known.rows else {
            self.fail("a device was exported that is not there");
        };
        self.expect(
            digest.records == rows.len() as u64,
            &format!(
                "a stream of {} records for {} rows",
                digest.records,
                rows.len()
            ),
        );
        if let Some(FrozenBy::HandOff(number)) = known.frozen {
            let hand_off = &mut self.hand_offs[number];
            let is_same = hand_off.ticket == ticket && hand_off.to == to;
            // Not the same bytes: it may say more of what is over.
            hand_off.stream = stream;
            self.expect(is_same, "an export again has another ticket");
            return Some(number);
        }
        let number = self.hand_offs.len();
        let freeze = |it: &mut Known| it.frozen = Some(FrozenBy::HandOff(number));
        self.events(edge).happen(device, freeze);
        self.events(edge).note_durable();
        self.hand_offs.push(HandOff {
            from: edge,
            device,
            to,
            ticket,
            stream,
            // Another one than its source has, so that those that came this way can be told.
            rows: Arc::new(Content::clone(&rows)),
            receipt: None,
            refusal: None,
            is_admitted: false,
            is_perhaps_refused: false,
            was_ended: false,
        });
        Some(number)
    }
}

/// It is frozen by a hand-off whose name was not told.
fn freeze(known: &mut Known) {
    if known.rows.is_some() && known.frozen.is_none() {
        known.frozen = Some(FrozenBy::Unknown);
    }
}

/// Puts keys of its own, some at a time, until the device is frozen. Returns those that were acknowledged.
fn put_until_refused(db: &Db, device: usize, writer: u8) -> Content {
    const PARTS: u8 = 30;
    let mut written = Content::new();
    for number in 0..30_u8 {
        let key = |part: u8| [&name(device)[..], b":w", &[writer, number, part]].concat();
        let mut batch = WriteBatch::new();
        (0..PARTS).for_each(|part| batch.put(&key(part), &[writer; 40]));
        if db.write(&batch, Durability::ProcessCrash).is_err() {
            break;
        }
        written.extend((0..PARTS).map(|part| (key(part), vec![writer; 40])));
    }
    written
}
