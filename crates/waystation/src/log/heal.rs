//! Healing: after a failed write or sync the log moves to a fresh file.
//!
//! Nothing more is acknowledged from a file that failed, whatever the durability asked (`LevelDB` loses later
//! synced writes there: google/leveldb#578). The old segment is cut at the durable LSN: the fresh one starts
//! there, and a reader takes a segment only up to the start of the next. Blocks between the durable LSN and
//! what had been written are read back, verified and copied; what had not been written is still in the ring.
//! Only when the fresh segment is synced does the suspension end.

use super::segment::{BlankSegment, Segment, SegmentFile, Start};
use super::writer_state::WriterState;
use super::{Log, Suspension};
use crate::background::Next;
use crate::directory::{DRAFT_NAME, segment_name};
use crate::error::{Error, Result};
use crate::storage::AlignedBuffer;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Arc, MutexGuard, lock};
use std::time::Duration;
use waystation_format::log::{
    BLOCK_HEADER_BYTES, BlockHeader, IndexEntry, body_is_valid, finish_block,
};

/// The pause between attempts: short enough that a full disk that was emptied goes unnoticed by most.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Blocks to be copied from one damaged or doubtful segment.
pub(super) struct Salvage {
    file: Arc<SegmentFile>,
    blocks: Vec<IndexEntry>,
}

impl Log {
    /// Heals. If another job does, or is still busy with a segment, or the last attempt failed just now, it returns what a
    /// job does instead: its end calls again.
    pub(super) fn heal<'a>(
        &'a self,
        mut state: MutexGuard<'a, WriterState>,
    ) -> Result<MutexGuard<'a, WriterState>, Next> {
        if state.healing || !state.is_quiet() {
            return Err(Next::Idle);
        }
        if self.storage.now() < state.heal_at {
            return Err(Next::At(state.heal_at));
        }
        state.healing = true;
        drop(state);
        let open_block = self.open_block();
        let mut state = lock(&self.writer);
        let number = state.next_number;
        state.next_number += 1;
        let (cut, end) = (state.durable_lsn, state.written_lsn);
        let salvage = doubtful_blocks(&state, cut, end);
        let start = Start {
            lsn: cut,
            first_sequence: self.first_sequence_from(&mut state, &salvage, open_block),
            // All of it is synced before the segment has its name.
            durable_lsn: end,
            previous: state.holder_of_bytes_before(cut),
        };
        drop(state);
        let healed = self.move_to_fresh_segment(number, &start, &salvage);
        let mut state = lock(&self.writer);
        state.healing = false;
        match healed {
            Ok(segment) => self.resume(&mut state, segment),
            Err(error) => {
                state.suspension = Some(Suspension::new(&error));
                state.heal_at = self.storage.now() + RETRY_PAUSE;
            }
        }
        self.call_writers();
        self.progress.notify_all();
        self.durability.notify_all();
        drop(state);
        self.notify_space();
        Ok(lock(&self.writer))
    }

    fn resume(&self, state: &mut WriterState, segment: Segment) {
        let cut = segment.file.header.start_lsn;
        state.cut_sealed_at(cut);
        state.restart(segment);
        state.heals += 1;
        state.suspension = None;
        self.suspended.store(false, SeqCst);
        log::warn!("writes resume in {}", state.current.file.path.display());
    }

    /// The sequence number of the first record that starts at the cut or later: that of the first block there,
    /// written, closed or (none of them being there since before the look at it) still open.
    fn first_sequence_from(
        &self,
        state: &mut WriterState,
        salvage: &[Salvage],
        (open_start, open_sequence): (u64, u64),
    ) -> u64 {
        self.fetch_closed(state);
        let written = salvage.iter().flat_map(|from| &from.blocks).next();
        written
            .map(|block| block.first_sequence)
            .or_else(|| state.first_unwritten().map(|seal| seal.first_sequence))
            .unwrap_or_else(|| {
                debug_assert_eq!(open_start, state.durable_lsn);
                open_sequence
            })
    }

    /// Writes what follows the cut, as far as it was written before, into a fresh, synced segment.
    pub(super) fn move_to_fresh_segment(
        &self,
        number: u64,
        start: &Start,
        salvage: &[Salvage],
    ) -> Result<Segment> {
        let bytes: u64 = salvage
            .iter()
            .flat_map(|s| &s.blocks)
            .map(|block| u64::from(block.length))
            .sum();
        let capacity = self
            .segment_lengths
            .after(0, (&*self.storage, &self.dir), None)
            + bytes;
        // Under its final name it would cut the segments before it: that name comes last.
        let draft = self.dir.join(DRAFT_NAME);
        let mut blank = BlankSegment::create(
            &*self.storage,
            draft.clone(),
            number,
            capacity,
            None,
            self.transfer,
        )?;
        blank.path = self.dir.join(segment_name(number));
        let mut fresh = blank.begin(start, self.incarnation);
        let moved = fresh
            .file
            .write_header()
            .and_then(|()| {
                salvage
                    .iter()
                    .try_for_each(|from| copy_blocks(from, &mut fresh))
            })
            .and_then(|()| fresh.file.file.sync())
            .and_then(|()| (fresh.file).take_name(&*self.storage, &draft, self.transfer))
            .and_then(|named| {
                fresh.file = named;
                self.storage.sync_dir(&self.dir)
            });
        match moved {
            Ok(()) => Ok(fresh),
            Err(error) => {
                // The attempt must not take the space, or the place in the chain, of the next one.
                let _ = self.storage.remove(&draft);
                let _ = self.storage.remove(&fresh.file.path);
                Err(error)
            }
        }
    }
}

