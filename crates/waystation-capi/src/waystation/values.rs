//! Values and ranges: reads into the caller's memory, batches as bytes, cursors with bounds.

use super::{code, waystation_code_t};
use crate::leveldb::{
    get, leveldb_iterator_t, leveldb_readoptions_t, leveldb_t, leveldb_writebatch_t,
    leveldb_writeoptions_t,
};
use crate::memory::{bytes, hand_out};
use crate::status::{Failure, tell};
use std::ffi::c_char;
use std::time::Duration;
use waystation::{BATCH_BYTES_MAX, DbIterator, IterOptions, WriteBatch};

/// Copies as much of the value under a key as fits to `buffer`, and says how long it is. A key that is not there is
/// "not found", without a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_get_into(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
    key: *const c_char,
    key_length: usize,
    buffer: *mut c_char,
    capacity: usize,
    value_length: *mut usize,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handles, bytes, buffer and error are as the header demands; a value that was just read does not
    // overlap the buffer.
    unsafe {
        *value_length = 0;
        match get(&*db, &*options, bytes(key, key_length)) {
            Ok(Some(value)) => {
                let fits = value.len().min(capacity);
                std::ptr::copy_nonoverlapping(value.as_ptr().cast(), buffer, fits);
                *value_length = value.len();
                waystation_code_t::Ok
            }
            Ok(None) => waystation_code_t::NotFound,
            Err(error) => {
                let failure = Failure::from(error);
                tell(errptr, &failure);
                failure.code
            }
        }
    }
}

/// Writes a batch that is given as its bytes, in LevelDB's format.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_write_bytes(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    batch: *const c_char,
    batch_length: usize,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handles, bytes and error are as the header demands.
    unsafe {
        let written = batch_of(bytes(batch, batch_length))
            .and_then(|batch| Ok((*db).db.write(&batch, (*options).durability())?));
        code(written, errptr)
    }
}

/// The batch that `bytes` are. They are copied only if it can be written.
fn batch_of(bytes: &[u8]) -> Result<WriteBatch, Failure> {
    if bytes.len() > BATCH_BYTES_MAX {
        return Err(Failure::invalid_argument(format!(
            "the batch has {} bytes; at most {BATCH_BYTES_MAX} are accepted",
            bytes.len()
        )));
    }
    WriteBatch::from_bytes(bytes.to_vec())
        .map_err(|error| Failure::invalid_argument(format!("this is no batch: {error}")))
}

/// The bytes of a batch, in LevelDB's format; they stay the batch's and count until it changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_writebatch_bytes(
    batch: *const leveldb_writebatch_t,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the handle is live, and `length` may be written.
    unsafe {
        let bytes = (*batch).batch.as_bytes();
        *length = bytes.len();
        bytes.as_ptr().cast()
    }
}

/// A cursor over the keys from `lower` on and before `upper`; null for a bound that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_create_range_iterator(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
    lower: *const c_char,
    lower_length: usize,
    upper: *const c_char,
    upper_length: usize,
) -> *mut leveldb_iterator_t {
    // SAFETY: handles are live, and the bounds are null or bytes with their lengths.
    unsafe {
        let bound = |at: *const c_char, length| (!at.is_null()).then(|| bytes(at, length).to_vec());
        let options = IterOptions {
            lower: bound(lower, lower_length),
            upper: bound(upper, upper_length),
            prefix: None,
            snapshot: (*options).held_snapshot(),
        };
        hand_out(leveldb_iterator_t::new((*db).db.iter(options)))
    }
}

/// Puts `value` under `key` for so many milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_put_ttl(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    key_length: usize,
    value: *const c_char,
    value_length: usize,
    milliseconds: i64,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handles and error are as the header demands; key and value have that many bytes.
    unsafe {
        let Ok(milliseconds) = u64::try_from(milliseconds) else {
            let negative =
                waystation::Error::InvalidArgument("the time to live is negative".into());
            return code(Err(negative), errptr);
        };
        let mut batch = WriteBatch::new();
        let lifetime = Duration::from_millis(milliseconds);
        batch.put_with_ttl(bytes(key, key_length), bytes(value, value_length), lifetime);
        code((*db).db.write(&batch, (*options).durability()), errptr)
    }
}

/// Goes to the last key at or before `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_iter_seek_for_prev(
    iterator: *mut leveldb_iterator_t,
    key: *const c_char,
    key_length: usize,
) {
    // SAFETY: the handle is live, and used by one thread; the key has that many bytes.
    unsafe {
        let key = bytes(key, key_length);
        (*iterator).send(|cursor: &mut DbIterator| cursor.seek_for_prev(key));
    }
}

/// Deletes all keys from `start` on and before `end`, however many there are; null for an end that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_delete_range(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    start: *const c_char,
    start_length: usize,
    end: *const c_char,
    end_length: usize,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handles and error are as the header demands; the start has that many bytes, and the end is null or has.
    unsafe {
        let mut batch = WriteBatch::new();
        let end = (!end.is_null()).then(|| bytes(end, end_length));
        batch.delete_range(bytes(start, start_length), end);
        code((*db).db.write(&batch, (*options).durability()), errptr)
    }
}
