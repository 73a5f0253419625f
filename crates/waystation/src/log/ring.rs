//! The staging ring: the end of the log that has not reached its segment yet, in memory that survives the
//! death of the process.
//!
//! The ring is a window over the stream: the byte at LSN `x` lies at offset `x % len`, where `len` is the length of the ring's
//! file. Who may touch which span is decided by tokens that cannot be made up or copied:
//! - a [`Span`] is handed out by the log's reservation, one for each byte of the stream, while that byte's
//!   previous lap has left for its segment ("released"); its holder alone writes there;
//! - a [`Settled`] range is made by the log's writer once every span below its end was given back
//!   (published) and before it is released; no thread writes there but the one that holds it. Or it is made by a reader
//!   under the front's lock, of published bytes whose next lap is not handed out: no writer can get that meanwhile.
//!
//! **It grows** from the shortest file to the whole ring, by doubling, so that a database takes little room until it writes
//! much. No byte moves: in a lap with an even number each position has the same offset in a ring of `len` and in one of
//! `2 len`. So the ring may grow when all that is reserved and not released lies in such a lap, and a writer would leave it:
//!
//! ```text
//!   lap      |      2 k      |    2 k + 1    |        released >= a, reserved <= b
//!   len      a===============b                        the next record would go on at offset 0
//!   2 len    a===============================b        it goes on at offset len
//! ```
//!
//! A file that has grown, and whose ring has not yet, reads the same. After a power cut the file may be as long as it was
//! before; nothing is expected of the ring then. The way back is the same: a ring of `2 len` may become one of `len` while all that is
//! reserved and not released lies in its first half.
//!
//! This is one of the engine's few unsafe islands: raw copies into and slices of the mapped memory. The proof
//! is the ownership above; the bounds are asserted here.

use crate::storage::Ring;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use waystation_format::log::{BLOCK_HEADER_BYTES, UNIT_BYTES, ring_file_lengths};

/// The right to write the bytes `[lsn, lsn + len)` of the stream, which no other writer has.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) lsn: u64,
    pub(super) len: usize,
}

/// A range of the stream that no [`Span`] covers any more and whose next lap no [`Span`] covers as long as this
/// lives: it is not released, or nothing is reserved meanwhile.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) lsn: u64,
    pub(super) len: usize,
}

/// The mapped window.
pub(super) struct RingBuffer {
    ring: Arc<dyn Ring>,
    /// The window's length in bytes. It changes under the lock of the log's front. Each thread knows the one of its spans,
    /// which it got under that lock or from a thread that did; and for those the one after a change does as well (see the
    /// module).
    len: AtomicU64,
    len_min: u64,
}

/// How the ring may change its length.
pub(super) struct NewLength {
    /// The window's length from then on (bytes).
    pub(super) len: u64,
    /// The bytes of the stream from here on keep their offsets.
    pub(super) from_lsn: u64,
}

impl RingBuffer {
    pub(super) fn new(ring: Arc<dyn Ring>) -> Self {
        let len = ring.file_bytes();
        assert!(
            len > 0 && len <= ring.len() && len.is_multiple_of(UNIT_BYTES),
            "the ring is made of whole units"
        );
        let whole = ring.len() as u64;
        Self {
            ring,
            len: AtomicU64::new(len as u64),
            len_min: ring_file_lengths(whole).last().unwrap_or(whole),
        }
    }

    /// The window's length in bytes.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    /// The length that it is never shorter than.
    pub(super) fn len_min(&self) -> u64 {
        self.len_min
    }

    /// The length that it can grow to.
    pub(super) fn len_max(&self) -> u64 {
        self.ring.len() as u64
    }

    /// How the ring may grow now, if it may, for a record that ends at `end`, if that runs over the window's end. Everything
    /// up to `reserved` is reserved, and up to `released` has left.
    pub(super) fn growth(&self, released: u64, reserved: u64, end: u64) -> Option<NewLength> {
        let len = self.len();
        if len == self.len_max() {
            return None;
        }
        let from_lsn = even_lap(len, released, reserved)?;
        let is_left = end > from_lsn + len;
        let len = 2 * len;
        is_left.then_some(NewLength { len, from_lsn })
    }

