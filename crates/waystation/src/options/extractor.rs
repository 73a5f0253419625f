//! The device extractor: which part of a key names the device it belongs to.
//!
//! It returns a *prefix* of the key, so that a device's keys are contiguous and no two devices' ranges overlap:
//! prefixes of one fixed length differ within that length, and a prefix that ends with the first delimiter
//! cannot begin another one. A key without such a prefix belongs to no device and lives in the tree.
//!
//! The directory stores the extractor's name; it is opened with no other. Names on disk are never reused.

use std::fmt;
use std::str::FromStr;

/// Names the device of a key: its first bytes, as many as this says.
///
/// ```
/// use waystation::Extractor;
/// let extractor = Extractor::until(b':');
/// assert_eq!(extractor.prefix(b"car-7:speed:1700000000"), Some(&b"car-7:"[..]));
/// assert_eq!(extractor.prefix(b"settings"), None);
/// assert_eq!("fixed/8".parse(), Ok(Extractor::fixed(8)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extractor(Rule);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Rule {
    Fixed(u32),
    Until(u8),
}

impl Extractor {
    /// The first `bytes` bytes (at least one) of a key; shorter keys belong to no device.
    pub fn fixed(bytes: u32) -> Self {
        Self(Rule::Fixed(bytes.max(1)))
    }

    /// Everything before the first `delimiter`; keys without it belong to no device.
    pub fn until(delimiter: u8) -> Self {
        Self(Rule::Until(delimiter))
    }

    /// The part of `key` that all keys of its device begin with, and no others; `None` if it has no device.
    #[inline]
    pub fn prefix<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        match self.0 {
            Rule::Fixed(bytes) => key.get(..bytes as usize),
            Rule::Until(delimiter) => {
                let at = key.iter().position(|byte| *byte == delimiter)?;
                Some(&key[..=at])
            }
        }
    }

    /// The name of the device whose keys begin with `prefix`: without the delimiter.
    pub fn device<'a>(&self, prefix: &'a [u8]) -> &'a [u8] {
        match self.0 {
            Rule::Fixed(_) => prefix,
            Rule::Until(_) => prefix.split_last().map_or(prefix, |(_, name)| name),
        }
    }

    /// What the keys of `device` begin with; `None` if no device can have that name.
    pub fn prefix_of(&self, device: &[u8]) -> Option<Vec<u8>> {
        match self.0 {
            Rule::Fixed(bytes) => (device.len() == bytes as usize).then(|| device.to_vec()),
            Rule::Until(delimiter) => {
                (!device.contains(&delimiter)).then(|| [device, &[delimiter]].concat())
            }
        }
    }
}

/// The name that a directory stores: `fixed/8`, `until/3a`.
impl fmt::Display for Extractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Rule::Fixed(bytes) => write!(f, "fixed/{bytes}"),
            Rule::Until(delimiter) => write!(f, "until/{delimiter:02x}"),
        }
    }
}

/// The text is not the name of an extractor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no device extractor; write fixed/N for the first N bytes of a key, or until/HH for those before \
     the delimiter with hexadecimal code HH"
)]
pub struct UnknownExtractor;

impl FromStr for Extractor {
    type Err = UnknownExtractor;

    fn from_str(name: &str) -> Result<Self, UnknownExtractor> {
        let (rule, argument) = name.split_once('/').ok_or(UnknownExtractor)?;
        let parsed = match rule {
            "fixed" => argument
                .parse()
                .ok()
                .filter(|bytes| *bytes > 0)
                .map(Self::fixed),
            "until" if argument.len() == 2 => {
                u8::from_str_radix(argument, 16).ok().map(Self::until)
            }
            _ => None,
        };
        parsed.ok_or(UnknownExtractor)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_read_back() {
        for extractor in [
            Extractor::fixed(1),
            Extractor::fixed(16),
            Extractor::until(b':'),
            Extractor::until(0),
        ] {
            assert_eq!(extractor.to_string().parse(), Ok(extractor));
        }
        for wrong in [
            "",
            "fixed",
            "fixed/0",
            "fixed/x",
            "until/",
            "until/3",
            "until/xyz",
            "none/1",
        ] {
            assert_eq!(wrong.parse::<Extractor>(), Err(UnknownExtractor), "{wrong}");
        }
    }

    #[test]
    fn devices_have_prefixes() {
        let until = Extractor::until(b':');
        assert_eq!(until.prefix(b":x"), Some(&b":"[..]));
        assert_eq!(until.device(b"car:"), b"car");
        assert_eq!(until.prefix_of(b"car"), Some(b"car:".to_vec()));
        assert_eq!(until.prefix_of(b"c:r"), None);
        let fixed = Extractor::fixed(3);
        assert_eq!(fixed.prefix(b"ab"), None);
        assert_eq!(fixed.prefix_of(b"abc"), Some(b"abc".to_vec()));
        assert_eq!(fixed.prefix_of(b"ab"), None);
    }

    proptest! {
        /// Devices are contiguous: between two keys of one device there is no key of another, or of none.
        #[test]
        fn devices_are_contiguous(
            mut keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..6), 1..40),
            fixed in any::<bool>(),
        ) {
            let extractor = if fixed { Extractor::fixed(2) } else { Extractor::until(1) };
            keys.sort();
            let mut ended: Vec<&[u8]> = Vec::new();
            let mut current: Option<&[u8]> = None;
            for key in &keys {
                let device = extractor.prefix(key);
                if device != current {
                    ended.extend(current);
                    if let Some(device) = device {
                        prop_assert!(!ended.contains(&device));
                        let again = extractor.prefix_of(extractor.device(device));
                        prop_assert_eq!(again.as_deref(), Some(device));
                    }
                    current = device;
                }
            }
        }
    }
}
