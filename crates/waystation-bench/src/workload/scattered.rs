//! A known set of keys in no order: written by one process, looked for by the next.

use super::{KEY_BYTES, Key, Values};
use crate::engines::Engine;
use crate::error::Result;

/// An odd factor permutes the 32-bit numbers (Knuth's, 2^32 over the golden ratio).
const SCATTER: u32 = 2_654_435_761;

fn scattered(index: u32) -> Key {
    Key::new(index.wrapping_mul(SCATTER))
}

/// Puts scattered keys until keys and values make up `bytes`. Returns how many.
pub(crate) fn fill_scattered<E: Engine>(engine: &E, bytes: u64, value_bytes: usize) -> Result<u32> {
    let mut values = Values::new(value_bytes);
    let entries = bytes.div_ceil((KEY_BYTES + value_bytes) as u64);
    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
    for index in 0..entries {
        engine.put(scattered(index).as_bytes(), values.next(value_bytes))?;
    }
    Ok(entries)
}

/// How many of the first `entries` scattered keys are missing or have lost their value.
pub(crate) fn count_missing<E: Engine>(
    engine: &E,
    entries: u32,
    value_bytes: usize,
) -> Result<u32> {
    let mut values = Values::new(value_bytes);
    let mut found = Vec::new();
    let mut missing = 0;
    for index in 0..entries {
        let expected = values.next(value_bytes);
        let is_there = engine.get(scattered(index).as_bytes(), &mut found)?;
        missing += u32::from(!is_there || found != expected);
    }
    Ok(missing)
}
