//! The fence: the name under which a MANIFEST shows its key order.
//!
//! While the engine is at work, part of the data stands where LevelDB does not look. So from open on the
//! MANIFEST names a comparator that LevelDB refuses, which harms nothing; a clean close that left nothing
//! outside the tables puts the old name back.

use crate::error::{Error, Result};
use std::path::Path;
use waystation_format::version_edit::BYTEWISE_COMPARATOR;

/// The version of the engine's directory format, as the fence shows it. Only ever goes up.
const FENCE_FORMAT: u32 = 1;
const FENCE: &str = "waystation/";

/// Under which name a MANIFEST shows its key order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// LevelDB may open the directory.
    Open,
    /// LevelDB refuses the directory.
    Closed,
}

impl Fence {
    /// The comparator name a MANIFEST shows.
    pub(crate) fn comparator(self) -> String {
        match self {
            Self::Open => BYTEWISE_COMPARATOR.to_owned(),
            Self::Closed => format!("{FENCE}{FENCE_FORMAT}:{BYTEWISE_COMPARATOR}"),
        }
    }

    /// Which one a comparator name found in the manifest at `path` says, if we can open that at all.
    pub(crate) fn parse(name: &str, path: &Path) -> Result<Self> {
        let refuse = |reason: String| {
            Err(Error::Incompatible {
                path: path.to_owned(),
                reason,
            })
        };
        let (fence, comparator) = match name.strip_prefix(FENCE).map(|rest| rest.split_once(':')) {
            None => (Self::Open, name),
            Some(Some((format, comparator))) => match format.parse::<u32>() {
                Ok(FENCE_FORMAT) => (Self::Closed, comparator),
                Ok(newer) if newer > FENCE_FORMAT => {
                    return refuse(format!(
                        "it has directory format {newer}, and this version knows formats up to {FENCE_FORMAT}; \
                         use the version that wrote it, or a newer one"
                    ));
                }
                _ => {
                    return refuse(format!(
                        "its comparator is named {name:?}, which no version writes"
                    ));
                }
            },
            Some(None) => {
                return refuse(format!(
                    "its comparator is named {name:?}, which no version writes"
                ));
            }
        };
        if comparator == BYTEWISE_COMPARATOR {
            return Ok(fence);
        }
        refuse(format!(
            "its keys are ordered by {comparator:?}, and only {BYTEWISE_COMPARATOR:?} is supported"
        ))
    }
}
