//! Cursors.

use crate::memory::{bytes, bytes_of, take_back};
use crate::status::{Failure, tell};
use std::ffi::c_char;
use waystation::DbIterator;

/// A cursor. It is on an entry, or nowhere; after an error it is nowhere, and the error stays.
pub struct leveldb_iterator_t {
    /// None if it could not be made.
    cursor: Option<DbIterator>,
    error: Option<Failure>,
    /// Whether the last move went wrong.
    is_lost: bool,
}

impl leveldb_iterator_t {
    pub(crate) fn new(made: waystation::Result<DbIterator>) -> Self {
        let (cursor, error) = match made {
            Ok(cursor) => (Some(cursor), None),
            Err(error) => (None, Some(error.into())),
        };
        Self {
            cursor,
            error,
            is_lost: false,
        }
    }

    /// Sends the cursor somewhere, from anywhere.
    pub(crate) fn send(&mut self, action: impl FnOnce(&mut DbIterator) -> waystation::Result<()>) {
        if let Some(cursor) = &mut self.cursor {
            let sent = action(cursor);
            self.is_lost = sent.is_err();
            if let Err(error) = sent {
                self.error.get_or_insert(error.into());
            }
        }
    }

    /// Moves the cursor on from its entry, if it is on one.
    fn step(&mut self, action: impl FnOnce(&mut DbIterator) -> waystation::Result<()>) {
        if self.entry().is_some() {
            self.send(action);
        }
    }

    /// The cursor, if it is on an entry.
    fn entry(&self) -> Option<&DbIterator> {
        self.cursor
            .as_ref()
            .filter(|cursor| !self.is_lost && cursor.valid())
    }
}

/// Gives a cursor back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_destroy(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the handle is `leveldb_create_iterator`'s and not used again.
    drop(unsafe { take_back(iterator) });
}

/// Whether the cursor is on an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_valid(iterator: *const leveldb_iterator_t) -> u8 {
    // SAFETY: the handle is live.
    u8::from(unsafe { (*iterator).entry().is_some() })
}

/// Goes to the first key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_first(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the handle is live, and used by one thread.
    unsafe { (*iterator).send(DbIterator::seek_to_first) }
}

/// Goes to the last key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_last(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the handle is live, and used by one thread.
    unsafe { (*iterator).send(DbIterator::seek_to_last) }
}

/// Goes to the first key at or after `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(
    iterator: *mut leveldb_iterator_t,
    key: *const c_char,
    key_length: usize,
) {
    // SAFETY: the handle is live, and used by one thread; the key has that many bytes.
    unsafe {
        let key = bytes(key, key_length);
        (*iterator).send(|cursor| cursor.seek(key));
    }
}

/// Goes to the next key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_next(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the handle is live, and used by one thread.
    unsafe { (*iterator).step(DbIterator::next) }
}

/// Goes to the previous key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_prev(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the handle is live, and used by one thread.
    unsafe { (*iterator).step(DbIterator::prev) }
}

/// The key of the entry, which stays the cursor's and counts until it moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_key(
    iterator: *const leveldb_iterator_t,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the handle is live, and `length` may be written.
    unsafe { lend((*iterator).entry().map(DbIterator::key), length) }
}

/// The value of the entry, which stays the cursor's and counts until it moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_value(
    iterator: *const leveldb_iterator_t,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the handle is live, and `length` may be written.
    unsafe { lend((*iterator).entry().map(DbIterator::value), length) }
}

/// # Safety
/// `length` may be written.
unsafe fn lend(bytes: Option<&[u8]>, length: *mut usize) -> *const c_char {
    let (start, count) = bytes_of(bytes.unwrap_or_default());
    // SAFETY: by the contract of this function.
    unsafe { *length = count };
    start
}

/// Tells what went wrong, if anything did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(
    iterator: *const leveldb_iterator_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the handle is live, and the error as the header demands.
    unsafe {
        if let Some(failure) = &(*iterator).error {
            tell(errptr, failure);
        }
    }
}
