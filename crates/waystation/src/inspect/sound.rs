//! Whether one file is what was written, block by block, before it is copied.

use super::source::Source;
use super::table::TableView;
use crate::error::{Error, Result};
use crate::storage::{Area, Storage};
use std::path::Path;
use waystation_format::log::{
    BLOCK_HEADER_BYTES, BlockHeader, SEGMENT_HEADER_BYTES, SegmentHeader, UNIT_BYTES, body_is_valid,
};

/// Reads every block of the table at `path`, whose footer ends at `bytes`; the first that is damaged is the error.
pub(crate) fn table_is_sound(storage: &dyn Storage, path: &Path, bytes: u64) -> Result<()> {
    let view = TableView::new(Source::open(storage, path, Area::Tables)?, bytes)?;
    for indexed in view.index()? {
        view.block(indexed.handle)?;
    }
    view.filter()?;
    view.properties().map(drop)
}

/// Reads the first `bytes` bytes of the log's segment at `path`, all of which were durable; the first block that is
/// damaged is the error.
pub(crate) fn segment_is_sound(storage: &dyn Storage, path: &Path, bytes: u64) -> Result<()> {
    let source = Source::open(storage, path, Area::Journal)?;
    let damaged = |offset, reason: &str| Err(Error::corruption(path, offset, reason));
    let Some(segment) = SegmentHeader::decode(&source.read(0, UNIT_BYTES)?) else {
        return damaged(0, "the segment's header is damaged");
    };
    let mut at = SEGMENT_HEADER_BYTES as u64;
    while at < bytes {
        let header = BlockHeader::decode(&source.read(at, BLOCK_HEADER_BYTES)?);
        let lsn = segment.start_lsn + (at - SEGMENT_HEADER_BYTES as u64);
        let Some(header) = header
            .filter(|header| header.segment == segment.number && header.seal.start_lsn == lsn)
        else {
            return damaged(at, "no block of the log begins here, and one should");
        };
        let length = header.seal.length;
        if !body_is_valid(&source.read(at, length as usize)?) {
            return damaged(at, "the log's block does not check");
        }
        at += u64::from(length);
    }
    Ok(())
}
