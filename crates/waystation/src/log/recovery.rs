//! Recovery: from what a life left to the beginning of the next.
//!
//! 1. Read `JOURNAL`: which life owned the log.
//! 2. Replay segments and ring; the caller gets every record of the segments.
//! 3. Begin a fresh segment at the cut, holding what only the ring held, and make all of it durable; the caller
//!    gets these records with their new places.
//! 4. Commit: a new `JOURNAL` names the new life. Until then a crash leaves the old life's log as it was; from
//!    then on the ring's old content and everything behind the cut belong to a past life. If the ring is to have
//!    another size, a first such `JOURNAL` says that nothing is in it, before its file is replaced.
//! 5. Remove superseded files.

use super::Log;
use super::assembler::{Record, TailRecord};
use super::deferral::Deferral;
use super::front::Front;
use super::layout::Layout;
use super::leftover::Leftover;
use super::publication::Publication;
use super::read::{LogBlocks, Readers};
use super::replay::{Needs, Replayed, first_needed, replay};
use super::ring::RingBuffer;
use super::segment::{
    BlankSegment, Inherited, SealedSegment, Segment, SegmentFile, SegmentLengths, Start,
};
use super::survey::{Found, Survey, survey};
use super::writer_state::WriterState;
use crate::directory::{DRAFT_NAME, JOURNAL_DRAFT, JOURNAL_NAME, RING_NAME, segment_name};
use crate::error::{Error, Result};
use crate::storage::{AlignedBuffer, Area, OpenMode, Ring, Storage, Transfer};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use crate::sync::{Arc, Condvar, Mutex};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use waystation_format::checksum;
use waystation_format::log::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, IndexEntry, JournalState, RECORD_HEADER_BYTES,
    RecordHeader, SEGMENT_HEADER_BYTES, Seal, UNIT_BYTES, finish_block,
};

/// Sizes of the log.
#[derive(Clone)]
pub(crate) struct LogSettings {
    /// The length of segment files.
    pub(crate) lengths: SegmentLengths,
    /// The length of the staging ring in bytes, a multiple of the unit.
    pub(crate) ring_bytes: usize,
    /// Memory for blocks that are read back.
    pub(crate) cache: LogBlocks,
    /// How segments are read and written.
    pub(crate) transfer: Transfer,
    /// Whether each record goes to a table with its memtable, so that the log may defer its writes.
    pub(crate) defers: bool,
    /// So much of the log goes to tables with each flush.
    pub(crate) flush_bytes: u64,
    /// Whether other files take the room that the ring gives back: it lies in the fast directory.
    pub(crate) ring_shares_room: bool,
}

/// An open log and how far it goes.
pub(crate) struct Recovered {
    pub(crate) log: Log,
    /// What only the ring held was laid out anew from here on.
    pub(crate) cut_lsn: u64,
}

