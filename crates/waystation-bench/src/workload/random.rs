//! LevelDB's random numbers: Lehmer's generator with a = 16807 modulo 2^31 - 1.
//!
//! Every benchmark thread gets its own, seeded with 1000 + the running number of the thread, so that each
//! benchmark meets new keys and each repetition meets the same ones.

const MODULUS: u32 = 0x7fff_ffff;
const MULTIPLIER: u64 = 16807;

/// The generator. Never yields 0.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    seed: u32,
}

impl Random {
    /// A generator; the two seeds it would be stuck at are replaced by 1.
    pub(crate) fn new(seed: u32) -> Self {
        let seed = seed & MODULUS;
        let is_stuck = seed == 0 || seed == MODULUS;
        Self {
            seed: if is_stuck { 1 } else { seed },
        }
    }

    /// The next number, 1 to 2^31 - 2.
    #[inline]
    pub(crate) fn next(&mut self) -> u32 {
        // 2^31 is 1 modulo 2^31 - 1, so the high part may be added to the low part instead of dividing.
        let product = u64::from(self.seed) * MULTIPLIER;
        let folded = (product >> 31) + (product & u64::from(MODULUS));
        let reduced = if folded > u64::from(MODULUS) {
            folded - u64::from(MODULUS)
        } else {
            folded
        };
        self.seed = reduced as u32;
        self.seed
    }

    /// A number below `limit`, which is not 0. As uniform as a remainder is.
    #[inline]
    pub(crate) fn uniform(&mut self, limit: u32) -> u32 {
        self.next() % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_thousandth_number_is_park_and_millers() {
        let mut random = Random::new(1);
        let last = (0..10_000).map(|_| random.next()).last();
        assert_eq!(last, Some(1_043_618_065));
    }

    #[test]
    fn seeds_that_would_be_stuck_are_replaced() {
        for seed in [0, MODULUS, 0x8000_0000] {
            assert_eq!(Random::new(seed).next(), 16807, "seed {seed}");
        }
    }

    #[test]
    fn uniform_stays_below_its_limit_and_reaches_everything() {
        let mut random = Random::new(301);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[random.uniform(10) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
    }
}
