//! The fast tier of a database: what its readers and its background share.

use super::blocks::Blocks;
use super::health::Health;
use super::log_share::LogShare;
use super::meters::Meters;
use super::options::FastTier;
use super::ring_share::RingShare;
use super::round::{FREE_THRESHOLD, Planner};
use super::slabs::{BLOCK_BYTES_MAX, Place, Slabs};
use super::table_share::TableShare;
use crate::error::{Error, Result};
use crate::storage::{Area, DirectoryLock, Storage};
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use crate::sync::{Arc, Mutex, lock};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use waystation_format::filename::CURRENT;

/// Blocks that wait to be written; a reader that brings another one keeps it for itself.
const OFFERS_MAX: usize = 256;
/// A round of planning comes after so many reads.
const ROUND_READS_MIN: u64 = 256;
/// A block of a table is about this long.
pub(super) const BLOCK_BYTES: u64 = 4 << 10;

/// A block that is hot enough, with its content.
pub(super) struct Offer {
    pub(super) blocks: Arc<Blocks>,
    pub(super) index: usize,
    /// Where it begins in its file.
    pub(super) start: u64,
    pub(super) content: Vec<u8>,
}

/// See the module.
pub(crate) struct Tier {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) options: FastTier,
    /// The database's directory.
    pub(super) main: PathBuf,
    pub(super) slabs: Slabs,
    pub(super) health: Health,
    pub(super) meters: Meters,
    /// A block of this heat, or hotter, is brought when it is read.
    pub(super) threshold: AtomicU8,
    /// So many bytes of copies do not give way to new tables.
    pub(super) copies_kept: AtomicU64,
    files: Mutex<HashMap<PathBuf, Arc<Blocks>>>,
    offers: Mutex<Vec<Offer>>,
    /// Heat added since the last round.
    pub(super) warmed: AtomicU64,
    pub(super) damaged: AtomicU64,
    round_reads: AtomicU64,
    call: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(super) planner: Mutex<Planner>,
    /// The log's share, if segments may lie there.
    log: OnceLock<LogShare>,
    /// The same of tables.
    tables: OnceLock<TableShare>,
    pub(super) ring: RingShare,
    /// While the directory is ours.
    pub(super) ownership: Mutex<Option<Box<dyn DirectoryLock>>>,
}

