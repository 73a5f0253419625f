//! What the files of a database say of each other.
//!
//! - The log against the tables and the device table: no segment that either needs is missing.
//! - The device table against the log: what a residency began with is in the log, and belongs to the device; nothing is told
//!   of writes that the log never reached.
//! - Tables against the cemetery: a table that was purged through a sequence number holds nothing that a grave up to
//!   there hides; and the side file says whether there are graves at all.
//!
//! Beside a running owner files are of different moments. So what changes is read before and after, and only what
//! both readings say is a problem.

use super::{Inspection, Problem, manifest};
use crate::cemetery::flushed::FlushedGraves;
use crate::devices::checkpoint::Saved;
use crate::devices::record::DeviceEvent;
use crate::directory::{
    CHECKPOINT_NAME, DEVICES_STATE, GRAVES_NAME, GRAVES_STATE, SIDE_FILE, read_file,
};
use crate::error::{Error, Result};
use crate::log::check_chain;
use crate::lsm::version::{SideFile, SideFileError};
use std::collections::BTreeMap;
use waystation_format::key::InternalKey;
use waystation_format::log::RecordKind;

/// What the log has to say for the device table.
#[derive(Default)]
pub(super) struct Beginnings {
    /// By the sequence number of its first write: the prefix of a residency's device.
    expected: BTreeMap<u64, Vec<u8>>,
    /// The graves that were found, and whether they are the device's.
    found: BTreeMap<u64, bool>,
    /// The last sequence number of the log.
    last_sequence: u64,
}

impl Beginnings {
    pub(super) fn of(saved: Option<&Saved>) -> Self {
        let residencies = saved.into_iter().flat_map(|saved| &saved.devices);
        let expected =
            residencies.filter_map(|device| Some((device.residency?.0, device.prefix.clone())));
        Self {
            expected: expected.collect(),
            ..Self::default()
        }
    }

    /// Takes in a sound record of the log.
    pub(super) fn record(&mut self, record: &super::stream::Record<'_>) {
        let (first, last) = (record.header.first_sequence, record.header.last_sequence());
        self.last_sequence = self.last_sequence.max(last);
        for (&sequence, prefix) in self.expected.range(first..=last) {
            let is_the_devices = if record.header.kind == RecordKind::Devices {
                matches!(
                    DeviceEvent::decode(record.payload),
                    Ok(DeviceEvent::Staged { prefix: of, .. }) if of == prefix
                ) || matches!(
                    DeviceEvent::decode(record.payload),
                    Ok(DeviceEvent::Admitted(admitted)) if admitted.prefix == prefix
                )
            } else {
                let mut belongs = false;
                let _ = super::log::operations(record, &mut |at, operation| {
                    belongs |= at == sequence && operation.key.starts_with(prefix);
                });
                belongs
            };
            self.found.insert(sequence, is_the_devices);
        }
    }

    /// What does not hold between the device table, as it was read before and after the log, and the log.
    pub(super) fn judge(&self, after: &Saved, flushed: u64) -> Vec<String> {
        let mut reasons = Vec::new();
        let end = self.last_sequence.max(flushed);
        for device in &after.devices {
            let name = device.prefix.escape_ascii();
            if let Some((sequence, _)) = device.residency
                && self.expected.get(&sequence) == Some(&device.prefix)
            {
                match self.found.get(&sequence) {
                    Some(true) => {}
                    Some(false) => reasons.push(format!(
                        "device {name} is said to have arrived with write {sequence}, which is not the device's"
                    )),
                    None => reasons.push(format!(
                        "device {name} is said to have arrived with write {sequence}, which the log does not hold"
                    )),
                }
            }
            let told = [device.lower_since.unwrap_or(0), device.covering.newest()];
            let frozen = device.frozen.as_ref().map_or(0, |it| it.ticket);
            let newest = told.into_iter().max().unwrap_or(0).max(frozen);
            if newest > end {
                reasons.push(format!(
                    "device {name} is said to have changed with write {newest}, and the log ends at {end}"
                ));
            }
        }
        if after.directory.released > end {
            let released = after.directory.released;
            reasons.push(format!(
                "writes up to {released} are said to be over, and the log ends at {end}"
            ));
        }
        reasons
    }
}

