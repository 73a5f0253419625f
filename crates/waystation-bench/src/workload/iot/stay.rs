//! One device from its arrival on, and the records it wrote: all of them can be told again, without a copy of their
//! keys.

use super::IotMode;
use super::reading;
use std::ops::Range;

/// When a device's records were written, as their keys say (ms since 1970).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Timestamps {
    /// Each 100 ms after the one before: the kit's counter.
    Counted,
    /// The time of day when the record was made.
    Real {
        /// The first record's.
        first_ms: u64,
        /// How much later the others were.
        later_ms: Vec<u32>,
    },
}

impl Timestamps {
    /// Those of a device without records.
    fn new(mode: IotMode) -> Self {
        match mode {
            IotMode::Kit => Self::Counted,
            IotMode::Spec => Self::Real {
                first_ms: 0,
                later_ms: Vec::new(),
            },
        }
    }

    /// Adds record `ordinal`, made at `now_ms`. No two records of a sensor have the same timestamp.
    #[inline]
    fn push(&mut self, ordinal: u32, now_ms: u64) {
        let Self::Real { first_ms, later_ms } = self else {
            return;
        };
        if ordinal == 0 {
            *first_ms = now_ms;
        }
        let before = (ordinal as usize).checked_sub(reading::SPEC_SENSORS as usize);
        let least = before.map_or(0, |before| later_ms[before] + 1);
        let later = u32::try_from(now_ms.saturating_sub(*first_ms)).unwrap_or(u32::MAX - 1);
        later_ms.push(later.max(least));
    }

    fn of(&self, ordinal: u32) -> u64 {
        match self {
            Self::Counted => reading::FIRST_MS + u64::from(ordinal) * reading::STEP_MS,
            Self::Real { first_ms, later_ms } => first_ms + u64::from(later_ms[ordinal as usize]),
        }
    }
}

/// One device from its arrival on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stay {
    /// Its number, which no other device of any thread has.
    pub(crate) device: u64,
    /// How many records it has written.
    pub(crate) records: u32,
    /// Whether what it wrote is to be deleted when it goes.
    pub(crate) leaves: bool,
    timestamps: Timestamps,
}

/// One record: all that its key is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The device.
    pub(crate) device: u64,
    /// Which of its sensors.
    pub(crate) sensor: u32,
    /// The timestamp (ms since 1970).
    pub(crate) ms: u64,
}

impl Stay {
    /// A device that has written nothing.
    pub(crate) fn new(device: u64, leaves: bool, mode: IotMode) -> Self {
        Self {
            device,
            records: 0,
            leaves,
            timestamps: Timestamps::new(mode),
        }
    }

    /// The next record, written at `now_ms`.
    #[inline]
    pub(crate) fn write(&mut self, now_ms: u64) -> Turn {
        let ordinal = self.records;
        self.timestamps.push(ordinal, now_ms);
        self.records += 1;
        self.turn(ordinal)
    }

    /// The record of number `ordinal`, which has been written.
    #[inline]
    pub(crate) fn turn(&self, ordinal: u32) -> Turn {
        let sensor = match self.timestamps {
            Timestamps::Counted => reading::uniform_sensor(self.device, ordinal),
            Timestamps::Real { .. } => reading::sensor_in_turn(self.device, ordinal),
        };
        Turn {
            device: self.device,
            sensor,
            ms: self.timestamps.of(ordinal),
        }
    }

    /// All that were written.
    pub(crate) fn turns(&self) -> impl Iterator<Item = Turn> + '_ {
        (0..self.records).map(|ordinal| self.turn(ordinal))
    }

    /// How many readings of a sensor lie in a window of time.
    pub(crate) fn count(&self, sensor: u32, window: Range<u64>) -> u64 {
        let is_meant = |ordinal: &u32| {
            let turn = self.turn(*ordinal);
            turn.sensor == sensor && window.contains(&turn.ms)
        };
        let count = match self.timestamps {
            Timestamps::Counted => {
                let ordinal = |ms: u64| {
                    let steps = ms
                        .saturating_sub(reading::FIRST_MS)
                        .div_ceil(reading::STEP_MS);
                    u32::try_from(steps).unwrap_or(u32::MAX).min(self.records)
                };
                (ordinal(window.start)..ordinal(window.end))
                    .filter(is_meant)
                    .count()
            }
            Timestamps::Real { .. } => {
                let sensors = reading::SPEC_SENSORS;
                let first = (sensors + sensor - reading::sensor_in_turn(self.device, 0)) % sensors;
                let ordinals = (first..self.records).step_by(sensors as usize);
                ordinals.filter(is_meant).count()
            }
        };
        count as u64
    }

    /// The keys of all that were written.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.turns().map(|turn| {
            let mut key = Vec::with_capacity(64);
            reading::push_turn(turn, &mut key);
            key
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_stays_keys_are_told_again() {
        let mut stay = Stay::new(5, true, IotMode::Kit);
        let written: Vec<Turn> = (0..3).map(|_| stay.write(77)).collect();
        assert!(stay.turns().eq(written));
        let keys: Vec<Vec<u8>> = stay.keys().collect();
        let ends: Vec<&[u8]> = keys.iter().map(|key| &key[key.len() - 13..]).collect();
        assert_eq!(ends, [b"1700000000000", b"1700000000100", b"1700000000200"]);
        assert!(keys.iter().all(|key| key.starts_with(b"host5:")));
    }

    #[test]
    fn real_timestamps_are_those_of_the_clock() {
        let mut stay = Stay::new(5, true, IotMode::Spec);
        let times = [1000, 1000, 1003, 5000, 4000];
        let written: Vec<Turn> = times.iter().map(|now_ms| stay.write(*now_ms)).collect();
        assert!(written.iter().map(|turn| turn.ms).eq(times));
        assert!(stay.turns().eq(written));
    }

    #[test]
    fn a_window_holds_what_was_written_in_it() {
        for mode in [IotMode::Kit, IotMode::Spec] {
            let mut stay = Stay::new(3, false, mode);
            for step in 0..5000 {
                stay.write(reading::FIRST_MS + 7 * step);
            }
            for (sensor, from) in [(0, 0), (17, 4500), (159, 30_000), (80, 499_000)] {
                let from = reading::FIRST_MS + from;
                let window = from..from + 5000;
                let is_meant = |turn: &Turn| turn.sensor == sensor && window.contains(&turn.ms);
                let expected = stay.turns().filter(is_meant).count() as u64;
                assert_eq!(
                    stay.count(sensor, window.clone()),
                    expected,
                    "{mode:?} {sensor}"
                );
            }
        }
    }

    #[test]
    fn no_record_takes_the_place_of_another() {
        let mut stay = Stay::new(9, false, IotMode::Spec);
        // A clock that hardly goes on: a thousand records in two milliseconds.
        for step in 0..1000 {
            stay.write(1_000_000 + step / 500);
        }
        assert_eq!(stay.keys().collect::<HashSet<_>>().len(), 1000);
    }
}
