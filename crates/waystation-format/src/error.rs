//! What a decoder answers when bytes are not what they should be.
//!
//! Offsets count from the first byte the decoder was given; the caller, who knows the file, adds where
//! those bytes lay.

/// Why bytes could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes end before the value does.
    #[error("the data ends early at offset {offset}: {reason}")]
    Truncated {
        /// Where more was needed.
        offset: u64,
        /// What was being read.
        reason: &'static str,
    },
    /// The bytes contradict the format.
    #[error("the data at offset {offset} is malformed: {reason}")]
    Malformed {
        /// Where the contradiction was noticed.
        offset: u64,
        /// What does not hold.
        reason: &'static str,
    },
    /// The bytes are not the ones that were written.
    #[error("the checksum at offset {offset} does not match its data: {reason}")]
    Checksum {
        /// Where the checksum is stored.
        offset: u64,
        /// What it covers.
        reason: &'static str,
    },
    /// The bytes are well formed, but mean something this version does not know.
    #[error("the data at offset {offset} is of an unknown kind: {reason}")]
    Unsupported {
        /// Where the unknown mark is.
        offset: u64,
        /// What is unknown.
        reason: &'static str,
    },
}

impl FormatError {
    /// The bytes end before the value does.
    pub(crate) fn truncated(offset: usize, reason: &'static str) -> Self {
        Self::Truncated {
            offset: offset as u64,
            reason,
        }
    }

    /// The bytes contradict the format.
    pub(crate) fn malformed(offset: usize, reason: &'static str) -> Self {
        Self::Malformed {
            offset: offset as u64,
            reason,
        }
    }

    /// The bytes are not the ones that were written.
    pub(crate) fn checksum(offset: usize, reason: &'static str) -> Self {
        Self::Checksum {
            offset: offset as u64,
            reason,
        }
    }

    /// The bytes mean something this version does not know.
    pub(crate) fn unsupported(offset: usize, reason: &'static str) -> Self {
        Self::Unsupported {
            offset: offset as u64,
            reason,
        }
    }

    /// Where the problem was noticed, from the first byte the decoder was given.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Truncated { offset, .. }
            | Self::Malformed { offset, .. }
            | Self::Checksum { offset, .. }
            | Self::Unsupported { offset, .. } => *offset,
        }
    }

    /// What does not hold, without the place.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Truncated { reason, .. }
            | Self::Malformed { reason, .. }
            | Self::Checksum { reason, .. }
            | Self::Unsupported { reason, .. } => reason,
        }
    }
}
