//! The log's files together: which segments there are, in which order, and the records that run through them.

use super::segment::{self, Known, Step};
use super::source::Source;
use super::stream::{Record, StreamItem, StreamReader};
use super::{Inspection, Problem};
use crate::devices::record::DeviceEvent;
use crate::directory::{JOURNAL_NAME, segment_number};
use crate::error::{Error, Result};
use crate::storage::{Area, Storage};
use std::path::{Path, PathBuf};
use waystation_format::batch::{BatchIter, HEADER_BYTES, Operation};
use waystation_format::filename::{self, FileKind};
use waystation_format::leveldb_log::RecordReader;
use waystation_format::log::RecordKind;
use waystation_format::log::{JournalState, SegmentHeader};

/// A segment's file.
pub(crate) struct Segment {
    pub(crate) name: String,
    pub(crate) number: u64,
    pub(crate) source: Source,
    /// None while the file is only prepared.
    pub(crate) header: Option<SegmentHeader>,
}

/// The `JOURNAL` file; `None` in a directory that only LevelDB has opened.
pub(crate) fn journal(storage: &dyn Storage, dir: &Path) -> Result<Option<JournalState>> {
    let path = dir.join(JOURNAL_NAME);
    let bytes = match Source::open(storage, &path, Area::Journal) {
        Ok(source) => source.read_all()?,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    JournalState::decode(&bytes)
        .map(Some)
        .map_err(|reason| Error::corruption(path, 0, reason))
}

/// The segments in `dir`, oldest first. One that vanishes meanwhile was no longer needed.
pub(crate) fn segments(storage: &dyn Storage, dir: &Path) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in storage.list(dir)? {
        let Some(number) = segment_number(&entry.name) else {
            continue;
        };
        let source = match Source::open(storage, &dir.join(&entry.name), Area::Journal) {
            Ok(source) => source,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        let header = segment::header(&source, Some(number))?;
        segments.push(Segment {
            name: entry.name,
            number,
            source,
            header,
        });
    }
    segments.sort_by_key(|segment| segment.number);
    Ok(segments)
}

/// The findings on the way through the log.
pub(crate) enum LogEvent<'a> {
    /// A record that ends in the block at `offset` of file `name`.
    Record {
        name: &'a str,
        offset: u64,
        record: &'a Record<'a>,
    },
    /// Bytes that are not what was written.
    Problem(Problem),
}

impl Inspection {
    /// The files of LevelDB's log that hold what is not in tables yet, oldest first.
    pub(crate) fn leveldb_logs(&self) -> Result<Vec<PathBuf>> {
        let mut logs: Vec<(u64, PathBuf)> = self
            .storage
            .list(&self.dir)?
            .into_iter()
            .filter_map(|entry| match filename::parse(&entry.name) {
                Some(FileKind::Log(number)) if self.manifest.needs_log(number) => {
                    Some((number, self.dir.join(entry.name)))
                }
                _ => None,
            })
            .collect();
        logs.sort();
        Ok(logs.into_iter().map(|(_, path)| path).collect())
    }

