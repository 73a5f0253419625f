//! What the fast tier does in the background: it writes what readers brought, gives places to what is hot, and plans anew when
//! enough was read.
//!
//! Nothing happens while nothing is read. The heat is halved after a while of reading, so that a new phase of the
//! load counts within some ten seconds.

use super::extents::{EXTENT_BYTES, Extents};
use super::report::Decision;
use super::tier::{Offer, Tier, lock};
use crate::directory::LOCK_NAME;
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use waystation_planner::heat::{Histogram, sum, takes_over};

/// The heat is halved after so long, if so many reads came, or earlier after so many reads for each slot.
const COOL_AFTER: Duration = Duration::from_secs(10);
const COOL_READS_MIN: u64 = 1_000;
const COOL_READS_PER_SLOT: u64 = 8;
/// A round chooses this part of the places to be given away next.
const VICTIMS_SHARE: usize = 8;
/// So many decisions are remembered.
const DECISIONS_MAX: usize = 16;
/// A change of this part of the capacity is told as a decision.
const TOLD_SHARE: u64 = 16;
/// The fast directory is found slow by so many reads at least.
const SLOW_READS_MIN: u64 = 256;
/// A fast directory without room is given more after so long.
const ROOM_PAUSE: Duration = Duration::from_secs(60);
/// The report is written so often at most.
const REPORT_PAUSE: Duration = Duration::from_secs(10);

/// The heat that gets a place which nothing else has: one read is enough.
pub(super) const FREE_THRESHOLD: u8 = 1;

/// What one round tells the next.
pub(super) struct Planner {
    pub(super) began: Duration,
    /// What was read since the heat was halved, and when that was.
    warmed: u64,
    cooled_at: Duration,
    /// What gives its place away next, the coldest last.
    victims: Vec<(u8, Arc<Extents>, usize)>,
    pub(super) histogram: Histogram,
    pub(super) decisions: VecDeque<Decision>,
    /// Reads of the fast directory, and how long they took, up to the last round.
    fast_before: (u64, f64),
    /// When the fast directory had no room.
    refused_at: Option<Duration>,
    reported_at: Option<Duration>,
}

impl Planner {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            began: now,
            warmed: 0,
            cooled_at: now,
            victims: Vec::new(),
            histogram: Histogram::default(),
            decisions: VecDeque::new(),
            fast_before: (0, 0.0),
            refused_at: None,
            reported_at: None,
        }
    }
}

impl Planner {
    /// Takes a new histogram in, unless too little was read since the heat was halved: then the earlier one says more.
    fn note(&mut self, histogram: Histogram) {
        if self.warmed >= COOL_READS_MIN || self.histogram.warm() == 0 {
            self.histogram = histogram;
        }
    }
}

