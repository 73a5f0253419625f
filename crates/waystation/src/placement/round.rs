//! What the fast tier does in the background: it writes what readers brought, gives places to what is hot, and plans anew when
//! enough was read.
//!
//! Nothing happens while nothing is read. The heat is halved after a while of reading, so that a new phase of the load
//! overtakes the one before.

use super::blocks::Blocks;
use super::log_share::CopyGain;
use super::meters::precise;
use super::report::PlacementDecision;
use super::slabs::{Room, place_bytes};
use super::tier::{BLOCK_BYTES, Offer, Tier};
use crate::directory::LOCK_NAME;
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Arc, lock};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use waystation_planner::division::Division;
use waystation_planner::heat::{Histogram, is_to_be_halved, takes_over};

/// A histogram of fewer reads than this says less than the one before the heat was halved.
const TELLING_READS_MIN: u64 = 1_000;
/// A round of planning comes after a sixteenth as many reads as blocks fit. A round looks at all blocks that are known, and no
/// more of them for each read than this.
const ROUND_SHARE: u64 = 16;
const LOOKS_PER_READ: u64 = 256;
/// A round chooses this part of the places of each size to be given away next, and no more than so many.
const VICTIMS_SHARE: u64 = 8;
const VICTIMS_MAX: u64 = 1 << 14;
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
    /// What gives its place away next, the coldest last, by the size of the place.
    victims: HashMap<usize, Vec<Placed>>,
    /// The hottest block that found no place of its size since the last round.
    refused: HashMap<usize, u8>,
    pub(super) histogram: Histogram,
    pub(super) decisions: VecDeque<PlacementDecision>,
    /// A table in whose room copies would gain more.
    pub(super) cold_table: Option<String>,
    /// When a table was moved.
    pub(super) moved_at: Option<Duration>,
    /// Reads of the fast directory, and how long they took, up to the last round.
    fast_before: (u64, f64),
    /// When the fast directory had no room.
    refused_at: Option<Duration>,
    reported_at: Option<Duration>,
}

/// A block that has a place, and its heat.
type Placed = (u8, Arc<Blocks>, usize);

