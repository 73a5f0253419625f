//! Who is there, who writes next, and who is due to go: one client thread's share of the devices.
//!
//! Every thread has its own slots. A slot holds one device at a time; when that one's time is over, the next one,
//! which never was there before, takes its place. Slots write in turn, so that all devices write at the same rate.
//! Of the devices, a share *leaves*: after a dwell that is uniform in 0.1 to 0.9 of the residency; what it wrote is
//! to be deleted. The others *stay*: they write for 1.5 residencies, so that they settle, and nobody deletes what they
//! wrote. The first device of a slot has been there for a while: its dwell is cut by a uniform share.
//!
//! The schedule knows no clock: it is told the time since the start, and the same times give the same devices.

use super::IotMode;
use super::stay::{Stay, Turn};
use crate::workload::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

/// The dwell of a device that leaves, in residencies.
const LEAVER_DWELL: Range<f64> = 0.1..0.9;
/// The dwell of one that does not.
const SURVIVOR_DWELL: f64 = 1.5;

/// Whose share of the devices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// The thread, from 0.
    pub(crate) thread: u32,
    /// Of so many.
    pub(crate) threads: u32,
    /// Devices of all threads that are there at any time.
    pub(crate) devices: u32,
    /// Records that a device writes before the next one does.
    pub(crate) batch: u32,
}

/// One thread's devices.
#[derive(Debug)]
pub(crate) struct Schedule {
    share: Share,
    mode: IotMode,
    residency: Duration,
    departing: f64,
    random: Random,
    slots: Vec<Stay>,
    /// When the devices' times are over, by slot.
    ends: BinaryHeap<Reverse<(Duration, usize)>>,
    arrived: u64,
    tick: u64,
}

impl Schedule {
    /// A thread's devices at the start. The share `departing` of those to come leaves.
    pub(crate) fn new(
        share: Share,
        mode: IotMode,
        residency: Duration,
        departing: f64,
        random: Random,
    ) -> Self {
        let count =
            share.devices / share.threads + u32::from(share.thread < share.devices % share.threads);
        let mut schedule = Self {
            share,
            mode,
            residency,
            departing,
            random,
            slots: Vec::with_capacity(count as usize),
            ends: BinaryHeap::with_capacity(count as usize),
            arrived: 0,
            tick: 0,
        };
        for slot in 0..count as usize {
            let (stay, dwell) = schedule.arrive();
            let rest = dwell.mul_f64(schedule.uniform());
            schedule.slots.push(stay);
            schedule.ends.push(Reverse((rest, slot)));
        }
        schedule
    }

    /// What is to be written next, the time of day being `now_ms`.
    #[inline]
    pub(crate) fn next_turn(&mut self, now_ms: u64) -> Turn {
        let slot = self.slot_of(self.tick);
        self.tick += 1;
        self.slots[slot].write(now_ms)
    }

    /// A device whose time is over at `now`, and when it was; the next one has taken its place.
    #[inline]
    pub(crate) fn end_due(&mut self, now: Duration) -> Option<(Stay, Duration)> {
        let Reverse((end, _)) = self.ends.peek()?;
        if *end > now {
            return None;
        }
        let Reverse((end, slot)) = self.ends.pop()?;
        let (stay, dwell) = self.arrive();
        self.ends.push(Reverse((now + dwell, slot)));
        Some((std::mem::replace(&mut self.slots[slot], stay), end))
    }

    /// The device that wrote last, or the first one.
    pub(crate) fn last_writer(&self) -> &Stay {
        &self.slots[self.slot_of(self.tick.saturating_sub(1))]
    }

    /// Whose turn `tick` is.
    #[inline]
    fn slot_of(&self, tick: u64) -> usize {
        (tick / u64::from(self.share.batch) % self.slots.len() as u64) as usize
    }

    /// The devices that are there.
    pub(crate) fn resident(&self) -> impl Iterator<Item = &Stay> {
        self.slots.iter()
    }

    /// A new device, and how long it stays.
    fn arrive(&mut self) -> (Stay, Duration) {
        let leaves = self.uniform() < self.departing;
        let dwell = if leaves {
            LEAVER_DWELL.start + (LEAVER_DWELL.end - LEAVER_DWELL.start) * self.uniform()
        } else {
            SURVIVOR_DWELL
        };
        let device = u64::from(self.share.thread) + self.arrived * u64::from(self.share.threads);
        let stay = Stay::new(device, leaves, self.mode);
        self.arrived += 1;
        (stay, self.residency.mul_f64(dwell))
    }

