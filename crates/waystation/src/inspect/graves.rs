//! The file of graves, and the spill files it names, looked at from outside.

use super::{Inspection, Place};
use crate::cemetery::checkpoint::{self, Checkpoint, GravesError};
use crate::cemetery::covering_of;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::fragments::Fragments;
use crate::cemetery::spilled::{self, SpilledGraves};
use crate::directory::{GRAVES_NAME, read_file, spill_name};
use crate::error::{Error, Result};
use crate::inspect::find::Found;
use crate::inspect::source::Source;
use crate::sst::TableMemory;
use crate::sync::Arc;
use std::path::Path;
use waystation_format::key::MAX_SEQUENCE;

/// Memory for blocks of spill files.
const CACHE_BYTES: usize = 1 << 20;

/// Reads graves from `source`, or says why they cannot be.
pub(crate) fn decode(source: &Source) -> Result<Checkpoint> {
    to_graves(source.path(), &source.read_all()?)
}

fn to_graves(path: &Path, bytes: &[u8]) -> Result<Checkpoint> {
    checkpoint::decode(bytes).map_err(|error| match error {
        GravesError::Damaged(offset, reason) => Error::corruption(path, offset, reason),
        GravesError::Newer(format) => Error::Incompatible {
            path: path.to_owned(),
            reason: format!("it has format {format}, of a newer version"),
        },
    })
}

impl Inspection {
    /// The graves in the directory's file, with the spill files it names, and how many ranges it lists; `None` if it
    /// has none.
    pub(crate) fn graves(&self) -> Result<Option<(FlushedGraves, usize)>> {
        let path = self.dir.join(GRAVES_NAME);
        let read = || match read_file(&*self.storage, &path) {
            Err(error) if error.is_not_found() => Ok(None),
            content => content.map(Some),
        };
        let mut content = read()?;
        loop {
            let Some(bytes) = &content else {
                return Ok(None);
            };
            let Checkpoint {
                flushed,
                labels,
                listed,
            } = to_graves(&path, bytes)?;
            let memory = TableMemory::own(&self.dir, CACHE_BYTES);
            let opened = labels.into_iter().map(|label| {
                let path = self.dir.join(spill_name(label.number));
                match spilled::open(&*self.storage, &self.dir, label, &memory) {
                    Err(error) if error.is_not_found() => Err((Some(path), error)),
                    opened => opened.map(Arc::new).map_err(|error| (None, error)),
                }
            });
            let missing = match opened.collect::<std::result::Result<Vec<_>, _>>() {
                Ok(spilled) => {
                    let flushed = flushed.with_spilled(SpilledGraves::new(spilled));
                    return Ok(Some((flushed, listed.len())));
                }
                Err((Some(path), _)) => path,
                Err((None, error)) => return Err(error),
            };
            // An owner may have replaced the file, and removed what it named.
            let newer = read()?;
            if newer == content {
                let reason = "it is missing, although deletions are in it alone";
                return Err(Error::corruption(missing, 0, reason));
            }
            content = newer;
        }
    }

    /// Adds the deletions of `key` that the file knows.
    pub(crate) fn find_in_graves(&self, key: &[u8], found: &mut Vec<Found>) -> Result<()> {
        let Some((flushed, _)) = self.graves()? else {
            return Ok(());
        };
        let of_key = flushed.points().iter().filter(|grave| grave.key == key);
        let mut deletions: Vec<u64> = of_key.map(|grave| grave.sequence).collect();
        let ranges = if self.manifest.is_bytewise() {
            flushed.ranges().clone()
        } else {
            Fragments::default()
        };
        let around = ranges.overlapping(Some(key), Some(key));
        let around = around.filter(|(_, end, _)| end.is_none_or(|end| key < end));
        let of_ranges = around.map(|(_, _, cuts)| covering_of(cuts, MAX_SEQUENCE));
        deletions.extend(of_ranges);
        let mut add = |sequence, file| {
            found.push(Found {
                sequence,
                value: None,
                place: Place::Graves,
                file,
                offset: 0,
            });
        };
        for sequence in deletions {
            add(sequence, GRAVES_NAME.to_owned());
        }
        for spill in flushed.spilled().counting() {
            for sequence in spill.deletions_of(key)? {
                add(sequence, spill_name(spill.label().number));
            }
        }
        Ok(())
    }
}