impl Planner {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            began: now,
            warmed: 0,
            cooled_at: now,
            victims: HashMap::new(),
            refused: HashMap::new(),
            histogram: Histogram::default(),
            decisions: VecDeque::new(),
            cold_table: None,
            moved_at: None,
            fast_before: (0, 0.0),
            refused_at: None,
            reported_at: None,
        }
    }

    /// Takes a new histogram in, unless too little was read since the heat was halved: then the earlier one says more.
    fn note(&mut self, histogram: Histogram) {
        if self.warmed >= TELLING_READS_MIN || self.histogram.warm() == 0 {
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
        let device = |path| self.storage.device_of(path);
        if device(directory).is_some() && device(directory) == device(&self.main) {
            log::warn!(
                "the fast directory {} lies on the device of the database, and gains nothing there",
                directory.display()
            );
        }
        let capacity = self.options.capacity_bytes;
        let room = self.storage.free_bytes(directory)?;
        if room < capacity {
            log::warn!(
                "the fast directory {} has room for {room} of the {capacity} bytes that the database may take",
                directory.display()
            );
        }
        self.slabs.begin(&*self.storage, room)
    }

    /// Does what there is to do. Returns when to look again without a call.
    pub(crate) fn round(&self) -> Option<Duration> {
        let now = self.storage.now();
        if let Some(until) = self.health.until(now) {
            self.take_offers();
            self.slabs.clear();
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
        self.slabs.shrink();
        let offers = self.take_offers();
        for offer in offers {
            if let Err(error) = self.admit(&offer, &mut planner) {
                self.fail(&error.to_string());
                return self.health.until(now);
            }
        }
        if self.is_round_due() {
            self.plan(&mut planner, now);
        }
        self.divide(&mut planner, now);
        let (moving, next_move) = self.next_move(&mut planner, now);
        let pause = |at: Duration| now.saturating_sub(at) >= REPORT_PAUSE;
        let is_report_due = planner.reported_at.is_none_or(pause);
        if is_report_due {
            planner.reported_at = Some(now);
        }
        drop(planner);
        if let Some(name) = moving {
            self.move_table(&name);
        }
        if is_report_due {
            self.write_report();
        }
        next_move
    }

    /// Gives the database's copies up: it is closed.
    pub(crate) fn close(&self) {
        self.write_report();
        self.health.rest_quietly();
        self.slabs.end(&*self.storage);
        lock(&self.ownership).take();
    }

    /// Gives a place to what a reader brought, if there is one that it deserves.
    fn admit(&self, offer: &Offer, planner: &mut Planner) -> Result<()> {
        let (blocks, index) = (&offer.blocks, offer.index);
        let is_known = blocks.place(index).is_some() || blocks.is_gone();
        // A file system that has no room for more may have none for a change either.
        if is_known || planner.refused_at.is_some() {
            return Ok(());
        }
        let size = place_bytes(offer.content.len());
        let heat = blocks.heat(index);
        let Some(room) = self.room_for(size, heat, planner) else {
            let refused = planner.refused.entry(size).or_default();
            *refused = heat.max(*refused);
            return Ok(());
        };
        let content = (offer.start, &*offer.content);
        match self.slabs.fill(room, content, (blocks, index)) {
            Err(error) if error.is_out_of_space() => {
                self.slabs.give_back(room);
                self.slabs.stop_growing();
                if planner.refused_at.replace(self.storage.now()).is_none() {
                    log::warn!("the fast directory has less room than it may take: {error}");
                }
                Ok(())
            }
            filled => filled,
        }
    }

    /// A place of `size` for a block of `heat`: a free one, or that of a colder block.
    fn room_for(&self, size: usize, heat: u8, planner: &mut Planner) -> Option<Room> {
        if let Some(room) = self.slabs.take_room(size) {
            return Some(room);
        }
        let victims = planner.victims.get_mut(&size)?;
        while let Some((then, blocks, index)) = victims.pop() {
            if takes_over(heat, blocks.heat(index)) {
                if let Some(room) = self.slabs.evict(&blocks, index) {
                    return Some(room);
                }
            } else if !takes_over(heat, then) {
                // The others were no colder than this one.
                victims.push((then, blocks, index));
                return None;
            }
        }
        None
    }

    /// Looks how hot everything is, and decides what gets a place from now on.
    fn plan(&self, planner: &mut Planner, now: Duration) {
        if planner.warmed == 0 {
            planner.cooled_at = now;
        }
        planner.warmed += self.warmed.swap(0, Relaxed);
        let files = self.files();
        let sizes = self.slabs.sizes();
        let mut histogram = Histogram::default();
        // Without tables that lie there whole.
        let mut others = Histogram::default();
        let mut bytes_of_others = 0;
        let mut placed: HashMap<usize, Histogram> = HashMap::new();
        let mut looked = 0;
        for blocks in &files {
            let is_whole = blocks.is_whole();
            bytes_of_others += if is_whole { 0 } else { blocks.bytes };
            for index in blocks.known() {
                looked += 1;
                let (before, recent) = blocks.heats(index);
                histogram.add(before, recent);
                if !is_whole {
                    others.add(before, recent);
                }
                if let Some(size) = size_of_place(blocks, index, &sizes) {
                    placed.entry(size).or_default().add(before, recent);
                }
            }
        }
        planner.victims = victims(&files, &sizes, &placed);
        self.look_for_room(planner, now);
        let capacity = self.capacity_blocks(self.slabs.limit_bytes());
        self.plan_after((capacity / ROUND_SHARE).max(looked / LOOKS_PER_READ));
        let threshold = if self.slabs.has_free() {
            FREE_THRESHOLD
        } else {
            others.threshold(capacity)
        };
        self.threshold.store(threshold, Relaxed);
        planner.note(histogram);
        if !planner.refused.is_empty() {
            self.look_for_cold_table(planner, &others);
        }
        self.weigh_copies(&others, bytes_of_others);
        self.convert_one(planner);
        self.note_decision(planner, now, threshold);
        self.meters.look();
        self.look_whether_slow(planner);
        let since = now.saturating_sub(planner.cooled_at);
        let all = self.capacity_blocks(self.slabs.limit_bytes() + self.table_bytes());
        if is_to_be_halved(since, planner.warmed, all) {
            for blocks in &files {
                blocks.cool();
            }
            if let Some(tables) = self.tables() {
                tables.begin_period();
            }
            let victims = planner.victims.values_mut().flatten();
            victims.for_each(|placed| placed.0 /= 2);
            (planner.warmed, planner.cooled_at) = (0, now);
        }
    }

    /// Gives a slab of cold blocks to another size, whose blocks are hotter and found no place.
    fn convert_one(&self, planner: &mut Planner) {
        let refused = std::mem::take(&mut planner.refused);
        let Some((size, heat)) = refused.into_iter().max_by_key(|(_, heat)| *heat) else {
            return;
        };
        let others = planner.victims.iter().filter(|(other, _)| **other != size);
        let hottest = others.filter_map(|(other, victims)| Some((*other, victims.first()?.0)));
        let Some((coldest, present)) = hottest.min_by_key(|(_, heat)| *heat) else {
            return;
        };
        if takes_over(heat, present)
            && let Some((_, blocks, index)) = planner.victims.get(&coldest).and_then(|it| it.last())
        {
            self.slabs.convert((blocks, *index), size);
        }
    }

    /// About how many blocks `bytes` have room for: as the ones that have places, or blocks of tables.
    pub(super) fn capacity_blocks(&self, bytes: u64) -> u64 {
        let (placed, placed_bytes) = self.slabs.placed();
        let mean = placed_bytes.checked_div(placed).unwrap_or(BLOCK_BYTES);
        bytes / mean.max(1)
    }

    /// Tries for more room in a directory that had none a while ago.
    fn look_for_room(&self, planner: &mut Planner, now: Duration) {
        let is_over = |at: Duration| now.saturating_sub(at) >= ROOM_PAUSE;
        if planner.refused_at.is_some_and(is_over) {
            planner.refused_at = None;
            self.slabs.grow_again();
        }
    }

    fn note_decision(&self, planner: &mut Planner, now: Duration, threshold: u8) {
        let (_, placed_bytes) = self.slabs.placed();
        let limit = self.slabs.limit_bytes();
        let last = planner.decisions.back();
        let is_news = last.is_none_or(|last| {
            let moved = placed_bytes.abs_diff(last.placed_bytes) > limit / TOLD_SHARE;
            last.threshold != threshold || moved
        });
        if is_news {
            self.decide(planner, now, None);
        }
    }

    /// Remembers the present state as a decision.
    fn decide(&self, planner: &mut Planner, now: Duration, division: Option<Division>) {
        let capacity = self.capacity_blocks(self.slabs.limit_bytes() + self.table_bytes());
        if planner.decisions.len() == DECISIONS_MAX {
            planner.decisions.pop_front();
        }
        planner.decisions.push_back(PlacementDecision {
            seconds: now.saturating_sub(planner.began).as_secs_f64(),
            threshold: self.threshold.load(Relaxed),
            warm_blocks: planner.histogram.warm(),
            placed_bytes: self.slabs.placed().1,
            expected_share: planner.histogram.share(capacity),
            division,
        });
    }

    /// Divides the capacity between the log and the copies anew, if it is time to.
    fn divide(&self, planner: &mut Planner, now: Duration) {
        let Some(share) = self.log_share() else {
            return;
        };
        let slow = self.meters.slow_mean_ns().unwrap_or(0);
        let spared = slow.saturating_sub(self.meters.fast_mean_ns().unwrap_or(0));
        let (fast, slow) = self.meters.counts();
        let copies = CopyGain {
            reads: fast + slow,
            seconds: Duration::from_nanos(spared).as_secs_f64(),
            share: &|bytes| self.expected_share(&planner.histogram, bytes),
        };
        let Some(division) = share.weigh(now, &copies) else {
            return;
        };
        self.reserve_others();
        self.decide(planner, now, Some(division));
        // Segments that the log keeps for use again may give way.
        self.wake();
    }

    /// The share of reads that so many bytes of copies and tables would serve: as much as the bytes of the present ones do, or
    /// more if the heat tells so, which has to be halved once for that.
    fn expected_share(&self, histogram: &Histogram, bytes: u64) -> f64 {
        let by_heat = histogram.share(self.capacity_blocks(bytes));
        let (fast, slow) = self.meters.counts();
        let placed_bytes = self.slabs.placed().1 + self.table_bytes();
        let served = precise(fast) / precise((fast + slow).max(1));
        let by_place = served * precise(bytes) / precise(placed_bytes.max(1));
        by_place.min(1.0).max(by_heat)
    }

    /// Has the fast directory rest if its reads take longer than the slow ones that they spare.
    fn look_whether_slow(&self, planner: &mut Planner) {
        let areas = self.meters.areas();
        let (count, _) = self.meters.counts();
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

/// The size of the place of block `index`, if it has one in a slab that there was.
fn size_of_place(blocks: &Blocks, index: usize, sizes: &[usize]) -> Option<usize> {
    sizes.get(blocks.place(index)?.slab()).copied()
}

/// The coldest blocks of each size, the very coldest last; `placed` has the heats of all that have places.
fn victims(
    files: &[Arc<Blocks>],
    sizes: &[usize],
    placed: &HashMap<usize, Histogram>,
) -> HashMap<usize, Vec<Placed>> {
    let limits: HashMap<usize, (u64, u8)> = placed
        .iter()
        .map(|(size, heats)| {
            let count = (heats.count() / VICTIMS_SHARE).clamp(1, VICTIMS_MAX);
            (*size, (count, heats.coldest(count)))
        })
        .collect();
    let mut victims: HashMap<usize, Vec<Placed>> = HashMap::new();
    for blocks in files {
        for index in blocks.known() {
            let Some(size) = size_of_place(blocks, index, sizes) else {
                continue;
            };
            let (count, hottest) = limits.get(&size).copied().unwrap_or_default();
            let heat = blocks.heat(index);
            let of_size = victims.entry(size).or_default();
            if heat <= hottest && (of_size.len() as u64) < count {
                of_size.push((heat, Arc::clone(blocks), index));
            }
        }
    }
    for of_size in victims.values_mut() {
        of_size.sort_unstable_by_key(|(heat, ..)| std::cmp::Reverse(*heat));
    }
    victims
}