/// Opens the log of `dir`, delivering every record that it is to read (and possibly earlier ones) in order. If a log is
/// `expected`, there has to be one.
pub(crate) fn open(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
    needs: &Needs,
    expected: bool,
    deliver: &mut impl FnMut(Record<'_>) -> Result<()>,
) -> Result<Recovered> {
    let journal = read_journal(&**storage, dir)?;
    if expected && journal.is_none() {
        let reason = "it is missing, although the tables have a log; writes that were in no table are lost with it";
        return Err(Error::corruption(dir.join(JOURNAL_NAME), 0, reason));
    }
    let mut past = match &journal {
        Some(journal) => past_life(&**storage, dir, settings, journal, needs, deliver)?,
        None => Past::none(&**storage, dir, settings)?,
    };
    let incarnation = journal.map_or(0, |journal| journal.incarnation) + 1;
    let number = past.survey.highest_number() + 1;
    past.give_room_back(
        &**storage,
        dir,
        needs,
        journal.map_or(0, |it| it.first_segment),
        settings,
    )?;
    let cut = past.replayed.cut_lsn;
    let start = past.end(needs.read_after);
    let (current, places) = begin_life(
        &**storage,
        dir,
        settings,
        incarnation,
        number,
        &start,
        &past.replayed.tail,
    )?;
    for (record, lsn) in past.replayed.tail.iter().zip(places) {
        deliver(Record {
            header: record.header,
            payload: &record.payload,
            lsn,
        })?;
    }
    for (segment, _) in live(&past.survey.segments, cut) {
        segment.file.sync()?;
    }
    let state = JournalState {
        incarnation,
        ring_bytes: settings.ring_bytes as u64,
        first_segment: number,
        clean_lsn: 0,
        boot: storage.boot_id(),
    };
    let past_ring_bytes = journal.map_or(0, |journal| journal.ring_bytes);
    let ring = own(storage, dir, &state, past_ring_bytes, current.end_lsn)?;
    let last_read = past.replayed.last_sequence.unwrap_or(0);
    let last_sequence = last_read.max(needs.read_after);
    let sealed = past.clean_up(&**storage, cut)?;
    if let Some(last) = sealed.back() {
        let used = SEGMENT_HEADER_BYTES as u64 + (last.end_lsn - last.start_lsn);
        cut_off(&**storage, &last.path, used, settings.transfer);
    }
    Ok(Recovered {
        log: assemble(
            storage,
            dir,
            settings,
            &state,
            ring,
            current,
            sealed,
            last_sequence,
        ),
        cut_lsn: cut,
    })
}

/// What the last life left.
struct Past {
    survey: Survey,
    replayed: Replayed,
}

impl Past {
    /// A directory without a log: whatever looks like one was never acknowledged.
    fn none(storage: &dyn Storage, dir: &Path, settings: &LogSettings) -> Result<Self> {
        let nothing = JournalState {
            incarnation: 0,
            ring_bytes: 0,
            first_segment: 0,
            clean_lsn: 0,
            boot: None,
        };
        let survey = survey_committed(storage, dir, &nothing, settings)?;
        let replayed = Replayed {
            cut_lsn: UNIT_BYTES as u64,
            tail: Vec::new(),
            last_sequence: None,
        };
        Ok(Self { survey, replayed })
    }

    /// Where it ends in segments, and the next one begins.
    fn end(&self, flushed_sequence: u64) -> Start {
        let cut = self.replayed.cut_lsn;
        let last_sequence = self.replayed.last_sequence.unwrap_or(0);
        Start {
            lsn: cut,
            first_sequence: match self.replayed.tail.first() {
                Some(record) => record.header.first_sequence,
                None => last_sequence.max(flushed_sequence) + 1,
            },
            durable_lsn: cut,
            previous: live(&self.survey.segments, cut)
                .last()
                .map_or(0, |(found, _)| found.header.number),
        }
    }

    /// Gives back what the log does not hold in its files: an opening that was killed has not come to it, and this one
    /// may have no other room. Names and headers stay, so that the log is what it was until the new life is committed; but
    /// what the life that began with `first_segment` superseded goes, and so do the segments before the first of which there are `needs`.
    fn give_room_back(
        &mut self,
        storage: &dyn Storage,
        dir: &Path,
        needs: &Needs,
        first_segment: u64,
        settings: &LogSettings,
    ) -> Result<()> {
        // The `JOURNAL` that was read must not become an older one again.
        storage.sync_dir(dir)?;
        let segments = &mut self.survey.segments;
        let needed_from = first_needed(segments, needs.after);
        for found in segments.extract_if(.., |found| found.header.number < needed_from) {
            storage.remove(&found.path)?;
        }
        let (segments, cut) = (&self.survey.segments, self.replayed.cut_lsn);
        let transfer = settings.transfer;
        for (found, end) in live(segments, cut) {
            let log_bytes = end - found.header.start_lsn;
            // A full one has its index there.
            let is_full = found.header.capacity < log_bytes + 4 * BLOCK_BYTES_MAX as u64;
            if !is_full || found.footer()?.is_none() {
                let used = SEGMENT_HEADER_BYTES as u64 + log_bytes;
                cut_off(storage, &found.path, used, transfer);
            }
        }
        for found in dead(segments, cut) {
            if found.header.number < first_segment {
                storage.remove(&found.path)?;
            } else {
                cut_off(storage, &found.path, SEGMENT_HEADER_BYTES as u64, transfer);
            }
        }
        for path in &self.survey.leftovers {
            cut_off(storage, path, 0, transfer);
        }
        Ok(())
    }

    /// Removes what the new life does not need; returns the segments it does need.
    fn clean_up(self, storage: &dyn Storage, cut: u64) -> Result<VecDeque<SealedSegment>> {
        let segments = &self.survey.segments;
        let dead = dead(segments, cut).map(|found| &found.path);
        for path in dead.chain(&self.survey.leftovers) {
            match storage.remove(path) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        let sealed = live(segments, cut).map(|(found, end)| SealedSegment {
            file: None,
            inherited: Some(Arc::new(Inherited {
                file: Arc::new(SegmentFile {
                    file: Arc::clone(&found.file),
                    path: found.path.clone(),
                    header: found.header,
                }),
                blocks: OnceLock::new(),
            })),
            path: found.path.clone(),
            number: found.header.number,
            start_lsn: found.header.start_lsn,
            end_lsn: end,
            blocks: Vec::new(),
        });
        Ok(sealed.collect())
    }
}

/// The segments that hold part of the log below `cut`, and where that part ends: a later segment that starts
/// earlier supersedes them.
fn live(segments: &[Found], cut: u64) -> impl Iterator<Item = (&Found, u64)> {
    segments
        .iter()
        .enumerate()
        .filter_map(move |(index, found)| {
            let later = segments[index + 1..]
                .iter()
                .map(|later| later.header.start_lsn);
            let end = later.fold(cut, u64::min);
            (found.header.start_lsn < end).then_some((found, end))
        })
}

/// The segments that hold nothing of it.
fn dead(segments: &[Found], cut: u64) -> impl Iterator<Item = &Found> {
    segments
        .iter()
        .filter(move |found| !live(segments, cut).any(|it| it.0.path == found.path))
}

fn past_life(
    storage: &dyn Storage,
    dir: &Path,
    settings: &LogSettings,
    journal: &JournalState,
    needs: &Needs,
    deliver: &mut impl FnMut(Record<'_>) -> Result<()>,
) -> Result<Past> {
    let survey = survey_committed(storage, dir, journal, settings)?;
    let ring = Leftover::map(storage, dir, journal)?;
    let replayed = replay(dir, &survey, &ring, journal, needs, deliver)?;
    Ok(Past { survey, replayed })
}

/// Surveys the segments of `dir`, and removes those of openings that did not come to their end: this one needs the room.
fn survey_committed(
    storage: &dyn Storage,
    dir: &Path,
    journal: &JournalState,
    settings: &LogSettings,
) -> Result<Survey> {
    let mut survey = survey(storage, dir, journal, settings.transfer)?;
    for path in survey.uncommitted.drain(..) {
        storage.remove(&path)?;
    }
    Ok(survey)
}

/// Makes the log that of the life in `state`. What the past ring of `past_ring_bytes` held is durable in the life's first
/// segment, up to `end_lsn`. Returns the ring.
fn own(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    state: &JournalState,
    past_ring_bytes: u64,
    end_lsn: u64,
) -> Result<Arc<dyn Ring>> {
    let path = dir.join(RING_NAME);
    let gives_way = storage.gives_way(&path);
    if past_ring_bytes > 0 && (gives_way || past_ring_bytes != state.ring_bytes) {
        // Its file is about to be replaced: from here on a crash must not ask for what it held.
        storage.sync_dir(dir)?;
        let state = JournalState {
            ring_bytes: past_ring_bytes,
            clean_lsn: end_lsn,
            ..*state
        };
        write_journal(&**storage, dir, &state)?;
    }
    if gives_way {
        storage.remove(&path)?;
    }
    // This may replace the past ring's file by one of another size.
    let (ring, _) = storage.map_ring(&path, state.ring_bytes as usize)?;
    storage.sync_dir(dir)?;
    write_journal(&**storage, dir, state)?;
    Ok(ring)
}

/// Writes the first segment of the new life, with what only the ring held, and makes it durable.
fn begin_life(
    storage: &dyn Storage,
    dir: &Path,
    settings: &LogSettings,
    incarnation: u64,
    number: u64,
    start: &Start,
    tail: &[TailRecord],
) -> Result<(Segment, Vec<u64>)> {
    let Packed {
        blocks,
        bytes,
        places,
    } = pack(tail, start, incarnation, number);
    let capacity = settings.lengths.after(0, (storage, dir), None) + bytes.len() as u64;
    // Without a header it could not be told from one that an earlier life made ready: its name comes last.
    let draft = dir.join(DRAFT_NAME);
    let transfer = settings.transfer;
    let mut blank = BlankSegment::create(storage, draft.clone(), number, capacity, None, transfer)?;
    blank.path = dir.join(segment_name(number));
    let end_lsn = blocks.last().map_or(start.lsn, Seal::end_lsn);
    // All of it is durable before it has its name.
    let start = Start {
        durable_lsn: end_lsn,
        ..*start
    };
    let mut segment = blank.begin(&start, incarnation);
    segment.file.write_header()?;
    if !bytes.is_empty() {
        segment
            .file
            .file
            .write_at(&bytes, segment.file.offset_of(start.lsn))?;
    }
    segment.file.file.sync()?;
    segment.file = segment.file.take_name(storage, &draft, transfer)?;
    segment.end_lsn = end_lsn;
    segment.blocks = blocks.iter().map(IndexEntry::from).collect();
    Ok((segment, places))
}

/// Records laid out as blocks.
struct Packed {
    blocks: Vec<Seal>,
    bytes: AlignedBuffer,
    /// The position of each record.
    places: Vec<u64>,
}

/// Lays `records` out as blocks from `start` on.
fn pack(records: &[TailRecord], start: &Start, incarnation: u64, segment: u64) -> Packed {
    let start_lsn = start.lsn;
    let mut layout = Layout::new(start_lsn, incarnation, start.first_sequence);
    let mut places = Vec::with_capacity(records.len());
    let mut seals = Vec::new();
    let mut bytes = AlignedBuffer::new();
    for record in records {
        let size = RECORD_HEADER_BYTES + record.payload.len();
        let RecordHeader {
            first_sequence,
            operations,
            ..
        } = record.header;
        let place = layout.place(size, first_sequence, operations, |seal| seals.push(seal));
        places.push(place.record_lsn);
        let checksum = checksum::crc32c(&record.payload);
        let mut whole = record
            .header
            .encode(place.record_lsn, incarnation, checksum)
            .to_vec();
        whole.extend_from_slice(&record.payload);
        let mut rest = &whole[..];
        for (lsn, len) in place.chunks() {
            let at = (lsn - start_lsn) as usize;
            bytes.resize(bytes.len().max(at + len));
            let (now, later) = rest.split_at(len);
            bytes.as_mut_slice()[at..at + len].copy_from_slice(now);
            rest = later;
        }
    }
    seals.extend(layout.seal());
    bytes.resize(
        seals
            .last()
            .map_or(0, |seal| (seal.end_lsn() - start_lsn) as usize),
    );
    for seal in &seals {
        let at = (seal.start_lsn - start_lsn) as usize;
        let block = &mut bytes.as_mut_slice()[at..at + seal.length as usize];
        let mut header = seal.encode();
        finish_block(
            &mut header,
            [&block[BLOCK_HEADER_BYTES..], &[]],
            segment,
            start_lsn,
        );
        block[..BLOCK_HEADER_BYTES].copy_from_slice(&header);
    }
    Packed {
        blocks: seals,
        bytes,
        places,
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "the parts of a log come together here and only here"
)]
fn assemble(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
    journal: &JournalState,
    ring: Arc<dyn Ring>,
    current: Segment,
    sealed: VecDeque<SealedSegment>,
    last_sequence: u64,
) -> Log {
    let end = current.end_lsn;
    Log {
        storage: Arc::clone(storage),
        dir: dir.to_owned(),
        incarnation: journal.incarnation,
        first_segment: journal.first_segment,
        segment_lengths: settings.lengths,
        transfer: settings.transfer,
        ring: RingBuffer::new(ring),
        defers: settings.defers,
        flush_bytes: settings.flush_bytes,
        ring_shares_room: settings.ring_shares_room,
        spares_little: AtomicBool::new(false),
        cache: settings.cache.clone(),
        readers: Readers::default(),
        front: Mutex::new(Front::new(
            Layout::new(end, journal.incarnation, last_sequence + 1),
            last_sequence + 1,
        )),
        assigned_sequence: AtomicU64::new(last_sequence),
        closed: Mutex::new(VecDeque::new()),
        publication: Publication::new(end, last_sequence, open_max(settings)),
        keeps_holes: journal.boot.is_some(),
        released_lsn: AtomicU64::new(end),
        space_sleepers: AtomicUsize::new(0),
        space: Condvar::new(),
        writer: Mutex::new(WriterState::new(
            current,
            sealed,
            settings.defers.then(Deferral::default),
            storage.now(),
        )),
        call: OnceLock::new(),
        progress: Condvar::new(),
        durability: Condvar::new(),
        sync_callers: AtomicUsize::new(0),
        wake_at_lsn: AtomicU64::new(u64::MAX),
        suspended: AtomicBool::new(false),
    }
}

/// How many reservations can be open at once: no fewer than records of a kilobyte fit into the ring, so that one writer
/// which is held up stops the others only when the ring is full.
#[cfg(not(shuttle))]
fn open_max(settings: &LogSettings) -> usize {
    settings.ring_bytes / 1024
}

/// So few that models come there.
#[cfg(shuttle)]
fn open_max(_: &LogSettings) -> usize {
    2
}

impl Log {
    /// Says in `JOURNAL` that the log was closed with nothing left to replay. Call when everything is synced
    /// and the writers have stopped.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        let state = JournalState {
            incarnation: self.incarnation,
            ring_bytes: self.ring.len_max(),
            first_segment: self.first_segment,
            clean_lsn: crate::sync::lock(&self.writer).durable_lsn,
            boot: None,
        };
        write_journal(&*self.storage, &self.dir, &state)
    }
}

/// Reads `JOURNAL`; `None` if there is none.
pub(crate) fn read_journal(storage: &dyn Storage, dir: &Path) -> Result<Option<JournalState>> {
    let path = dir.join(JOURNAL_NAME);
    let file = match storage.open(&path, OpenMode::Read, Transfer::Buffered, Area::Journal) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; 256];
    let read = file.read_at(&mut bytes, 0)?;
    match JournalState::decode(&bytes[..read]) {
        Ok(state) => Ok(Some(state)),
        Err(_) if JournalState::is_newer(&bytes[..read]) => Err(Error::Incompatible {
            path,
            reason: "the log was written by a newer version; use that one".into(),
        }),
        Err(reason) => Err(Error::corruption(path, 0, reason)),
    }
}

fn write_journal(storage: &dyn Storage, dir: &Path, state: &JournalState) -> Result<()> {
    let draft: PathBuf = dir.join(JOURNAL_DRAFT);
    let file = storage.open(&draft, OpenMode::Create, Transfer::Buffered, Area::Journal)?;
    file.write_at(&state.encode(), 0)?;
    file.sync()?;
    drop(file);
    storage.rename(&draft, &dir.join(JOURNAL_NAME))?;
    storage.sync_dir(dir)
}

/// Cuts the segment `path` off behind `used` bytes: the log goes on in another one.
pub(super) fn cut_off(storage: &dyn Storage, path: &Path, used: u64, transfer: Transfer) {
    let cut = storage
        .open(path, OpenMode::ReadWrite, transfer, Area::Journal)
        .and_then(|file| {
            if file.size()? > used {
                file.truncate(used)?;
            }
            Ok(())
        });
    if let Err(error) = cut {
        log::warn!("a segment of the log keeps room that it does not need: {error}");
    }
}
