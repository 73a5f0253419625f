//! Batches.

use crate::memory::{bytes, hand_out, take_back};
use std::ffi::{c_char, c_void};
use waystation::WriteBatch;

/// Puts and deletes that are written together.
pub struct leveldb_writebatch_t {
    pub(crate) batch: WriteBatch,
}

/// What `leveldb_writebatch_iterate` calls for a put.
pub type PutCallback =
    unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize);
/// What `leveldb_writebatch_iterate` calls for a delete.
pub type DeleteCallback = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> *mut leveldb_writebatch_t {
    hand_out(leveldb_writebatch_t {
        batch: WriteBatch::new(),
    })
}

/// Gives a batch back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_destroy(batch: *mut leveldb_writebatch_t) {
    // SAFETY: the handle is `leveldb_writebatch_create`'s and not used again.
    drop(unsafe { take_back(batch) });
}

/// Empties a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_clear(batch: *mut leveldb_writebatch_t) {
    // SAFETY: the handle is live, and used by one thread.
    unsafe { (*batch).batch.clear() }
}

/// Adds a put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    key_length: usize,
    value: *const c_char,
    value_length: usize,
) {
    // SAFETY: the handle is live, and used by one thread; key and value have that many bytes.
    unsafe {
        (*batch)
            .batch
            .put(bytes(key, key_length), bytes(value, value_length));
    }
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    key_length: usize,
) {
    // SAFETY: the handle is live, and used by one thread; the key has that many bytes.
    unsafe { (*batch).batch.delete(bytes(key, key_length)) }
}

/// Calls back for every operation of a batch, in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: *const leveldb_writebatch_t,
    state: *mut c_void,
    put: PutCallback,
    deleted: DeleteCallback,
) {
    // SAFETY: the handle is live.
    let batch = unsafe { &(*batch).batch };
    // What LevelDB has no function for is not told.
    for operation in batch.iter().filter(|it| it.time.is_none()) {
        let (key, key_length) = (operation.key.as_ptr().cast(), operation.key.len());
        // SAFETY: the caller passes functions that may be called with its state, and with bytes for as long as
        // the call lasts.
        unsafe {
            match operation.value {
                Some(value) => put(state, key, key_length, value.as_ptr().cast(), value.len()),
                None => deleted(state, key, key_length),
            }
        }
    }
}

/// Adds the operations of `source` to `destination`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_append(
    destination: *mut leveldb_writebatch_t,
    source: *const leveldb_writebatch_t,
) {
    if std::ptr::eq(destination, source) {
        // SAFETY: the handle is live, and used by one thread.
        let batch = unsafe { &mut (*destination).batch };
        let doubled = batch.clone();
        batch.append(&doubled);
        return;
    }
    // SAFETY: both handles are live and not the same, and used by one thread.
    unsafe { (*destination).batch.append(&(*source).batch) }
}
