//! Keys and values as the kit of TPCx-IoT makes them, a client being a device here.
//!
//! A key is `client:sensor:timestamp`. The kit has 160 sensors; their names here are made of 16 places and 10
//! quantities in its form and of its mean length (16 bytes), and are not its own list. The timestamp is a counter that
//! goes on by 100 ms with every insert of the device, as the kit's does with every insert of its client. The sensor follows from the device and the
//! number of the record, so that a device's keys can be told again without keeping them.

use super::schedule::{Stay, Turn};
use crate::clock;
use crate::workload::Random;

/// The length of every value.
pub(crate) const VALUE_BYTES: usize = 1000;
/// What goes before the sensor, and before the timestamp.
pub(crate) const DELIMITER: u8 = b':';
/// The first timestamp (ms since 1970).
pub(crate) const FIRST_MS: u64 = 1_700_000_000_000;
/// What every insert of a device adds to its timestamp.
const STEP_MS: u64 = 100;

const PLACES: [&str; 16] = [
    "cent_9", "side_8", "ang_45", "bef_1195", "cor_4", "cent_7", "side_2", "ang_30", "bef_201",
    "cor_12", "top_3", "low_16", "mid_51", "top_11", "low_7", "mid_8",
];
const QUANTITIES: [&str; 10] = [
    "Humidity",
    "Power_Supply",
    "Pressure",
    "Flow_Rate",
    "Water_Level",
    "Temperature",
    "vibration",
    "tilt_angle",
    "Voltage",
    "Current",
];
/// How many sensors a device has.
pub(crate) const SENSORS: u32 = (PLACES.len() * QUANTITIES.len()) as u32;

/// A device's name: its keys up to the delimiter.
pub(crate) fn push_device(device: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"host");
    push_decimal(device, out);
}

/// The sensor of number `sensor`.
pub(crate) fn push_sensor(sensor: u32, out: &mut Vec<u8>) {
    let (place, quantity) = (
        sensor as usize / QUANTITIES.len(),
        sensor as usize % QUANTITIES.len(),
    );
    out.extend_from_slice(PLACES[place].as_bytes());
    out.push(b'_');
    out.extend_from_slice(QUANTITIES[quantity].as_bytes());
}

/// `device:sensor:ms`.
pub(crate) fn push_key(device: u64, sensor: u32, ms: u64, out: &mut Vec<u8>) {
    push_device(device, out);
    out.push(DELIMITER);
    push_sensor(sensor, out);
    out.push(DELIMITER);
    push_decimal(ms, out);
}

/// The key of a record.
pub(crate) fn push_turn(turn: Turn, out: &mut Vec<u8>) {
    push_key(turn.device, sensor(turn), timestamp(turn), out);
}

/// The timestamp of a record.
pub(crate) fn timestamp(turn: Turn) -> u64 {
    FIRST_MS + u64::from(turn.ordinal) * STEP_MS
}

/// The sensor of a record: uniform, and always the same.
pub(crate) fn sensor(turn: Turn) -> u32 {
    // The finalizer of SplitMix64: every bit of the input reaches every bit of the output.
    let mut mixed =
        (turn.device << 32 | u64::from(turn.ordinal)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ mixed >> 31) % u64::from(SENSORS)) as u32
}

/// All keys that were written in a stay.
pub(crate) fn keys_of(stay: &Stay) -> impl Iterator<Item = Vec<u8>> + '_ {
    (0..stay.records).map(|ordinal| {
        let mut key = Vec::with_capacity(64);
        push_turn(stay.turn(ordinal), &mut key);
        key
    })
}

