//! Records of one segment that lie so near together that they are read at once; and all the value references of a caller.
//!
//! ```text
//! planning   span | span | span ..     the caller: it knows where they lie before it reads any
//! reading      bytes | bytes | bytes ..         some threads, in turns; at a low priority, or of few spans, the caller
//! taking         values | values ..             the caller, in the order of the log
//! ```
//!
//! A drive takes as long for several reads at a time as for one, and a thread that waits for a read waits for a processor
//! afterwards: where writers have all of them, that is the longer wait.

use super::Pass;
use super::Stored;
use super::value_ref::{Start, ValueRef, end_of};
use crate::error::Result;
use crate::log::ahead::Ahead;
use crate::log::segment::SegmentFile;
use crate::storage::{AlignedBuffer, IoPriority};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::ops::Range;

/// The longest beginning of a record that is read as a part of a span (bytes).
const BEGINNING_BYTES_MAX: u64 = 256 * 1024;

/// A caller that reads alone plans so many at a time.
const SPANS_MAX: usize = 16;
/// A thread reads so many spans or more: starting it takes as long as a part of a read.
const SPANS_FOR_ONE: usize = 2;
/// So many threads read for the callers of one log at a time; beyond that callers read alone.
pub(in crate::log) const READERS_MAX: usize = 96;

/// How long reads are (bytes), and how many there are at a time.
struct Limits {
    /// Reading on over a gap of this size costs no more than another read.
    gap: u64,
    /// At most this much is read at once: behind a longer read, those of others wait in the device.
    span: u64,
    /// So many are read at a time.
    readers: usize,
}

impl From<Pass> for Limits {
    fn from(pass: Pass) -> Self {
        let (gap, span, readers) = match pass {
            // A thread waits for all of it. Short reads, so that there are several, and together they take little memory.
            Pass::Often => (16, 64, 6),
            Pass::Once(IoPriority::Low | IoPriority::Medium) => (64, 128, 1),
            // Several at a time wait for a processor together, so that shorter gaps are worth another read.
            Pass::Once(IoPriority::High) => (32, 256, 3),
        };
        Self {
            gap: gap * 1024,
            span: span * 1024,
            readers,
        }
    }
}

/// See the module.
pub(super) struct Span {
    file: Arc<SegmentFile>,
    /// The units that its records lie in.
    pub(super) units: Range<u64>,
    /// Which of the plan's records they are.
    records: Range<usize>,
}

/// The value references into a span, by ascending positions.
pub(super) type Records<'a> = [(Start, &'a [ValueRef])];

impl Span {
    pub(super) fn incarnation(&self) -> u64 {
        self.file.header.incarnation
    }

    fn read(&self, bytes: &mut AlignedBuffer) -> Result<()> {
        bytes.resize((self.units.end - self.units.start) as usize);
        let offset = self.file.offset_of(self.units.start);
        // A record that goes on in the next segment is thought to lie behind the end here, where there may be no file.
        let read = self.file.file.read_at(bytes.as_mut_slice(), offset)?;
        bytes.resize(read);
        Ok(())
    }
}

/// All spans, in the order of the log.
pub(super) struct Plan<'a> {
    pub(super) pass: Pass,
    limits: Limits,
    records: Vec<(Start, &'a [ValueRef])>,
    spans: Vec<Span>,
    /// Memory to read into.
    bytes: AlignedBuffer,
}

impl<'a> Plan<'a> {
    /// One without records.
    pub(super) fn new(pass: Pass) -> Self {
        Self {
            pass,
            limits: pass.into(),
            records: Vec::new(),
            spans: Vec::new(),
            bytes: AlignedBuffer::new(),
        }
    }

    /// Whether to carry out the plan before there is more: threads are told all of it at once, but a caller that reads
    /// alone is not to be busy with planning for long.
    pub(super) fn is_enough(&self) -> bool {
        self.limits.readers == 1 && self.spans.len() >= SPANS_MAX
    }

