//! The prefix of a device's keys, beside the rest of what is known of the device.
//!
//! A write finds its device by comparing prefixes. Devices are many, so each look at memory of another place is a wait: a short
//! prefix lies in the device itself.

use std::ops::Deref;

/// Most prefixes are no longer than this (bytes).
const SHORT_BYTES: usize = 23;

/// What the keys of a device begin with.
pub(super) enum Prefix {
    /// So many of these bytes.
    Short(u8, [u8; SHORT_BYTES]),
    /// These bytes.
    Long(Box<[u8]>),
}

impl From<&[u8]> for Prefix {
    fn from(prefix: &[u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES];
        match bytes.get_mut(..prefix.len()) {
            Some(short) => {
                short.copy_from_slice(prefix);
                Self::Short(prefix.len() as u8, bytes)
            }
            None => Self::Long(prefix.into()),
        }
    }
}

impl Deref for Prefix {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_it_was_made_of() {
        let bytes: Vec<u8> = (0..40).collect();
        for length in 0..=bytes.len() {
            let prefix = Prefix::from(&bytes[..length]);
            assert_eq!(*prefix, bytes[..length]);
            assert_eq!(matches!(prefix, Prefix::Short(..)), length <= SHORT_BYTES);
        }
    }
}
