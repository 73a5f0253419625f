//! A known set of keys in no order: written by one process, looked for by the next.

use super::{Key, Values};
use crate::engines::Engine;
use crate::error::Result;

/// An odd factor permutes the 32-bit numbers (Knuth's, 2^32 over the golden ratio).
const SCATTER: u32 = 2_654_435_761;

/// Keys that come one after the other.
struct Keys {
    devices: u32,
    key: Vec<u8>,
}

impl Keys {
    fn new(devices: u32) -> Self {
        let key = Vec::new();
        Self { devices, key }
    }

    /// The key of entry `index`: the devices, if there are any, take turns.
    fn of(&mut self, index: u32) -> &[u8] {
        self.key.clear();
        if let Some(device) = index.checked_rem(self.devices) {
            self.key.extend_from_slice(Key::new(device).as_bytes());
            self.key.push(b':');
        }
        let scattered = Key::new(index.wrapping_mul(SCATTER));
        self.key.extend_from_slice(scattered.as_bytes());
        &self.key
    }
}

/// Puts scattered keys of so many `devices` (0: of none) until they and their values make up `bytes`. Returns how many.
pub(crate) fn fill_scattered<E: Engine>(
    engine: &E,
    bytes: u64,
    value_bytes: usize,
    devices: u32,
) -> Result<u32> {
    let mut values = Values::new(value_bytes);
    let mut keys = Keys::new(devices);
    let entries = bytes.div_ceil((keys.of(0).len() + value_bytes) as u64);
    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
    for index in 0..entries {
        engine.put(keys.of(index), values.next(value_bytes))?;
    }
    Ok(entries)
}

/// How many of the first `entries` scattered keys are missing or have lost their value; only one in `every` is looked for.
pub(crate) fn count_missing<E: Engine>(
    engine: &E,
    entries: u32,
    value_bytes: usize,
    devices: u32,
    every: u32,
) -> Result<u32> {
    let mut values = Values::new(value_bytes);
    let mut keys = Keys::new(devices);
    let mut found = Vec::new();
    let mut missing = 0;
    for index in 0..entries {
        let expected = values.next(value_bytes);
        if !index.is_multiple_of(every) {
            continue;
        }
        let is_there = engine.get(keys.of(index), &mut found)?;
        missing += u32::from(!is_there || found != expected);
    }
    Ok(missing)
}
