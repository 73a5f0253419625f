//! What a program may bring along: comparators, filter policies, caches.
//!
//! A comparator is called wherever keys are ordered, by any thread of the engine, until the database is closed. One that
//! bears the name of the order of bytes is that order, and is not called. The functions that make filters are never
//! called: filters change no result, so a policy is taken, kept and given back.

use crate::memory::{bytes_of, hand_out, take_back};
use crate::status::Failure;
use std::cmp::Ordering;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use waystation::{Comparator, Order};

/// Frees what a program brought along.
pub type Destructor = unsafe extern "C" fn(*mut c_void);
/// Orders two keys.
pub type CompareCallback =
    unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int;
/// Names what a program brought along.
pub type NameCallback = unsafe extern "C" fn(*mut c_void) -> *const c_char;
/// Makes a filter.
pub type CreateFilterCallback = unsafe extern "C" fn(
    *mut c_void,
    *const *const c_char,
    *const usize,
    c_int,
    *mut usize,
) -> *mut c_char;
/// Asks a filter.
pub type MayMatchCallback =
    unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> u8;

/// What a program brought along: freed by its own function.
struct Brought {
    state: *mut c_void,
    destructor: Option<Destructor>,
}

impl Drop for Brought {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: whoever made it passed a function that may be called with its state once, at the end.
            unsafe { destructor(self.state) }
        }
    }
}

/// An order of keys.
pub struct leveldb_comparator_t {
    brought: Brought,
    compare: CompareCallback,
    name: NameCallback,
}

impl leveldb_comparator_t {
    /// The order that it makes, which calls it until nobody holds that any more.
    pub(crate) fn order(&self) -> Result<Order, Failure> {
        // SAFETY: whoever made it passed a function that may be called with its state, and returns a text.
        let name = unsafe { CStr::from_ptr((self.name)(self.brought.state)) };
        let Ok(name) = name.to_str() else {
            let name = name.to_string_lossy();
            return Err(Failure::invalid_argument(format!(
                "the comparator's name {name} is not UTF-8"
            )));
        };
        if name == Order::Bytewise.name() {
            return Ok(Order::Bytewise);
        }
        Ok(Order::Custom(Arc::new(Called {
            state: self.brought.state,
            compare: self.compare,
            name: name.to_owned(),
        })))
    }
}

/// A program's function that orders keys, with what it is called with. Its program keeps both until the database is
/// closed.
struct Called {
    state: *mut c_void,
    compare: CompareCallback,
    name: String,
}

// SAFETY: as with LevelDB, the header demands of the function that any thread may call it, with this state, at any time.
unsafe impl Send for Called {}
// SAFETY: as above.
unsafe impl Sync for Called {}

impl Comparator for Called {
    fn name(&self) -> &str {
        &self.name
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let ((a, a_length), (b, b_length)) = (bytes_of(a), bytes_of(b));
        // SAFETY: state and function are live until the database is closed; the bytes have these lengths.
        let order = unsafe { (self.compare)(self.state, a, a_length, b, b_length) };
        order.cmp(&0)
    }
}

/// A comparator of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Option<Destructor>,
    compare: CompareCallback,
    name: NameCallback,
) -> *mut leveldb_comparator_t {
    hand_out(leveldb_comparator_t {
        brought: Brought { state, destructor },
        compare,
        name,
    })
}

/// Gives a comparator back: its destructor is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_destroy(comparator: *mut leveldb_comparator_t) {
    // SAFETY: the handle is `leveldb_comparator_create`'s and not used again.
    drop(unsafe { take_back(comparator) });
}

/// How filters are made.
pub struct leveldb_filterpolicy_t {
    /// Bits a key of Bloom filters; none where the policy is the caller's.
    pub(crate) bits_per_key: Option<u32>,
    _brought: Option<Brought>,
}

/// A policy of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Option<Destructor>,
    _create_filter: CreateFilterCallback,
    _may_match: MayMatchCallback,
    _name: NameCallback,
) -> *mut leveldb_filterpolicy_t {
    hand_out(leveldb_filterpolicy_t {
        bits_per_key: None,
        _brought: Some(Brought { state, destructor }),
    })
}

/// Gives a policy back: its destructor is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_destroy(policy: *mut leveldb_filterpolicy_t) {
    // SAFETY: the handle is one of the two functions' that make it, and not used again.
    drop(unsafe { take_back(policy) });
}

/// Bloom filters of so many bits a key (up to 64).
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(
    bits_per_key: c_int,
) -> *mut leveldb_filterpolicy_t {
    // LevelDB makes filters of one bit a key where less is asked for.
    hand_out(leveldb_filterpolicy_t {
        bits_per_key: Some(u32::try_from(bits_per_key).unwrap_or(1).clamp(1, 64)),
        _brought: None,
    })
}

/// The size of a cache.
pub struct leveldb_cache_t {
    pub(crate) bytes: usize,
}

/// A cache for blocks; every database it is set for has one of this size.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> *mut leveldb_cache_t {
    hand_out(leveldb_cache_t { bytes: capacity })
}

/// Gives a cache back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_cache_destroy(cache: *mut leveldb_cache_t) {
    // SAFETY: the handle is `leveldb_cache_create_lru`'s and not used again.
    drop(unsafe { take_back(cache) });
}
