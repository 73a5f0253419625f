//! Queries for the readings of one sensor, in one window of time after the other.
//!
//! The kit asks twice with every 20,000 inserts: for the last five seconds of a sensor, and for five earlier ones. The
//! specification asks five times with every 10,000, and one query is both windows, each with the number of
//! readings, the smallest, the largest and their mean; the earlier window lies within the last 1,800 seconds.
//! By the specification, half of the queries are for devices that write no more and stay: what they wrote has settled.
//!
//! A device's records can be told again, so every answer is checked: a wrong one ends the run.

use super::reading::{self, KIT_SENSORS, SPEC_SENSORS};
use super::stay::{Stay, Turn};
use super::{IotLoad, IotMode};
use crate::clock;
use crate::engines::{Cursor, Engine};
use crate::error::{Error, Result};
use crate::measure::Latencies;
use crate::workload::Random;
use std::hint::black_box;

/// A pair of the kit's queries comes with this many inserts, by chance.
const INSERTS_PER_KIT_PAIR: u32 = 20_000;
/// A query by the specification comes with this many.
const INSERTS_PER_SPEC_QUERY: u32 = 2000;
/// What a window spans (ms).
const WINDOW_MS: u64 = 5000;
/// How far back the specification's earlier window lies at most (ms).
const BACK_MS: u64 = 1_800_000;
/// How many devices that write no more are remembered, to be asked for.
const REMEMBERED: usize = 256;
const SEED: u32 = 700_000;

/// What was asked.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Queries.
    pub(crate) count: u64,
    /// Readings that they found.
    pub(crate) rows: u64,
    /// How long each took.
    pub(crate) latencies: Latencies,
}

impl Asked {
    /// Nothing so far.
    pub(crate) fn new() -> Self {
        Self {
            count: 0,
            rows: 0,
            latencies: Latencies::new(),
        }
    }

    /// All of another thread's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.rows += other.rows;
        self.latencies.add(&other.latencies);
    }
}

/// What a window holds.
#[derive(Debug, Clone, Copy)]
struct Aggregate {
    count: u64,
    least: f64,
    most: f64,
    sum: f64,
}

/// One client's queries.
pub(crate) struct Queries {
    load: IotLoad,
    random: Random,
    /// Devices that write no more and stay.
    settled: Vec<Stay>,
    forgotten: u32,
    first: Vec<u8>,
    end: Vec<u8>,
}

impl Queries {
    /// Those of client `thread`.
    pub(crate) fn new(load: IotLoad, thread: u32) -> Self {
        Self {
            load,
            random: Random::new(SEED + 1 + thread),
            settled: Vec::new(),
            forgotten: 0,
            first: Vec::new(),
            end: Vec::new(),
        }
    }

    /// Whether it is time to ask, by chance.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        let inserts = match self.load.mode {
            IotMode::Kit => INSERTS_PER_KIT_PAIR,
            IotMode::Spec => INSERTS_PER_SPEC_QUERY,
        };
        self.random.uniform(inserts) == 0
    }

    /// A device writes no more, and what it wrote stays. All have the same chance to be remembered.
    pub(crate) fn remember(&mut self, stay: Stay) {
        if self.load.mode == IotMode::Kit || stay.records == 0 {
            return;
        }
        if self.settled.len() < REMEMBERED {
            self.settled.push(stay);
            return;
        }
        self.forgotten += 1;
        let place = self.random.uniform(REMEMBERED as u32 + self.forgotten) as usize;
        if let Some(remembered) = self.settled.get_mut(place) {
            *remembered = stay;
        }
    }

    /// Asks once, `writer` being the device that has just written.
    pub(crate) fn ask<E: Engine>(
        &mut self,
        engine: &E,
        writer: &Stay,
        asked: &mut Asked,
    ) -> Result<()> {
        match self.load.mode {
            IotMode::Kit => {
                let sensor = self.random.uniform(KIT_SENSORS);
                for from in self.kit_windows(writer) {
                    self.query(engine, writer, sensor, &[from], asked)?;
                }
            }
            IotMode::Spec => {
                let sensor = self.random.uniform(SPEC_SENSORS);
                let count = self.settled.len() as u32;
                if count > 0 && self.random.uniform(2) == 0 {
                    let place = self.random.uniform(count) as usize;
                    let stay = self.settled[place].clone();
                    let windows = self.spec_windows(&stay);
                    self.query(engine, &stay, sensor, &windows, asked)?;
                } else {
                    let windows = self.spec_windows(writer);
                    self.query(engine, writer, sensor, &windows, asked)?;
                }
            }
        }
        Ok(())
    }

    /// Where the kit's windows begin: the last one, and one since the device came.
    fn kit_windows(&mut self, stay: &Stay) -> [u64; 2] {
        let last = newest(stay).saturating_sub(reading::FIRST_MS);
        let earlier = u64::from(self.random.next()) % last.saturating_sub(2 * WINDOW_MS).max(1);
        [last.saturating_sub(WINDOW_MS), earlier].map(|ms| reading::FIRST_MS + ms)
    }

    /// Where the specification's windows begin: the last one that ends with a record, and one before, if the device
    /// has been there for so long.
    fn spec_windows(&mut self, stay: &Stay) -> [u64; 2] {
        let last = newest(stay) + 1 - WINDOW_MS;
        let since = stay.turn(0).ms.max(last.saturating_sub(BACK_MS));
        let span = (last - WINDOW_MS).saturating_sub(since) + 1;
        [last, since + u64::from(self.random.next()) % span]
    }

    /// One query for some windows.
    fn query<E: Engine>(
        &mut self,
        engine: &E,
        stay: &Stay,
        sensor: u32,
        windows: &[u64],
        asked: &mut Asked,
    ) -> Result<()> {
        let started = clock::now();
        let mut found = [0; 2];
        for (from, found) in windows.iter().zip(&mut found) {
            let aggregate = self.aggregate(engine, stay.device, sensor, *from)?;
            *found = aggregate.count;
            black_box((
                aggregate.least,
                aggregate.most,
                aggregate.sum / aggregate.count as f64,
            ));
        }
        asked.latencies.record(started.elapsed());
        asked.count += 1;
        for (from, found) in windows.iter().zip(found) {
            asked.rows += found;
            let expected = stay.count(sensor, *from..from + WINDOW_MS);
            if found != expected {
                let device = stay.device;
                let message = format!("host{device} has {found} readings instead of {expected}");
                return Err(Error::engine(E::NAME, "answer a query", message));
            }
        }
        Ok(())
    }

    /// The readings of a sensor in the window that begins at `from`.
    fn aggregate<E: Engine>(
        &mut self,
        engine: &E,
        device: u64,
        sensor: u32,
        from: u64,
    ) -> Result<Aggregate> {
        self.first.clear();
        self.end.clear();
        let (first, end) = (
            Turn {
                device,
                sensor,
                ms: from,
            },
            Turn {
                device,
                sensor,
                ms: from + WINDOW_MS,
            },
        );
        reading::push_turn(first, &mut self.first);
        reading::push_turn(end, &mut self.end);
        let mut aggregate = Aggregate {
            count: 0,
            least: f64::INFINITY,
            most: f64::NEG_INFINITY,
            sum: 0.0,
        };
        let mut cursor = engine.cursor()?;
        let mut is_valid = cursor.seek(&self.first)?;
        while is_valid && cursor.key() < self.end.as_slice() {
            let quantity = reading::quantity(self.load.values, cursor.value());
            let quantity =
                quantity.ok_or_else(|| Error::engine(E::NAME, "query", "a value is no reading"))?;
            aggregate.count += 1;
            aggregate.least = aggregate.least.min(quantity);
            aggregate.most = aggregate.most.max(quantity);
            aggregate.sum += quantity;
            is_valid = cursor.next()?;
        }
        Ok(aggregate)
    }
}

