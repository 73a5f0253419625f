//! What a user says of the fast tier: where it is, and how much of it to take.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The smallest capacity (bytes): a few hundred blocks.
const CAPACITY_BYTES_MIN: u64 = 1 << 20;
/// No segment of the log takes more than this part of a durable directory ...
const SEGMENT_PART: u64 = 32;
/// ... unless that is less than this.
const SEGMENT_BYTES_MIN: u64 = 512 << 10;

/// A fast directory beside the main one, for copies of what is read most.
///
/// Nothing lies there alone unless the directory is [`durable`](Self::durable): the database loses nothing if it fails, is
/// emptied or goes away while the database is open, and goes on with the main directory. The directory belongs to one database at a time.
///
/// ```
/// use waystation::{Db, FastTier, Options};
/// # let (main, fast) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// let options = Options {
///     fast: Some(FastTier::new(fast.path(), 64 << 20)),
///     ..Options::default()
/// };
/// let db = Db::open(main.path(), options)?;
/// db.put(b"drone-7:height", b"120")?;
/// let placement = db.stats().placement.expect("there is a fast tier");
/// assert_eq!(placement.capacity_bytes, 64 << 20);
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastTier {
    /// The directory, on a faster device than the database's own. It is created if it is missing.
    pub directory: PathBuf,
    /// The most bytes that the database takes there; at least 1 MiB.
    pub capacity_bytes: u64,
    /// Whether the directory survives what the main one survives. Then new segments of the log and new tables may lie there
    /// alone, where that gains more than copies do, and so does the staging ring if all of it fits: the database cannot be
    /// opened without them, and needs the device while it is open. Segments of the log there are no longer than a 32nd of the
    /// capacity (512 KiB at least), whatever `log_segment_bytes` says. Default: no; then nothing is lost with the directory.
    pub durable: bool,
}

impl FastTier {
    /// Up to `capacity_bytes` in `directory`.
    pub fn new(directory: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self {
            directory: directory.into(),
            capacity_bytes,
            durable: false,
        }
    }

    /// Checks the values, as opening does.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty path or a capacity below 1 MiB.
    pub fn validate(&self) -> Result<()> {
        if self.directory.as_os_str().is_empty() {
            return Err(Error::InvalidArgument(
                "the path of the fast directory is empty; name a directory on a fast device".into(),
            ));
        }
        if self.capacity_bytes < CAPACITY_BYTES_MIN {
            return Err(Error::InvalidArgument(format!(
                "the capacity of the fast directory is {}; it must be at least {CAPACITY_BYTES_MIN} bytes",
                self.capacity_bytes
            )));
        }
        Ok(())
    }

    /// The length of the longest segment of the log in the directory. The last ones stay there while nothing is written, and
    /// copies do without their room.
    pub(crate) fn segment_bytes_max(&self) -> u64 {
        if !self.durable {
            return u64::MAX;
        }
        let units = self.capacity_bytes / SEGMENT_PART / SEGMENT_BYTES_MIN;
        units.max(1) * SEGMENT_BYTES_MIN
    }

    /// Checks that the directory is not the database's own, `dir`.
    pub(super) fn check_beside(&self, dir: &Path) -> Result<()> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        if absolute(&self.directory) == absolute(dir) {
            return Err(Error::InvalidArgument(format!(
                "the fast directory is the database's own, {}; name another, on a faster device",
                dir.display()
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn segments_are_short_in_a_small_durable_directory() {
        let longest = |capacity_bytes, durable| {
            let fast = FastTier {
                durable,
                ..FastTier::new("fast", capacity_bytes)
            };
            fast.segment_bytes_max()
        };
        assert_eq!(longest(10 << 20, false), u64::MAX);
        assert_eq!(longest(CAPACITY_BYTES_MIN, true), 512 << 10);
        assert_eq!(longest(40 << 20, true), 1 << 20);
        assert_eq!(longest(2 << 30, true), 64 << 20);
    }
}