impl WriterState {
    /// The number of the segment that holds the bytes right before `cut`; 0 if there is none.
    pub(super) fn holder_of_bytes_before(&self, cut: u64) -> u64 {
        let header = &self.current.file.header;
        let current = (header.start_lsn < cut).then_some(header.number);
        let sealed = self.sealed.iter().rev();
        current
            .or_else(|| {
                sealed
                    .filter(|segment| segment.start_lsn < segment.end_lsn.min(cut))
                    .map(|segment| segment.number)
                    .next()
            })
            .unwrap_or(header.previous)
    }

    /// Ends the sealed segments, and the one that was current, at `cut`.
    pub(super) fn cut_sealed_at(&mut self, cut: u64) {
        self.sealed.push_back(self.current.as_sealed());
        for segment in &mut self.sealed {
            segment.end_lsn = segment.end_lsn.min(cut);
            // What lies behind was given up: the next healing must not look there.
            segment.blocks.retain(|block| block.start_lsn < cut);
        }
    }
}

/// The blocks in `[cut, end)`, by the segment they were written to.
fn doubtful_blocks(state: &WriterState, cut: u64, end: u64) -> Vec<Salvage> {
    let sealed = state
        .sealed
        .iter()
        .filter_map(|s| Some((s.file.clone()?, &s.blocks)));
    sealed
        .chain([(Arc::clone(&state.current.file), &state.current.blocks)])
        .map(|(file, blocks)| Salvage {
            file,
            blocks: blocks
                .iter()
                .filter(|block| (cut..end).contains(&block.start_lsn))
                .copied()
                .collect(),
        })
        .collect()
}

fn copy_blocks(from: &Salvage, fresh: &mut Segment) -> Result<()> {
    for block in &from.blocks {
        let mut bytes = from.file.read(block.start_lsn, block.length as usize)?;
        renumber(&mut bytes, from, block, fresh.file.header.number)?;
        fresh
            .file
            .file
            .write_at(&bytes, fresh.file.offset_of(block.start_lsn))?;
        fresh.blocks.push(*block);
        fresh.end_lsn = block.start_lsn + u64::from(block.length);
    }
    Ok(())
}

/// Verifies a block and makes it one of segment `number`.
fn renumber(
    bytes: &mut AlignedBuffer,
    from: &Salvage,
    block: &IndexEntry,
    number: u64,
) -> Result<()> {
    let header = BlockHeader::decode(bytes)
        .filter(|header| header.seal.start_lsn == block.start_lsn && body_is_valid(bytes))
        .ok_or_else(|| {
            let offset = from.file.offset_of(block.start_lsn);
            Error::corruption(
                &from.file.path,
                offset,
                "a block written before the failure does not read back",
            )
        })?;
    let mut head = header.seal.encode();
    finish_block(
        &mut head,
        [&bytes[BLOCK_HEADER_BYTES..], &[]],
        number,
        header.durable_lsn,
    );
    bytes.as_mut_slice()[..BLOCK_HEADER_BYTES].copy_from_slice(&head);
    Ok(())
}
