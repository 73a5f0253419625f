//! Tables, MANIFESTs, and the small files beside them.

use super::{DumpedVersion, Item, Out};
use crate::cemetery::checkpoint::{Checkpoint, ListedRange};
use crate::cemetery::sorted::Grave;
use crate::cemetery::spilled::GraveKind;
use crate::directory::spill_name;
use crate::error::{Error, Result};
use crate::inspect::graves;
use crate::inspect::source::Source;
use crate::inspect::table::TableView;
use crate::lsm::version::{SideFile, SideFileError};
use waystation_format::key::{InternalKey, ValueKind};
use waystation_format::leveldb_log::{Ending, RecordReader, begins_record_after};
use waystation_format::log::JournalState;
use waystation_format::varint::get_u64;
use waystation_format::version_edit::VersionEdit;

/// A table: footer, meta blocks, properties, then each data block and its entries. In a spill file these are graves.
pub(super) fn table(source: Source, is_spill: bool, out: &mut Out<'_, '_>) -> Result<()> {
    let bytes = source.bytes();
    let view = TableView::new(source, bytes)?;
    out.fact("table bytes", bytes);
    for (name, handle) in view.meta_blocks()? {
        out.put(Item::Block {
            offset: handle.offset,
            stored_bytes: handle.length,
            what: format!("meta block {name}"),
        });
    }
    if let Some(properties) = view.properties()? {
        out.fact("entries", properties.entries);
        out.fact("deletions", properties.deletions);
        out.fact("smallest sequence number", properties.smallest_sequence);
        out.fact("largest sequence number", properties.largest_sequence);
        out.fact("purged through", properties.purged_through);
    }
    for indexed in view.index()? {
        if out.is_full() {
            return Ok(());
        }
        let offset = indexed.handle.offset;
        let block = match view.block(indexed.handle) {
            Ok(block) => block,
            Err(Error::Corruption { offset, reason, .. }) => {
                out.problem(offset, reason);
                continue;
            }
            Err(error) => return Err(error),
        };
        let what = format!(
            "data block, {}, {} bytes unpacked",
            block.compression,
            block.data.byte_len()
        );
        out.put(Item::Block {
            offset,
            stored_bytes: indexed.handle.length,
            what,
        });
        let walked = view.each(&block, &mut |key, value| {
            match InternalKey::parse(key) {
                Ok(key) if is_spill && key.kind == ValueKind::Value => out.put(Item::Expiry {
                    key: key.user_key.to_vec(),
                    sequence: key.sequence,
                    at_micros: get_u64(value).map_or(0, |(date, _)| date),
                }),
                Ok(key) => out.put(Item::Version(DumpedVersion {
                    key: key.user_key.to_vec(),
                    sequence: key.sequence,
                    value: (key.kind == ValueKind::Value).then(|| value.to_vec()),
                })),
                Err(error) => out.problem(offset, error.reason()),
            }
            !out.is_full()
        });
        match walked {
            Err(Error::Corruption { offset, reason, .. }) => out.problem(offset, reason),
            result => result?,
        }
    }
    Ok(())
}

/// A MANIFEST: its edits, one after the other.
pub(super) fn manifest(source: &Source, out: &mut Out<'_, '_>) -> Result<()> {
    let bytes = source.read_all()?;
    let mut reader = RecordReader::new(&bytes);
    let mut is_torn = false;
    loop {
        let offset = reader.whole_through();
        match reader.next() {
            Ok(None) => break,
            Err(error) if begins_record_after(&bytes, error.offset()) => {
                out.problem(error.offset(), error.reason());
            }
            Err(_) => {
                is_torn = true;
                break;
            }
            Ok(Some(record)) => match VersionEdit::decode(record) {
                Ok(edit) => dump_edit(offset, &edit, out),
                Err(error) => out.problem(offset, error.reason()),
            },
        }
    }
    if is_torn || reader.ending() == Ending::Torn {
        out.fact(
            "end",
            "within an edit that was never completed (or is being appended now)",
        );
    }
    Ok(())
}