    /// A number from 0 to less than 1.
    fn uniform(&mut self) -> f64 {
        f64::from(self.random.next()) / f64::from(1u32 << 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const RESIDENCY: Duration = Duration::from_secs(4);

    fn schedule(thread: u32, departing: f64) -> Schedule {
        let share = Share {
            thread,
            threads: 12,
            devices: 12_005,
            batch: 1,
        };
        let random = Random::new(1001 + thread);
        Schedule::new(share, IotMode::Spec, RESIDENCY, departing, random)
    }

    #[test]
    fn all_devices_are_there_and_write_in_turn() {
        let mut devices = HashSet::new();
        for thread in 0..12 {
            let mut schedule = schedule(thread, 0.9);
            let count = schedule.slots.len() as u64;
            assert_eq!(count, if thread < 5 { 1001 } else { 1000 });
            for tick in 0..2 * count {
                let turn = schedule.next_turn(tick);
                assert_eq!(turn.ms, tick);
                assert_eq!(schedule.last_writer().device, turn.device);
                assert_eq!(u64::from(schedule.last_writer().records), tick / count + 1);
                assert_eq!(devices.insert(turn.device), tick < count);
            }
        }
        assert_eq!(devices.len(), 12_005);
    }

    #[test]
    fn a_device_writes_a_batch_before_the_next_one() {
        let share = Share {
            thread: 0,
            threads: 1,
            devices: 7,
            batch: 5,
        };
        let mut schedule = Schedule::new(share, IotMode::Kit, RESIDENCY, 0.9, Random::new(1));
        for device in (0..7).chain(0..7) {
            for _ in 0..5 {
                assert_eq!(schedule.next_turn(0).device, device);
                assert_eq!(schedule.last_writer().device, device);
            }
        }
    }

    #[test]
    fn nobody_goes_before_the_time_and_the_next_one_is_new() {
        let mut schedule = schedule(7, 0.9);
        assert!(schedule.end_due(Duration::ZERO).is_none());
        let mut seen: HashSet<u64> = schedule.slots.iter().map(|stay| stay.device).collect();
        for step in 1..=2000 {
            let now = Duration::from_millis(10) * step;
            schedule.next_turn(0);
            while let Some((gone, end)) = schedule.end_due(now) {
                assert!(
                    end <= now && end + Duration::from_millis(10) > now,
                    "{end:?} {now:?}"
                );
                assert!(schedule.slots.iter().all(|stay| stay.device != gone.device));
            }
            assert_eq!(schedule.slots.len(), 1000);
            assert_eq!(schedule.ends.len(), 1000);
        }
        let news = schedule
            .slots
            .iter()
            .filter(|stay| seen.insert(stay.device));
        assert!(news.count() > 990);
    }

    #[test]
    fn dwells_are_as_described() {
        let mut schedule = schedule(0, 0.9);
        let stays: Vec<_> = (0..20_000).map(|_| schedule.arrive()).collect();
        let (leavers, survivors): (Vec<_>, Vec<_>) =
            stays.into_iter().partition(|(stay, _)| stay.leaves);
        let share = leavers.len() as f64 / 20_000.0;
        assert!((share - 0.9).abs() < 0.01, "{share}");
        assert!(
            survivors
                .iter()
                .all(|(_, dwell)| *dwell == RESIDENCY.mul_f64(1.5))
        );
        let dwells: Vec<f64> = leavers
            .iter()
            .map(|(_, dwell)| dwell.div_duration_f64(RESIDENCY))
            .collect();
        assert!(dwells.iter().all(|dwell| (0.1..0.9).contains(dwell)));
        let mean = dwells.iter().sum::<f64>() / dwells.len() as f64;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
    }

    #[test]
    fn the_extremes_are_exact() {
        for (departing, leavers) in [(0.0, 0), (1.0, 5000)] {
            let mut schedule = schedule(0, departing);
            let leaves = |_| schedule.arrive().0.leaves;
            assert_eq!(
                (0..5000).map(leaves).filter(|leaves| *leaves).count(),
                leavers
            );
        }
    }

    #[test]
    fn a_stay_knows_every_record_it_wrote() {
        let mut schedule = schedule(7, 0.9);
        let mut written: Vec<Turn> = Vec::new();
        let mut checked = 0;
        for step in 0..60_000u32 {
            written.push(schedule.next_turn(u64::from(step / 20)));
            while let Some((gone, _)) = schedule.end_due(Duration::from_micros(50) * step) {
                let of_gone = written.iter().filter(|turn| turn.device == gone.device);
                assert!(of_gone.copied().eq(gone.turns()));
                checked += 1;
            }
        }
        assert!(checked > 100, "{checked}");
    }

    #[test]
    fn the_same_times_give_the_same_devices() {
        let run = || {
            let mut schedule = schedule(1, 0.5);
            let times = (0..5000).map(|step| Duration::from_millis(2) * step);
            times
                .map(|now| (schedule.end_due(now), schedule.next_turn(0)))
                .collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
    }
}
