//! What a repair says: what it saved, and what it could not.

use crate::error::{Error, Result};
use serde::Serialize;
use std::path::Path;

/// Whether data that was deleted or overwritten comes back when something is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resurrection {
    /// It does not.
    #[default]
    Impossible,
    /// It may, if it is among the losses, or among the leftovers: a part of the log, the MANIFEST.
    Possible,
    /// It does, if there was any: the file of graves, or the device table.
    Likely,
}

/// Something that could not be saved, or not be relied on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The file.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// How many bytes from there, where that is known.
    pub bytes: Option<u64>,
    /// How many writes, where that is known.
    pub writes: Option<u64>,
    /// What does not hold, and what that means.
    pub reason: String,
    /// Whether older data may take the place of the lost data.
    pub resurrection: Resurrection,
}

impl Loss {
    /// Of a file as a whole.
    pub(super) fn of(
        file: impl Into<String>,
        reason: impl Into<String>,
        resurrection: Resurrection,
    ) -> Self {
        Self {
            file: file.into(),
            offset: 0,
            bytes: None,
            writes: None,
            reason: reason.into(),
            resurrection,
        }
    }

    /// At a place of a file.
    pub(super) fn at(self, offset: u64, bytes: Option<u64>) -> Self {
        Self {
            offset,
            bytes,
            ..self
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} byte {}", self.file, self.offset)?;
        if let Some(bytes) = self.bytes {
            write!(f, " to {}", self.offset + bytes)?;
        }
        write!(f, ": {}", self.reason)?;
        if let Some(writes) = self.writes {
            write!(f, " ({writes} writes)")?;
        }
        Ok(())
    }
}

/// Keys that a damaged block may have held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The file.
    pub file: String,
    /// Where the damage is in it.
    pub offset: u64,
    /// What does not hold.
    pub reason: String,
    /// No key up to this one is concerned; none if the gap is at the beginning.
    pub after: Option<Vec<u8>>,
    /// The last key of the gap.
    pub through: Vec<u8>,
    /// Entries within that other blocks hold, and that were saved.
    pub rescued: u64,
    /// Keys within that are known by name, and whose present value may be in the damaged block.
    pub lost_keys: Vec<Vec<u8>>,
}

/// What a repair did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Repaired {
    /// Entries in the new database.
    pub entries: u64,
    /// The losses beside blocks of tables; empty if there are none.
    pub losses: Vec<Loss>,
    /// The losses of tables; empty if they are sound.
    pub gaps: Vec<Gap>,
}

/// Refuses a repair that may bring back more than is accepted.
pub(super) fn refuse(dir: &Path, losses: &[Loss], accepted: Resurrection) -> Result<()> {
    let mut refused = losses.iter().filter(|loss| loss.resurrection > accepted);
    let Some(first) = refused.next() else {
        return Ok(());
    };
    let mut reasons = first.to_string();
    for loss in refused {
        reasons.push_str("; ");
        reasons.push_str(&loss.to_string());
    }
    Err(Error::Resurrection {
        path: dir.to_owned(),
        reasons,
    })
}

/// The fault of a file that could not be read: where, and why. Errors that are not the file's are handed on.
pub(super) fn damage_of(error: Error) -> Result<(u64, String)> {
    match error {
        Error::Corruption { offset, reason, .. } => Ok((offset, reason)),
        error if error.is_not_found() => Ok((0, "it is missing".to_owned())),
        Error::Io { ref source, .. } if source.raw_os_error() == Some(EIO) => {
            Ok((0, format!("it cannot be read: {error}")))
        }
        error => Err(error),
    }
}

/// What the system answers when the medium fails.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
