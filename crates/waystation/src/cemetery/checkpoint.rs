//! The checkpoint of the cemetery: the file `GRAVES`.
//!
//! ```text
//! magic        8 bytes   "WSGRAVES"
//! format       u32       1, 2 with times or deletions that settled, or 3 with spill files, too; never reuse a number
//! through      u64       all deletions up to this sequence number that any reader needs are here
//! ranges       u32 count, then per range, in the order of keys:
//!   start      string    included
//!   end        string    excluded; empty: behind the last key
//!   deletions  varint count, then varints: their sequence numbers
//! points       u64 count, then per grave, by key, of one key the latest first:
//!   shared     varint    bytes that the key has in common with the one before
//!   rest       string    its other bytes
//!   sequence   varint    of its deletion
//!   purged     varint    format 2 on: what tables must be purged through beyond that
//! dated        format 2 on: as points, but instead of the last number the date (microseconds since 1970)
//! time         u64       format 2 on: the time that was reached (microseconds since 1970)
//! spilled      format 3: u32 count, then per spill file, the oldest first:
//!   numbers    varints   of the spill file, its bytes, its graves
//!   kind       u8        0: its graves count, 1: they have dates; never reuse a number
//!   promoted   varint    if all these dates are past for every reader, what tables must be purged through; else 0
//!   bounds     varints   lowest and highest number of a deletion; of what tables must be purged through, or of the dates
//!   keys       strings   the first and the last
//!   dates      varint count, then varints: a sample of its dates, ascending
//! checksum     u32       masked crc32c of everything before
//! ```
//!
//! Integers are little-endian, a string is a varint length and its bytes. It is replaced as a whole (temporary file,
//! sync, rename, directory sync), after the log is durable through everything it tells of, and before the MANIFEST
//! says that the memtable with these deletions is in tables: the log is needed no longer from then on. The spill files
//! it names are durable before it, and removed after it names them no more.

use super::Cut;
use super::flushed::FlushedGraves;
use super::fragments::Fragments;
use super::sorted::{Grave, SortedGraves};
use super::spilled::{GraveKind, SpillLabel};
use std::collections::BTreeSet;
use waystation_format::FormatError;
use waystation_format::checksum::{crc32c, mask};
use waystation_format::order::Order;
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

const MAGIC: &[u8; 8] = b"WSGRAVES";
const FORMAT: u32 = 1;
/// The format of a file with times.
const TIMED: u32 = 2;
/// The format of a file that names spill files, and has times.
const WITH_VAULTS: u32 = 3;

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// The graves in it.
    pub(crate) flushed: FlushedGraves,
    /// The spill files that hold the others.
    pub(crate) labels: Vec<SpillLabel>,
    /// The ranges as they are listed, whatever the order of keys is.
    pub(crate) listed: Vec<ListedRange>,
}

/// A range as the file lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedRange {
    /// Included.
    pub(crate) start: Vec<u8>,
    /// Excluded; `None`: behind the last key.
    pub(crate) end: Option<Vec<u8>>,
    /// The sequence numbers of its deletions.
    pub(crate) deletions: Vec<u64>,
}

/// Why a file is no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GravesError {
    /// Offset and reason.
    Damaged(u64, &'static str),
    /// Its format, which a newer version gave it.
    Newer(u32),
}

impl From<FormatError> for GravesError {
    fn from(error: FormatError) -> Self {
        Self::Damaged(error.offset(), error.reason())
    }
}

/// The bytes of the file for `flushed` graves.
pub(crate) fn encode(flushed: &FlushedGraves) -> Vec<u8> {
    let labels: Vec<&SpillLabel> = flushed.spilled().labels().collect();
    encode_with(flushed, &labels)
}

impl Checkpoint {
    /// The bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode_with(&self.flushed, &self.labels.iter().collect::<Vec<_>>())
    }
}