/// The last record's timestamp, of a device that has written.
fn newest(stay: &Stay) -> u64 {
    stay.turn(stay.records - 1).ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::IotValues;

    fn queries(mode: IotMode) -> Queries {
        let load = IotLoad {
            mode,
            values: IotValues::Random,
            devices: 12,
            threads: 1,
            seconds: 20,
            departing: 0.5,
            sync: false,
            offered_per_s: None,
            batch: 1,
        };
        Queries::new(load, 0)
    }

    #[test]
    fn five_queries_come_with_ten_thousand_inserts_and_a_pair_with_twenty() {
        for (mode, expected) in [(IotMode::Spec, 1000), (IotMode::Kit, 100)] {
            let mut queries = queries(mode);
            let due = (0..2_000_000).filter(|_| queries.is_due()).count();
            assert!(due.abs_diff(expected) < expected / 3, "{mode:?}: {due}");
        }
    }

    #[test]
    fn the_earlier_window_lies_before_the_last_one_and_not_too_far() {
        let mut queries = queries(IotMode::Spec);
        let first = reading::FIRST_MS;
        let mut stay = Stay::new(7, false, IotMode::Spec);
        stay.write(first);
        stay.write(first + 60_000);
        let mut seen = Vec::new();
        for _ in 0..1000 {
            let [last, earlier] = queries.spec_windows(&stay);
            assert_eq!(last, first + 55_001);
            assert!((first..=first + 50_001).contains(&earlier), "{earlier}");
            seen.push(earlier - first);
        }
        assert!(seen.iter().any(|ms| *ms < 5000) && seen.iter().any(|ms| *ms > 45_000));
        stay.write(first + 2_000_000);
        for _ in 0..1000 {
            let [last, earlier] = queries.spec_windows(&stay);
            assert!((last - BACK_MS..last).contains(&earlier), "{earlier}");
        }
    }

    #[test]
    fn of_a_short_stay_the_earlier_window_is_its_beginning() {
        let mut queries = queries(IotMode::Spec);
        let mut stay = Stay::new(7, false, IotMode::Spec);
        stay.write(reading::FIRST_MS);
        stay.write(reading::FIRST_MS + 300);
        let [last, earlier] = queries.spec_windows(&stay);
        assert_eq!(last + WINDOW_MS, reading::FIRST_MS + 301);
        assert_eq!(earlier, reading::FIRST_MS);
    }

    #[test]
    fn all_devices_that_stayed_have_the_same_chance_to_be_asked_for() {
        let mut queries = queries(IotMode::Spec);
        for device in 0..10_000 {
            let mut stay = Stay::new(device, false, IotMode::Spec);
            stay.write(reading::FIRST_MS);
            queries.remember(stay);
        }
        queries.remember(Stay::new(10_000, false, IotMode::Spec));
        assert_eq!(queries.settled.len(), REMEMBERED);
        let mean = queries.settled.iter().map(|stay| stay.device).sum::<u64>() / 256;
        assert!((4000..6000).contains(&mean), "{mean}");
        assert!(queries.settled.iter().all(|stay| stay.records == 1));
    }
}
