//! The prefix of a device's keys, beside the rest of what is known of the device.
//!
//! A write finds its device by comparing prefixes, and so does each list of devices. Devices are many, so each look at memory of
//! another place is a wait: a short prefix lies in the device itself, and in the list.

use std::borrow::Borrow;
use std::cmp::Ordering;
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

impl Borrow<[u8]> for Prefix {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Prefix {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Prefix {}

impl PartialOrd for Prefix {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Prefix {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
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

    #[test]
    fn prefixes_are_ordered_as_their_bytes() {
        let long = [b'b'; SHORT_BYTES + 1];
        let all: [&[u8]; 7] = [
            b"",
            b"a",
            b"ab",
            &long[..2],
            &long[..SHORT_BYTES],
            &long,
            b"c",
        ];
        for a in all {
            for b in all {
                let (one, other) = (Prefix::from(a), Prefix::from(b));
                assert_eq!((one.cmp(&other), one == other), (a.cmp(b), a == b));
            }
        }
    }
}
