//! Partitions: the documents of a partitioned database whose identifiers are the same up to the colon.
//!
//! All documents of a partition lie in one shard, so what asks for one partition asks one shard: `sensor-7:2026-11-24`
//! belongs to the partition `sensor-7`. Indexes and views of such a database are of partitions, unless their design
//! document says `"partitioned": false`: their keys begin with the partition, and they serve its queries alone.

use super::Database;
use crate::document::check_id;
use crate::error::{Error, Result};
use crate::json::quote;
use crate::partition::{END, bounds_of, check_partition, partition_of};
use crate::shard::ScanOptions;

/// Rows of a page that is read to count a partition.
const PAGE_ROWS: u64 = 1000;
/// Such a page ends when it has this many bytes.
const PAGE_BYTES: u64 = 1 << 20;

/// Figures about a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartitionInfo {
    /// Documents that are there.
    pub documents: u64,
    /// Documents that were deleted, and are remembered for replicas.
    pub deleted: u64,
    /// Bytes of the documents that are there, as JSON.
    pub bytes: u64,
}

/// What of the identifier `id` chooses the shard.
pub(super) fn placed_by(id: &str, is_partitioned: bool) -> &str {
    match partition_of(id) {
        Some(partition) if is_partitioned && !id.starts_with('_') => partition,
        _ => id,
    }
}

/// The selector of a partition's documents among those that `selector` (canonical JSON) asks for. Identifiers tell the
/// partition exactly; the column `_partition` of an index narrows it.
pub(super) fn selector_within(name: &str, selector: &str) -> String {
    let (begin, end) = bounds_of(name);
    let (begin, end, name) = (quote(&begin), quote(&end), quote(name));
    format!(
        r#"{{"$and":[{{"_partition":{{"$eq":{name}}}}},{{"_id":{{"$gte":{begin},"$lt":{end}}}}},{selector}]}}"#
    )
}

impl Database {
    /// Whether its documents are in partitions.
    pub fn is_partitioned(&self) -> bool {
        self.is_partitioned
    }

    /// Checks that a document of this database may be called `id`.
    ///
    /// # Errors
    /// [`Error::IllegalId`]; [`Error::Query`] `illegal_partition`.
    pub fn check_id(&self, id: &str) -> Result<()> {
        check_id(id)?;
        if !self.is_partitioned || id.starts_with("_design/") || id.starts_with("_local/") {
            return Ok(());
        }
        let Some(partition) = partition_of(id) else {
            let reason = "Doc id must be of form partition:id";
            return Err(Error::IllegalId(reason.into()));
        };
        check_partition(partition)?;
        check_id(&id[partition.len() + END.len_utf8()..])
    }

    /// How many documents the partition `name` has.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`].
    pub fn count_partition(&self, name: &str) -> Result<u64> {
        let (begin, end) = bounds_of(name);
        let options = ScanOptions {
            from: Some(begin.clone()),
            to: Some(end),
            is_before: true,
            ..ScanOptions::default()
        };
        let shards = self.shards()?;
        shards.of(&begin).count_documents(&options, u64::MAX - 1)
    }

    /// Figures about the partition `name`; it goes through its documents.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`].
    pub fn partition_info(&self, name: &str) -> Result<PartitionInfo> {
        let (begin, end) = bounds_of(name);
        let mut options = ScanOptions {
            from: Some(begin.clone()),
            to: Some(end),
            is_before: true,
            deleted: true,
            ..ScanOptions::default()
        };
        let mut info = PartitionInfo::default();
        loop {
            let shards = self.shards()?;
            let (rows, is_end) = shards
                .of(&begin)
                .list(&options, PAGE_ROWS, PAGE_BYTES, true)?;
            for row in &rows {
                match &row.opened {
                    Some(opened) if opened.version.deleted => info.deleted += 1,
                    Some(opened) => {
                        info.documents += 1;
                        info.bytes += (opened.version.body.len() + row.id.len()) as u64;
                    }
                    None => {}
                }
            }
            if is_end {
                return Ok(info);
            }
            options.from = rows.last().map(|row| row.id.clone());
            options.is_behind = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_placed_by_their_partition() {
        assert_eq!(placed_by("a:b:c", true), "a");
        assert_eq!(placed_by("a:b:c", false), "a:b:c");
        assert_eq!(placed_by("_design/a:b", true), "_design/a:b");
        assert_eq!(placed_by("a", true), "a");
    }
}
