//! Taking a worker's tables over.
//!
//! Each table gets a number that no file has, and the name that belongs to it. It is synced here: that the worker did so
//! is only said. That comes before the new name, which would have the file system commit once more. Then it is opened as readers will open it and read as far as the settings say. If anything does not hold,
//! all of them are removed.

use super::remote::Kept;
use super::stats::{LocalReason, Times};
use super::{Verification, remote::micros_since};
use crate::error::Error;
use crate::lsm::compaction::{Workplace, remove_outputs};
use crate::sst::{TableMeta, Walk};
use crate::storage::{Area, OpenMode, Transfer};
use std::path::Path;
use waystation_format::filename::table_name;

/// Takes `outputs`, which lie in `directory` under the numbers that the worker gave them, over into the directory of the
/// database; there they are complete, durable and known to the caller alone.
pub(super) fn adopt(
    place: &Workplace<'_>,
    directory: &Path,
    outputs: &[TableMeta],
    verification: Verification,
    times: &mut Times,
) -> Result<Vec<TableMeta>, Kept> {
    let mut adopted = Vec::with_capacity(outputs.len());
    for output in outputs {
        let started = place.storage.now();
        let table = TableMeta {
            number: (place.new_number)(),
            ..output.clone()
        };
        let source = directory.join(table_name(output.number));
        adopted.push(table);
        let table = &adopted[adopted.len() - 1];
        let moved = move_here(place, &source, table);
        times.install += micros_since(place, started);
        let started = place.storage.now();
        let verified = moved.and_then(|()| verify(place, table, verification));
        times.verify += micros_since(place, started);
        if let Err(kept) = verified {
            remove_outputs(place, &adopted);
            return Err(kept);
        }
    }
    Ok(adopted)
}

/// Syncs the file, and gives it its name.
fn move_here(place: &Workplace<'_>, source: &Path, table: &TableMeta) -> Result<(), Kept> {
    let by_storage = |error: Error| Kept::by(LocalReason::Storage, &error);
    let opened = place.storage.open(
        source,
        OpenMode::ReadWrite,
        Transfer::Buffered,
        Area::Tables,
    );
    let file = opened.map_err(|error| {
        let reason = if error.is_not_found() {
            LocalReason::Damaged
        } else {
            LocalReason::Storage
        };
        Kept::by(reason, &error)
    })?;
    file.sync().map_err(by_storage)?;
    let bytes = file.size().map_err(by_storage)?;
    let target = place.tables.path(table.number);
    place.storage.rename(source, &target).map_err(by_storage)?;
    if bytes == table.file_bytes {
        return Ok(());
    }
    let told = table.file_bytes;
    let reason = format!("a table of {bytes} bytes was reported with {told}");
    Err(Kept::by(LocalReason::Damaged, &reason))
}

/// Compares the table with what the report says of it.
fn verify(
    place: &Workplace<'_>,
    table: &TableMeta,
    verification: Verification,
) -> Result<(), Kept> {
    let damaged = |error: Error| Kept::by(LocalReason::Damaged, &error);
    // Before it is opened, which notes what the table says.
    let reported = table.facts();
    let opened = place.tables.get(table).map_err(damaged)?;
    let facts = opened.facts();
    if facts.is_none() || facts != reported {
        let reason = "what a table says of itself is not what was reported";
        return Err(Kept::by(LocalReason::Damaged, &reason));
    }
    match verification {
        Verification::Metadata => Ok(()),
        Verification::Checksums => opened.check_blocks().map_err(damaged),
        Verification::Entries => {
            let walk = Walk::over(&opened).map_err(damaged)?;
            let known_through = facts.map_or(0, |facts| facts.largest_sequence);
            match walk.compare(table, known_through).into_iter().next() {
                None => Ok(()),
                Some(problem) => Err(Kept::by(LocalReason::Damaged, &problem)),
            }
        }
    }
}
