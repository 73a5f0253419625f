//! LevelDB's Bloom filter, under its name `leveldb.BuiltinBloomFilter2`.
//!
//! ```text
//! filter = bit array | u8: probes per key
//! ```
//!
//! A key sets, and a lookup tests, the bits `h, h + d, h + 2d, ...` (modulo the length), where `h` is one
//! 32-bit hash of the key and `d` is `h` rotated (Kirsch and Mitzenmacher, Less Hashing, Same Performance,
//! ESA 2006). More than 30 probes mean an encoding of the future: it rules nothing out.

/// The name by which tables refer to this filter.
pub const POLICY_NAME: &str = "leveldb.BuiltinBloomFilter2";

const HASH_SEED: u32 = 0xbc9f_1d34;
const MAX_PROBES: u8 = 30;
/// Small filters have high false positive rates, so none is smaller than this.
const MIN_BITS: u64 = 64;

/// The hash of `key` that filters are made of.
#[inline]
pub fn hash(key: &[u8]) -> u32 {
    seeded_hash(key, HASH_SEED)
}

#[inline]
fn seeded_hash(data: &[u8], seed: u32) -> u32 {
    const M: u32 = 0xc6a4_a793;
    let (words, tail) = data.as_chunks::<4>();
    let mut h = seed ^ (data.len() as u32).wrapping_mul(M);
    for word in words {
        h = h.wrapping_add(u32::from_le_bytes(*word)).wrapping_mul(M);
        h ^= h >> 16;
    }
    if !tail.is_empty() {
        for (i, &byte) in tail.iter().enumerate() {
            h = h.wrapping_add(u32::from(byte) << (8 * i));
        }
        h = h.wrapping_mul(M);
        h ^= h >> 24;
    }
    h
}

/// Appends the filter of the keys whose hashes are given.
pub fn build(hashes: &[u32], bits_per_key: u32, out: &mut Vec<u8>) {
    let probes = probes_for(bits_per_key);
    let bits = (hashes.len() as u64 * u64::from(bits_per_key)).max(MIN_BITS);
    let bytes = bits.div_ceil(8) as usize;
    let bits = bytes as u64 * 8;
    let start = out.len();
    out.resize(start + bytes, 0);
    let array = &mut out[start..];
    for &key_hash in hashes {
        for bit in probe_bits(key_hash, probes, bits) {
            array[(bit / 8) as usize] |= 1 << (bit % 8);
        }
    }
    out.push(probes);
}

/// The number of probes that makes the fewest false positives: bits per key times ln 2.
fn probes_for(bits_per_key: u32) -> u8 {
    let probes = u64::from(bits_per_key) * 69 / 100;
    u8::try_from(probes)
        .unwrap_or(MAX_PROBES)
        .clamp(1, MAX_PROBES)
}

#[inline]
fn probe_bits(key_hash: u32, probes: u8, bits: u64) -> impl Iterator<Item = u64> {
    let delta = key_hash.rotate_right(17);
    let mut h = key_hash;
    (0..probes).map(move |_| {
        let bit = match u32::try_from(bits) {
            Ok(bits) => u64::from(h % bits), // half the price of the wide division
            Err(_) => u64::from(h) % bits,
        };
        h = h.wrapping_add(delta);
        bit
    })
}

/// Whether the key whose hash is `key_hash` may be among those the filter was built of. `false` is certain.
#[inline]
pub fn may_contain(filter: &[u8], key_hash: u32) -> bool {
    let Some((&probes, array)) = filter.split_last() else {
        return false;
    };
    if array.is_empty() {
        return false;
    }
    if probes > MAX_PROBES {
        return true;
    }
    let bits = array.len() as u64 * 8;
    probe_bits(key_hash, probes, bits).all(|bit| array[(bit / 8) as usize] & (1 << (bit % 8)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The cases of LevelDB's `util/hash_test.cc`.
    #[test]
    fn hashes_are_leveldbs() {
        let command: [u8; 48] = [
            0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0, 0,
            0, 0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(hash(b""), 0xbc9f_1d34);
        assert_eq!(hash(&[0x62]), 0xef13_45c4);
        assert_eq!(hash(&[0xc3, 0x97]), 0x5b66_3814);
        assert_eq!(hash(&[0xe2, 0x99, 0xa5]), 0x323c_078f);
        assert_eq!(hash(&[0xe1, 0x80, 0xb9, 0x32]), 0xed21_633a);
        assert_eq!(seeded_hash(&command, 0x1234_5678), 0xf333_dabb);
    }

    fn filter_of(keys: &[Vec<u8>], bits_per_key: u32) -> Vec<u8> {
        let hashes: Vec<u32> = keys.iter().map(|key| hash(key)).collect();
        let mut out = Vec::new();
        build(&hashes, bits_per_key, &mut out);
        out
    }

    #[test]
    fn the_empty_filter_holds_nothing() {
        let filter = filter_of(&[], 10);
        assert_eq!(filter, [0, 0, 0, 0, 0, 0, 0, 0, 6]);
        assert!(!may_contain(&filter, hash(b"hello")));
        assert!(!may_contain(&[], hash(b"hello")));
        assert!(!may_contain(&[6], hash(b"hello")));
    }

    #[test]
    fn encodings_of_the_future_rule_nothing_out() {
        assert!(may_contain(&[0, 0, 0, 0, 0, 0, 0, 0, 31], hash(b"hello")));
    }

    /// The bounds of LevelDB's `util/bloom_test.cc`: at most 2 % false positives at 10 bits, and not longer
    /// than 10 bits per key and 40 bytes.
    #[test]
    fn false_positives_are_rare() {
        for count in [1_u32, 10, 100, 1_000, 10_000] {
            let keys: Vec<Vec<u8>> = (0..count).map(|i| i.to_le_bytes().to_vec()).collect();
            let filter = filter_of(&keys, 10);
            assert!(filter.len() <= count as usize * 10 / 8 + 40);
            assert!(keys.iter().all(|key| may_contain(&filter, hash(key))));
            let hits = (0..10_000_u32)
                .filter(|i| may_contain(&filter, hash(&(i + 1_000_000_000).to_le_bytes())))
                .count();
            assert!(hits <= 200, "{hits} of 10000 at {count} keys");
        }
    }

    #[test]
    fn probes_follow_bits_per_key() {
        let probes = [0, 1, 2, 10, 14, 43, 44, 1_000_000].map(probes_for);
        assert_eq!(probes, [1, 1, 1, 6, 9, 29, 30, 30]);
    }

    proptest! {
        #[test]
        fn what_went_in_is_found(keys: Vec<Vec<u8>>, bits_per_key in 0..50_u32) {
            let filter = filter_of(&keys, bits_per_key);
            for key in &keys {
                prop_assert!(may_contain(&filter, hash(key)));
            }
        }

        #[test]
        fn any_bytes_are_answered(filter: Vec<u8>, key_hash: u32) {
            let _ = may_contain(&filter, key_hash);
        }
    }
}