fn push_decimal(number: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let (mut first, mut rest) = (digits.len(), number);
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Bytes that do not compress, shared by all threads.
#[derive(Debug)]
pub(crate) struct Noise(Vec<u8>);

impl Noise {
    const BYTES: usize = 4 << 20;

    /// The same bytes each time.
    pub(crate) fn new() -> Self {
        let mut random = Random::new(301);
        // The generator's high bits: the low ones of a Lehmer generator are poorer.
        Self(
            (0..Self::BYTES)
                .map(|_| (random.next() >> 20) as u8)
                .collect(),
        )
    }

    /// A value that starts somewhere.
    pub(crate) fn value(&self, random: &mut Random) -> &[u8] {
        let start = random.uniform((Self::BYTES - VALUE_BYTES) as u32) as usize;
        &self.0[start..start + VALUE_BYTES]
    }
}

/// A value as the kit makes it: `sensor:sensor_value:d.dddd:timestamp:now:hash`, again and again with the time and
/// the hash of all before, until it is long enough. It compresses to a small part.
pub(crate) fn kit_value(sensor: u32, random: &mut Random, out: &mut Vec<u8>) {
    out.clear();
    let reading = random.uniform(10_001);
    // Java's hash of a string, kept up as the string grows.
    let (mut hash, mut hashed) = (0i32, 0);
    while out.len() < VALUE_BYTES {
        push_sensor(sensor, out);
        out.push(DELIMITER);
        push_sensor(sensor, out);
        out.extend_from_slice(b"_value:");
        push_decimal(u64::from(reading / 10_000), out);
        out.push(b'.');
        let fraction = reading % 10_000;
        out.extend([1000, 100, 10, 1].map(|unit| b'0' + (fraction / unit % 10) as u8));
        out.extend_from_slice(b":timestamp:");
        push_decimal(clock::unix_millis(), out);
        out.push(DELIMITER);
        for byte in &out[hashed..] {
            hash = hash.wrapping_mul(31).wrapping_add(i32::from(*byte));
        }
        hashed = out.len();
        if hash < 0 {
            out.push(b'-');
        }
        push_decimal(u64::from(hash.unsigned_abs()), out);
    }
    out.truncate(VALUE_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn there_are_160_sensors_with_names_of_the_kits_length() {
        let name = |sensor| {
            let mut name = Vec::new();
            push_sensor(sensor, &mut name);
            name
        };
        let names: HashSet<Vec<u8>> = (0..SENSORS).map(name).collect();
        assert_eq!(names.len(), 160);
        assert!(names.iter().all(|name| !name.contains(&DELIMITER)));
        let mean = names.iter().map(Vec::len).sum::<usize>() as f64 / 160.0;
        assert!((mean - 16.05).abs() < 0.5, "{mean}");
    }

    #[test]
    fn a_key_is_client_sensor_and_timestamp() {
        let mut key = Vec::new();
        push_key(7, 0, FIRST_MS, &mut key);
        assert_eq!(key, b"host7:cent_9_Humidity:1700000000000");
    }

    #[test]
    fn sensors_are_uniform() {
        let mut counts = [0u32; SENSORS as usize];
        for ordinal in 0..160_000 {
            counts[sensor(Turn {
                device: 12,
                ordinal,
            }) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_stays_keys_are_told_again() {
        let stay = Stay {
            device: 5,
            records: 3,
            leaves: true,
        };
        let keys: Vec<Vec<u8>> = keys_of(&stay).collect();
        let ends: Vec<&[u8]> = keys.iter().map(|key| &key[key.len() - 13..]).collect();
        assert_eq!(ends, [b"1700000000000", b"1700000000100", b"1700000000200"]);
        assert!(keys.iter().all(|key| key.starts_with(b"host5:")));
    }

    #[test]
    fn noise_has_all_bytes_about_as_often() {
        let noise = Noise::new();
        let mut counts = [0u32; 256];
        noise
            .0
            .iter()
            .for_each(|byte| counts[usize::from(*byte)] += 1);
        assert!(
            counts.iter().all(|count| (15_000..18_000).contains(count)),
            "{counts:?}"
        );
        assert_eq!(noise.value(&mut Random::new(1)).len(), VALUE_BYTES);
    }

    #[test]
    fn a_kit_value_repeats_its_group() {
        let mut value = Vec::new();
        kit_value(0, &mut Random::new(1), &mut value);
        assert_eq!(value.len(), VALUE_BYTES);
        let group = b"cent_9_Humidity:cent_9_Humidity_value:";
        assert!(value.starts_with(group));
        let again = value.windows(group.len()).filter(|window| window == group);
        assert!(again.count() > 8);
    }
}
