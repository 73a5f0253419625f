//! The room that is kept free on a disk, in one table; and why all that gives room back always finds its own.
//!
//! ```text
//!  free |<-- puts -->|<- settling ->|<- deletions, departures, ->|<- flushes, loads, ->|<- files that are ->|
//!       |            |              |           merges           |       the log       |      replaced      |
//!       ^            ^              ^                            ^                     ^                    0
//!    a put has    for_puts     for_settling                   for_log           missing of `RESERVE`
//!    room here    + owed         + owed                        + owed
//! ```
//!
//! Each kind of growth stops where the room of the next one begins. In what follows,
//! - `F` is the free room, below the limit and on the file system;
//! - `R` is the length of the file `RESERVE`, and `M` the part of it that is missing: `R + M >= reserve + C / 2`;
//! - `S` is what the log's segments have room for besides all that is in the ring (`Log::spare_bytes`);
//! - `C` is room for two copies of all files that are replaced as a whole;
//! - `O` is the debt: memtables and devices that settle as tables, and long writes.
//!
//! The ring grows, and becomes short again (`log::growth`). `R + M` and (1) go by the length of its file, all else by the
//! length that it can have.
//!
//! **An opening** needs `opening + C / 2`: a short segment, and before it in the same file what only the ring held, laid out
//! anew, with the beginning of the record that runs into the ring (`laid_out`). It finds `F + R + S` and the bytes of the
//! ring, which the segments had room for: each opening cuts off what its predecessor did not use, before it takes
//! anything. So what must hold at any moment, as the process may be killed at it, is
//!
//! > (1) `F + R + S >= opening - ring + C / 2`.
//!
//! An opening that is killed leaves (1) as it was: until its `JOURNAL` is written, the next one removes its segment; after
//! that, the ring holds nothing, and the next one cuts the segment off behind what was laid out, or removes it as empty. So
//! it does not matter how many are killed in a row.
//!
//! **A flush** has to find room for what it writes, down to `C + (M - for_lives)`:
//!
//! > (2) `F >= C + (M - for_lives) + O`.
//!
//! | growth | takes | stops at | (1) holds | (2) holds |
//! |---|---|---|---|---|
//! | a put of `b` bytes | `b` of the log, `b` of `O` | `F - M >= for_puts + C + O + b` | `F + R >= reserve + C / 2` | by far |
//! | a long put | `b`, and `b` until it is in segments, as it may be laid out anew whole | `.. + 2b` | as above | as above |
//! | settling | `O` | `F - M >= for_settling + C + O` | as above | as above |
//! | a merge, an index snapshot | `F` | `F - M >= for_log + C + O` | as above | the room behind `for_log` |
//! | a deletion, a departure | `b` of the log | `F - M >= for_log + C + O + b`; or `b < S`, and (1) with `S - b` | either | no `F` is taken from the content of `S` |
//! | the ring | its length, and more of `M` | `F >= for_puts + reserve` and more | `F` has room for an opening besides | by far |
//! | the ring, as it becomes short | nothing: it is empty, and gives `F`; then `R` gives `F` | | an opening lays out less | `F` grows |
//! | a segment of the log | `F` for `S` | `F >= M + C` | `F + S` stays | what was let in was counted for the ring and one segment (`for_puts`) |
//! | the current segment, as it is cut | nothing: `S` gives `F` | a short segment of `S` | `F + S` stays | `F` grows |
//! | a flush, a load | `F` for `O` | `F >= C + (M - for_lives)` | `F + R >= opening + C / 2` | `F + O` stays |
//! | a fresh segment after a failure | `F` for `S` | `F >= M` | as for a segment | a short segment is in `for_log` |
//! | a file that is replaced | `C` | | `C` is for that | as left |
//! | an opening | `R` for `S`; the new layout; `R` becomes `M` | | see above | it takes `opening` at most, once, which is in `for_settling`; then a unit of the log each |
//!
//! Lives that end before a flush each leave a segment with the few units that they wrote. They take that from what is kept
//! behind `for_settling`. An opening that finds less than that (`DiskReserve::is_worn`) flushes and frees the log before it
//! returns; a deletion that finds less has the memtable flushed in the background.

/// An opening keeps room for this many short segments more than it needs: what lives lose that are killed before they
/// flush, and what a flush may use then.
const LIVES_SEGMENTS: u64 = 1;
/// So many short segments are kept for deletions and departures.
const LEAVING_SEGMENTS: u64 = 2;
/// A record of more than this part of the ring is long ...
const LONG_SHARE: u64 = 2;
/// ... or of more bytes than this.
const LONG_BYTES: u64 = 8 << 20;
/// The content of the ring takes more in a segment, laid out anew: no more than this part of it.
const LAID_OUT_SHARE: u64 = 16;

/// See the module. All in bytes; what depends on the options alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Margins {
    /// A short segment of the log.
    pub(crate) short: u64,
    /// The staging ring.
    pub(crate) ring: u64,
    /// What settles together.
    pub(crate) together: u64,
}

impl Margins {
    /// Where nothing is kept free.
    pub(crate) const NONE: Self = Self {
        short: 0,
        ring: 0,
        together: 0,
    };

    /// The same while the ring has `bytes`.
    pub(crate) fn of_ring(self, bytes: u64) -> Self {
        Self {
            ring: bytes.min(self.ring),
            ..self
        }
    }

    /// What only the ring held, as an opening lays it out, with what lies in segments of a record that runs into the ring.
    /// Long ones are counted one by one.
    fn laid_out(self) -> u64 {
        laid_out(self.ring + long_from(self.ring))
    }

    /// The room that an opening takes, besides another copy of replaced files.
    fn opening(self) -> u64 {
        self.short + self.laid_out()
    }

    /// What an opening takes beside what the log's segments have room for.
    pub(crate) fn opening_beside_ring(self) -> u64 {
        self.opening() - self.ring
    }

    /// The part of [`Self::reserve`] that lives may lose, and flushes use.
    pub(crate) fn for_lives(self) -> u64 {
        LIVES_SEGMENTS * self.short
    }

    /// The length of the file `RESERVE`, besides room for another copy of replaced files.
    pub(crate) fn reserve(self) -> u64 {
        self.opening() + self.for_lives()
    }

    /// What deletions, departures and merges leave: the log writes the content of the ring.
    pub(crate) fn for_log(self) -> u64 {
        self.short + self.ring
    }

    /// What settling leaves.
    pub(crate) fn for_settling(self) -> u64 {
        self.for_log() + LEAVING_SEGMENTS * self.short + self.opening()
    }

    /// Puts leave this much: the log may make segments for the content of the ring, and another one ready, when the last
    /// put has been let in. Settling finds its room then.
    pub(crate) fn for_puts(self) -> u64 {
        self.for_settling() + self.together + self.ring + self.short
    }
}

/// Longer records go into a ring of `ring_bytes` chunk by chunk.
pub(crate) fn long_from(ring_bytes: u64) -> u64 {
    (ring_bytes / LONG_SHARE).min(LONG_BYTES)
}

/// What `bytes` of records take in a segment, laid out anew.
pub(crate) fn laid_out(bytes: u64) -> u64 {
    bytes + bytes / LAID_OUT_SHARE
}
