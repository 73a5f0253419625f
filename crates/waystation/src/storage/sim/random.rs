//! Numbers that look random and follow from a seed (`SplitMix64`: Steele, Lea, Flood, OOPSLA 2014).

/// A stream of numbers that follows from its seed.
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero. The bias is far below what a test could notice.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True `part` times in `whole`.
    pub(super) const fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// How many of eight things are to happen: none and all as often as anything between, because a machine
    /// that loses everything, or nothing, finds other mistakes than one that loses half.
    pub(super) const fn share_of_eight(&mut self) -> u64 {
        [0, 1, 4, 7, 8][self.below(5) as usize]
    }
}