/// Whether an entry of a table that was purged through `purged` should not be there: the deletion that hides it.
pub(super) fn should_be_purged(
    flushed: &FlushedGraves,
    purged: u64,
    key: &[u8],
) -> Result<Option<u64>> {
    if purged == 0 || flushed.is_empty() {
        return Ok(None);
    }
    let Ok(entry) = InternalKey::parse(key) else {
        return Ok(None);
    };
    // One that was dug, or settled, asks for more than its own number.
    let key = entry.user_key;
    let of_key = flushed
        .points()
        .of_key(flushed.points().first_from(key), key);
    let mut applied = of_key.filter(|grave| grave.purge_through() <= purged);
    let in_memory = applied.next().map_or(0, |grave| grave.sequence);
    let covering = in_memory.max(flushed.ranges().covering(key, purged));
    let covering = covering.max(flushed.spilled().applied(key, purged)?);
    Ok((entry.sequence < covering).then_some(covering))
}

impl Inspection {
    /// The checkpoint of the device table; `None` if the directory has none.
    pub(super) fn saved_devices(&self) -> Result<Option<Saved>> {
        crate::devices::checkpoint::read(&*self.storage, &self.dir)
    }

    /// The faults of the files that say which others are needed.
    pub(super) fn check_belonging(&self) -> Result<Vec<Problem>> {
        let first = self.belonging()?;
        if first.is_empty() {
            return Ok(first);
        }
        // An owner may just have replaced them: what is wrong stays so.
        let second = self.belonging()?;
        Ok(second.into_iter().filter(|it| first.contains(it)).collect())
    }

    fn belonging(&self) -> Result<Vec<Problem>> {
        let mut problems = Vec::new();
        let problem = |file: &str, offset, reason: String| Problem {
            file: file.to_owned(),
            offset,
            reason,
        };
        let manifest = manifest::read(&*self.storage, &self.dir)?;
        let side = match read_file(&*self.storage, &self.dir.join(SIDE_FILE)) {
            Ok(bytes) => match SideFile::decode(&bytes) {
                Ok(side) => Some(side),
                Err(SideFileError::Damaged(offset, reason)) => {
                    problems.push(problem(SIDE_FILE, offset, reason.to_owned()));
                    None
                }
                Err(SideFileError::Newer(_)) => None,
            },
            Err(error) if error.is_not_found() => {
                if manifest.comparator.starts_with("waystation/") {
                    let reason = "it is missing, although the MANIFEST belongs to it";
                    problems.push(problem(SIDE_FILE, 0, reason.to_owned()));
                }
                None
            }
            Err(error) => return Err(error),
        };
        let has = |state| {
            let side = side.as_ref();
            side.is_some_and(|side| side.state.contains_key(state))
        };
        let (has_graves, has_devices) = (has(GRAVES_STATE), has(DEVICES_STATE));
        if has_graves && self.graves_file_is_missing()? {
            let reason = "it is missing, although deletions are in it alone";
            problems.push(problem(GRAVES_NAME, 0, reason.to_owned()));
        }
        let needless = match self.saved_devices() {
            Ok(None) if has_devices => {
                let reason = "it is missing, although there are devices, which it alone tells of";
                problems.push(problem(CHECKPOINT_NAME, 0, reason.to_owned()));
                return Ok(problems);
            }
            Ok(saved) => saved.map_or(manifest.last_sequence, |saved| saved.directory.released),
            // Told elsewhere.
            Err(Error::Corruption { .. }) => return Ok(problems),
            Err(error) => return Err(error),
        };
        let Some(journal) = super::log::journal(&*self.storage, &self.dir)? else {
            return Ok(problems);
        };
        match check_chain(&*self.storage, &self.dir, &journal, needless) {
            Ok(()) => {}
            Err(Error::Corruption {
                path,
                offset,
                reason,
            }) => problems.push(problem(&super::source::name_of(&path), offset, reason)),
            // One that is gone by now was not needed.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(problems)
    }

    fn graves_file_is_missing(&self) -> Result<bool> {
        match read_file(&*self.storage, &self.dir.join(GRAVES_NAME)) {
            Ok(_) => Ok(false),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }
}
