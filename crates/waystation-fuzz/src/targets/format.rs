//! LevelDB's formats: batches, blocks, filters, version edits, its log.

use super::file_seeds;
use waystation_format::batch::{BatchIter, WriteBatch};
use waystation_format::block::{Block, BlockBuilder, BlockIter};
use waystation_format::key::{self, ValueKind, compare_internal};
use waystation_format::leveldb_log::RecordReader;
use waystation_format::table::{
    BlockHandle, FilterBlock, Footer, Properties, StoredBlock, TableOptions, TableWriter,
};
use waystation_format::version_edit::VersionEdit;
use waystation_format::{bloom, checksum};

/// A batch that parses has as many operations as it says, and is written as it was read.
pub(super) fn batch(bytes: &[u8]) {
    if let Ok(iter) = BatchIter::parse(bytes) {
        let count = iter.count();
        let batch = WriteBatch::from_bytes(bytes.to_vec());
        assert!(batch.is_ok_and(|batch| batch.len() == count && batch.as_bytes() == bytes));
    }
}

pub(super) fn batch_seeds() -> Vec<Vec<u8>> {
    let mut batch = WriteBatch::new();
    let empty = batch.as_bytes().to_vec();
    batch.put(b"key", b"value");
    batch.put(b"", b"");
    batch.delete(b"another key");
    batch.set_sequence(77);
    vec![empty, batch.as_bytes().to_vec()]
}

/// A block's cursor ends in both directions, and a seek ends at or behind its target. (Restarts may lie: what it shows
/// backwards need not be what it shows forwards.)
pub(super) fn block(bytes: &[u8]) {
    let Ok(block) = Block::new(bytes) else { return };
    let mut iter = BlockIter::new(block);
    let Some(forwards) = collect(&mut iter, BlockIter::seek_to_first, BlockIter::next) else {
        return;
    };
    let _ = collect(&mut iter, BlockIter::seek_to_last, BlockIter::prev);
    let is_ordered = forwards
        .windows(2)
        .all(|pair| compare_internal(&pair[0], &pair[1]).is_lt());
    for target in forwards.iter().take(8).filter(|_| is_ordered) {
        if iter.seek(target).is_ok() && iter.valid() {
            assert!(compare_internal(iter.key(), target).is_ge());
        }
    }
}

type Step = fn(&mut BlockIter) -> Result<(), waystation_format::FormatError>;

/// The keys on the way; none if it does not end well.
fn collect(iter: &mut BlockIter, start: Step, step: Step) -> Option<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    start(iter).ok()?;
    while iter.valid() {
        keys.push(iter.key().to_vec());
        let _ = iter.value();
        step(iter).ok()?;
    }
    Some(keys)
}

pub(super) fn block_seeds() -> Vec<Vec<u8>> {
    let make = |entries: u64, interval| {
        let mut builder = BlockBuilder::new(interval);
        for i in 0..entries {
            let mut internal = Vec::new();
            key::append(
                &mut internal,
                format!("key{i:05}").as_bytes(),
                100 - i,
                ValueKind::Value,
            );
            builder.add(&internal, format!("value {i}").as_bytes());
        }
        builder.finish().to_vec()
    };
    vec![make(0, 16), make(1, 16), make(20, 4), make(40, 16)]
}

/// Compression and trailer; with the checksum that fits, too.
pub(super) fn stored_block(bytes: &[u8]) {
    let read = |stored: &[u8]| {
        let mut out = Vec::new();
        if let Ok(block) = StoredBlock::check(stored)
            && block.decode(&mut out).is_ok()
        {
            let _ = Block::new(out);
        }
    };
    read(bytes);
    if let Some((payload, kind)) = bytes
        .split_last()
        .map(|(kind, payload)| (payload, kind % 4))
    {
        let mut stored = [payload, &[kind]].concat();
        let sum = checksum::mask(checksum::crc32c(&stored));
        stored.extend_from_slice(&sum.to_le_bytes());
        read(&stored);
    }
}

pub(super) fn stored_block_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for table in file_seeds(".ldb") {
        let footer = table
            .len()
            .checked_sub(48)
            .and_then(|at| Footer::decode(&table[at..]).ok());
        let of_handle = |handle: BlockHandle| {
            let (from, to) = (handle.offset as usize, handle.end()? as usize);
            table.get(from..to + 5).map(<[u8]>::to_vec)
        };
        let first = BlockHandle {
            offset: 0,
            length: 200,
        };
        for handle in footer.map(|footer| footer.index).into_iter().chain([first]) {
            seeds.extend(of_handle(handle));
        }
    }
    seeds
}

/// A filter answers whatever it is asked.
pub(super) fn filter(bytes: &[u8]) {
    let hash = bloom::hash(bytes);
    let _ = bloom::may_contain(bytes, hash);
    if let Ok(filter) = FilterBlock::new(bytes) {
        for offset in [0, 1, 4096, 1 << 40, u64::MAX] {
            let _ = filter.may_contain(offset, hash);
        }
    }
}

pub(super) fn filter_seeds() -> Vec<Vec<u8>> {
    let mut writer = TableWriter::new(TableOptions::default());
    let mut internal = Vec::new();
    key::append(&mut internal, b"key", 1, ValueKind::Value);
    let added = writer.add(&internal, b"value");
    writer.finish();
    let pending = writer.pending().to_vec();
    vec![
        pending,
        vec![0xff; 20],
        if added.is_ok() {
            vec![0, 0, 0, 0, 40]
        } else {
            vec![]
        },
    ]
}

/// Properties, handles and footers that parse are written as they were read.
pub(super) fn properties(bytes: &[u8]) {
    if let Ok(properties) = Properties::decode(bytes) {
        let again = Properties::decode(properties.encode());
        assert!(again.is_ok_and(|again| again == properties));
    }
    if let Ok(handle) = BlockHandle::decode(bytes) {
        let mut out = Vec::new();
        handle.encode(&mut out);
        assert_eq!(BlockHandle::decode(&out), Ok(handle));
    }
    let _ = Footer::decode(bytes);
}

pub(super) fn properties_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![Properties::default().encode()];
    for table in file_seeds(".ldb") {
        seeds.push(table[table.len().saturating_sub(48)..].to_vec());
    }
    seeds
}

/// The edits of a MANIFEST, and the bytes as one edit: what parses is written so that it parses alike.
pub(super) fn version_edit(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        if let Ok(edit) = VersionEdit::decode(bytes) {
            assert_eq!(VersionEdit::decode(&edit.to_bytes()), Ok(edit));
        }
    };
    check(bytes);
    let mut reader = RecordReader::new(bytes);
    while let Ok(Some(record)) = reader.next() {
        check(record);
    }
    check(bytes.get(7..).unwrap_or_default());
}

/// Edits as there are in the MANIFESTs of the fixtures.
pub(super) fn version_edit_payloads() -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for manifest in file_seeds("MANIFEST") {
        let mut reader = RecordReader::new(&manifest);
        while let Ok(Some(record)) = reader.next() {
            payloads.push(record.to_vec());
        }
    }
    payloads
}

/// A log ends, and what it gives lies within it.
pub(super) fn leveldb_log(bytes: &[u8]) {
    let mut reader = RecordReader::new(bytes);
    let mut length = 0;
    while let Ok(Some(record)) = reader.next() {
        length += record.len();
        let _ = BatchIter::parse(record).map(Iterator::count);
    }
    assert!(length <= bytes.len());
    assert!(reader.whole_through() <= bytes.len() as u64);
    let _ = reader.ending();
}
