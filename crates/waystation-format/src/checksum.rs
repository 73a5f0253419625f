//! CRC-32C, and the mask under which LevelDB stores it.
//!
//! A checksum stored beside data that itself holds checksums is weak (the CRC of a string that embeds its
//! own CRC is a constant), so what is stored is rotated and shifted by a constant (LevelDB, `util/crc32c.h`).
//!
//! Every checksum of the project is computed here.

use crc_fast::{CrcAlgorithm, Digest};

const MASK_DELTA: u32 = 0xa282_ead8;

/// The CRC-32C (Castagnoli) of `data`.
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// The CRC-32C of what `crc` covers followed by `data`.
#[inline]
pub fn extend(crc: u32, data: &[u8]) -> u32 {
    // The register holds the complement of the checksum.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(data);
    digest.finalize() as u32
}

/// The form of `crc` that is stored.
#[inline]
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// The checksum whose stored form is `masked`.
#[inline]
pub fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 3720 section B.4, which LevelDB's own tests use.
    #[test]
    fn standard_vectors() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        let command: [u8; 48] = [
            0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0, 0,
            0, 0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(&descending), 0x113f_db5c);
        assert_eq!(crc32c(&command), 0xd996_3a56);
    }

    #[test]
    fn extending_is_concatenating() {
        assert_eq!(crc32c(b"hello world"), extend(crc32c(b"hello "), b"world"));
        assert_ne!(crc32c(b"a"), crc32c(b"foo"));
    }

    #[test]
    fn the_mask_changes_and_comes_off() {
        let crc = crc32c(b"foo");
        assert_ne!(crc, mask(crc));
        assert_ne!(crc, mask(mask(crc)));
        assert_eq!(crc, unmask(mask(crc)));
        assert_eq!(crc, unmask(unmask(mask(mask(crc)))));
    }
}
