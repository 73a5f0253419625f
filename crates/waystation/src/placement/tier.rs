//! The fast tier of a database: what its readers and its background share.

use super::extents::{EXTENT_BYTES, Extents, Place};
use super::health::Health;
use super::meters::Meters;
use super::options::FastTier;
use super::round::{FREE_THRESHOLD, Planner};
use super::slots::Slots;
use crate::error::Result;
use crate::storage::{Area, DirectoryLock, File, Storage};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Extents that wait to be written; a reader that brings another one keeps it for itself.
const OFFERS_MAX: usize = 256;
/// A round of planning comes after so many reads, or a sixteenth as many as there are slots.
const ROUND_READS_MIN: u64 = 256;
const ROUND_SHARE: u64 = 16;

/// An extent that is hot enough, with its content.
pub(super) struct Offer {
    pub(super) extents: Arc<Extents>,
    pub(super) index: usize,
    pub(super) content: Vec<u8>,
}

/// Which slots no extent has.
#[derive(Debug, Default)]
pub(super) struct Free {
    pub(super) returned: Vec<u32>,
    /// From here on none was ever used.
    pub(super) next: u32,
    /// There are so many.
    pub(super) limit: u32,
}

impl Free {
    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.returned.pop() {
            return Some(slot);
        }
        (self.next < self.limit).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// How many extents have a place.
    pub(super) fn used(&self) -> u32 {
        self.next - u32::try_from(self.returned.len()).unwrap_or(self.next)
    }
}

/// See the module.
pub(crate) struct Tier {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) options: FastTier,
    /// The database's directory.
    pub(super) main: PathBuf,
    pub(super) slots: Slots,
    pub(super) free: Mutex<Free>,
    pub(super) health: Health,
    pub(super) meters: Meters,
    /// An extent of this heat, or hotter, is brought when it is read.
    pub(super) threshold: AtomicU8,
    files: Mutex<HashMap<PathBuf, Arc<Extents>>>,
    offers: Mutex<Vec<Offer>>,
    /// Heat added since the last round.
    pub(super) warmed: AtomicU64,
    pub(super) damaged: AtomicU64,
    round_reads: AtomicU64,
    offered: AtomicUsize,
    call: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(super) planner: Mutex<Planner>,
    /// While the directory is ours.
    pub(super) ownership: Mutex<Option<Box<dyn DirectoryLock>>>,
}

