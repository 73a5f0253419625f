//! Changes to bytes, as a fuzzer makes them: small ones mostly, now and then a splice.

/// Numbers that follow from a seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From `seed` on.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (splitmix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }
}

/// No input grows longer (bytes).
const LENGTH_MAX: usize = 16 << 10;
/// Numbers at which code goes wrong.
const EDGES: [u64; 10] = [
    0,
    1,
    0x7f,
    0x80,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    u64::MAX >> 1,
    u64::MAX,
];

/// Changes `bytes` in one to five places; `other` is spliced in at times.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            bytes.push(random.number() as u8);
        }
        let at = random.below(bytes.len());
        match random.below(9) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.number() as u8,
            2 => {
                let step = random.below(9) as u8;
                bytes[at] = bytes[at].wrapping_add(step).wrapping_sub(4);
            }
            3 => {
                let number = EDGES[random.below(EDGES.len())].to_le_bytes();
                let width = 1 << random.below(4);
                let end = bytes.len().min(at + width);
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            4 => {
                let end = bytes.len().min(at + 1 + random.below(16));
                bytes.drain(at..end);
            }
            5 => {
                let end = bytes.len().min(at + 1 + random.below(32));
                let piece = bytes[at..end].to_vec();
                let target = random.below(bytes.len());
                bytes.splice(target..target, piece);
            }
            6 => bytes.truncate(at),
            7 => bytes.insert(at, random.number() as u8),
            _ if !other.is_empty() => {
                let from = random.below(other.len());
                let to = other.len().min(from + 1 + random.below(64));
                let end = bytes.len().min(at + to - from);
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            _ => bytes[at] = 0xff,
        }
        bytes.truncate(LENGTH_MAX);
    }
}
