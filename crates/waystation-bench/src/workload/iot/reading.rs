//! Keys and values as TPCx-IoT makes them, a client being a device here.
//!
//! A key is `client:sensor:timestamp`. The kit has 160 sensors; their names here are made of 16 places and 10
//! quantities in its form and of its mean length (16 bytes), and are not its own list; the specification's 200 have four
//! places more. The kit's timestamp is a counter that goes on by 100 ms with every insert of its client, and its sensors are
//! drawn; by the specification the timestamp is the time of day, and sensors write in turn, all at the same rate. The
//! sensor follows from the device and the number of the record, so that a device's keys can be told again without keeping them.

use super::IotValues;
use super::stay::Turn;
use crate::clock;
use crate::workload::Random;

/// The length of every value.
pub(crate) const VALUE_BYTES: usize = 1000;
/// What goes before the sensor, and before the timestamp.
pub(crate) const DELIMITER: u8 = b':';
/// The first timestamp (ms since 1970).
pub(crate) const FIRST_MS: u64 = 1_700_000_000_000;
/// What every insert of a device adds to its timestamp in the kit.
pub(crate) const STEP_MS: u64 = 100;

/// The last four are not in the kit's names.
const PLACES: [&str; 20] = [
    "cent_9", "side_8", "ang_45", "bef_1195", "cor_4", "cent_7", "side_2", "ang_30", "bef_201",
    "cor_12", "top_3", "low_16", "mid_51", "top_11", "low_7", "mid_8", "side_5", "ang_60", "cor_9",
    "top_27",
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
/// How many sensors a device has in the kit.
pub(crate) const KIT_SENSORS: u32 = 160;
/// How many it has by the specification.
pub(crate) const SPEC_SENSORS: u32 = (PLACES.len() * QUANTITIES.len()) as u32;

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
    push_key(turn.device, turn.sensor, turn.ms, out);
}

/// The sensor of a record in the kit: uniform, and always the same.
pub(crate) fn uniform_sensor(device: u64, ordinal: u32) -> u32 {
    (mixed(device << 32 | u64::from(ordinal)) % u64::from(KIT_SENSORS)) as u32
}

/// The sensor of a record by the specification: a device's sensors write in turn, the first one being any.
pub(crate) fn sensor_in_turn(device: u64, ordinal: u32) -> u32 {
    let sensors = u64::from(SPEC_SENSORS);
    ((mixed(device) % sensors + u64::from(ordinal)) % sensors) as u32
}

/// The finalizer of `SplitMix64`: every bit of the input reaches every bit of the output.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
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

/// What a sensor has read, as its value says; nothing if it is no value of these.
pub(crate) fn quantity(values: IotValues, value: &[u8]) -> Option<f64> {
    if value.len() != VALUE_BYTES {
        return None;
    }
    match values {
        IotValues::Random => {
            let bytes = value.first_chunk::<4>()?;
            Some(f64::from(u32::from_le_bytes(*bytes)) / f64::from(u32::MAX))
        }
        IotValues::Kit => {
            let name = value.iter().position(|byte| *byte == DELIMITER)?;
            // The name again, and `_value:`.
            let number = value.get(2 * name + 8..2 * name + 14)?;
            std::str::from_utf8(number).ok()?.parse().ok()
        }
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
    fn the_first_160_sensors_have_names_of_the_kits_length() {
        let name = |sensor| {
            let mut name = Vec::new();
            push_sensor(sensor, &mut name);
            name
        };
        let names: HashSet<Vec<u8>> = (0..SPEC_SENSORS).map(name).collect();
        assert_eq!(names.len(), 200);
        assert!(names.iter().all(|name| !name.contains(&DELIMITER)));
        let total: usize = (0..KIT_SENSORS).map(|sensor| name(sensor).len()).sum();
        let mean = total as f64 / f64::from(KIT_SENSORS);
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
        let mut counts = [0u32; KIT_SENSORS as usize];
        for ordinal in 0..160_000 {
            counts[uniform_sensor(12, ordinal) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn by_the_specification_sensors_write_in_turn() {
        let first = sensor_in_turn(12, 0);
        for ordinal in 0..1000 {
            assert_eq!(
                sensor_in_turn(12, ordinal),
                (first + ordinal) % SPEC_SENSORS
            );
        }
        let firsts: HashSet<u32> = (0..1000).map(|device| sensor_in_turn(device, 0)).collect();
        assert!(firsts.len() > 150, "{}", firsts.len());
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

    #[test]
    fn a_value_says_what_was_read() {
        let mut value = Vec::new();
        for sensor in 0..KIT_SENSORS {
            kit_value(sensor, &mut Random::new(sensor), &mut value);
            let text = String::from_utf8(value.clone()).expect("text");
            let number = text.split(':').nth(2).expect("a number");
            let quantity = quantity(IotValues::Kit, &value).expect("a value of the kit");
            assert_eq!(format!("{quantity:.4}"), number);
        }
        let noise = Noise::new();
        let random = quantity(IotValues::Random, noise.value(&mut Random::new(1)));
        assert!(random.is_some_and(|share| (0.0..=1.0).contains(&share)));
        assert_eq!(quantity(IotValues::Random, b"short"), None);
    }
}
