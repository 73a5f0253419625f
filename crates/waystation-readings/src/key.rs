//! The key of a reading: the device's prefix, the sensor, a zero byte, the time.
//!
//! ```text
//!   car17:        speed   00    80 05 fa ad f9 28 30 00
//!   prefix        sensor  end   time, big endian, sign bit turned over
//! ```
//!
//! The prefix is the extractor's, so a device's readings are contiguous and depart together. A sensor has no zero byte, so
//! the first one behind the prefix ends it, and sensors sort by their bytes. Times sort as numbers, those before 1970 too.

use waystation::Extractor;

/// The longest name of a sensor (bytes).
pub const SENSOR_BYTES_MAX: usize = 255;
/// The longest name of a device (bytes).
pub const DEVICE_BYTES_MAX: usize = 1024;
/// Turns the order of signed numbers into the order of unsigned ones.
const SIGN: u64 = 1 << 63;
const TIME_BYTES: usize = 8;

/// Why a reading has no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The extractor names no such device.
    #[error(
        "the device name {device:?} does not fit the extractor {extractor} of the database; use another name"
    )]
    Device {
        /// The name.
        device: String,
        /// The extractor.
        extractor: Extractor,
    },
    /// The sensor's name is empty, too long or has a zero byte.
    #[error(
        "the sensor name {0:?} is empty, has a zero byte or more than {SENSOR_BYTES_MAX} bytes"
    )]
    Sensor(String),
}

/// How a database lays readings out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    extractor: Extractor,
}

impl Layout {
    /// The layout of a database whose devices `extractor` names.
    pub fn new(extractor: Extractor) -> Self {
        Self { extractor }
    }

    /// What names the devices.
    pub fn extractor(&self) -> Extractor {
        self.extractor
    }

    /// What the keys of `device` begin with.
    pub fn device(&self, device: &str) -> Result<Vec<u8>, Wrong> {
        let fits = !device.is_empty() && device.len() <= DEVICE_BYTES_MAX;
        let prefix = self.extractor.prefix_of(device.as_bytes());
        prefix.filter(|_| fits).ok_or_else(|| Wrong::Device {
            device: device.to_owned(),
            extractor: self.extractor,
        })
    }

    /// What the keys of a sensor begin with.
    pub fn sensor(&self, device: &str, sensor: &str) -> Result<Vec<u8>, Wrong> {
        let mut key = self.device(device)?;
        if sensor.is_empty() || sensor.len() > SENSOR_BYTES_MAX || sensor.contains('\0') {
            return Err(Wrong::Sensor(sensor.to_owned()));
        }
        key.extend_from_slice(sensor.as_bytes());
        key.push(0);
        Ok(key)
    }

    /// The key of a reading.
    pub fn key(&self, device: &str, sensor: &str, time: i64) -> Result<Vec<u8>, Wrong> {
        let mut key = self.sensor(device, sensor)?;
        push_time(&mut key, time);
        Ok(key)
    }

    /// The device's prefix, the sensor and the time of a key; `None` if it is of no reading.
    pub fn parts<'a>(&self, key: &'a [u8]) -> Option<(&'a [u8], &'a str, i64)> {
        let prefix = self.extractor.prefix(key)?;
        let rest = &key[prefix.len()..];
        let end = rest.iter().position(|byte| *byte == 0)?;
        let sensor = std::str::from_utf8(&rest[..end]).ok()?;
        let time = read_time(&rest[end + 1..])?;
        (!sensor.is_empty()).then_some((prefix, sensor, time))
    }
}

/// Adds `time` in the order of its bytes.
#[expect(
    clippy::big_endian_bytes,
    reason = "keys sort by their bytes, so the highest byte of a time comes first"
)]
pub(crate) fn push_time(key: &mut Vec<u8>, time: i64) {
    let ordered = time.cast_unsigned() ^ SIGN;
    key.extend_from_slice(&ordered.to_be_bytes());
}

#[expect(clippy::big_endian_bytes, reason = "as it was written")]
fn read_time(bytes: &[u8]) -> Option<i64> {
    let bytes: [u8; TIME_BYTES] = bytes.try_into().ok()?;
    Some((u64::from_be_bytes(bytes) ^ SIGN).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_format_holds() {
        let layout = Layout::new(Extractor::until(b':'));
        let key = layout.key("car17", "speed", 1_683_000_000_000_000);
        let expected = [
            &b"car17:speed\0"[..],
            &[0x80, 0x05, 0xfa, 0xad, 0xf9, 0x28, 0x30, 0x00],
        ];
        assert_eq!(key, Ok(expected.concat()));
    }

    #[test]
    fn names_that_do_not_fit_are_refused() {
        let until = Layout::new(Extractor::until(b':'));
        assert!(matches!(
            until.key("a:b", "s", 0),
            Err(Wrong::Device { .. })
        ));
        assert!(matches!(until.key("", "s", 0), Err(Wrong::Device { .. })));
        for sensor in ["", "a\0b", &"s".repeat(SENSOR_BYTES_MAX + 1)] {
            assert!(matches!(until.key("a", sensor, 0), Err(Wrong::Sensor(_))));
        }
        let fixed = Layout::new(Extractor::fixed(4));
        assert!(fixed.key("car1", "s", 0).is_ok() && fixed.key("car17", "s", 0).is_err());
        assert_eq!(until.parts(b"settings"), None);
        assert_eq!(until.parts(b"car17:speed"), None);
        assert_eq!(until.parts(b"car17:speed\0short"), None);
    }

    proptest! {
        #[test]
        fn keys_are_read_back_and_sort_by_sensor_and_time(
            a in ("[a-c]{1,3}", any::<i64>()),
            b in ("[a-c]{1,3}", any::<i64>()),
        ) {
            let layout = Layout::new(Extractor::until(b':'));
            let key = |it: &(String, i64)| layout.key("d", &it.0, it.1).map_err(|error| error.to_string());
            let (first, second) = (key(&a), key(&b));
            prop_assert_eq!(first.cmp(&second), a.cmp(&b));
            let first = first.map_err(TestCaseError::fail)?;
            prop_assert_eq!(layout.parts(&first), Some((&b"d:"[..], a.0.as_str(), a.1)));
        }
    }
}
