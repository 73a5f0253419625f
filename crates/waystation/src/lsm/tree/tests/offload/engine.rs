//! The suite for every executor of this crate, and engines that refuse, lie or fail.

use super::super::{History, flush, machine, open_offloading};
use super::{Near, kept, told};
use crate::lsm::compaction::LocalExecutor;
use crate::lsm::compaction::Traffic;
use crate::lsm::compaction::offload::{
    EngineError, EngineTask, JobControl, LocalReason, MergeEngine, Merged, RemoteExecutor,
};
use crate::lsm::tree::conformance::{self, dir};
use crate::lsm::tree::entries::Entries;
use crate::storage::Storage;
use crate::sync::Arc;
use waystation_format::block::{Block, BlockBuilder, BlockIter};
use waystation_format::checksum;
use waystation_format::key::{self, compare_internal};
use waystation_format::order::Order;
use waystation_format::table::{BlockHandle, FOOTER_BYTES, Footer, TRAILER_BYTES, decode_block};

#[test]
fn this_process_conforms() {
    conformance::check("local", &|_| Box::new(LocalExecutor));
}

#[test]
fn a_worker_conforms() {
    conformance::check("worker", &|storage| {
        let offload = Near::honest(storage).offload();
        Box::new(RemoteExecutor::new(offload, &dir()))
    });
}

#[test]
fn a_worker_with_an_engine_conforms() {
    conformance::check_engine("sorting engine", || Box::new(Sorting));
}

/// The block at `handle`.
fn block(file: &[u8], handle: BlockHandle) -> Result<BlockIter, EngineError> {
    let damaged = |error: waystation_format::FormatError| EngineError::Inputs(error.to_string());
    let end = handle.offset as usize + handle.length as usize + TRAILER_BYTES;
    let mut scratch = Vec::new();
    let contents =
        decode_block(&file[handle.offset as usize..end], &mut scratch).map_err(damaged)?;
    let mut records = BlockIter::new(Block::new(contents).map_err(damaged)?);
    records.seek_to_first().map_err(damaged)?;
    Ok(records)
}

/// Merges by sorting all records, three to a block.
struct Sorting;

impl MergeEngine for Sorting {
    fn merge(&self, task: &EngineTask, control: &JobControl) -> Result<Merged, EngineError> {
        let mut records = Vec::new();
        for file in task.inputs.iter().flatten() {
            let footer = Footer::decode(&file[file.len() - FOOTER_BYTES..]).unwrap();
            let mut index = block(file, footer.index)?;
            while index.valid() {
                let mut data = block(file, BlockHandle::decode(index.value()).unwrap())?;
                while data.valid() {
                    records.push((data.key().to_vec(), data.value().to_vec()));
                    data.next().unwrap();
                }
                index.next().unwrap();
            }
        }
        control.advance(records.len() as u64);
        records.sort_by(|a, b| compare_internal(&a.0, &b.0));
        let mut merged = Merged::default();
        let before = records.len();
        let mut newer: Option<Vec<u8>> = None;
        records.retain(|(record, _)| {
            let is_shadowed = newer.as_ref().is_some_and(|newer| {
                key::user_key(newer) == key::user_key(record)
                    && key::trailer(newer) >> 8 <= task.smallest_snapshot
            });
            newer = Some(record.clone());
            !is_shadowed
        });
        merged.shadowed = (before - records.len()) as u64;
        for some in records.chunks(3) {
            let mut builder = BlockBuilder::new(2);
            for (key, value) in some {
                builder.add(key, value);
            }
            let offset = merged.bytes.len();
            merged.bytes.extend_from_slice(builder.finish());
            let length = (merged.bytes.len() - offset) as u64;
            merged.bytes.push(0);
            let crc = checksum::mask(checksum::crc32c(&merged.bytes[offset..]));
            merged.bytes.extend_from_slice(&crc.to_le_bytes());
            let offset = offset as u64;
            merged.blocks.push(BlockHandle { offset, length });
        }
        Ok(merged)
    }
}

/// Does with what the sorting engine made as it likes.
struct Then<F>(F);

impl<F: Fn(Merged) -> Result<Merged, EngineError> + Send + Sync> MergeEngine for Then<F> {
    fn merge(&self, task: &EngineTask, control: &JobControl) -> Result<Merged, EngineError> {
        (self.0)(Sorting.merge(task, control)?)
    }
}

/// Merges with a worker whose engine answers so: what it made is not installed, and nothing is lost.
fn merge_with(
    then: impl Fn(Merged) -> Result<Merged, EngineError> + Send + Sync + 'static,
    expected: LocalReason,
) {
    let machine = machine(17);
    let storage: Arc<dyn Storage> = machine.clone();
    let offload = Near::by_engine(&storage, Box::new(Then(then))).offload();
    let tree = open_offloading(&storage, offload).unwrap();
    let mut history = History::default();
    for round in 0..8_u64 {
        let mut memtable = Entries::new(&Order::Bytewise);
        for at in 0..60 {
            let value = format!("{round} {at}");
            history.write(
                &mut memtable,
                format!("{:04}", at * 7 % 50).as_bytes(),
                Some(value.as_bytes()),
            );
        }
        flush(&tree, &mut memtable, history.last, 0).unwrap();
    }
    let last = history.last;
    while tree.compact_once(&|| last, Traffic::Writes).unwrap() {}
    history.compare(&tree, last);
    assert!(kept(&tree, expected) > 0, "{expected}: {:?}", told(&tree));
    assert_eq!(told(&tree).jobs, 0, "{expected}");
}

#[test]
fn what_an_engine_does_not_take_is_merged_here_and_it_is_asked_again() {
    merge_with(
        |_| Err(EngineError::Unfit("a test".into())),
        LocalReason::Unfit,
    );
}

#[test]
fn an_engine_that_fails_costs_nothing_but_time() {
    merge_with(
        |_| Err(EngineError::Failed("a test".into())),
        LocalReason::Failed,
    );
}

#[test]
fn an_engine_that_loses_or_invents_records_is_not_believed() {
    let lose = |mut merged: Merged| {
        merged.blocks.pop();
        Ok(merged)
    };
    merge_with(lose, LocalReason::Contradiction);
    let invent = |mut merged: Merged| {
        merged.shadowed += 1;
        Ok(merged)
    };
    merge_with(invent, LocalReason::Contradiction);
}

#[test]
fn blocks_that_an_engine_damaged_are_seen() {
    let flip = |mut merged: Merged| {
        let middle = merged.bytes.len() / 2;
        merged.bytes[middle] ^= 1;
        Ok(merged)
    };
    merge_with(flip, LocalReason::Failed);
    let swap = |mut merged: Merged| {
        merged.blocks.reverse();
        Ok(merged)
    };
    merge_with(swap, LocalReason::Failed);
}