fn encode_with(flushed: &FlushedGraves, labels: &[&SpillLabel]) -> Vec<u8> {
    let is_timed = flushed.is_timed() || !labels.is_empty();
    let format = match (is_timed, labels) {
        (false, _) => FORMAT,
        (true, []) => TIMED,
        (true, _) => WITH_VAULTS,
    };
    let mut out = Vec::from(MAGIC);
    out.extend_from_slice(&format.to_le_bytes());
    out.extend_from_slice(&flushed.through().to_le_bytes());
    out.extend_from_slice(&(flushed.ranges().len() as u32).to_le_bytes());
    for (start, end, cuts) in flushed.ranges().iter() {
        put_length_prefixed(&mut out, start);
        put_length_prefixed(&mut out, end.unwrap_or_default());
        put_u64(&mut out, cuts.len() as u64);
        for cut in cuts {
            put_u64(&mut out, cut.below);
        }
    }
    put_sorted(&mut out, flushed.points(), |out, grave| {
        if is_timed {
            put_u64(out, grave.purge_through() - grave.sequence);
        }
    });
    if is_timed {
        put_sorted(&mut out, flushed.dated(), |out, grave| {
            put_u64(out, grave.date());
        });
        out.extend_from_slice(&flushed.time().to_le_bytes());
    }
    if format == WITH_VAULTS {
        out.extend_from_slice(&(labels.len() as u32).to_le_bytes());
        for label in labels {
            put_label(&mut out, label);
        }
    }
    let checksum = mask(crc32c(&out));
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

fn put_label(out: &mut Vec<u8>, label: &SpillLabel) {
    for number in [label.number, label.file_bytes, label.graves] {
        put_u64(out, number);
    }
    out.push(match label.kind {
        GraveKind::Counting => 0,
        GraveKind::Dated => 1,
    });
    put_u64(out, label.promoted_through);
    let (sequences, numbers) = (label.sequences, label.numbers);
    for number in [sequences.0, sequences.1, numbers.0, numbers.1] {
        put_u64(out, number);
    }
    put_length_prefixed(out, &label.first);
    put_length_prefixed(out, &label.last);
    put_u64(out, label.dates.len() as u64);
    for date in &label.dates {
        put_u64(out, *date);
    }
}

fn put_sorted(
    out: &mut Vec<u8>,
    sorted: &SortedGraves,
    put_other: impl Fn(&mut Vec<u8>, &Grave<'_>),
) {
    out.extend_from_slice(&(sorted.len() as u64).to_le_bytes());
    let mut last: &[u8] = &[];
    for grave in sorted.iter() {
        let shared = last.iter().zip(grave.key).take_while(|(a, b)| a == b);
        let shared = shared.count();
        put_u64(out, shared as u64);
        put_length_prefixed(out, &grave.key[shared..]);
        put_u64(out, grave.sequence);
        put_other(out, &grave);
        last = grave.key;
    }
}

/// Reads the file of a database that is ordered by bytes.
pub(crate) fn decode(bytes: &[u8]) -> Result<Checkpoint, GravesError> {
    decode_in(&Order::Bytewise, bytes)
}

/// Reads the file of a database whose keys are in `order`.
pub(crate) fn decode_in(order: &Order, bytes: &[u8]) -> Result<Checkpoint, GravesError> {
    let damaged = |reason| GravesError::Damaged(0, reason);
    let Some((covered, checksum)) = bytes.split_last_chunk::<4>() else {
        return Err(damaged("it is shorter than its checksum"));
    };
    let Some(rest) = covered.strip_prefix(MAGIC) else {
        return Err(damaged("it does not begin with its magic number"));
    };
    if mask(crc32c(covered)) != u32::from_le_bytes(*checksum) {
        let reason = "its checksum does not match";
        return Err(GravesError::Damaged(covered.len() as u64, reason));
    }
    let mut reader = Reader::new(rest);
    let format = reader.fixed_u32("format of the graves")?;
    if ![FORMAT, TIMED, WITH_VAULTS].contains(&format) {
        return Err(GravesError::Newer(format));
    }
    let through = reader.fixed_u64("sequence number")?;
    let listed = read_ranges(&mut reader)?;
    let mut flushed = FlushedGraves::new(through, arranged(order, &listed));
    read_sorted(&mut reader, |reader, grave| {
        let beyond = match format {
            FORMAT => 0,
            _ => reader.var_u64("what tables must be purged through")?,
        };
        let purge_through = grave.sequence.saturating_add(beyond);
        flushed.push(Grave::counting(grave.key, grave.sequence, purge_through));
        Ok(())
    })?;
    if format != FORMAT {
        read_sorted(&mut reader, |reader, grave| {
            let date = reader.var_u64("date of a grave")?;
            flushed.push_dated(Grave::dated(grave.key, grave.sequence, date));
            Ok(())
        })?;
        flushed = flushed.at_time(reader.fixed_u64("time")?);
    }
    let mut labels = Vec::new();
    if format == WITH_VAULTS {
        for _ in 0..reader.fixed_u32("count of spill files")? {
            labels.push(read_label(&mut reader)?);
        }
        let numbers: BTreeSet<u64> = labels.iter().map(|it| it.number).collect();
        if labels.is_empty() || numbers.len() < labels.len() {
            return Err(damaged("it names no spill file, or one twice"));
        }
    }
    if !reader.is_empty() {
        return Err(damaged("bytes follow its last grave"));
    }
    Ok(Checkpoint {
        flushed,
        labels,
        listed,
    })
}

fn read_label(reader: &mut Reader<'_>) -> Result<SpillLabel, GravesError> {
    let damaged = |reason| GravesError::Damaged(0, reason);
    let number = reader.var_u64("number of a spill file")?;
    let file_bytes = reader.var_u64("bytes of a spill file")?;
    let graves = reader.var_u64("graves of a spill file")?;
    let kind = match reader.u8("kind of a spill file")? {
        0 => GraveKind::Counting,
        1 => GraveKind::Dated,
        _ => return Err(damaged("a spill file is of no known kind")),
    };
    let promoted_through = reader.var_u64("what tables must be purged through")?;
    let mut bounds = || -> Result<(u64, u64), FormatError> {
        Ok((
            reader.var_u64("lowest number")?,
            reader.var_u64("highest number")?,
        ))
    };
    let (sequences, numbers) = (bounds()?, bounds()?);
    let first = reader
        .length_prefixed("first key of a spill file")?
        .to_vec();
    let last = reader.length_prefixed("last key of a spill file")?.to_vec();
    let mut dates = Vec::new();
    for _ in 0..reader.var_u64("count of dates")? {
        dates.push(reader.var_u64("date of a grave")?);
    }
    let are_bounds = sequences.0 <= sequences.1 && numbers.0 <= numbers.1 && first <= last;
    let is_promoted_rightly =
        promoted_through == 0 || (kind == GraveKind::Dated && promoted_through >= sequences.1);
    if !are_bounds || !is_promoted_rightly || graves == 0 || !dates.is_sorted() {
        return Err(damaged("what it says of a spill file cannot be"));
    }
    Ok(SpillLabel {
        number,
        file_bytes,
        graves,
        kind,
        promoted_through,
        sequences,
        numbers,
        first,
        last,
        dates,
    })
}

fn read_sorted(
    reader: &mut Reader<'_>,
    mut take: impl FnMut(&mut Reader<'_>, Grave<'_>) -> Result<(), FormatError>,
) -> Result<(), GravesError> {
    let damaged = |reason| GravesError::Damaged(0, reason);
    let mut key: Vec<u8> = Vec::new();
    let mut last: Option<(Vec<u8>, u64)> = None;
    for _ in 0..reader.fixed_u64("count of graves")? {
        let shared = usize::try_from(reader.var_u64("shared bytes of a key")?);
        let Some(shared) = shared.ok().filter(|shared| *shared <= key.len()) else {
            return Err(damaged("a key shares more than there is"));
        };
        key.truncate(shared);
        key.extend_from_slice(reader.length_prefixed("rest of a key")?);
        let sequence = reader.var_u64("sequence number of a grave")?;
        let is_behind = |(before, older): &(Vec<u8>, u64)| {
            *before < key || (*before == key && *older > sequence)
        };
        if !last.as_ref().is_none_or(is_behind) {
            return Err(damaged("its graves are not in order"));
        }
        let grave = Grave::counting(&key, sequence, sequence);
        take(reader, grave)?;
        let (before, older) = last.get_or_insert_default();
        before.clone_from(&key);
        *older = sequence;
    }
    Ok(())
}

fn read_ranges(reader: &mut Reader<'_>) -> Result<Vec<ListedRange>, FormatError> {
    let mut listed = Vec::new();
    for _ in 0..reader.fixed_u32("count of ranges")? {
        let start = reader.length_prefixed("start of a range")?.to_vec();
        let end = reader.length_prefixed("end of a range")?;
        let end = (!end.is_empty()).then(|| end.to_vec());
        let mut deletions = Vec::new();
        for _ in 0..reader.var_u64("count of deletions")? {
            deletions.push(reader.var_u64("sequence number of a deletion")?);
        }
        listed.push(ListedRange {
            start,
            end,
            deletions,
        });
    }
    Ok(listed)
}

/// The ranges, of keys in `order`.
fn arranged(order: &Order, listed: &[ListedRange]) -> Fragments {
    let mut ranges = Fragments::new(order);
    for range in listed {
        for sequence in &range.deletions {
            let cut = Cut::deletion(*sequence);
            ranges.insert(&range.start, range.end.as_deref(), cut);
        }
    }
    ranges
}
