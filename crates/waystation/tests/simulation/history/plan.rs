//! What each client of a history writes, which follows from the seed alone: so the oracle can write it, too.
//!
//! A client's keys begin with its name (`c0.`), and nobody else changes them. Every batch of it ends with its counter,
//! set to the batch's index.

use crate::support::{Content, Random};
use std::time::Duration;
use waystation::WriteBatch;

/// One operation of a batch.
pub(crate) enum Change {
    Put(Vec<u8>, Vec<u8>),
    /// For so long; a look after a crash finds it expired, or will never see it expire.
    PutFor(Vec<u8>, Vec<u8>, Duration),
    Delete(Vec<u8>),
    /// Where the range ends, if it does.
    DeleteRange(Vec<u8>, Option<Vec<u8>>),
}

const A_MOMENT: Duration = Duration::from_micros(1);
const CENTURIES: Duration = Duration::from_secs(10_000_000_000);
/// The smallest ring of a life.
pub(crate) const RING_BYTES_MIN: usize = 256 << 10;
/// The log adds no more than this to a batch.
const RECORD_ADDS_MAX: usize = 64;
/// Values of this size are longer than half of the smallest ring.
const LONG_BYTES: u64 = 140_000;

/// The shape of all lives of one seed.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// How many clients write at the same time.
    pub(crate) clients: usize,
    /// Devices of each client; 0: the database knows none.
    pub(crate) devices: u64,
    /// Keys of each device.
    keys: u64,
    /// One batch in so many has many operations.
    many_one_in: u64,
    /// One batch in so many is followed by a departure.
    departure_one_in: u64,
    /// Whether some batches are longer than half of the ring.
    is_long: bool,
    /// Whether nothing but devices is ever deleted: what comes with graves (a sync of the log) does not come then.
    is_kept: bool,
    /// One step in so many flushes.
    pub(crate) flush_one_in: u64,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed ^ 0x9fb2_1c65_1e98_df25);
        let has_devices = seed.is_multiple_of(2);
        Self {
            seed,
            clients: [1, 1, 2, 3][random.below(4) as usize],
            devices: if has_devices {
                [1, 2, 4, 8][random.below(4) as usize]
            } else {
                0
            },
            keys: [3, 10, 20][random.below(3) as usize],
            many_one_in: [3, 8][random.below(2) as usize],
            departure_one_in: [8, 16, 40][random.below(3) as usize],
            is_long: random.one_in(6),
            is_kept: random.one_in(3),
            flush_one_in: [6, 50, 200][random.below(3) as usize],
        }
    }

    /// What the keys of `client` begin with.
    pub(crate) fn region(client: usize) -> Vec<u8> {
        format!("c{client}.").into_bytes()
    }

    /// The key that counts the batches of `client`.
    pub(crate) fn counter(client: usize) -> Vec<u8> {
        [&Self::region(client)[..], b"~count"].concat()
    }

    pub(crate) fn device(client: usize, number: u64) -> Vec<u8> {
        [
            &Self::region(client)[..],
            format!("device{number}").as_bytes(),
        ]
        .concat()
    }

    /// A key that `client` may have, or not.
    pub(crate) fn some_key(&self, client: usize, random: &mut Random) -> Vec<u8> {
        if self.devices == 0 || random.one_in(4) {
            let name = format!("key{:02}", random.below(30));
            return [&Self::region(client)[..], name.as_bytes()].concat();
        }
        let device = Self::device(client, random.below(self.devices));
        let name = format!(":key{:02}", random.below(self.keys));
        [&device[..], name.as_bytes()].concat()
    }

    fn random(&self, client: usize, index: u64, salt: u64) -> Random {
        let place = index.wrapping_mul(64).wrapping_add(client as u64);
        let mut random = Random(self.seed.wrapping_mul(salt) ^ place.wrapping_mul(salt));
        random.next();
        random
    }

    /// The device that departs before batch `index`.
    pub(crate) fn departure(&self, client: usize, index: u64) -> Option<Vec<u8>> {
        let mut random = self.random(client, index, 0x2545_f491_4f6c_dd1d);
        let is_due = self.devices > 0 && random.one_in(self.departure_one_in);
        is_due.then(|| Self::device(client, random.below(self.devices)))
    }

    /// The changes of batch `index`.
    pub(crate) fn changes(&self, client: usize, index: u64) -> Vec<Change> {
        let mut random = self.random(client, index, 0x5851_f42d_4c95_7f2d);
        let count = if random.one_in(self.many_one_in) {
            1 + random.below(24)
        } else {
            1 + random.below(2)
        };
        let mut changes: Vec<Change> = (0..count)
            .map(|at| self.change(client, at == 0, &mut random))
            .collect();
        let bytes = index.to_le_bytes().to_vec();
        changes.push(Change::Put(Self::counter(client), bytes));
        changes
    }

    fn change(&self, client: usize, is_first: bool, random: &mut Random) -> Change {
        let mut key = self.some_key(client, random);
        let is_plain = !key.contains(&b':');
        if is_plain && !self.is_kept && random.one_in(15) {
            key = Self::region(client);
            key.extend_from_slice(format!("brief{}", random.below(4)).as_bytes());
            return match random.below(3) {
                0 => Change::Delete(key),
                _ => Change::PutFor(key, vec![1; random.below(100) as usize], A_MOMENT),
            };
        }
        if !self.is_kept && random.one_in(30) {
            let end = [&key[..key.len() - 2], &[0xff]].concat();
            // Without an end it would reach the keys of the clients behind this one.
            let is_open = client + 1 == self.clients && random.one_in(8);
            return Change::DeleteRange(key, (!is_open).then_some(end));
        }
        if !(self.is_kept && is_plain) && random.one_in(3) {
            return Change::Delete(key);
        }
        let length = match random.below(80) {
            0 if is_first && self.is_long => LONG_BYTES + random.below(2 * LONG_BYTES),
            0 if is_first => 20_000 + random.below(40_000),
            1..6 => random.below(5_000),
            _ => random.below(120),
        };
        let value = vec![random.next() as u8; length as usize];
        if is_plain && !self.is_kept && random.one_in(12) {
            Change::PutFor(key, value, CENTURIES)
        } else {
            Change::Put(key, value)
        }
    }
}