    /// How the ring may become shorter now, if it may, for a record that ends at `end` and then has room. The rest as of
    /// [`Self::growth`].
    pub(super) fn shrinkage(&self, released: u64, reserved: u64, end: u64) -> Option<NewLength> {
        let len = self.len() / 2;
        if len < self.len_min() || end > released + len {
            return None;
        }
        let from_lsn = even_lap(len, released, reserved)?;
        Some(NewLength { len, from_lsn })
    }

    /// Changes the window, as [`Self::growth`] or [`Self::shrinkage`] said under the same lock of the front. The file is that long.
    pub(super) fn change(&self, new: &NewLength) {
        let lengths = self.len_min()..=self.len_max();
        assert!(lengths.contains(&new.len), "the ring has its lengths");
        self.len.store(new.len, Relaxed);
    }

    /// Makes the window shorter, under the lock of the front: all that is reserved has left.
    pub(super) fn shorten(&self, len: u64) {
        assert!(len <= self.len(), "a shorter window lies in the file");
        self.len.store(len, Relaxed);
    }

    /// Copies `bytes` to the start of `span` and cuts what was written off its front.
    pub(super) fn write(&self, span: &mut Span, bytes: &[u8]) {
        assert!(bytes.len() <= span.len, "a writer stays within its span");
        let (first, second) = self.split(span.lsn, bytes.len());
        self.copy(first.0, &bytes[..first.1]);
        if second.1 > 0 {
            self.copy(second.0, &bytes[first.1..]);
        }
        span.lsn += bytes.len() as u64;
        span.len -= bytes.len();
    }

    /// Makes the bytes from `lsn` on ready to be written, by any writer.
    pub(super) fn prepare(&self, lsn: u64, len: usize) {
        // It may have become shorter since the caller looked.
        let window = self.len();
        let (first, second) = Self::split_in(window, lsn, len.min(window as usize));
        self.ring.prepare(first.0, first.1);
        self.ring.prepare(second.0, second.1);
    }

    /// Fills `span` with zeros.
    pub(super) fn zero(&self, mut span: Span) {
        const ZEROS: [u8; UNIT_BYTES] = [0; UNIT_BYTES];
        while span.len > 0 {
            let chunk = span.len.min(UNIT_BYTES);
            self.write(&mut span, &ZEROS[..chunk]);
        }
    }

    /// The bytes of a settled range, in the two chunks that the window's end may cut it into.
    #[expect(unsafe_code, reason = "slices of the mapped ring")]
    pub(super) fn chunks<'a>(&'a self, settled: &'a Settled) -> [&'a [u8]; 2] {
        let (first, second) = self.split(settled.lsn, settled.len);
        [first, second].map(|(offset, len)| {
            // SAFETY: `split` keeps offset + len within the mapped file, which lives as long as `self`. No span
            // covers these bytes any more, nor their next lap (the meaning of `Settled`), so no thread writes them
            // while the slice is alive; `replace_header` wants the token exclusively, and readers of released
            // bytes make none of a block's header.
            unsafe { std::slice::from_raw_parts(self.ring.as_ptr().add(offset), len) }
        })
    }

    /// Replaces the block header at the start of a settled range.
    pub(super) fn replace_header(&self, settled: &mut Settled, header: &[u8; BLOCK_HEADER_BYTES]) {
        assert!(settled.len >= header.len() && settled.lsn.is_multiple_of(UNIT_BYTES as u64));
        self.copy(Self::offset(settled.lsn, self.len()), header);
    }

    /// What lies in the window from `lsn` on, as an earlier life left it. For recovery, before any writer.
    pub(super) fn leftover(&self, lsn: u64) -> Vec<u8> {
        let len = self.len() as usize;
        let all = Settled { lsn, len };
        self.chunks(&all).concat()
    }

    #[expect(unsafe_code, reason = "raw copy into the mapped ring")]
    fn copy(&self, offset: usize, bytes: &[u8]) {
        assert!(
            offset as u64 + bytes.len() as u64 <= self.len(),
            "within the window"
        );
        // SAFETY: in bounds by the assertion; the caller holds the only token for these bytes, so no other
        // thread reads or writes them; `bytes` is ordinary memory, since slices of the mapping are only lent out for
        // settled ranges, and only to be written to files.
        unsafe { self.ring.store(offset, bytes) };
    }

    #[inline]
    fn offset(lsn: u64, len: u64) -> usize {
        // A division takes longer than the copy of a short record.
        let offset = if len.is_power_of_two() {
            lsn & (len - 1)
        } else {
            lsn % len
        };
        offset as usize
    }

    /// The span as (offset, length) before and after the window's end.
    fn split(&self, lsn: u64, len: usize) -> ((usize, usize), (usize, usize)) {
        Self::split_in(self.len(), lsn, len)
    }

    /// The same of a window of this length.
    fn split_in(window: u64, lsn: u64, len: usize) -> ((usize, usize), (usize, usize)) {
        assert!(len as u64 <= window, "a span is no longer than the window");
        let offset = Self::offset(lsn, window);
        let first = len.min(window as usize - offset);
        ((offset, first), (0, len - first))
    }
}

