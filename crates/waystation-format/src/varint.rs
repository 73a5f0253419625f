//! Variable-length integers (LEB128), and a cursor that reads them and the fixed-width ones.
//!
//! Seven bits per byte, least significant first, the high bit set on every byte but the last. A `u32` takes
//! at most five bytes, a `u64` ten; longer or overflowing encodings are refused.

use crate::error::FormatError;

/// The most bytes the encoding of a `u32` takes.
pub const MAX_U32_BYTES: usize = 5;
/// The most bytes the encoding of a `u64` takes.
pub const MAX_U64_BYTES: usize = 10;

/// Appends `value`.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `value`.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    put_u64(out, u64::from(value));
}

/// Appends the length of `bytes`, then `bytes`.
///
/// Panics if there are 4 GiB of them or more: no length field of these formats is wider.
#[inline]
pub fn put_length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a key or value is shorter than 4 GiB");
    put_u32(out, length);
    out.extend_from_slice(bytes);
}

/// How many bytes the encoding of `value` takes.
#[inline]
pub fn encoded_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// The `u32` at the start of `bytes` and the length of its encoding; `None` if there is none.
#[inline]
pub fn get_u32(bytes: &[u8]) -> Option<(u32, usize)> {
    let &first = bytes.first()?;
    if first < 0x80 {
        return Some((u32::from(first), 1));
    }
    let (value, length) = get_long(bytes, MAX_U32_BYTES)?;
    Some((u32::try_from(value).ok()?, length))
}

/// The `u64` at the start of `bytes` and the length of its encoding; `None` if there is none.
#[inline]
pub fn get_u64(bytes: &[u8]) -> Option<(u64, usize)> {
    let &first = bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    get_long(bytes, MAX_U64_BYTES)
}

fn get_long(bytes: &[u8], max_bytes: usize) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (i, &byte) in bytes.iter().take(max_bytes).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if i == MAX_U64_BYTES - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

/// A cursor over bytes that knows where it is when something is missing.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A cursor at the first of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Whether all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `length` bytes, which are `what`.
    pub fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
        let taken = self
            .rest()
            .get(..length)
            .ok_or(FormatError::truncated(self.at, what))?;
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FormatError> {
        let taken = self
            .rest()
            .first_chunk::<N>()
            .ok_or(FormatError::truncated(self.at, what))?;
        self.at += N;
        Ok(*taken)
    }

    /// The next byte, which is `what`.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, FormatError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    /// The next four bytes, which are `what`.
    pub fn fixed_u32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// The next eight bytes, which are `what`.
    pub fn fixed_u64(&mut self, what: &'static str) -> Result<u64, FormatError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The next variable-length `u32`, which is `what`.
    pub fn var_u32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        let (value, length) =
            get_u32(self.rest()).ok_or_else(|| self.bad_varint(MAX_U32_BYTES, what))?;
        self.at += length;
        Ok(value)
    }

    /// The next variable-length `u64`, which is `what`.
    pub fn var_u64(&mut self, what: &'static str) -> Result<u64, FormatError> {
        let (value, length) =
            get_u64(self.rest()).ok_or_else(|| self.bad_varint(MAX_U64_BYTES, what))?;
        self.at += length;
        Ok(value)
    }

    /// The next length and as many bytes, which are `what`.
    pub fn length_prefixed(&mut self, what: &'static str) -> Result<&'a [u8], FormatError> {
        let length = self.var_u32(what)?;
        self.take(length as usize, what)
    }

    fn bad_varint(&self, max_bytes: usize, what: &'static str) -> FormatError {
        let rest = self.rest();
        if rest.len() < max_bytes && rest.iter().all(|byte| byte & 0x80 != 0) {
            FormatError::truncated(self.at, what)
        } else {
            FormatError::malformed(self.at, what)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn boundaries_of_every_width_round_trip() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, (1 << shift) + 1] {
                let mut out = Vec::new();
                put_u64(&mut out, value);
                assert_eq!(out.len(), encoded_len(value));
                assert_eq!(get_u64(&out), Some((value, out.len())));
                for cut in 0..out.len() {
                    assert_eq!(get_u64(&out[..cut]), None);
                }
                let narrow = u32::try_from(value).ok().map(|v| (v, out.len()));
                assert_eq!(get_u32(&out), narrow);
            }
        }
        let mut out = Vec::new();
        put_u64(&mut out, u64::MAX);
        assert_eq!(out.len(), MAX_U64_BYTES);
        assert_eq!(get_u64(&out), Some((u64::MAX, 10)));
    }

    #[test]
    fn overflowing_encodings_are_refused() {
        assert_eq!(get_u32(&[0x81, 0x82, 0x83, 0x84, 0x85, 0x11]), None);
        assert_eq!(get_u32(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None);
        let eleven = [
            0x81, 0x82, 0x83, 0x84, 0x85, 0x81, 0x82, 0x83, 0x84, 0x85, 0x11,
        ];
        assert_eq!(get_u64(&eleven), None);
        assert!(matches!(
            Reader::new(&eleven).var_u64("x"),
            Err(FormatError::Malformed { .. })
        ));
        assert!(matches!(
            Reader::new(&[0x80]).var_u64("x"),
            Err(FormatError::Truncated { .. })
        ));
    }

    proptest! {
        #[test]
        fn readers_take_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut reader = Reader::new(&bytes);
            while reader.length_prefixed("x").is_ok() {}
            prop_assert!(reader.offset() <= bytes.len());
            let _ = reader.fixed_u32("x");
            let _ = reader.fixed_u64("x");
            let _ = reader.var_u64("x");
        }

        #[test]
        fn slices_round_trip(slices in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..300), 0..8)) {
            let mut out = Vec::new();
            for slice in &slices {
                put_length_prefixed(&mut out, slice);
            }
            let mut reader = Reader::new(&out);
            for slice in &slices {
                prop_assert_eq!(reader.length_prefixed("x").unwrap(), &slice[..]);
            }
            prop_assert!(reader.is_empty());
        }
    }
}