/// Whether the write of `batch` may wait for the storage to be well again: its record, with what the log adds, may be longer
/// than half of the smallest ring.
pub(crate) fn is_long(batch: &WriteBatch) -> bool {
    batch.byte_len() + RECORD_ADDS_MAX > RING_BYTES_MIN / 2
}

pub(crate) fn batch(changes: &[Change]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for change in changes {
        match change {
            Change::Put(key, value) => batch.put(key, value),
            Change::PutFor(key, value, lifetime) => batch.put_with_ttl(key, value, *lifetime),
            Change::Delete(key) => batch.delete(key),
            Change::DeleteRange(start, end) => batch.delete_range(start, end.as_deref()),
        }
    }
    batch
}

/// What `state` is after `changes`; what expires at once has expired.
pub(crate) fn apply(state: &mut Content, changes: Vec<Change>) {
    for change in changes {
        match change {
            Change::Put(key, value) | Change::PutFor(key, value, CENTURIES) => {
                state.insert(key, value);
            }
            Change::PutFor(key, _, _) | Change::Delete(key) => {
                state.remove(&key);
            }
            Change::DeleteRange(start, end) => {
                let is_outside =
                    |key: &Vec<u8>| *key < start || end.as_ref().is_some_and(|end| key >= end);
                state.retain(|key, _| is_outside(key));
            }
        }
    }
}

/// What `state` is after the departure of `device`.
pub(crate) fn depart(state: &mut Content, device: &[u8]) {
    let prefix = [device, b":"].concat();
    state.retain(|key, _| !key.starts_with(&prefix));
}

/// What a client has written: its content after so many batches.
#[derive(Clone, Default)]
pub(crate) struct Written {
    pub(crate) count: u64,
    pub(crate) state: Content,
}

impl Written {
    /// Goes on to `count` batches.
    pub(crate) fn go_to(&mut self, plan: &Plan, client: usize, count: u64) {
        while self.count < count {
            if let Some(device) = plan.departure(client, self.count) {
                depart(&mut self.state, &device);
            }
            apply(&mut self.state, plan.changes(client, self.count));
            self.count += 1;
        }
    }

    /// What it is once the departure before the next batch has happened, if there is one.
    pub(crate) fn half_done(&self, plan: &Plan, client: usize) -> Option<Content> {
        let device = plan.departure(client, self.count)?;
        let mut departed = self.state.clone();
        depart(&mut departed, &device);
        Some(departed)
    }
}
