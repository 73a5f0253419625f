//! What a program may bring along: comparators, filter policies, caches.
//!
//! The functions that order keys or make filters are never called. A wrong order of keys would be a wrong database,
//! so another order is refused; filters change no result, so a policy is taken, kept and given back.

use crate::memory::{hand_out, take_back};
use crate::status::Failure;
use std::ffi::{CStr, c_char, c_int, c_void};

/// The order of keys that LevelDB has by default and Waystation has.
const BYTEWISE: &CStr = c"leveldb.BytewiseComparator";

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
    name: NameCallback,
}

impl leveldb_comparator_t {
    /// Whether keys can be ordered so.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        // SAFETY: whoever made it passed a function that may be called with its state, and returns a text.
        let name = unsafe { CStr::from_ptr((self.name)(self.brought.state)) };
        if name == BYTEWISE {
            return Ok(());
        }
        Err(Failure::not_implemented(format!(
            "the comparator {}: Waystation orders keys by their bytes alone; set no comparator, and \
             encode what is to be ordered so that its bytes are in order",
            name.to_string_lossy()
        )))
    }
}

/// A comparator of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Option<Destructor>,
    _compare: CompareCallback,
    name: NameCallback,
) -> *mut leveldb_comparator_t {
    hand_out(leveldb_comparator_t {
        brought: Brought { state, destructor },
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
