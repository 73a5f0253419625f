//! What vehicles send: a pure function of vehicle and time, told the same way to everybody who asks.
//!
//! A vehicle sends at a fixed interval from a phase of its own, from its sensors in turn; the key says all three
//! (`car0010654:speed:0005100250`), and the value follows from the key. So nobody has to remember what was written:
//! who knows the trace knows every byte.

/// All settings that readings depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    /// Between two readings of a vehicle (microseconds, at least 1,000).
    pub(crate) interval_us: u64,
    /// Sensors of a vehicle.
    pub(crate) sensors: u32,
    /// A value's length (at least 8).
    pub(crate) value_bytes: usize,
}

/// The sensors that have names.
const NAMES: [&str; 8] = [
    "speed", "position", "heading", "engine", "battery", "brakes", "radar", "air",
];
/// Ends a vehicle's name, and a sensor's.
pub(crate) const DELIMITER: u8 = b':';

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Reading {
    /// Whose.
    pub(crate) vehicle: u32,
    /// From which sensor.
    pub(crate) sensor: u32,
    /// When (milliseconds of the trace's time).
    pub(crate) at_ms: u64,
}

/// A vehicle's name.
pub(crate) fn name(vehicle: u32) -> Vec<u8> {
    format!("car{vehicle:07}").into_bytes()
}

/// The vehicle that is called so.
pub(crate) fn vehicle_of(name: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(name.strip_prefix(b"car")?).ok()?;
    (digits.len() == 7).then(|| digits.parse().ok()).flatten()
}

fn push_sensor(sensor: u32, key: &mut Vec<u8>) {
    match NAMES.get(sensor as usize) {
        Some(name) => key.extend_from_slice(name.as_bytes()),
        None => key.extend_from_slice(format!("sensor{sensor}").as_bytes()),
    }
}

/// What all keys of a vehicle begin with; and the first key after them.
pub(crate) fn range_of(vehicle: u32) -> (Vec<u8>, Vec<u8>) {
    let (mut from, mut to) = (name(vehicle), name(vehicle));
    from.push(DELIMITER);
    to.push(DELIMITER + 1);
    (from, to)
}

impl Reading {
    /// Its key, in place of what is in `key`.
    pub(crate) fn key(&self, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(b"car");
        push_decimal(u64::from(self.vehicle), 7, key);
        key.push(DELIMITER);
        push_sensor(self.sensor, key);
        key.push(DELIMITER);
        push_decimal(self.at_ms, 10, key);
    }

    /// Its value, in place of what is in `value`: eight bytes of what was measured, then noise.
    pub(crate) fn value(&self, bytes: usize, value: &mut Vec<u8>) {
        value.clear();
        let mut state = mix(u64::from(self.vehicle) << 32 | u64::from(self.sensor)) ^ self.at_ms;
        value.extend_from_slice(&(mix(state) % 100_000).to_le_bytes());
        while value.len() < bytes {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            value.extend_from_slice(&mix(state).to_le_bytes());
        }
        value.truncate(bytes);
    }
}

/// What was measured.
pub(crate) fn measured(value: &[u8]) -> u64 {
    value
        .first_chunk()
        .map_or(0, |first| u64::from_le_bytes(*first))
}

fn push_decimal(number: u64, width: usize, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let (mut first, mut rest) = (digits.len(), number);
    while rest > 0 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[first.min(digits.len() - width)..]);
}

/// The finalizer of `SplitMix64`: every bit of the input reaches every bit of the output.
pub(crate) fn mix(input: u64) -> u64 {
    let mut mixed = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Plan {
    /// What `vehicle` sends from second `from` up to second `until`, in order of time.
    pub(crate) fn readings(
        &self,
        vehicle: u32,
        from: u32,
        until: u32,
    ) -> impl Iterator<Item = Reading> {
        let plan = *self;
        let phase = mix(u64::from(vehicle)) % plan.interval_us;
        let first_at_or_after = move |seconds: u32| {
            let time = u64::from(seconds) * 1_000_000;
            time.saturating_sub(phase).div_ceil(plan.interval_us)
        };
        (first_at_or_after(from)..first_at_or_after(until)).map(move |ordinal| Reading {
            vehicle,
            sensor: ((ordinal + u64::from(vehicle)) % u64::from(plan.sensors)) as u32,
            at_ms: (phase + ordinal * plan.interval_us) / 1_000,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const PLAN: Plan = Plan {
        interval_us: 1_300_000,
        sensors: 10,
        value_bytes: 50,
    };

    #[test]
    fn a_key_says_vehicle_sensor_and_time() {
        let mut key = Vec::new();
        let mut reading = Reading {
            vehicle: 10_654,
            sensor: 0,
            at_ms: 5_100_250,
        };
        reading.key(&mut key);
        assert_eq!(key, b"car0010654:speed:0005100250");
        let (from, to) = range_of(10_654);
        assert!(key.starts_with(&from) && key < to);
        reading.sensor = 9;
        reading.key(&mut key);
        assert_eq!(key, b"car0010654:sensor9:0005100250");
        assert_eq!(vehicle_of(&name(10_654)), Some(10_654));
        assert_eq!(vehicle_of(b"bus0010654"), None);
        assert_eq!(vehicle_of(b"car12"), None);
    }

    #[test]
    fn a_span_is_the_sum_of_its_parts() {
        let whole: Vec<Reading> = PLAN.readings(7, 3, 100).collect();
        let parts: Vec<Reading> = (3..100)
            .flat_map(|at| PLAN.readings(7, at, at + 1))
            .collect();
        assert_eq!(whole, parts);
        assert!(whole.len().abs_diff(97 * 10 / 13) <= 1);
        assert!(
            whole
                .iter()
                .all(|reading| (3_000..100_000).contains(&reading.at_ms))
        );
        let sensors: HashSet<u32> = whole.iter().map(|reading| reading.sensor).collect();
        assert_eq!(sensors.len(), 10);
        assert_eq!(PLAN.readings(7, 5, 5).count(), 0);
    }

    #[test]
    fn readings_a_millisecond_apart_have_keys_of_their_own() {
        let plan = Plan {
            interval_us: 1_000,
            sensors: 1,
            ..PLAN
        };
        let times: HashSet<u64> = plan
            .readings(1, 0, 2)
            .map(|reading| reading.at_ms)
            .collect();
        assert_eq!(times.len(), 2_000);
    }

    #[test]
    fn values_follow_from_their_keys() {
        let reading = PLAN.readings(7, 3, 100).next().unwrap();
        let (mut one, mut two) = (Vec::new(), vec![1]);
        reading.value(50, &mut one);
        reading.value(50, &mut two);
        assert_eq!(one, two);
        assert_eq!(one.len(), 50);
        assert!(measured(&one) < 100_000);
        let later = Reading {
            at_ms: reading.at_ms + 1,
            ..reading
        };
        later.value(50, &mut two);
        assert_ne!(one, two);
    }
}
