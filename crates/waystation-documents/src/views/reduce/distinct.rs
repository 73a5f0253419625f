//! `_approx_count_distinct`: about how many different keys there are, in 2 KiB (`HyperLogLog`).
//!
//! P. Flajolet et al., `HyperLogLog`: the analysis of a near-optimal cardinality estimation algorithm, 2007. With 2,048
//! registers, as CouchDB has them, the standard error is 2.3 %; small counts come from the registers that are empty.

use md5::{Digest, Md5};

const PRECISION: u32 = 11;
const REGISTERS: usize = 1 << PRECISION;

/// The keys that were seen.
#[derive(Debug, Clone)]
pub(crate) struct Distinct {
    /// For each class of hashes, the longest run of leading zeros, and one.
    registers: [u8; REGISTERS],
}

impl Default for Distinct {
    fn default() -> Self {
        Self {
            registers: [0; REGISTERS],
        }
    }
}

impl Distinct {
    /// Takes a key, by its sort key: keys that are equal in the order of the view are one.
    pub(super) fn add(&mut self, sort_key: &[u8]) {
        let digest: [u8; 16] = Md5::digest(sort_key).into();
        let mut hash = [0; 8];
        hash.copy_from_slice(&digest[..8]);
        let hash = u64::from_le_bytes(hash);
        let class = (hash >> (64 - PRECISION)) as usize;
        let rest = hash << PRECISION;
        let rank = rest.leading_zeros().min(64 - PRECISION) + 1;
        let register = &mut self.registers[class];
        *register = (*register).max(rank as u8);
    }

    /// Takes the keys of another one.
    pub(super) fn merge(&mut self, other: &Self) {
        for (register, other) in self.registers.iter_mut().zip(other.registers) {
            *register = (*register).max(other);
        }
    }

    /// About how many different keys there were.
    pub(super) fn estimate(&self) -> u64 {
        let count = REGISTERS as f64;
        let sum: f64 = self
            .registers
            .iter()
            .map(|rank| 0.5_f64.powi(i32::from(*rank)))
            .sum();
        let bias = 0.7213 / (1.0 + 1.079 / count);
        let raw = bias * count * count / sum;
        let empty: u16 = self
            .registers
            .iter()
            .map(|rank| u16::from(*rank == 0))
            .sum();
        let estimate = if raw <= 2.5 * count && empty > 0 {
            count * (count / f64::from(empty)).ln()
        } else {
            raw
        };
        #[expect(clippy::cast_sign_loss, reason = "an estimate is a count")]
        let rounded = estimate.round() as u64;
        rounded
    }
}
