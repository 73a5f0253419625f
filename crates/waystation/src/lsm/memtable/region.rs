//! The memory behind memtables: allocated once, used again.
//!
//! Memory fresh from the kernel is cleared page by page as it is touched, which is a tenth of the work of a put
//! of 1 KB, and with huge pages a pause of a tenth of a millisecond every 2 MB. A memtable that is dropped
//! leaves its region for the next one, which writes over what is there: an arena reads only what it wrote. Where none is
//! taken for a while all are given back: writers that slow can clear their pages, and readers have more use for the memory.
//! An idle database keeps none, and of its memtable's own region the part that holds something.
//!
//! Databases that share a ceiling keep none. Regions are mappings of their own: the C library's allocator keeps released
//! blocks of this size among smaller ones, and a daemon that wrote for a while had several times its ceiling.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Regions of at least this size are aligned to it, and the kernel is asked to back them with pages of it.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// No kernel has longer pages than this where it has no huge ones.
const SMALL_PAGE_BYTES_MAX: usize = 64 << 10;
/// The alignment of smaller regions: a cache line.
const LINE_BYTES: usize = 64;
/// As many regions are kept for use again: as many memtables wait for their flush at most.
const SPARES_MAX: usize = 4;
/// Regions are kept while one is taken within this time: a writer of 80 MB/s takes one of 32 MB.
const UNUSED_MAX: Duration = Duration::from_millis(400);

/// A region of memory, its bytes of any value.
#[derive(Debug)]
pub(super) struct Region {
    base: NonNull<u8>,
    layout: Layout,
    /// Whether it is a mapping of its own, not a block of the allocator.
    is_mapped: bool,
}

// SAFETY: a region owns its memory and gives no access to it; who has it decides who uses the pointer.
#[expect(unsafe_code, reason = "the region is a raw pointer")]
unsafe impl Send for Region {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "the region is a raw pointer")]
unsafe impl Sync for Region {}

impl Region {
    /// Fresh memory of `bytes`, which are more than none; none of it touched.
    #[expect(unsafe_code, reason = "uninitialised memory of any alignment")]
    fn new(bytes: usize, in_huge_pages: bool) -> Self {
        let huge = in_huge_pages && bytes >= HUGE_PAGE_BYTES;
        let alignment = if huge { HUGE_PAGE_BYTES } else { LINE_BYTES };
        let layout = Layout::from_size_align(bytes, alignment)
            .expect("32 bits of bytes at a power of two are a layout");
        assert!(layout.size() > 0, "a region has bytes");
        let mapped = map(bytes, alignment);
        let is_mapped = mapped.is_some();
        // SAFETY: the layout is not empty.
        let Some(base) = mapped.or_else(|| NonNull::new(unsafe { alloc(layout) })) else {
            handle_alloc_error(layout)
        };
        if huge {
            advise_huge_pages(base, bytes);
        }
        Self {
            base,
            layout,
            is_mapped,
        }
    }

    /// Its first byte.
    #[inline]
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many bytes it has.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// How much of it takes memory.
    #[cfg(all(test, target_os = "linux", not(any(miri, loom, shuttle))))]
    #[expect(unsafe_code, reason = "mincore takes a raw range")]
    pub(super) fn resident_bytes(&self) -> usize {
        let page = rustix::param::page_size();
        let mut pages = vec![0; self.bytes().div_ceil(page)];
        let base = self.base.as_ptr();
        // SAFETY: the region is mapped, and there is a byte for each of its pages.
        let seen = unsafe { libc::mincore(base.cast(), self.bytes(), pages.as_mut_ptr()) };
        assert_eq!(seen, 0, "the region is mapped");
        page * pages.iter().filter(|it| **it & 1 == 1).count()
    }

    /// Gives the memory from byte `start` on back to the system, as far as it makes whole pages. Its bytes are zero then.
    ///
    /// # Safety
    /// No thread has a reference to any of these bytes, or writes any meanwhile.
    #[expect(unsafe_code, reason = "the region is a raw pointer")]
    pub(super) unsafe fn give_back_from(&self, start: usize) {
        let page = if self.layout.align() == HUGE_PAGE_BYTES {
            HUGE_PAGE_BYTES
        } else {
            SMALL_PAGE_BYTES_MAX
        };
        let from = start.next_multiple_of(page);
        if self.is_mapped && from < self.bytes() {
            // SAFETY: mapped in `new`; the rest is as this function asks.
            unsafe { give_pages_back(self.base, from..self.bytes()) };
        }
    }
}

