//! Tables in a fast directory that is durable: which ones are made there, and which ones are moved to the main directory.
//!
//! A new table lies there if the log leaves it room. Copies make room for it, but for the ones that are read more than tables. What
//! the fast directory spares such a table is its write, the reads of the merge that ends it, and reads of callers. A table is moved
//!
//! - if writers wait for the log and it is to have the room: the log gains more by a byte, which it writes again and again;
//! - or if copies of the hottest blocks without one were read more than the table, lately.
//!
//! A move is a copy under another name, made durable, then a rename, then the removal of the first one. So the table is whole
//! in one of the directories at each moment. If it is in both, the one in the main directory counts. One table a second is moved
//! at most, so that a move takes little from others.

use super::blocks::Blocks;
use super::meters::precise;
use super::placed_table::PlacedTable;
use super::round::Planner;
use super::table_share::TableShare;
use super::tier::Tier;
use crate::directory::TABLE_DRAFT;
use crate::error::Result;
use crate::storage::{Area, OpenMode, Storage, Transfer, copy_bytes};
use crate::sync::Arc;
use crate::sync::atomic::Ordering::Relaxed;
use std::path::Path;
use std::time::Duration;
use waystation_planner::heat::Histogram;

/// Between two moves there is so much time at least.
const MOVE_PAUSE: Duration = Duration::from_secs(1);
/// Copies in the room of a table have to be read so many times as often: a table there spares merges reads, too.
const BETTER: f64 = 2.0;

impl Tier {
    /// Whether the new table `name` is to lie in the fast directory. Its room is taken then.
    pub(super) fn admit_table(&self, name: &str) -> bool {
        let Some(tables) = self.tables() else {
            return false;
        };
        tables.begin(name);
        let fits = self.health.is_good() && self.has_room_for_tables();
        if !fits {
            self.forget_table(name);
        }
        fits
    }

    /// Notes that the table `name` is being written and has `bytes`. Returns whether it has room for them.
    pub(super) fn grow_table(&self, name: &str, bytes: u64) -> bool {
        let is_longer = self.tables().is_some_and(|it| it.grow(name, bytes));
        !is_longer || self.has_room_for_tables()
    }

    /// Whether tables have the room that was just noted for them. Copies leave it to them, unless they deserve it.
    fn has_room_for_tables(&self) -> bool {
        if self.is_overfull() {
            return false;
        }
        if self.reserve_others() {
            return true;
        }
        if self.slabs.limit_bytes() < self.copies_kept.load(Relaxed) {
            return false;
        }
        // While it is locked no place is filled.
        let planner = self.planner.try_lock();
        planner.is_ok_and(|_planner| {
            self.slabs.shrink();
            true
        })
    }

    /// Notes that the table `name` is complete, with `bytes`.
    pub(super) fn complete_table(&self, name: &str, bytes: u64) {
        if let Some(tables) = self.tables() {
            tables.complete(name, bytes);
            self.reserve_others();
        }
    }

    /// Notes that there is no table `name` there any more. Returns whether there was one.
    pub(super) fn forget_table(&self, name: &str) -> bool {
        let was_there = self.tables().is_some_and(|it| it.forget(name));
        if was_there {
            self.reserve_others();
        }
        was_there
    }

    /// Removes the table `name` from the fast directory. Returns whether it was there. One that cannot be removed is removed by
    /// the next opening.
    pub(super) fn remove_table(&self, name: &str) -> bool {
        let was_there = self.forget_table(name);
        if was_there && let Some(tables) = self.tables() {
            self.remove_fast(&tables.dir().join(name));
        }
        was_there
    }

    fn remove_fast(&self, path: &Path) {
        match self.storage.remove(path) {
            Err(error) if !error.is_not_found() => self.fail(&error.to_string()),
            _ => {}
        }
    }

    /// The file of the table `name`, `path` in the main directory, if it lies in the fast one.
    pub(super) fn open_table(
        self: &Arc<Self>,
        path: &Path,
        name: &str,
    ) -> Result<Option<Arc<PlacedTable>>> {
        let Some(tables) = self.tables().filter(|it| it.has(name)) else {
            return Ok(None);
        };
        if let Some(file) = tables.file(name) {
            return Ok(Some(file));
        }
        let there = tables.dir().join(name);
        let (mode, transfer) = (OpenMode::Read, Transfer::Buffered);
        match self.storage.open(&there, mode, transfer, Area::Tables) {
            // It was moved or removed meanwhile.
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => {
                self.fail(&error.to_string());
                Err(error)
            }
            Ok(file) => {
                let file = Arc::new(PlacedTable::new(self, path, name, file));
                Ok(tables.keep_file(name, file))
            }
        }
    }

    /// Which table is to be moved now, if one is; and when to look again for the next one.
    pub(super) fn next_move(
        &self,
        planner: &mut Planner,
        now: Duration,
    ) -> (Option<String>, Option<Duration>) {
        let Some(tables) = self.tables() else {
            return (None, None);
        };
        let is_overfull = self.is_overfull();
        if !is_overfull && planner.cold_table.is_none() {
            return (None, None);
        }
        let next = planner.moved_at.map_or(now, |at| at + MOVE_PAUSE);
        if now < next {
            return (None, Some(next));
        }
        let cold = planner.cold_table.take();
        let name = if is_overfull {
            let all = tables.complete_ones();
            self.coldest_of(all).map(|(name, _)| name)
        } else {
            cold
        };
        planner.moved_at = Some(now);
        let again = (is_overfull && name.is_some()).then_some(now + MOVE_PAUSE);
        (name, again)
    }