impl Tier {
    /// The tier that `options` describe, of the database in `main`. If its directory does not work, it rests, and is tried
    /// again.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) if another database has it,
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for settings that make no sense.
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        main: &Path,
        options: &FastTier,
    ) -> Result<Arc<Self>> {
        options.check_beside(main)?;
        let count = options.capacity_bytes / EXTENT_BYTES as u64;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let tier = Self {
            storage: Arc::clone(storage),
            options: options.clone(),
            main: main.to_owned(),
            slots: Slots::new(&options.directory, count),
            free: Mutex::default(),
            health: Health::default(),
            meters: Meters::default(),
            threshold: AtomicU8::new(FREE_THRESHOLD),
            files: Mutex::default(),
            offers: Mutex::default(),
            warmed: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            round_reads: AtomicU64::new(ROUND_READS_MIN.max(u64::from(count) / ROUND_SHARE)),
            offered: AtomicUsize::new(0),
            call: OnceLock::new(),
            planner: Mutex::new(Planner::new(storage.now())),
            ownership: Mutex::default(),
        };
        tier.begin_or_rest()?;
        Ok(Arc::new(tier))
    }

    /// Has `call` wake the background when there is something to do.
    pub(crate) fn on_call(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.call.set(Box::new(call));
    }

    /// The extents of the file `path`, which is `bytes` long: those known, or new ones.
    pub(super) fn register(&self, path: &Path, area: Area, bytes: u64) -> Arc<Extents> {
        let mut files = lock(&self.files);
        if let Some(known) = files.get(path)
            && known.bytes == bytes
        {
            return Arc::clone(known);
        }
        let made = Arc::new(Extents::of(area, bytes));
        let replaced = files.insert(path.to_owned(), Arc::clone(&made));
        drop(files);
        if let Some(old) = replaced {
            self.release(&old);
        }
        made
    }

    /// Forgets the file `path`, which is about to go or to change, and gives its places back.
    pub(super) fn forget(&self, path: &Path) {
        let known = lock(&self.files).remove(path);
        if let Some(extents) = known {
            self.release(&extents);
        }
    }

    fn release(&self, extents: &Extents) {
        let mut free = lock(&self.free);
        extents.set_gone();
        for index in 0..extents.count() {
            free.returned
                .extend(extents.take_place(index).map(|it| it.slot));
        }
    }

    /// Takes all places away, so that nothing is read from the fast directory any more.
    pub(super) fn clear(&self) {
        let files = self.files();
        let mut free = lock(&self.free);
        for extents in &files {
            for index in 0..extents.count() {
                extents.take_place(index);
            }
        }
        *free = Free::default();
    }

    /// All files that were read.
    pub(super) fn files(&self) -> Vec<Arc<Extents>> {
        lock(&self.files).values().cloned().collect()
    }

    /// Reads `buffer` from the copies, if all its extents have one. `false`: the main file has to be read.
    pub(super) fn read(&self, extents: &Extents, buffer: &mut [u8], offset: u64) -> bool {
        let around = extents.around(offset, buffer.len());
        let mut index = around.start;
        let places: Option<Vec<Place>> = around.map(|it| extents.place(it)).collect();
        let Some(places) = places else {
            return false;
        };
        // Extents that were brought together often lie side by side.
        let runs = places.chunk_by(|one, next| next.slot == one.slot.wrapping_add(1));
        for run in runs {
            if !self.read_run(extents, (index, run), buffer, offset) {
                return false;
            }
            index += run.len();
        }
        true
    }

    /// Reads the part of `buffer`, which begins at `offset` of the file, that lies in some extents from `index` on, whose
    /// slots are side by side.
    fn read_run(
        &self,
        extents: &Extents,
        (index, run): (usize, &[Place]),
        buffer: &mut [u8],
        offset: u64,
    ) -> bool {
        let indexes = index..index + run.len();
        let start = (index * EXTENT_BYTES) as u64;
        let length: usize = indexes.clone().map(|it| extents.length_of(it)).sum();
        let from = offset.max(start);
        let until = (offset + buffer.len() as u64).min(start + length as u64);
        let chunk = &mut buffer[(from - offset) as usize..(until - offset) as usize];
        let outcome = self
            .slots
            .read(run, ((from - start) as usize, length), chunk);
        let mut known = indexes.clone().zip(run);
        if !known.all(|(it, place)| extents.place(it) == Some(*place)) {
            // Other extents may have the slots by now.
            return false;
        }
        match outcome {
            Ok(true) => true,
            Ok(false) => {
                for index in indexes {
                    self.drop_damaged(extents, index);
                }
                false
            }
            Err(error) => {
                self.fail(&error.to_string());
                false
            }
        }
    }

    /// The copy is not what was written: its slot is not used again.
    #[cold]
    fn drop_damaged(&self, extents: &Extents, index: usize) {
        let _free = lock(&self.free);
        if extents.take_place(index).is_some() && self.damaged.fetch_add(1, Relaxed) == 0 {
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

    /// Notes that the extents in `around` were read slowly, or would have been.
    pub(super) fn warm(&self, extents: &Extents, around: Range<usize>) {
        around.for_each(|index| extents.warm(index));
        let warmed = self.warmed.fetch_add(1, Relaxed) + 1;
        if warmed == self.round_reads.load(Relaxed) {
            self.wake();
        }
    }

    /// Whether it is time to plan.
    pub(super) fn is_round_due(&self) -> bool {
        self.warmed.load(Relaxed) >= self.round_reads.load(Relaxed)
    }

    /// Whether a reader that has to go to the main file for the extents in `around` is to bring them whole.
    pub(super) fn wants(&self, extents: &Extents, around: Range<usize>) -> bool {
        let threshold = self.threshold.load(Relaxed);
        // The read that is about to come counts, too.
        let is_hot = |index| extents.heat(index) + 1 >= threshold && extents.place(index).is_none();
        self.health.is_good()
            && around.into_iter().any(is_hot)
            && self.offered.load(Relaxed) < OFFERS_MAX
            && !extents.is_gone()
    }

    /// Reads the extents in `around` whole from the main file, hands out the part at `offset`, and offers them to the
    /// background. Returns how many bytes of `buffer` there are.
    pub(super) fn bring(
        &self,
        (main, extents): (&dyn File, &Arc<Extents>),
        around: Range<usize>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize> {
        let start = (around.start * EXTENT_BYTES) as u64;
        let lengths = around.clone().map(|index| extents.length_of(index));
        let mut whole = vec![0; lengths.sum()];
        let read = main.read_at(&mut whole, start)?;
        let lead = (offset - start) as usize;
        let there = read.saturating_sub(lead).min(buffer.len());
        buffer[..there].copy_from_slice(&whole[lead..lead + there]);
        if read == whole.len() {
            for (index, content) in around.zip(whole.chunks(EXTENT_BYTES)) {
                if extents.place(index).is_none() {
                    self.offer(extents, index, content);
                }
            }
        }
        Ok(there)
    }

    fn offer(&self, extents: &Arc<Extents>, index: usize, content: &[u8]) {
        let mut offers = lock(&self.offers);
        if offers.len() < OFFERS_MAX {
            offers.push(Offer {
                extents: Arc::clone(extents),
                index,
                content: content.to_vec(),
            });
        }
        let count = offers.len();
        drop(offers);
        if self.offered.swap(count, SeqCst) == 0 {
            self.wake();
        }
    }

    /// What readers have brought.
    pub(super) fn take_offers(&self) -> Vec<Offer> {
        let mut offers = lock(&self.offers);
        self.offered.store(0, SeqCst);
        std::mem::take(&mut offers)
    }

    fn wake(&self) {
        if let Some(call) = self.call.get() {
            call();
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
