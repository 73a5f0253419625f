//! What the hypervisor takes away: processor time that a rented machine wanted to use and did not get.
//!
//! A throttled device measured in that time looks slower than it is, and so does the engine. The part that was taken tells
//! whether a run means anything.

use crate::error::{Error, Result};
use std::fs;

const STAT: &str = "/proc/stat";

/// Where `steal` stands in the line of all processors, behind its name: user nice system idle iowait irq softirq steal.
const STEAL: usize = 7;

/// Measures from its making on, and from one look to the next.
pub(crate) struct StolenMeter {
    ticks: Ticks,
}

/// Ticks since the machine was started, of all processors.
#[derive(Clone, Copy)]
struct Ticks {
    stolen: u64,
    all: u64,
}

impl StolenMeter {
    pub(crate) fn start() -> Result<Self> {
        let ticks = Ticks::now()?;
        Ok(Self { ticks })
    }

    /// The part of the processors' time that was taken away since the last call, from 0 to 1.
    pub(crate) fn take(&mut self) -> Result<f64> {
        let before = std::mem::replace(&mut self.ticks, Ticks::now()?);
        let all = self.ticks.all.saturating_sub(before.all).max(1);
        let stolen = self.ticks.stolen.saturating_sub(before.stolen);
        Ok(stolen as f64 / all as f64)
    }
}

impl Ticks {
    fn now() -> Result<Self> {
        let text = fs::read_to_string(STAT)
            .map_err(|source| Error::io("read the processors' time from", STAT, source))?;
        Self::parse(&text).ok_or_else(|| {
            Error::Refused(format!("{STAT} does not tell the time of all processors"))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .take(STEAL + 1)
            .filter_map(|it| it.parse().ok())
            .collect();
        Some(Self {
            stolen: *ticks.get(STEAL)?,
            all: ticks.iter().sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_figure_of_all_processors() {
        let text = "cpu  10 1 5 70 4 0 2 8 99 0\ncpu0 5 0 2 35 2 0 1 4 0 0\n";
        let ticks = Ticks::parse(text).expect("a line of all processors");
        assert_eq!((ticks.stolen, ticks.all), (8, 100));
        assert!(Ticks::parse("cpu0 5 0 2 35 2 0 1 4 0 0\n").is_none());
        assert!(Ticks::parse("cpu  10 1 5 70\n").is_none());
    }

    #[test]
    fn a_part_of_the_time_is_between_nothing_and_all() {
        let mut meter = StolenMeter::start().expect("a meter");
        let part = meter.take().expect("a part");
        assert!((0.0..=1.0).contains(&part));
    }
}