    /// Walks through the segments, in the order of the stream; the number of bytes passed so far goes to
    /// `progress`.
    pub(crate) fn walk_log(
        &self,
        progress: &mut dyn FnMut(u64),
        sink: &mut dyn FnMut(LogEvent<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(journal) = journal(&*self.storage, &self.dir)? else {
            return Ok(());
        };
        let mut stream = StreamReader::default();
        let segments = segments(&*self.storage, &self.dir)?;
        // A segment of a later life than the JOURNAL names belongs to a recovery that was not finished.
        let begun = |segment: &Segment| {
            segment
                .header
                .filter(|header| header.incarnation <= journal.incarnation)
        };
        for (index, Segment { name, source, .. }) in segments.iter().enumerate() {
            let Some(header) = begun(&segments[index]) else {
                continue;
            };
            let later: Vec<SegmentHeader> =
                segments[index + 1..].iter().filter_map(begun).collect();
            let durable_lsn = later
                .iter()
                .map(|later| later.durable_lsn)
                .max()
                .unwrap_or(0);
            let known = Known {
                durable_lsn: durable_lsn.max(journal.clean_lsn),
                cut_lsn: later
                    .iter()
                    .map(|later| later.start_lsn)
                    .min()
                    .unwrap_or(u64::MAX),
            };
            segment::walk(source, header, known, &mut |step| match step {
                Step::Block {
                    offset,
                    header,
                    bytes,
                } => {
                    progress(bytes.len() as u64);
                    let mut result = Ok(());
                    stream.block(&header.seal, bytes, &mut |item| {
                        if result.is_ok() {
                            result = sink(match &item {
                                StreamItem::Record(record) => LogEvent::Record {
                                    name,
                                    offset,
                                    record,
                                },
                                StreamItem::Nonsense { lsn } => LogEvent::Problem(Problem {
                                    file: name.clone(),
                                    offset: offset + (lsn - header.seal.start_lsn),
                                    reason: "no record starts here, and one should".to_owned(),
                                }),
                            });
                        }
                    });
                    result
                }
                Step::Damage { .. } if self.is_recycled(name)? => Ok(()),
                Step::Damage { offset, reason } => sink(LogEvent::Problem(Problem {
                    file: name.clone(),
                    offset,
                    reason,
                })),
            })?;
        }
        Ok(())
    }

    /// Whether there is no segment `name` any more: its owner gives a file another name before it writes another segment to
    /// it, so a reader that has the file open can find that one's blocks.
    fn is_recycled(&self, name: &str) -> Result<bool> {
        let there = self.open_if_there(&self.dir.join(name), Area::Journal)?;
        Ok(there.is_none())
    }
}

/// A batch of one of LevelDB's logs: where it starts, its bytes, its operations; or damage: where, and what.
type LevelDbBatch<'a> = Result<(u64, u64, BatchIter<'a>), (u64, &'static str)>;

/// Calls `sink` with each batch in one of LevelDB's logs. An incomplete end is normal; damage is handed out and
/// passed over.
pub(crate) fn walk_leveldb_batches(
    source: &Source,
    sink: &mut dyn FnMut(LevelDbBatch<'_>) -> Result<()>,
) -> Result<()> {
    let bytes = source.read_all()?;
    let mut reader = RecordReader::new(&bytes);
    loop {
        let at = reader.whole_through();
        match reader.next() {
            Ok(None) => return Ok(()),
            Err(error) => sink(Err((error.offset(), error.reason())))?,
            Ok(Some(record)) => {
                let bytes = record.len() as u64;
                let batch = BatchIter::parse(record).map_err(|error| (at, error.reason()));
                sink(batch.map(|batch| (at, bytes, batch)))?;
            }
        }
    }
}

/// The operations of a record of our own log, each with its sequence number. One that tells of devices may hold some,
/// those of a device that came from another engine.
pub(crate) fn operations(
    record: &Record<'_>,
    sink: &mut dyn FnMut(u64, Operation<'_>),
) -> Result<(), &'static str> {
    if record.header.kind == RecordKind::Devices {
        let event = DeviceEvent::decode(record.payload).map_err(|error| error.reason())?;
        let Some(batch) = event.operations() else {
            return Ok(());
        };
        let batch = BatchIter::parse(batch).map_err(|error| error.reason())?;
        for (sequence, operation) in (record.header.first_sequence..).zip(batch) {
            sink(sequence, operation);
        }
        return Ok(());
    }
    if record.header.kind == RecordKind::Gap {
        return Ok(());
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + record.payload.len());
    bytes.extend_from_slice(&record.header.first_sequence.to_le_bytes());
    bytes.extend_from_slice(&record.header.operations.to_le_bytes());
    bytes.extend_from_slice(record.payload);
    let batch = BatchIter::parse(&bytes).map_err(|error| error.reason())?;
    for (sequence, operation) in (record.header.first_sequence..).zip(batch) {
        sink(sequence, operation);
    }
    Ok(())
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::directory::segment_name;
    use crate::storage::OsStorage;
    use crate::{Db, Durability, Options, WriteBatch};
    use std::fs;
    use std::os::unix::fs::FileExt;

    /// A log of many blocks, as a killed owner leaves it in `dir`.
    fn write_log(dir: &Path) {
        let owned = dir.with_extension("owned");
        let db = Db::open(&owned, Options::default()).unwrap();
        for number in 0..100 {
            let mut batch = WriteBatch::new();
            batch.put(format!("{number:03}").as_bytes(), &[7; 1_000]);
            db.write(&batch, Durability::PowerLoss).unwrap();
        }
        fs::create_dir(dir).unwrap();
        for entry in fs::read_dir(&owned).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
        }
    }

    #[test]
    fn a_segment_that_is_recycled_while_it_is_read_is_not_damaged() {
        for is_recycled in [true, false] {
            let root = tempfile::tempdir().unwrap();
            let dir = root.path().join("db");
            write_log(&dir);
            let inspection = Inspection::open(OsStorage::new(), &dir).unwrap();
            let mut is_overwritten = false;
            let mut problems = Vec::new();
            let overwrite = |path: &Path| {
                let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                file.write_all_at(&[9; 16 << 10], 32 << 10).unwrap();
                if is_recycled {
                    fs::rename(path, dir.join(segment_name(1_000))).unwrap();
                }
            };
            let walked = inspection.walk_log(&mut |_| (), &mut |event| {
                match event {
                    LogEvent::Problem(problem) => problems.push(problem),
                    LogEvent::Record { name, .. } if !is_overwritten => {
                        overwrite(&dir.join(name));
                        is_overwritten = true;
                    }
                    LogEvent::Record { .. } => {}
                }
                Ok(())
            });
            walked.unwrap();
            assert!(is_overwritten);
            assert_eq!(problems.is_empty(), is_recycled, "{problems:?}");
        }
    }
}
