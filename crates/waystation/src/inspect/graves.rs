//! The file of graves, looked at from outside.

use super::{Inspection, Place};
use crate::cemetery::checkpoint::{self, GRAVES_NAME, GravesError};
use crate::cemetery::floor_of;
use crate::cemetery::ground::Ground;
use crate::error::{Error, Result};
use crate::inspect::find::Found;
use crate::inspect::source::Source;
use crate::lsm::version::read_file;
use waystation_format::key::MAX_SEQUENCE;

/// Reads graves from `source`, or says why they cannot be.
pub(super) fn decode(source: &Source) -> Result<Ground> {
    to_graves(source.path(), &source.read_all()?)
}

fn to_graves(path: &std::path::Path, bytes: &[u8]) -> Result<Ground> {
    checkpoint::decode(bytes).map_err(|error| match error {
        GravesError::Damaged(offset, reason) => Error::corruption(path, offset, reason),
        GravesError::Newer(format) => Error::Incompatible {
            path: path.to_owned(),
            reason: format!("it has format {format}, of a newer version"),
        },
    })
}

impl Inspection {
    /// The graves in the directory's file; `None` if it has none.
    pub(super) fn graves(&self) -> Result<Option<Ground>> {
        let path = self.dir.join(GRAVES_NAME);
        match read_file(&*self.storage, &path) {
            Err(error) if error.is_not_found() => Ok(None),
            content => to_graves(&path, &content?).map(Some),
        }
    }

    /// Adds the deletions of `key` that the file knows.
    pub(super) fn find_in_graves(&self, key: &[u8], found: &mut Vec<Found>) -> Result<()> {
        let Some(ground) = self.graves()? else {
            return Ok(());
        };
        let of_key = ground.points().iter().filter(|grave| grave.key == key);
        let mut deletions: Vec<u64> = of_key.map(|grave| grave.sequence).collect();
        let around = ground.ranges().overlapping(Some(key), Some(key));
        let around = around.filter(|(_, end, _)| end.is_none_or(|end| key < end));
        let of_ranges = around.map(|(_, _, cuts)| floor_of(cuts, MAX_SEQUENCE));
        deletions.extend(of_ranges);
        found.extend(deletions.into_iter().map(|sequence| Found {
            sequence,
            value: None,
            place: Place::Graves,
            file: GRAVES_NAME.to_owned(),
            offset: 0,
        }));
        Ok(())
    }
}
