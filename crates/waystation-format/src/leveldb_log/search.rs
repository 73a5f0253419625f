//! Tells a write that a crash has torn from damage, at a place that does not check.

use super::{BLOCK_BYTES, FIRST, FULL, HEADER_BYTES};
use crate::checksum;

/// Whether a record begins anywhere behind `offset` in a whole log file: a chunk of the kind that begins one,
/// with a checksum that matches, at any byte of a block. If so, what does not check at `offset` is damage; if
/// not, it may be a write that a crash has torn, provided that writes were synced one at a time.
pub fn begins_record_after(file: &[u8], offset: u64) -> bool {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .saturating_add(1);
    let Some(behind) = file.get(start..) else {
        return false;
    };
    (start..start + behind.len()).any(|at| {
        let block_end = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
        begins_record(&file[at..block_end.min(file.len())])
    })
}

/// What a device writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Whether a crash may have left what does not check at `offset`, if everything up to `whole_through` did: a
/// sector that was never written reads as zeros. Where there is none, something else changed the bytes.
///
/// Looks no further than the end of the block, behind which the reader goes on.
pub fn misses_sector(file: &[u8], whole_through: u64, offset: u64) -> bool {
    let offset = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(file.len());
    let end = (offset / BLOCK_BYTES + 1)
        .saturating_mul(BLOCK_BYTES)
        .min(file.len());
    let mut at = usize::try_from(whole_through).unwrap_or(usize::MAX);
    while at < end {
        let sector_end = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
        if file[at..sector_end].iter().all(|&byte| byte == 0) {
            return true;
        }
        at = sector_end;
    }
    false
}

fn begins_record(bytes: &[u8]) -> bool {
    let Some((header, after)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return false;
    };
    let &[c0, c1, c2, c3, l0, l1, kind] = header;
    let length = usize::from(u16::from_le_bytes([l0, l1]));
    let Some(data) = after.get(..length) else {
        return false;
    };
    let stored = checksum::unmask(u32::from_le_bytes([c0, c1, c2, c3]));
    (kind == FULL || kind == FIRST) && checksum::extend(checksum::crc32c(&[kind]), data) == stored
}
