//! The fence: the name under which a MANIFEST shows its key order.
//!
//! While the engine is at work, part of the data stands where LevelDB does not look. So from open on the
//! MANIFEST names a comparator that LevelDB refuses, which harms nothing; a clean close that left nothing
//! outside the tables puts the old name back.

use crate::error::{Error, Result};
use std::path::Path;
use waystation_format::order::Order;

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
    /// The comparator name a MANIFEST shows whose keys are in `order`.
    pub(crate) fn comparator(self, order: &Order) -> String {
        match self {
            Self::Open => order.name().to_owned(),
            Self::Closed => format!("{FENCE}{FENCE_FORMAT}:{}", order.name()),
        }
    }

    /// Which one a comparator name found in the manifest at `path` says, if that is one of `order`, and of a version that
    /// we know.
    pub(crate) fn parse(name: &str, path: &Path, order: &Order) -> Result<Self> {
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
        if comparator == order.name() {
            return Ok(fence);
        }
        refuse(format!(
            "its keys are ordered by {comparator:?}, and it was to be opened with {:?}; open it with the comparator \
             that it was made with",
            order.name()
        ))
    }
}

/// The name of the key order that a MANIFEST shows as `name`, without the fence.
pub(crate) fn order_name(name: &str) -> &str {
    let fenced = name
        .strip_prefix(FENCE)
        .and_then(|rest| rest.split_once(':'));
    fenced.map_or(name, |(_, order)| order)
}

/// Whether a key order may have this name: one that a MANIFEST shows without doubt.
pub(crate) fn may_be_named(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(FENCE)
}