    /// Moves the table `name` to the main directory.
    pub(super) fn move_table(&self, name: &str) {
        if let Some(tables) = self.tables()
            && let Err(error) = self.move_out(tables, name)
        {
            log::info!("a table stays in the fast directory: {error}");
        }
    }

    /// Which of the `tables` was read least for its bytes, the oldest of several; and the reads of it since the heat was halved.
    fn coldest_of(&self, tables: Vec<String>) -> Option<(String, u64)> {
        let reads = |name: &str| {
            let blocks = self.blocks_of(&self.main.join(name));
            blocks.map_or((0, 1), |it| (recent_reads(&it), it.bytes.max(1)))
        };
        let rated = tables.into_iter().map(|name| {
            let (reads, bytes) = reads(&name);
            (precise(reads) / precise(bytes), name, reads)
        });
        let coldest = rated.min_by(|one, other| {
            let by_rate = one.0.total_cmp(&other.0);
            by_rate.then_with(|| one.1.cmp(&other.1))
        })?;
        Some((coldest.1, coldest.2))
    }

    /// Looks whether copies would gain more in the room of a table. `others` has the heat of all blocks but those of such tables.
    pub(super) fn look_for_cold_table(&self, planner: &mut Planner, others: &Histogram) {
        planner.cold_table = None;
        let Some(tables) = self.tables() else {
            return;
        };
        if self.slabs.has_free() || !others.is_halved() {
            return;
        }
        let Some((name, reads)) = self.coldest_of(tables.known_ones()) else {
            return;
        };
        let bytes = self
            .blocks_of(&self.main.join(&name))
            .map_or(0, |it| it.bytes);
        let limit = self.slabs.limit_bytes();
        let more = self.reads_of_copies(others, limit, limit + bytes);
        if more > precise(reads) * BETTER {
            planner.cold_table = Some(name);
        }
    }

    /// Decides what room copies keep though new tables ask for it: as far as they are read more than tables. `others` is as
    /// above, of files that have `bytes`.
    pub(super) fn weigh_copies(&self, others: &Histogram, bytes: u64) {
        const STEPS: u64 = 16;
        let step = (self.slabs.limit_bytes() / STEPS).max(1);
        let of_tables = precise(others.reads()) / precise(bytes.max(1)) * precise(step);
        let is_better =
            |end: &u64| self.reads_of_copies(others, end - step, *end) > of_tables * BETTER;
        let ends = (1..=STEPS).rev().map(|number| number * step);
        let kept = ends.filter(|_| others.is_halved()).find(is_better);
        self.copies_kept.store(kept.unwrap_or(0), Relaxed);
    }

    /// How many of the reads that `others` tells of copies serve in the bytes from `start` to `end`, the hottest in the first.
    fn reads_of_copies(&self, others: &Histogram, start: u64, end: u64) -> f64 {
        let share = |bytes: u64| others.share(self.capacity_blocks(bytes));
        (share(end) - share(start)) * precise(others.reads())
    }

    fn move_out(&self, tables: &TableShare, name: &str) -> Result<()> {
        let (there, here) = (tables.dir().join(name), self.main.join(name));
        copy_to_main(&*self.storage, &there, &self.main, name)?;
        let (mode, transfer) = (OpenMode::Read, Transfer::Buffered);
        let moved = self.storage.open(&here, mode, transfer, Area::Tables)?;
        let (was_there, file) = tables.leave(name);
        if !was_there {
            // It became useless meanwhile.
            let _ = self.storage.remove(&here);
            return Ok(());
        }
        if let Some(file) = file {
            file.switch_to(moved);
        }
        if let Some(blocks) = self.blocks_of(&here) {
            blocks.set_whole(false);
        }
        self.remove_fast(&there);
        self.reserve_others();
        Ok(())
    }
}

fn recent_reads(blocks: &Blocks) -> u64 {
    let reads = blocks.known().map(|index| u64::from(blocks.heats(index).1));
    reads.sum()
}

/// Gives the table `there` a copy in the main directory `dir`, called `name`, which is durable at the return.
pub(super) fn copy_to_main(
    storage: &dyn Storage,
    there: &Path,
    dir: &Path,
    name: &str,
) -> Result<()> {
    let draft = dir.join(TABLE_DRAFT);
    let open = |path: &Path, mode| storage.open(path, mode, Transfer::Buffered, Area::Tables);
    let source = open(there, OpenMode::Read)?;
    let target = open(&draft, OpenMode::Create)?;
    let copied = copy_bytes(&*source, &*target, source.size()?).and_then(|()| target.sync());
    if let Err(error) = copied {
        let _ = storage.remove(&draft);
        return Err(error);
    }
    storage.rename(&draft, &dir.join(name))?;
    storage.sync_dir(dir)
}
