//! An index snapshot, read in full.

use crate::devices::index::Window;
use crate::devices::index_snapshot::{End, Head, Header, Next, SnapshotReader, parts, unpack};
use crate::error::Result;
use crate::storage::Storage;
use std::path::Path;

/// The parts of an index snapshot, in the order of the file.
pub(super) enum Shown<'a> {
    Header(Header),
    /// A part, and how many versions it has.
    Part(Head<'a>, u64),
}

/// Reads the index snapshot at `path`, which may be missing, and verifies everything.
pub(super) fn each_part(
    storage: &dyn Storage,
    path: &Path,
    show: &mut dyn FnMut(Shown<'_>),
) -> Result<Option<End>> {
    let Some(mut snapshot) = SnapshotReader::open(storage, path)? else {
        return Ok(None);
    };
    let through = snapshot.header.through;
    show(Shown::Header(snapshot.header));
    let mut seen = End::default();
    let mut window = Window::default();
    let end = loop {
        let section = match snapshot.read_next()? {
            Next::Section(section) => section,
            Next::End(end) => break end,
        };
        for part in parts(&section, through).map_err(|error| snapshot.damaged(&error))? {
            let unpacked = unpack(&section[part.bytes], part.versions, &mut window);
            unpacked.map_err(|error| snapshot.damaged(&error))?;
            seen.parts += 1;
            seen.versions += part.versions;
            show(Shown::Part(part.head, part.versions));
        }
    };
    if (seen.parts, seen.versions) != (end.parts, end.versions) {
        return Err(snapshot.wrong("it does not hold as much as its end says"));
    }
    Ok(Some(end))
}