impl Tier {
    /// Takes the fast directory, from empty. What does not work lets the tier rest; only a directory that another database has
    /// is an error.
    pub(super) fn begin_or_rest(&self) -> Result<()> {
        match self.begin() {
            Err(error @ Error::Locked { .. }) => Err(error),
            Err(error) => {
                self.fail(&error.to_string());
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn begin(&self) -> Result<()> {
        let directory = &self.options.directory;
        self.storage.create_dir(directory)?;
        let mut ownership = lock(&self.ownership);
        // The lock of a directory that went away says nothing of the one there now.
        drop(ownership.take());
        *ownership = Some(self.storage.lock(&directory.join(LOCK_NAME))?);
        drop(ownership);
        self.slots.begin(&*self.storage)?;
        let device = |path| self.storage.device_of(path);
        if device(directory).is_some() && device(directory) == device(&self.main) {
            log::warn!(
                "the fast directory {} lies on the device of the database, and gains nothing there",
                directory.display()
            );
        }
        let slots = self.options.capacity_bytes / EXTENT_BYTES as u64;
        let room = self.storage.free_bytes(directory)? / EXTENT_BYTES as u64;
        if room < slots {
            log::warn!(
                "the fast directory {} has room for {} of the {} bytes that the database may take",
                directory.display(),
                room * EXTENT_BYTES as u64,
                self.options.capacity_bytes
            );
        }
        lock(&self.free).limit = u32::try_from(slots.min(room)).unwrap_or(u32::MAX);
        Ok(())
    }

    /// Does what there is to do. Returns when to look again without a call.
    pub(crate) fn round(&self) -> Option<Duration> {
        let now = self.storage.now();
        if let Some(until) = self.health.until(now) {
            self.take_offers();
            self.clear();
            if now < until {
                return Some(until);
            }
            self.health.resume();
            if let Err(error) = self.begin() {
                self.fail(&error.to_string());
                return self.health.until(now);
            }
        }
        let mut planner = lock(&self.planner);
        let offers = self.take_offers();
        for offer in offers {
            if let Err(error) = self.admit(offer, &mut planner) {
                self.fail(&error.to_string());
                return self.health.until(now);
            }
        }
        if self.is_round_due() {
            self.plan(&mut planner, now);
        }
        let pause = |at: Duration| now.saturating_sub(at) >= REPORT_PAUSE;
        if planner.reported_at.is_none_or(pause) {
            planner.reported_at = Some(now);
            drop(planner);
            self.write_report();
        }
        None
    }

    /// Gives the database's copies up: it is closed.
    pub(crate) fn close(&self) {
        self.write_report();
        self.health.rest_quietly();
        self.clear();
        self.slots.end(&*self.storage);
        lock(&self.ownership).take();
    }

    /// Gives a place to what a reader brought, if there is one that it deserves.
    fn admit(&self, offer: Offer, planner: &mut Planner) -> Result<()> {
        let Offer {
            extents,
            index,
            content,
        } = offer;
        let is_known = extents.place(index).is_some() || extents.is_gone();
        // A file system that has no room for more may have none for a change either.
        if is_known || planner.refused_at.is_some() {
            return Ok(());
        }
        let Some(slot) = self.slot_for(extents.heat(index), planner) else {
            return Ok(());
        };
        let filled = self.slots.fill(slot, &content);
        let mut free = lock(&self.free);
        match filled {
            Ok(place) if !extents.is_gone() => extents.set_place(index, place),
            Ok(_) => free.returned.push(slot),
            Err(error) if error.is_out_of_space() => {
                // What there is stays; the last place never was one.
                if slot + 1 == free.next {
                    free.next = slot;
                } else {
                    free.returned.push(slot);
                }
                free.limit = free.next;
                drop(free);
                if planner.refused_at.replace(self.storage.now()).is_none() {
                    log::warn!("the fast directory has less room than it may take: {error}");
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A slot for an extent of `heat`: a free one, or that of a colder extent.
    fn slot_for(&self, heat: u8, planner: &mut Planner) -> Option<u32> {
        if let Some(slot) = lock(&self.free).take() {
            return Some(slot);
        }
        while let Some((_, extents, index)) = planner.victims.pop() {
            let present = extents.heat(index);
            let is_colder = takes_over(heat, present);
            if !is_colder {
                // It became hotter since the round, or the newcomer is no better than the coldest.
                if planner
                    .victims
                    .last()
                    .is_some_and(|(next, ..)| *next < heat)
                {
                    continue;
                }
                return None;
            }
            let _free = lock(&self.free);
            if let Some(place) = extents.take_place(index) {
                return Some(place.slot);
            }
        }
        None
    }

    /// Looks how hot everything is, and decides what gets a place from now on.
    fn plan(&self, planner: &mut Planner, now: Duration) {
        let warmed = self.warmed.swap(0, Relaxed);
        let files = self.files();
        let mut histogram = Histogram::default();
        let mut placed = Vec::new();
        for extents in &files {
            for index in 0..extents.count() {
                let (before, recent) = extents.heats(index);
                histogram.add(before, recent);
                if extents.place(index).is_some() {
                    placed.push((sum(before, recent), Arc::clone(extents), index));
                }
            }
        }
        let capacity = self.capacity(planner, now);
        let has_free = lock(&self.free).used() < capacity;
        let threshold = if has_free {
            FREE_THRESHOLD
        } else {
            histogram.threshold(u64::from(capacity))
        };
        self.threshold.store(threshold, Relaxed);
        planner.victims = coldest(placed);
        planner.warmed += warmed;
        planner.note(histogram);
        self.note_decision(planner, now, threshold);
        self.meters.look();
        self.look_whether_slow(planner);
        let waited = now.saturating_sub(planner.cooled_at) >= COOL_AFTER;
        let enough = u64::from(capacity) * COOL_READS_PER_SLOT;
        if planner.warmed >= COOL_READS_MIN && (waited || planner.warmed >= enough) {
            for extents in &files {
                extents.cool();
            }
            (planner.warmed, planner.cooled_at) = (0, now);
        }
    }

    /// How many slots there are: fewer while the directory has no room for more.
    fn capacity(&self, planner: &mut Planner, now: Duration) -> u32 {
        let mut free = lock(&self.free);
        let is_over = |at| now.saturating_sub(at) >= ROOM_PAUSE;
        if planner.refused_at.is_some_and(is_over) {
            planner.refused_at = None;
            let slots = self.options.capacity_bytes / EXTENT_BYTES as u64;
            free.limit = u32::try_from(slots).unwrap_or(u32::MAX);
        }
        free.limit
    }

    fn note_decision(&self, planner: &mut Planner, now: Duration, threshold: u8) {
        let free = lock(&self.free);
        let (used, limit) = (u64::from(free.used()), u64::from(free.limit));
        drop(free);
        let share = planner.histogram.share(limit);
        let last = planner.decisions.back();
        let is_news = last.is_none_or(|last| {
            let before = last.placed_bytes / EXTENT_BYTES as u64;
            last.threshold != threshold || used.abs_diff(before) > limit / TOLD_SHARE
        });
        if !is_news {
            return;
        }
        if planner.decisions.len() == DECISIONS_MAX {
            planner.decisions.pop_front();
        }
        planner.decisions.push_back(Decision {
            seconds: now.saturating_sub(planner.began).as_secs_f64(),
            threshold,
            warm_bytes: planner.histogram.warm() * EXTENT_BYTES as u64,
            placed_bytes: used * EXTENT_BYTES as u64,
            expected_share: share,
        });
    }

    /// Has the fast directory rest if its reads take longer than the slow ones that they spare.
    fn look_whether_slow(&self, planner: &mut Planner) {
        let areas = self.meters.areas();
        let count: u64 = areas.iter().map(|(_, reads)| reads.fast.count()).sum();
        let seconds: f64 = areas.iter().map(|(_, reads)| reads.fast.seconds()).sum();
        let (before, seconds_before) = planner.fast_before;
        let reads = count - before;
        if reads < SLOW_READS_MIN {
            return;
        }
        planner.fast_before = (count, seconds);
        let fast_ns = (seconds - seconds_before) * 1e9 / precise(reads);
        match self.meters.slow_mean_ns() {
            Some(slow_ns) if fast_ns > precise(slow_ns) => self.fail(&format!(
                "a read there took {:.0} us, and one of the main directory takes {:.0}",
                fast_ns / 1e3,
                precise(slow_ns) / 1e3
            )),
            _ => self.health.has_worked(),
        }
    }
}

/// The coldest of `placed`, the very coldest last.
fn coldest(mut placed: Vec<(u8, Arc<Extents>, usize)>) -> Vec<(u8, Arc<Extents>, usize)> {
    let count = placed.len().div_ceil(VICTIMS_SHARE);
    if count < placed.len() {
        placed.select_nth_unstable_by_key(count, |(heat, ..)| *heat);
        placed.truncate(count);
    }
    placed.sort_unstable_by_key(|(heat, ..)| std::cmp::Reverse(*heat));
    placed
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts are far below 2^52, and the mean is for comparing"
)]
fn precise(count: u64) -> f64 {
    count as f64
}