impl Drop for Region {
    #[expect(unsafe_code, reason = "the region is a raw pointer")]
    fn drop(&mut self) {
        if self.is_mapped {
            // SAFETY: mapped in `new` with this length, and every user of the pointer is gone.
            unsafe { unmap(self.base, self.layout.size()) };
            return;
        }
        // SAFETY: allocated in `new` with this layout, and every user of the pointer is gone.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Regions that memtables left.
#[derive(Debug, Default)]
struct Spares {
    regions: Vec<Region>,
    /// Nothing is kept before a region is taken.
    keeps_none: bool,
    /// Whether one was taken since `looked_at`.
    is_used: bool,
    looked_at: Duration,
}

/// Regions that memtables left for later ones.
#[derive(Debug)]
pub(crate) struct Regions {
    // Not the engine's own mutex: it is held for a few instructions, at drops that no model has to see.
    spare: Mutex<Spares>,
    /// As many are kept for use again.
    spares_max: usize,
    /// Whether the kernel is asked for huge pages.
    in_huge_pages: bool,
}

impl Default for Regions {
    fn default() -> Self {
        Self {
            spare: Mutex::default(),
            spares_max: SPARES_MAX,
            in_huge_pages: true,
        }
    }
}

impl Regions {
    /// Regions that take no more memory than is written to, and are given back to the system at once: for many databases
    /// with little in each.
    pub(crate) fn in_small_pages() -> Self {
        Self {
            spares_max: 0,
            in_huge_pages: false,
            ..Self::default()
        }
    }

    /// A region of `bytes`.
    pub(super) fn take(&self, bytes: usize) -> Region {
        let mut spare = self.spare();
        (spare.keeps_none, spare.is_used) = (false, true);
        let fitting = spare.regions.iter().position(|it| it.bytes() == bytes);
        let found = fitting.map(|at| spare.regions.swap_remove(at));
        drop(spare);
        found.unwrap_or_else(|| Region::new(bytes, self.in_huge_pages))
    }

    /// Keeps `region`, unless enough are kept.
    fn give(&self, region: Region) {
        let mut spare = self.spare();
        if !spare.keeps_none && spare.regions.len() < self.spares_max {
            spare.regions.push(region);
        }
    }

    /// Gives all memory that is kept back to the system, unless a region was taken within [`UNUSED_MAX`] before `now`, or about.
    pub(crate) fn give_unused_back(&self, now: Duration) {
        let mut spare = self.spare();
        if now.saturating_sub(spare.looked_at) < UNUSED_MAX {
            return;
        }
        spare.looked_at = now;
        if !std::mem::take(&mut spare.is_used) {
            Self::give_back(spare);
        }
    }

    /// Gives all memory that is kept back to the system, and keeps none before the next region is taken.
    pub(crate) fn become_idle(&self) {
        let mut spare = self.spare();
        spare.keeps_none = true;
        Self::give_back(spare);
    }

    /// Gives what is kept back to the system, without the lock.
    fn give_back(mut spare: MutexGuard<'_, Spares>) {
        let regions = std::mem::take(&mut spare.regions);
        drop(spare);
        drop(regions);
    }

    fn spare(&self) -> MutexGuard<'_, Spares> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A region on loan: dropped, it goes back.
#[derive(Debug)]
pub(super) struct Loan {
    region: Option<Region>,
    to: Arc<Regions>,
}

impl Loan {
    /// A region of `bytes` from `regions`.
    pub(super) fn new(regions: &Arc<Regions>, bytes: usize) -> Self {
        Self {
            region: Some(regions.take(bytes)),
            to: Arc::clone(regions),
        }
    }

    /// The region.
    #[inline]
    pub(super) fn region(&self) -> &Region {
        self.region.as_ref().expect("only the drop takes it away")
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            self.to.give(region);
        }
    }
}

/// Fresh pages for `bytes`, from an address of this alignment on; `None` if the kernel has none to give.
#[cfg(all(target_os = "linux", not(miri)))]
#[expect(unsafe_code, reason = "a mapping is raw memory")]
fn map(bytes: usize, alignment: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let page = rustix::param::page_size();
    let whole = bytes.next_multiple_of(page);
    // What lies before the first aligned address and behind the last page goes back.
    let spare = if alignment > page { alignment } else { 0 };
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let (hint, length) = (std::ptr::null_mut(), whole + spare);
    // SAFETY: the address is left to the kernel, so no existing memory is touched; nothing else has the mapping.
    let mapped = unsafe { mmap_anonymous(hint, length, protection, MapFlags::PRIVATE) }.ok()?;
    let mapped = mapped.cast::<u8>();
    let before = mapped.align_offset(alignment.max(page));
    for (from, length) in [(0, before), (before + whole, spare - before)] {
        if length > 0 {
            // SAFETY: whole pages within the mapping, outside of the bytes that are given away.
            let unmapped = unsafe { munmap(mapped.wrapping_add(from).cast(), length) };
            debug_assert!(unmapped.is_ok(), "pages of a mapping can be unmapped");
        }
    }
    NonNull::new(mapped.wrapping_add(before))
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn map(_: usize, _: usize) -> Option<NonNull<u8>> {
    None
}

/// Gives pages that [`map`] gave back to the kernel.
///
/// # Safety
/// The range is a whole mapping of [`map`], and nothing uses it any more.
#[cfg(all(target_os = "linux", not(miri)))]
#[expect(unsafe_code, reason = "a mapping is raw memory")]
unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: as this function asks.
    let unmapped = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
    debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
}

#[cfg(not(all(target_os = "linux", not(miri))))]
#[expect(unsafe_code, reason = "as where there are mappings")]
unsafe fn unmap(_: NonNull<u8>, _: usize) {
    unreachable!("nothing is mapped here");
}

/// Gives the pages of `range`, which begins with one, back to the kernel, and keeps their addresses. A kernel that refuses
/// costs memory only.
///
/// # Safety
/// The range is within a mapping of [`map`] at `base`. No thread has a reference to its bytes, or writes any meanwhile.
#[cfg(all(target_os = "linux", not(miri)))]
#[expect(unsafe_code, reason = "madvise takes a raw range")]
unsafe fn give_pages_back(base: NonNull<u8>, range: Range<usize>) {
    use rustix::mm::{Advice, madvise};
    let from = base.as_ptr().wrapping_add(range.start);
    // SAFETY: as this function asks; the mapping is private, so its bytes become zero.
    let advised = unsafe { madvise(from.cast(), range.len(), Advice::LinuxDontNeed) };
    if let Err(error) = advised {
        log::debug!("{} bytes of a memtable stay: {error}", range.len());
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
#[expect(unsafe_code, reason = "as where there are mappings")]
unsafe fn give_pages_back(_: NonNull<u8>, _: Range<usize>) {}

/// Asks for huge pages under the whole ones of the region. A kernel that refuses costs speed only.
#[cfg(all(target_os = "linux", not(miri)))]
#[expect(unsafe_code, reason = "madvise takes a raw range")]
fn advise_huge_pages(base: NonNull<u8>, bytes: usize) {
    let whole = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    // SAFETY: the range is within our allocation, and this advice changes no content.
    let advised = unsafe {
        rustix::mm::madvise(
            base.as_ptr().cast(),
            whole,
            rustix::mm::Advice::LinuxHugepage,
        )
    };
    if let Err(error) = advised {
        log::debug!("no huge pages for a memtable of {bytes} bytes: {error}");
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn advise_huge_pages(_: NonNull<u8>, _: usize) {}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn count(regions: &Regions) -> usize {
        regions.spare().regions.len()
    }

    #[test]
    fn regions_come_back_and_few_are_kept() {
        let regions = Arc::new(Regions::default());
        let loans: Vec<_> = (0..6).map(|_| Loan::new(&regions, 4096)).collect();
        let first = loans[0].region().base();
        drop(loans); // the first ones stay
        assert_eq!(count(&regions), SPARES_MAX);
        let other = Loan::new(&regions, 8192);
        assert_eq!(other.region().bytes(), 8192);
        let kept: Vec<_> = (0..SPARES_MAX).map(|_| Loan::new(&regions, 4096)).collect();
        assert!(kept.iter().any(|loan| loan.region().base() == first));
        drop(kept);
        regions.become_idle();
        assert_eq!(count(&regions), 0);
        let small = Arc::new(Regions::in_small_pages());
        drop(Loan::new(&small, 4096));
        assert_eq!(count(&small), 0);
    }

    #[test]
    fn all_are_given_back_where_none_is_taken_for_a_while() {
        let regions = Arc::new(Regions::default());
        let loan = || Loan::new(&regions, 4096);
        let look = |millis| {
            regions.give_unused_back(Duration::from_millis(millis));
            count(&regions)
        };
        drop([loan(), loan(), loan()]);
        assert_eq!(look(400), 3, "they were taken since the first look");
        assert_eq!(look(799), 3, "too early");
        drop(loan());
        assert_eq!(look(800), 3, "one was taken");
        assert_eq!(look(1_200), 0);
        let kept = loan();
        assert_eq!(look(1_600), 0);
        drop(kept);
        assert_eq!(look(1_999), 1, "it has come back");
        assert_eq!(look(2_000), 0);
    }

    #[test]
    fn an_idle_database_keeps_none() {
        let regions = Arc::new(Regions::default());
        let (before, again) = (Loan::new(&regions, 4096), Loan::new(&regions, 4096));
        regions.become_idle();
        drop(before);
        assert_eq!(count(&regions), 0);
        drop(Loan::new(&regions, 4096));
        drop(again);
        assert_eq!(count(&regions), 2);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    #[expect(unsafe_code, reason = "the region is a raw pointer")]
    fn memory_that_is_given_back_is_zero_and_the_rest_stays() {
        for (bytes, start, given_from) in [
            (9 << 20, 3 << 20, 4 << 20),
            (200 << 10, 65 << 10, 128 << 10),
            (200 << 10, 199 << 10, 200 << 10),
        ] {
            let region = Region::new(bytes, true);
            // SAFETY: the region is this test's alone, and has so many bytes.
            let content = unsafe {
                region.base().write_bytes(7, bytes);
                region.give_back_from(start);
                std::slice::from_raw_parts(region.base().as_ptr(), bytes)
            };
            assert!(region.resident_bytes() <= given_from);
            assert!(content[..given_from].iter().all(|it| *it == 7));
            assert!(content[given_from..].iter().all(|it| *it == 0));
        }
    }
}