    /// Adds a record, which lies behind all that are in it.
    pub(super) fn add(&mut self, stored: &Stored, start: Start, value_refs: &'a [ValueRef]) {
        let units = start.units(end_of(value_refs));
        let Limits { gap, span, .. } = self.limits;
        let is_near = |last: &&mut Span| {
            Arc::ptr_eq(&last.file, &stored.file)
                && units.start <= last.units.end + gap
                && units.end - last.units.start <= span
        };
        self.records.push((start, value_refs));
        let end = self.records.len();
        if let Some(last) = self.spans.last_mut().filter(is_near) {
            last.units.end = last.units.end.max(units.end);
            last.records.end = end;
        } else {
            self.spans.push(Span {
                file: Arc::clone(&stored.file),
                units,
                records: end - 1..end,
            });
        }
    }

    /// Reads it all, and shows `take` each span, the value references into it, and its bytes. Nothing is planned then.
    pub(super) fn carry_out(
        &mut self,
        readers: &Readers,
        mut take: impl FnMut(&Span, &Records<'a>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let records = std::mem::take(&mut self.records);
        let spans: Arc<[Span]> = std::mem::take(&mut self.spans).into();
        let useful = self.limits.readers.min(spans.len() / SPANS_FOR_ONE);
        let lent = readers.lend(useful);
        let mut ahead = start_readers(&spans, lent.count);
        for (number, span) in spans.iter().enumerate() {
            let of_span = &records[span.records.clone()];
            if ahead.is_empty() {
                span.read(&mut self.bytes)?;
                take(span, of_span, &self.bytes)?;
            } else {
                let turn = number % ahead.len();
                let bytes = ahead[turn].next()?.expect("each span has its reader");
                take(span, of_span, &bytes)?;
                ahead[turn].give_back(bytes);
            }
        }
        Ok(())
    }
}

/// How many threads read for the callers of one log.
#[derive(Default)]
pub(in crate::log) struct Readers(AtomicUsize);

/// Threads for one caller.
pub(in crate::log) struct Lent<'a> {
    of: &'a Readers,
    pub(in crate::log) count: usize,
}

impl Readers {
    /// Lends so many threads, or none: if that were too many, or one, which is no faster than its caller.
    pub(in crate::log) fn lend(&self, count: usize) -> Lent<'_> {
        let before = self.0.fetch_add(count, SeqCst);
        let mut lent = Lent { of: self, count };
        if count == 1 || before + count > READERS_MAX {
            self.0.fetch_sub(count, SeqCst);
            lent.count = 0;
        }
        lent
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.count, SeqCst);
    }
}

/// Starts `count` threads that read the spans in turns; none if the system has not so many: then the caller reads alone.
fn start_readers(spans: &Arc<[Span]>, count: usize) -> Vec<Ahead<AlignedBuffer>> {
    let readers = (0..count).map(|turn| start_reader(spans, turn, count));
    readers.collect::<Result<_>>().unwrap_or_default()
}

/// Starts a thread that reads each `step`th span, from `first` on.
fn start_reader(spans: &Arc<[Span]>, first: usize, step: usize) -> Result<Ahead<AlignedBuffer>> {
    let spans = Arc::clone(spans);
    let mut numbers = (first..spans.len()).step_by(step);
    Ahead::start("waystation-read", move |mut bytes| {
        let number = numbers.next();
        let read = number.map(|it| spans[it].read(&mut bytes));
        Ok(read.transpose()?.map(|()| bytes))
    })
}

impl Stored {
    /// Whether the values in the record that begins in it can be a part of a span: its beginning is short, and
    /// lies in the file.
    pub(super) fn is_short(&self, start: Start, value_refs: &[ValueRef]) -> bool {
        let bytes = end_of(value_refs);
        bytes as u64 <= BEGINNING_BYTES_MAX && {
            let end = self.file.offset_of(start.units(bytes).end);
            end <= self.file.header.capacity
        }
    }
}
