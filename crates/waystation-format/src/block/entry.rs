//! The lengths in front of an entry, checked against the block.

use crate::varint;

/// What the lengths in front of an entry say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    /// How many bytes of the key are those of the key before.
    pub(super) shared: u32,
    /// Where the other bytes of the key begin.
    pub(super) key_start: u32,
    /// Where they end and the value begins.
    pub(super) value_start: u32,
    /// Where the value ends and the next entry begins.
    pub(super) end: u32,
}

/// The lengths of the entry at `at`, if all of it lies within `entries`.
#[inline]
pub(super) fn header(entries: &[u8], at: u32) -> Option<Header> {
    let bytes = entries.get(at as usize..)?;
    let (shared, unshared, value, length) = match bytes.first_chunk::<3>() {
        Some(&[shared, unshared, value]) if (shared | unshared | value) < 0x80 => {
            (u32::from(shared), u32::from(unshared), u32::from(value), 3)
        }
        _ => long_header(bytes)?,
    };
    let key_start = u64::from(at) + u64::from(length);
    let value_start = key_start + u64::from(unshared);
    let end = value_start + u64::from(value);
    if end > entries.len() as u64 {
        return None;
    }
    Some(Header {
        shared,
        key_start: key_start as u32,
        value_start: value_start as u32,
        end: end as u32,
    })
}

#[inline]
fn long_header(bytes: &[u8]) -> Option<(u32, u32, u32, u32)> {
    let (shared, a) = varint::get_u32(bytes)?;
    let (unshared, b) = varint::get_u32(&bytes[a..])?;
    let (value, c) = varint::get_u32(&bytes[a + b..])?;
    Some((shared, unshared, value, (a + b + c) as u32))
}
