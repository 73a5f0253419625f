//! Taking what an index snapshot shows, instead of reading the log.

use super::{End, Head, Next, SnapshotReader};
use crate::devices::inserters::Parts;
use crate::devices::replay::{DeviceReplay, Shown};
use crate::devices::residency::Residency;
use crate::directory::{INDEX_SNAPSHOT_DRAFT, INDEX_SNAPSHOT_NAME};
use crate::error::{Error, Result};
use crate::log::Inserters;
use crate::storage::Storage;
use crate::sync::Arc;
use std::path::Path;

/// What of the log an index snapshot spares an opening.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spared {
    /// Records up to this sequence number are needed by no reader.
    pub(crate) needless: u64,
    /// The log goes to this sequence number at least.
    pub(crate) through: u64,
    /// Where the log ended when the index snapshot had come to there.
    pub(crate) lsn: u64,
}

/// Has `devices` begin with what the index snapshot in `dir` shows. One that is of no use is removed: the log tells the same.
pub(crate) fn load(storage: &dyn Storage, dir: &Path, devices: &mut DeviceReplay) -> Spared {
    remove(storage, dir, INDEX_SNAPSHOT_DRAFT);
    match take(storage, dir, devices) {
        Ok(Some(spared)) => return spared,
        Ok(None) => {}
        Err(error) => {
            log::warn!("the index snapshot is not used, and all of the log is read: {error}");
            if matches!(error, Error::Io { .. }) {
                return Spared::default();
            }
        }
    }
    remove(storage, dir, INDEX_SNAPSHOT_NAME);
    Spared::default()
}

/// Removes `name` if it is there. That it cannot be costs room, and nothing else.
pub(super) fn remove(storage: &dyn Storage, dir: &Path, name: &str) {
    match storage.remove(&dir.join(name)) {
        Err(error) if !error.is_not_found() => log::warn!("{name} stays for now: {error}"),
        _ => {}
    }
}

fn take(storage: &dyn Storage, dir: &Path, devices: &mut DeviceReplay) -> Result<Option<Spared>> {
    let Some(mut snapshot) = SnapshotReader::open(storage, &dir.join(INDEX_SNAPSHOT_NAME))? else {
        return Ok(None);
    };
    let header = snapshot.header;
    if header.engine != devices.directory.engine {
        return Err(snapshot.wrong("it is of another directory"));
    }
    if header.through <= devices.directory.released {
        return Ok(None);
    }
    let mut residencies = Residencies::new(devices);
    let end = loop {
        match snapshot.read_next()? {
            Next::Section(section) => residencies.section(section, &snapshot)?,
            Next::End(end) => break end,
        }
    };
    let residencies = residencies.finish(&end, header.through);
    let residencies = residencies.map_err(|reason| snapshot.wrong(reason))?;
    devices.begin_with(residencies, header.through);
    Ok(Some(Spared {
        needless: end.needless.min(header.through),
        through: header.through,
        lsn: header.lsn,
    }))
}

/// The residencies of an index snapshot that the checkpoint knows, on their way into the table.
struct Residencies<'d> {
    devices: &'d DeviceReplay,
    inserters: Inserters<Parts>,
    shown: Vec<Shown>,
    /// Prefix and first sequence number of the residency whose part was the last, and whether the checkpoint knows it.
    last: (Vec<u8>, u64, bool),
    seen: End,
}

impl<'d> Residencies<'d> {
    fn new(devices: &'d DeviceReplay) -> Self {
        Self {
            devices,
            inserters: Inserters::new(),
            shown: Vec::new(),
            last: (Vec::new(), 0, false),
            seen: End::default(),
        }
    }

    /// Takes the parts of a section of `snapshot`.
    fn section(&mut self, section: Vec<u8>, snapshot: &SnapshotReader) -> Result<()> {
        let mut parts = Vec::new();
        let all = super::parts(&section, snapshot.header.through);
        for part in all.map_err(|error| snapshot.damaged(&error))? {
            self.seen.parts += 1;
            self.seen.versions += part.versions;
            if self.knows(&part.head)
                && let Some(shown) = self.shown.last_mut()
            {
                shown.versions += part.versions;
                parts.push((Arc::clone(&shown.residency), part.bytes, part.versions));
            }
        }
        self.inserters.insert(section, parts)
    }

    /// Whether the checkpoint knows the residency of `head`, which is the last of those shown then.
    fn knows(&mut self, head: &Head<'_>) -> bool {
        let (prefix, first, is_known) = &self.last;
        if head.prefix == prefix && head.first_sequence == *first {
            return *is_known;
        }
        let arrival = (self.devices).known_arrival(head.prefix, head.first_sequence);
        self.last = (head.prefix.to_vec(), head.first_sequence, arrival.is_some());
        if let Some(arrival) = arrival {
            self.shown.push(Shown {
                residency: Arc::new(Residency::new(head.prefix, arrival)),
                first_sequence: head.first_sequence,
                first_lsn: head.first_lsn,
                switch: head.switch,
                versions: 0,
            });
        }
        arrival.is_some()
    }

    /// All of them, with their indexes.
    fn finish(mut self, end: &End, through: u64) -> std::result::Result<Vec<Shown>, &'static str> {
        self.inserters.finish();
        let seen = End {
            needless: end.needless,
            ..self.seen
        };
        if seen != *end {
            return Err("it does not hold as much as its end says");
        }
        if self.shown.len() != self.devices.residencies_through(through) {
            return Err("it does not show the residencies that the device table knows");
        }
        let is_whole = |shown: &Shown| shown.residency.records() == shown.versions;
        if !self.shown.iter().all(is_whole) {
            return Err("versions in it make no sense");
        }
        Ok(self.shown)
    }
}
