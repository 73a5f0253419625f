//! What the log says of devices: the payload of a record of the kind `Devices`.
//!
//! ```text
//! departed  1 | prefix                     the device leaves at the record's sequence number
//! switched  2 | count | prefixes           their writes from here on go to the memtable
//! settled   3 | count | prefixes           all they wrote before the switch is in tables
//! ```
//!
//! A prefix is a varint length and its bytes, a count a varint. The numbers are on disk: never renumber.

use waystation_format::FormatError;
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

/// What happened to devices, all at the sequence number of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeviceEvent<'a> {
    /// A device left.
    Departed(&'a [u8]),
    /// Stays are about to settle.
    Switched(Vec<&'a [u8]>),
    /// Stays have settled.
    Settled(Vec<&'a [u8]>),
}

impl<'a> DeviceEvent<'a> {
    /// The record's payload.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (code, prefixes) = match self {
            Self::Departed(prefix) => (1, std::slice::from_ref(prefix)),
            Self::Switched(prefixes) => (2, &prefixes[..]),
            Self::Settled(prefixes) => (3, &prefixes[..]),
        };
        let mut out = vec![code];
        if code > 1 {
            put_u64(&mut out, prefixes.len() as u64);
        }
        for prefix in prefixes {
            put_length_prefixed(&mut out, prefix);
        }
        out
    }

    /// Reads a record's payload.
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(payload);
        let code = reader.u8("kind of a device event")?;
        if code == 1 {
            return Ok(Self::Departed(reader.length_prefixed("device")?));
        }
        let mut prefixes = Vec::new();
        for _ in 0..reader.var_u64("count of devices")? {
            prefixes.push(reader.length_prefixed("device")?);
        }
        match code {
            2 => Ok(Self::Switched(prefixes)),
            3 => Ok(Self::Settled(prefixes)),
            _ => Err(FormatError::Unsupported {
                offset: 0,
                reason: "kind of a device event",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_back() {
        for event in [
            DeviceEvent::Departed(b"car-1:"),
            DeviceEvent::Switched(vec![b"a:", b"b:"]),
            DeviceEvent::Settled(vec![b"a:"]),
        ] {
            let bytes = event.encode();
            assert_eq!(DeviceEvent::decode(&bytes).as_ref(), Ok(&event));
            for cut in 0..bytes.len() {
                assert!(DeviceEvent::decode(&bytes[..cut]).is_err());
            }
        }
        assert!(DeviceEvent::decode(&[9, 0]).is_err());
    }
}
