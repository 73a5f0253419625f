//! Every bit of every file of a fixture, turned over, one at a time.
//!
//! Whatever is flipped, the database reads right, or refuses to open, or a read fails; it never gives a wrong value and
//! never panics. Files are mostly padding: every bit is taken that is near a byte that is not zero, and samples of the
//! rest.

use crate::fixture::{DIR, Kind, Outcome};
use crate::image::Image;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Bytes are near another one up to this distance.
const NEAR_BYTES: usize = 16;
/// Elsewhere, one bit in so many bytes.
const SAMPLE_BYTES: usize = 4093;

/// What became of the flips of one file.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Everything was read right.
    pub harmless: u64,
    /// The last write, which was not synced, was taken for torn: a power cut leaves it so too.
    pub cut: u64,
    /// The database did not open, and said why.
    pub refused: u64,
    /// A read failed, and said why.
    pub detected: u64,
    /// The flips that did harm, with what they did.
    pub harm: Vec<String>,
}

impl Tally {
    fn of(&mut self, outcome: &Outcome) -> &mut u64 {
        match outcome {
            Outcome::Right => &mut self.harmless,
            Outcome::Cut => &mut self.cut,
            Outcome::Refused(_) => &mut self.refused,
            Outcome::Detected(_) | Outcome::Wrong(_) => &mut self.detected,
        }
    }

    /// Adds what `other` found in the same file.
    pub fn add(&mut self, other: Self) {
        self.harmless += other.harmless;
        self.cut += other.cut;
        self.refused += other.refused;
        self.detected += other.detected;
        self.harm.extend(other.harm);
    }
}

/// The bits of `content` to turn over.
pub fn bits(content: &[u8]) -> Vec<usize> {
    let mut is_near = vec![false; content.len()];
    for (at, byte) in content.iter().enumerate() {
        if *byte != 0 {
            let end = content.len().min(at + NEAR_BYTES + 1);
            is_near[at.saturating_sub(NEAR_BYTES)..end].fill(true);
        }
    }
    let mut bits = Vec::new();
    for (at, is_near) in is_near.into_iter().enumerate() {
        if is_near {
            bits.extend(at * 8..at * 8 + 8);
        } else if at.is_multiple_of(SAMPLE_BYTES) {
            bits.push(at * 8 + at % 8);
        }
    }
    bits
}

/// Turns over those of `bits` of file `name` whose position leaves `rest` when divided by `parts`.
pub fn flip_all(kind: Kind, image: &Image, name: &str, (rest, parts): (usize, usize)) -> Tally {
    let mut tally = Tally::default();
    let content = image.file(name).unwrap_or_default();
    for bit in bits(content).into_iter().skip(rest).step_by(parts) {
        let mut damaged = content.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let flipped = image.with(name, damaged);
        let outcome = catch_unwind(AssertUnwindSafe(|| try_one(kind, &flipped)));
        let harm = match outcome {
            Ok(Outcome::Wrong(difference)) => difference,
            Err(_) => "a panic".to_owned(),
            Ok(outcome) => {
                *tally.of(&outcome) += 1;
                continue;
            }
        };
        tally
            .harm
            .push(format!("bit {} of byte {}: {harm}", bit % 8, bit / 8));
    }
    tally
}

fn try_one(kind: Kind, image: &Image) -> Outcome {
    match image.boot(Path::new(DIR)) {
        Ok(machine) => kind.read(machine),
        Err(error) => Outcome::Wrong(format!("the machine does not start: {error}")),
    }
}
