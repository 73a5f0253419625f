//! What a database consists of, from headers and footers: cheap however large it is.

use super::Inspection;
use super::log::{journal, segments};
use super::segment;
use super::table::TableView;
use crate::directory::RING_NAME;
use crate::error::Result;
use serde::Serialize;

/// What there is.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The MANIFEST in force.
    pub manifest: String,
    /// The comparator it names.
    pub comparator: String,
    /// The name of the order of keys: that comparator's, without our fence.
    pub key_order: String,
    /// Whether the order is one that only the program knows whose comparator it is.
    pub has_own_order: bool,
    /// Whether LevelDB can open the directory as it is (with the comparator of that name).
    pub is_plain_leveldb: bool,
    /// The highest sequence number of any version in a table.
    pub last_sequence: u64,
    /// No file has this number or a higher one.
    pub next_file_number: u64,
    /// Level by level.
    pub levels: Vec<LevelSummary>,
    /// All tables together, in bytes.
    pub table_bytes: u64,
    /// The log; none in a directory that only LevelDB has opened.
    pub journal: Option<JournalSummary>,
    /// LevelDB's logs that are not in tables yet (they are taken over at the next open).
    pub leveldb_logs: Vec<String>,
    /// The part that is not included.
    pub note: &'static str,
}

/// A level of the tree.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct LevelSummary {
    /// Which one.
    pub level: usize,
    /// How many tables.
    pub tables: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Their entries, as far as their properties say (tables written by LevelDB have none).
    pub entries: u64,
    /// How many of those entries are deletions.
    pub deletions: u64,
    /// How many tables do not say.
    pub tables_without_properties: usize,
}

/// The log.
#[derive(Debug, Clone, Serialize)]
pub struct JournalSummary {
    /// How often the database has been opened.
    pub incarnation: u64,
    /// Whether it was closed cleanly. False while an owner has it open, too.
    pub is_closed_cleanly: bool,
    /// The length of the staging ring's file; 0 if it is missing.
    pub ring_bytes: u64,
    /// The segments, oldest first.
    pub segments: Vec<SegmentSummary>,
}

/// How far a segment file has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentState {
    /// Created or recycled, with nothing of its own in it yet.
    Prepared,
    /// Begun: the log's end is in it, or was when the database was last open.
    Open,
    /// Complete, with index and footer.
    Sealed,
}

/// A segment of the log.
#[derive(Debug, Clone, Serialize)]
pub struct SegmentSummary {
    /// The file.
    pub name: String,
    /// The file's length.
    pub bytes: u64,
    /// How far it has come.
    pub state: SegmentState,
    /// Where it starts in the stream.
    pub start_lsn: Option<u64>,
    /// Where it ends, once sealed.
    pub end_lsn: Option<u64>,
    /// The highest sequence number it may hold, once sealed.
    pub last_sequence: Option<u64>,
}

/// The remark wherever the ring matters.
pub(super) const NOTE: &str =
    "read from files only: what the owner holds in memory and in the staging ring is not included";

impl Inspection {
    /// What there is. Reads headers, footers and properties only.
    pub fn summary(&self) -> Result<Summary> {
        let manifest = &self.manifest;
        let mut levels = Vec::new();
        for (level, tables) in manifest.levels.iter().enumerate() {
            let mut summary = LevelSummary {
                level,
                tables: tables.len(),
                ..LevelSummary::default()
            };
            for table in tables {
                summary.bytes += table.file_bytes;
                match TableView::open(&*self.storage, &self.dir, table) {
                    Ok(view) => match view.properties()? {
                        Some(properties) => {
                            summary.entries += properties.entries;
                            summary.deletions += properties.deletions;
                        }
                        None => summary.tables_without_properties += 1,
                    },
                    // Compacted away since the MANIFEST was read.
                    Err(error) if error.is_not_found() => summary.tables_without_properties += 1,
                    Err(error) => return Err(error),
                }
            }
            levels.push(summary);
        }
        let logs = self.leveldb_logs()?;
        Ok(Summary {
            manifest: manifest.name.clone(),
            comparator: manifest.comparator.clone(),
            key_order: manifest.order_name().to_owned(),
            has_own_order: !manifest.is_bytewise(),
            is_plain_leveldb: manifest.comparator == manifest.order_name(),
            last_sequence: manifest.last_sequence,
            next_file_number: manifest.next_file_number,
            table_bytes: levels.iter().map(|level| level.bytes).sum(),
            levels,
            journal: self.journal_summary()?,
            leveldb_logs: logs
                .iter()
                .map(|path| super::source::name_of(path))
                .collect(),
            note: NOTE,
        })
    }

    fn journal_summary(&self) -> Result<Option<JournalSummary>> {
        let Some(state) = journal(&*self.storage, &self.dir)? else {
            return Ok(None);
        };
        let mut summaries = Vec::new();
        for segment in segments(&*self.storage, &self.dir)? {
            let footer = match &segment.header {
                Some(header) => segment::footer(&segment.source, header)?,
                None => None,
            };
            let state = match (&segment.header, &footer) {
                (None, _) => SegmentState::Prepared,
                (Some(_), None) => SegmentState::Open,
                (Some(_), Some(_)) => SegmentState::Sealed,
            };
            summaries.push(SegmentSummary {
                name: segment.name,
                bytes: segment.source.bytes(),
                state,
                start_lsn: segment.header.map(|header| header.start_lsn),
                end_lsn: footer.map(|footer| footer.end_lsn),
                last_sequence: footer.map(|footer| footer.last_sequence),
            });
        }
        let entries = self.storage.list(&self.dir)?;
        let ring = entries.iter().find(|entry| entry.name == RING_NAME);
        Ok(Some(JournalSummary {
            incarnation: state.incarnation,
            is_closed_cleanly: state.clean_lsn != 0,
            ring_bytes: ring.map_or(0, |entry| entry.bytes),
            segments: summaries,
        }))
    }
}