fn dump_edit(offset: u64, edit: &VersionEdit, out: &mut Out<'_, '_>) {
    let numbers = [
        ("log number", edit.log_number),
        ("previous log number", edit.prev_log_number),
        ("next file number", edit.next_file_number),
        ("last sequence number", edit.last_sequence),
    ];
    let comparator = edit
        .comparator
        .iter()
        .map(|name| format!("comparator {name}"));
    let numbers = numbers
        .iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", (*value)?)));
    let pointers = edit
        .compact_pointers
        .iter()
        .map(|(level, _)| format!("compact pointer of level {level}"));
    out.put(Item::Edit {
        offset,
        fields: comparator.chain(numbers).chain(pointers).collect(),
    });
    for (level, number) in &edit.deleted_files {
        out.put(Item::TableRemoved {
            level: *level,
            number: *number,
        });
    }
    for file in &edit.new_files {
        let bound = |key: &[u8]| {
            let key = InternalKey::parse(key).ok()?;
            Some(DumpedVersion {
                key: key.user_key.to_vec(),
                sequence: key.sequence,
                value: None,
            })
        };
        match (bound(&file.smallest), bound(&file.largest)) {
            (Some(smallest), Some(largest)) => out.put(Item::TableAdded {
                level: file.level,
                number: file.number,
                bytes: file.file_bytes,
                smallest,
                largest,
            }),
            _ => out.problem(
                offset,
                format!("the bounds of table {} are no internal keys", file.number),
            ),
        }
    }
}

/// The JOURNAL file.
pub(super) fn journal(source: &Source, out: &mut Out<'_, '_>) -> Result<()> {
    match JournalState::decode(&source.read_all()?) {
        Err(reason) => out.problem(0, reason),
        Ok(state) => {
            out.fact("incarnation", state.incarnation);
            out.fact("ring bytes", state.ring_bytes);
            out.fact("first segment", state.first_segment);
            match state.clean_lsn {
                0 => out.fact("closed cleanly", "no, or open now"),
                lsn => out.fact("closed cleanly", format!("at LSN {lsn}")),
            }
        }
    }
    Ok(())
}

/// The side file.
pub(super) fn side_file(source: &Source, out: &mut Out<'_, '_>) -> Result<()> {
    match SideFile::decode(&source.read_all()?) {
        Err(SideFileError::Damaged(offset, reason)) => out.problem(offset, reason),
        Err(SideFileError::Newer(format)) => {
            let reason = format!("it has format {format}, of a newer version");
            out.problem(0, reason);
        }
        Ok(side) => {
            out.fact("comparator without the fence", side.comparator);
            for pin in side.pins {
                let length = if pin.exact { "exactly" } else { "at least" };
                out.fact(
                    "belongs to",
                    format!(
                        "MANIFEST {}, {length} {} bytes long",
                        pin.manifest, pin.bytes
                    ),
                );
            }
            for (name, value) in side.state {
                out.fact("state", format!("{name}, {} bytes", value.len()));
            }
        }
    }
    Ok(())
}

/// The file of graves.
pub(super) fn graves(source: &Source, out: &mut Out<'_, '_>) -> Result<()> {
    let Checkpoint {
        flushed,
        labels,
        listed,
    } = graves::decode(source)?;
    out.fact("deletions up to", flushed.through());
    for label in &labels {
        let what = match (label.kind, label.promoted_through) {
            (GraveKind::Counting, _) => "deleted keys".to_owned(),
            (GraveKind::Dated, 0) => "keys that expire".to_owned(),
            (GraveKind::Dated, promoted) => format!("keys that had expired at write {promoted}"),
        };
        let name = spill_name(label.number);
        out.fact("spill file", format!("{name}, {} {what}", label.graves));
    }
    out.fact("deleted ranges", listed.len());
    out.fact("deleted keys", flushed.len());
    out.fact("keys that expire", flushed.dated().len());
    for ListedRange {
        start,
        end,
        deletions,
    } in listed
    {
        for sequence in deletions {
            out.put(Item::RangeDeletion {
                start: start.clone(),
                end: end.clone(),
                sequence,
            });
        }
    }
    for Grave { key, sequence, .. } in flushed.points().iter() {
        if out.is_full() {
            break;
        }
        out.put(Item::Version(DumpedVersion {
            key: key.to_vec(),
            sequence,
            value: None,
        }));
    }
    for grave in flushed.dated().iter() {
        if out.is_full() {
            break;
        }
        out.put(Item::Expiry {
            key: grave.key.to_vec(),
            sequence: grave.sequence,
            at_micros: grave.date(),
        });
    }
    Ok(())
}

/// CURRENT, LOG and other text.
pub(super) fn text(source: &Source, out: &mut Out<'_, '_>) -> Result<()> {
    let bytes = source.read_all()?;
    for line in String::from_utf8_lossy(&bytes).lines() {
        out.fact("line", line);
    }
    Ok(())
}
