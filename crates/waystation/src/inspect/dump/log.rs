//! Log segments, the ring, LevelDB's logs.

use super::{DumpedVersion, Item, Out, devices};
use crate::devices::record::DeviceEvent;
use crate::error::Result;
use crate::inspect::log::{operations, walk_leveldb_batches};
use crate::inspect::segment::{self, Known, Step};
use crate::inspect::source::Source;
use crate::inspect::stream::{Record, StreamItem, StreamReader};
use std::collections::BTreeMap;
use waystation_format::batch::{BatchIter, Operation, Time};
use waystation_format::log::{BlockHeader, RecordKind, UNIT_BYTES};

/// A segment by itself: without its neighbours and the JOURNAL, so that the end of an open one is taken as it
/// is, and a record that began in the segment before is passed over.
pub(crate) fn segment_file(source: &Source, out: &mut Out<'_, '_>) -> Result<()> {
    let Some(header) = segment::header(source, None)? else {
        out.fact("state", "prepared: nothing has been written into it yet");
        return Ok(());
    };
    out.fact("segment", header.number);
    out.fact("incarnation", header.incarnation);
    out.fact("start LSN", header.start_lsn);
    out.fact("durable LSN when it was begun", header.durable_lsn);
    out.fact("first sequence number", header.first_sequence);
    out.fact("previous segment", header.previous);
    let known = Known {
        durable_lsn: 0,
        cut_lsn: u64::MAX,
    };
    let mut stream = StreamReader::default();
    let summary = segment::walk(source, header, known, &mut |step| {
        match step {
            Step::Block {
                offset,
                header,
                bytes,
            } => {
                out.put(Item::Block {
                    offset,
                    stored_bytes: u64::from(header.seal.length),
                    what: block_text(&header),
                });
                stream.block(&header.seal, bytes, &mut |item| {
                    dump_item(&item, offset, out);
                });
            }
            Step::Damage { offset, reason } => out.problem(offset, reason),
        }
        Ok(())
    })?;
    if stream.is_within_record() {
        out.fact(
            "last record",
            "goes on in the next segment, or was never completed",
        );
    }
    match summary.footer {
        Some(footer) => {
            out.fact("state", format!("sealed, {} blocks", footer.blocks));
            out.fact("last sequence number", footer.last_sequence);
            out.fact("next segment", footer.next);
        }
        None => out.fact(
            "state",
            format!("open, {} blocks are whole", summary.blocks),
        ),
    }
    out.fact("end LSN", summary.end_lsn);
    Ok(())
}

/// The ring: every closed block that lies in it, in the order of the stream. Blocks of an earlier lap that
/// were not overwritten yet are there, too.
pub(crate) fn ring(source: &Source, out: &mut Out<'_, '_>) -> Result<()> {
    let bytes = source.read_all()?;
    out.fact("ring bytes", bytes.len());
    let mut blocks = BTreeMap::new();
    for offset in (0..bytes.len()).step_by(UNIT_BYTES) {
        if let Some(header) = BlockHeader::decode(&bytes[offset..])
            && header.seal.start_lsn % bytes.len() as u64 == offset as u64
        {
            blocks.insert((header.seal.incarnation, header.seal.start_lsn), offset);
        }
    }
    let mut stream = StreamReader::default();
    for offset in blocks.into_values() {
        let Some(header) = BlockHeader::decode(&bytes[offset..]) else {
            continue;
        };
        let what = format!("closed block, {}", block_text(&header));
        out.put(Item::Block {
            offset: offset as u64,
            stored_bytes: u64::from(header.seal.length),
            what,
        });
        let around = bytes[offset..].iter().chain(&bytes[..offset]).copied();
        let block: Vec<u8> = around.take(header.seal.length as usize).collect();
        stream.block(&header.seal, &block, &mut |item| {
            // Where no record checks, a later lap has overwritten it: nothing is wrong with that.
            if let StreamItem::Record(record) = &item
                && record.is_sound
            {
                dump_record(record, offset as u64, out);
            }
        });
    }
    Ok(())
}

fn block_text(header: &BlockHeader) -> String {
    let seal = &header.seal;
    format!(
        "LSN {} to {}, {} bytes in use, incarnation {}, durable LSN {}",
        seal.start_lsn,
        seal.end_lsn(),
        seal.used,
        seal.incarnation,
        header.durable_lsn
    )
}

fn dump_item(item: &StreamItem<'_>, offset: u64, out: &mut Out<'_, '_>) {
    match item {
        StreamItem::Nonsense { lsn } => out.problem(
            offset,
            format!("no record starts at LSN {lsn}, and one should"),
        ),
        StreamItem::Record(record) if !record.is_sound => {
            out.problem(
                offset,
                format!(
                    "the record at LSN {}: its checksum does not match",
                    record.lsn
                ),
            );
        }
        StreamItem::Record(record) => dump_record(record, offset, out),
    }
}

fn dump_record(record: &Record<'_>, offset: u64, out: &mut Out<'_, '_>) {
    if record.header.kind == RecordKind::Gap {
        let (first, last) = (record.header.first_sequence, record.header.last_sequence());
        return out.fact(
            "sequence numbers without a write",
            format!("{first} to {last}"),
        );
    }
    out.put(Item::Batch {
        position: record.lsn,
        first_sequence: record.header.first_sequence,
        operations: record.header.operations,
        bytes: u64::from(record.header.payload_bytes),
    });
    if record.header.kind == RecordKind::Devices
        && let Ok(event) = DeviceEvent::decode(record.payload)
    {
        devices::event(&event, record.header.first_sequence, out);
    }
    let decoded = operations(record, &mut |sequence, operation| match operation.time {
        Some(Time::Reached(micros)) => out.fact("time reached, microseconds", micros),
        _ => out.put(version(sequence, &operation)),
    });
    if let Err(reason) = decoded {
        out.problem(
            offset,
            format!("the record at LSN {}: {reason}", record.lsn),
        );
    }
}

/// One of LevelDB's logs.
pub(crate) fn leveldb_log(source: &Source, out: &mut Out<'_, '_>) -> Result<()> {
    walk_leveldb_batches(source, &mut |batch| {
        match batch {
            Err((offset, reason)) => out.problem(offset, reason),
            Ok((position, bytes, batch)) => dump_batch(position, bytes, batch, out),
        }
        Ok(())
    })
}

fn dump_batch(position: u64, bytes: u64, batch: BatchIter<'_>, out: &mut Out<'_, '_>) {
    let first_sequence = batch.sequence();
    out.put(Item::Batch {
        position,
        first_sequence,
        operations: batch.len() as u32,
        bytes,
    });
    for (sequence, operation) in (first_sequence..).zip(batch) {
        match operation.time {
            Some(Time::Reached(micros)) => out.fact("time reached, microseconds", micros),
            _ => out.put(version(sequence, &operation)),
        }
    }
}

fn version(sequence: u64, operation: &Operation<'_>) -> Item {
    if let Some(end) = operation.range() {
        return Item::RangeDeletion {
            start: operation.key.to_vec(),
            end: end.map(<[u8]>::to_vec),
            sequence,
        };
    }
    if let Some(Time::Expiry(micros) | Time::Lifetime(micros)) = operation.time {
        return Item::Expiry {
            key: operation.key.to_vec(),
            sequence,
            at_micros: micros,
        };
    }
    Item::Version(DumpedVersion {
        key: operation.key.to_vec(),
        sequence,
        value: operation.value.map(<[u8]>::to_vec),
    })
}