impl Tier {
    /// The tier that `options` describe, of the database in `main`. If its directory does not work, it rests, and is tried
    /// again.
    ///
    /// # Errors
    /// [`Error::Locked`] if another database has it, [`Error::Incompatible`] if there is a database in it,
    /// [`Error::InvalidArgument`] for settings that make no sense.
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        main: &Path,
        options: &FastTier,
    ) -> Result<Arc<Self>> {
        options.check_beside(main)?;
        check_no_database(&**storage, &options.directory)?;
        let tier = Self {
            storage: Arc::clone(storage),
            options: options.clone(),
            main: main.to_owned(),
            slabs: Slabs::new(&options.directory, options.capacity_bytes),
            health: Health::default(),
            meters: Meters::default(),
            threshold: AtomicU8::new(FREE_THRESHOLD),
            copies_kept: AtomicU64::new(0),
            files: Mutex::default(),
            offers: Mutex::default(),
            warmed: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            round_reads: AtomicU64::new(ROUND_READS_MIN),
            call: OnceLock::new(),
            planner: Mutex::new(Planner::new(storage.now())),
            log: OnceLock::new(),
            tables: OnceLock::new(),
            ring: RingShare::default(),
            ownership: Mutex::default(),
        };
        tier.begin_or_rest()?;
        Ok(Arc::new(tier))
    }

    /// Has `call` wake the background when there is something to do.
    pub(crate) fn on_call(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.call.set(Box::new(call));
    }

    /// Lets segments of the log and tables lie there, too. There are `segments` already: bytes, and whether they lie there.
    pub(super) fn share(&self, segments: HashMap<String, (u64, bool)>, tables: TableShare) {
        let lengths = (self.bytes_for_segments(), self.options.segment_bytes_max());
        let log = LogShare::new(lengths, segments, self.storage.now());
        let _ = self.tables.set(tables);
        let _ = self.log.set(log);
        self.reserve_others();
    }

    /// Has copies leave their room to the ring, segments and tables. Returns whether they have left it already.
    pub(super) fn reserve_others(&self) -> bool {
        let log = self.log.get().map_or(0, LogShare::reserved_bytes);
        let others = self.ring.taken().saturating_add(self.table_bytes());
        self.slabs.reserve(log.saturating_add(others))
    }

    /// Whether tables have room that the log is to have.
    pub(super) fn is_overfull(&self) -> bool {
        let log = self.log.get().map_or(0, LogShare::claimed_bytes);
        let tables = self.table_bytes();
        tables > 0 && log.saturating_add(tables) > self.shared_bytes()
    }

    /// What tables there take.
    pub(super) fn table_bytes(&self) -> u64 {
        self.tables.get().map_or(0, |tables| tables.placed().0)
    }

    /// Whether the table `name` lies there.
    pub(super) fn has_table(&self, name: &str) -> bool {
        self.tables.get().is_some_and(|tables| tables.has(name))
    }

    /// The tables there, if tables may lie there.
    pub(super) fn tables(&self) -> Option<&TableShare> {
        self.tables.get()
    }

    /// Whether segments of the log may lie there.
    pub(crate) fn is_shared_with_log(&self) -> bool {
        self.log.get().is_some()
    }

    /// The log's share, if segments may lie there.
    pub(super) fn log_share(&self) -> Option<&LogShare> {
        self.log.get()
    }

    /// Notes the new segment `name` of `bytes`. Returns whether it is to lie there. If copies have its room, they leave it to the
    /// next one.
    pub(super) fn admit_segment(&self, name: &str, bytes: u64) -> bool {
        let Some(share) = self.log.get() else {
            return false;
        };
        let is_placed = self.health.is_good() && share.admit(name, bytes) && {
            let taken = share.placed().0.saturating_add(self.table_bytes());
            let with_ring = taken.saturating_add(self.ring.taken());
            taken <= self.shared_bytes() && self.slabs.reserve(with_ring)
        };
        if !is_placed {
            share.keep_out(name, bytes);
        }
        self.reserve_others();
        // Segments come as the log is written: it is time to weigh it against the copies.
        self.wake();
        is_placed
    }

    /// Notes that the segment `name` of `bytes` lies in the main directory.
    pub(super) fn keep_segment_out(&self, name: &str, bytes: u64) {
        self.change_log(|share| share.keep_out(name, bytes));
    }

    /// The same of one that was admitted and found no room. No other one is tried for a while.
    pub(super) fn refuse_segment(&self, name: &str, bytes: u64) {
        self.change_log(|share| {
            share.keep_out(name, bytes);
            share.stop_growing();
        });
    }

    /// Notes that there is no segment `name` any more.
    pub(super) fn forget_segment(&self, name: &str) {
        self.change_log(|share| share.forget(name));
    }

    /// Notes that the segment `name` has `bytes`: another length than at first if it was cut.
    pub(super) fn note_segment_length(&self, name: &str, bytes: u64) {
        self.change_log(|share| share.note_length(name, bytes));
    }

    /// Notes a new name of a segment.
    pub(super) fn rename_segment(&self, source: &str, target: &str) {
        self.change_log(|share| share.rename(source, target));
        // A file is used again: the log is written.
        self.wake();
    }

    fn change_log(&self, change: impl FnOnce(&LogShare)) {
        if let Some(share) = self.log.get() {
            change(share);
            self.reserve_others();
        }
    }

    /// Whether the file of the segment `name` had better go than be used again.
    pub(super) fn gives_way(&self, name: &str) -> bool {
        let share = self.log.get().filter(|_| self.health.is_good());
        share.is_some_and(|share| share.gives_way(name))
    }

    /// The longest that the next segment of the log had better be (bytes), in the file of the segment `spare` if there is one.
    pub(super) fn segment_bytes_max(&self, spare: Option<&str>) -> u64 {
        let room = self.shared_bytes().saturating_sub(self.table_bytes());
        let share = self.log.get().filter(|_| self.health.is_good());
        share.map_or(u64::MAX, |share| share.next_bytes_max(spare, room))
    }

    /// The blocks of the file `path`, which is `bytes` long: those known, or new ones.
    pub(super) fn register(&self, path: &Path, area: Area, bytes: u64) -> Arc<Blocks> {
        let mut files = lock(&self.files);
        if let Some(known) = files.get(path)
            && known.bytes == bytes
        {
            return Arc::clone(known);
        }
        let made = Arc::new(Blocks::of(area, bytes));
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(tables) = self.tables().filter(|_| area == Area::Tables) {
            made.set_whole(name.is_some_and(|name| tables.has(name)));
        }
        // Before another thread can forget it.
        self.count_table(&made, LogShare::add_table);
        let replaced = files.insert(path.to_owned(), Arc::clone(&made));
        drop(files);
        self.release(replaced);
        made
    }

    fn release(&self, gone: Option<Arc<Blocks>>) {
        if let Some(blocks) = gone {
            self.slabs.release(&blocks);
            self.count_table(&blocks, LogShare::take_table);
        }
    }

    fn count_table(&self, blocks: &Blocks, count: fn(&LogShare, u64)) {
        let share = self.log.get().filter(|_| blocks.area == Area::Tables);
        if let Some(share) = share {
            count(share, blocks.bytes);
        }
    }

    /// Forgets the file `path`, which is about to go or to change, and gives its places back.
    pub(super) fn forget(&self, path: &Path) {
        let known = lock(&self.files).remove(path);
        self.release(known);
    }

    /// The blocks of the file `path`, if it was read.
    pub(super) fn blocks_of(&self, path: &Path) -> Option<Arc<Blocks>> {
        lock(&self.files).get(path).cloned()
    }

    /// All files that were read.
    pub(super) fn files(&self) -> Vec<Arc<Blocks>> {
        lock(&self.files).values().cloned().collect()
    }

    /// Reads `buffer`, which is block `index` and begins at `offset`, from its copy. `false`: the main file has to be read.
    pub(super) fn read(
        &self,
        (blocks, index): (&Blocks, usize),
        buffer: &mut [u8],
        offset: u64,
    ) -> bool {
        let Some(place) = blocks.place(index).filter(|_| self.health.is_good()) else {
            return false;
        };
        let outcome = self.slabs.read(place, buffer, offset);
        if blocks.place(index) != Some(place) {
            // Another block may have it by now.
            return false;
        }
        match outcome {
            Ok(Some(true)) => true,
            // Of two blocks that begin side by side the other one has a copy.
            Ok(None) => false,
            Ok(Some(false)) => {
                self.drop_damaged((blocks, index), place);
                false
            }
            Err(error) => {
                self.fail(&error.to_string());
                false
            }
        }
    }

    /// The copy is not what was written: its place is not used again.
    #[cold]
    fn drop_damaged(&self, (blocks, index): (&Blocks, usize), place: Place) {
        let is_new = self.slabs.discard(blocks, index, place);
        if is_new && self.damaged.fetch_add(1, Relaxed) == 0 {
            let directory = self.options.directory.display();
            log::warn!("the fast directory {directory} gave wrong bytes; the main one was read");
        }
    }

    /// The fast directory does not work: it rests from now on.
    #[cold]
    pub(super) fn fail(&self, reason: &str) {
        self.health.rest(reason);
        self.wake();
    }

    /// Notes that block `index` was read slowly, or would have been.
    pub(super) fn warm(&self, blocks: &Blocks, index: usize) {
        blocks.warm(index);
        let warmed = self.warmed.fetch_add(1, Relaxed) + 1;
        // A round takes the count back and then says when the next one is due; reads may come between.
        let is_due = warmed >= self.round_reads.load(Relaxed);
        if is_due && warmed.is_multiple_of(ROUND_READS_MIN) {
            self.wake();
        }
    }

    /// Lets the next round of planning come after `reads`, or a few more.
    pub(super) fn plan_after(&self, reads: u64) {
        let reads = reads.max(ROUND_READS_MIN);
        self.round_reads.store(reads, Relaxed);
    }

    /// Whether it is time to plan.
    pub(super) fn is_round_due(&self) -> bool {
        self.warmed.load(Relaxed) >= self.round_reads.load(Relaxed)
    }

    /// Offers block `index`, which begins at `start` and was read slowly, to the background, if it is hot enough.
    pub(super) fn offer(&self, (blocks, index): (&Arc<Blocks>, usize), start: u64, content: &[u8]) {
        let is_hot = blocks.heat(index) >= self.threshold.load(Relaxed);
        let is_useful = is_hot && self.health.is_good() && blocks.place(index).is_none();
        let fits = content.len() <= BLOCK_BYTES_MAX && !blocks.is_gone();
        if !is_useful || !fits || lock(&self.offers).len() >= OFFERS_MAX {
            return;
        }
        let offer = Offer {
            blocks: Arc::clone(blocks),
            index,
            start,
            content: content.to_vec(),
        };
        let mut offers = lock(&self.offers);
        offers.push(offer);
        let is_first = offers.len() == 1;
        drop(offers);
        if is_first {
            self.wake();
        }
    }

    /// What readers have brought.
    pub(super) fn take_offers(&self) -> Vec<Offer> {
        std::mem::take(&mut lock(&self.offers))
    }

    /// Memory for what is known of blocks and places (bytes, about).
    pub(crate) fn memory_bytes(&self) -> u64 {
        let blocks = self.files().iter().map(|it| it.memory_bytes()).sum::<u64>();
        blocks + self.slabs.memory_bytes()
    }

    pub(super) fn wake(&self) {
        if let Some(call) = self.call.get() {
            call();
        }
    }
}

/// Refuses a directory that holds a database.
fn check_no_database(storage: &dyn Storage, directory: &Path) -> Result<()> {
    let entries = storage.list(directory).unwrap_or_default();
    if entries.iter().any(|entry| entry.name == CURRENT) {
        return Err(Error::Incompatible {
            path: directory.to_owned(),
            reason: "there is a database in it; name another directory as the fast one".into(),
        });
    }
    Ok(())
}
