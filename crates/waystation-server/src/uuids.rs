//! Identifiers for documents that come without one: 26 random digits, then a counter, so that those made one after the
//! other lie beside each other.

use std::sync::{Mutex, PoisonError};

/// The counter goes up to here; then the random part changes.
const COUNTER_END: u32 = 0xff_ffff;
/// It goes up by this much at most.
const STEP_MAX: u32 = 16;

/// Random numbers from the operating system; it always has some.
pub(crate) fn random<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).expect("the operating system has random numbers");
    bytes
}

/// `bytes` as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// Makes identifiers.
#[derive(Debug, Default)]
pub(crate) struct Uuids(Mutex<Option<(String, u32)>>);

impl Uuids {
    /// The next one: 32 hexadecimal digits.
    pub(crate) fn next(&self) -> String {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (prefix, counter) = match state.take() {
            Some((prefix, counter)) if counter + STEP_MAX <= COUNTER_END => (prefix, counter),
            _ => (hex(&random::<13>()), 0),
        };
        let step = u32::from(random::<1>()[0]) % STEP_MAX + 1;
        let counter = counter + step;
        let uuid = format!("{prefix}{counter:06x}");
        *state = Some((prefix, counter));
        uuid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_grow_and_have_one_length() {
        let uuids = Uuids::default();
        let (one, other) = (uuids.next(), uuids.next());
        assert!(one < other);
        assert_eq!((one.len(), other.len()), (32, 32));
        assert_eq!(one[..26], other[..26]);
    }
}
