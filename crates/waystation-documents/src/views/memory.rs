//! The memory of a sandbox: counted, and ended gently.
//!
//! The interpreter survives a large allocation that is refused. Where a small one is refused in the middle of what it
//! does it may fail an assertion, which would end the process. So beyond the limit large allocations are refused, small
//! ones still succeed, and the script is stopped at its next step. What it can take until then is bounded, too: lists
//! and tables grow by large allocations.

#![expect(
    unsafe_code,
    reason = "an allocator hands out memory to the interpreter"
)]

use rquickjs::allocator::{Allocator, RustAllocator};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Allocations up to this long are refused only far beyond the limit (bytes).
const SMALL_BYTES_MAX: usize = 2 << 10;
/// How many times the limit small allocations may reach.
const SMALL_FACTOR: usize = 3;

/// What a sandbox takes, and may take.
#[derive(Debug)]
pub(super) struct Meter {
    used: AtomicUsize,
    limit: AtomicUsize,
    is_over: AtomicBool,
}

impl Meter {
    /// A meter without a limit.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            is_over: AtomicBool::new(false),
        })
    }

    /// Sets the limit (bytes).
    pub(super) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Looks anew whether the limit is exceeded.
    pub(super) fn begin(&self) {
        let is_over = self.used.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed);
        self.is_over.store(is_over, Ordering::Relaxed);
    }

    /// Whether the limit was exceeded since [`Meter::begin`].
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether a piece of `bytes` may be handed out, of which `more` are new.
    fn allows(&self, bytes: usize, more: usize) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let wanted = self.used.load(Ordering::Relaxed).saturating_add(more);
        if wanted <= limit {
            // The allocator adds a header to what it is asked for.
            return bytes <= isize::MAX as usize / 2;
        }
        self.is_over.store(true, Ordering::Relaxed);
        bytes <= SMALL_BYTES_MAX && wanted <= limit.saturating_mul(SMALL_FACTOR)
    }

    /// Counts what `pointer` leads to, and passes it on.
    fn taken(&self, pointer: *mut u8) -> *mut u8 {
        if !pointer.is_null() {
            // SAFETY: it comes from `RustAllocator`, and is not null.
            let bytes = unsafe { RustAllocator::usable_size(pointer) };
            self.used.fetch_add(bytes, Ordering::Relaxed);
        }
        pointer
    }
}

/// Rust's allocator with a meter.
pub(super) struct MeteredAllocator(pub(super) Arc<Meter>);

// SAFETY: every pointer comes from `RustAllocator`, which fulfils the contract, or is null; the meter changes none.
unsafe impl Allocator for MeteredAllocator {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if !self.0.allows(size, size) {
            return std::ptr::null_mut();
        }
        self.0.taken(RustAllocator.alloc(size))
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let bytes = count.checked_mul(size);
        if !bytes.is_some_and(|bytes| self.0.allows(bytes, bytes)) {
            return std::ptr::null_mut();
        }
        self.0.taken(RustAllocator.calloc(count, size))
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: the caller hands back what one of these functions gave out, which came from `RustAllocator`.
        unsafe {
            self.0
                .used
                .fetch_sub(RustAllocator::usable_size(ptr), Ordering::Relaxed);
            RustAllocator.dealloc(ptr);
        }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if ptr.is_null() {
            return self.alloc(new_size);
        }
        // SAFETY: as above; if it fails the memory stays where it is, and is still counted.
        unsafe {
            let before = RustAllocator::usable_size(ptr);
            let is_growing = new_size > before;
            if is_growing && !self.0.allows(new_size, new_size - before) {
                return std::ptr::null_mut();
            }
            let moved = RustAllocator.realloc(ptr, new_size);
            if !moved.is_null() {
                self.0.used.fetch_sub(before, Ordering::Relaxed);
            }
            self.0.taken(moved)
        }
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: as above.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}