/// Where the lap of `len` begins in which all lies that is reserved and not released, if its number is even.
fn even_lap(len: u64, released: u64, reserved: u64) -> Option<u64> {
    let lap = reserved.saturating_sub(1) / len;
    let from_lsn = lap * len;
    (lap.is_multiple_of(2) && released >= from_lsn).then_some(from_lsn)
}

#[cfg(test)]
#[cfg(not(any(shuttle, loom)))]
mod tests {
    use super::{RingBuffer, Settled, Span};
    use crate::storage::sim::Crash;
    use crate::storage::{Area, OpenMode, SimStorage, Storage, Transfer};
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use waystation_format::log::UNIT_BYTES;

    const RING: &str = "/RING";
    const RING_BYTES: usize = 4 * UNIT_BYTES;
    const RECORD_BYTES: usize = 1000;
    const RECORDS_IN_LAP: u64 = (RING_BYTES / RECORD_BYTES) as u64;
    const WRITERS: u64 = 3;
    const LAPS: u64 = if cfg!(miri) { 3 } else { 60 };

    fn record(number: u64) -> Vec<u8> {
        vec![number.to_le_bytes()[0]; RECORD_BYTES]
    }

    fn read(buffer: &RingBuffer, number: u64) -> Vec<u8> {
        let (lsn, len) = (number * RECORD_BYTES as u64, RECORD_BYTES);
        buffer.chunks(&Settled { lsn, len }).concat()
    }

    /// Writes every third record from `first` on, and says of each that it is there.
    fn write(buffer: &RingBuffer, first: u64, last: u64, published: &AtomicU64) {
        for number in (first..last).step_by(WRITERS as usize) {
            let (lsn, len) = (number * RECORD_BYTES as u64, RECORD_BYTES);
            buffer.write(&mut Span { lsn, len }, &record(number));
            published.store(number + 1, Ordering::Release);
        }
    }

    /// Records side by side, their ends on no boundary, round and round: they are read while neighbours are stored,
    /// and the machine looks at all of them meanwhile.
    #[test]
    fn neighbours_are_stored_read_and_looked_at() {
        let machine = SimStorage::new(1);
        let open_ring = |machine: &SimStorage| {
            RingBuffer::new(machine.map_ring(Path::new(RING), RING_BYTES).unwrap().0)
        };
        let buffer = open_ring(&machine);
        let file = machine
            .open(
                Path::new(RING),
                OpenMode::ReadWrite,
                Transfer::Buffered,
                Area::Journal,
            )
            .unwrap();
        for lap in 0..LAPS {
            let (first, last) = (lap * RECORDS_IN_LAP, (lap + 1) * RECORDS_IN_LAP);
            let published = [const { AtomicU64::new(0) }; WRITERS as usize];
            thread::scope(|scope| {
                for (writer, published) in (first..).zip(&published) {
                    let buffer = &buffer;
                    scope.spawn(move || write(buffer, writer, last, published));
                }
                scope.spawn(|| file.sync().unwrap());
                for number in first..last {
                    let by = &published[((number - first) % WRITERS) as usize];
                    while by.load(Ordering::Acquire) <= number {
                        thread::yield_now();
                    }
                    assert!(read(&buffer, number) == record(number), "record {number}");
                }
            });
        }
        let left = open_ring(&machine.crash(1, Crash::Process));
        for number in (LAPS - 1) * RECORDS_IN_LAP..LAPS * RECORDS_IN_LAP {
            assert!(read(&left, number) == record(number), "record {number}");
        }
    }
}
