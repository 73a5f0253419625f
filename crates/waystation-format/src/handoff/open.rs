//! Which hand-offs are not over: lists of sequence numbers.
//!
//! ```text
//! list   count varint | per number, ascending: its difference to the one before (to 0 for the first) as a varint
//! ```

use crate::FormatError;
use crate::varint::{Reader, put_u64};

/// A list has at most so many numbers.
pub const OPEN_MAX: usize = 1024;

/// Appends a list, to be read by [`take_open`].
pub fn put_open(open: &[u64], out: &mut Vec<u8>) {
    put_u64(out, open.len() as u64);
    let mut last = 0;
    for number in open {
        put_u64(out, number - last);
        last = *number;
    }
}

/// Reads a list of numbers, all of them lower than `below`.
pub fn take_open(reader: &mut Reader<'_>, below: u64) -> Result<Vec<u64>, FormatError> {
    let at = reader.offset();
    let count = reader.var_u64("the count of open hand-offs")?;
    if count > OPEN_MAX as u64 {
        return Err(FormatError::malformed(at, "too many hand-offs are open"));
    }
    let mut open = Vec::new();
    for _ in 0..count {
        let at = reader.offset();
        let more = reader.var_u64("an open hand-off")?;
        let last = open.last().copied();
        let number = last.unwrap_or(0_u64).checked_add(more);
        let Some(number) = number.filter(|it| *it < below && last.is_none_or(|last| last < *it))
        else {
            let reason = "open hand-offs are not in order, or not below the others";
            return Err(FormatError::malformed(at, reason));
        };
        open.push(number);
    }
    Ok(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_back_and_others_refused() {
        let long: Vec<u64> = (1..=OPEN_MAX as u64).map(|number| number * 1000).collect();
        for open in [&[][..], &[0], &[0, 1, 77], &long] {
            let mut bytes = Vec::new();
            put_open(open, &mut bytes);
            let below = open.last().map_or(0, |last| last + 1);
            assert_eq!(
                take_open(&mut Reader::new(&bytes), below).as_deref(),
                Ok(open)
            );
            if below > 0 {
                assert!(take_open(&mut Reader::new(&bytes), below - 1).is_err());
            }
            for cut in 0..bytes.len() {
                assert!(take_open(&mut Reader::new(&bytes[..cut]), below).is_err());
            }
        }
        for bad in [&[2, 5, 0][..], &[0x81, 0x08, 1], &[1, 0xff]] {
            assert!(
                take_open(&mut Reader::new(bad), u64::MAX).is_err(),
                "{bad:?}"
            );
        }
    }
}
