//! Databases and snapshots.

use super::{
    leveldb_iterator_t, leveldb_options_t, leveldb_readoptions_t, leveldb_writebatch_t,
    leveldb_writeoptions_t, property,
};
use crate::memory::{bytes, copy, copy_text, hand_out, path, take_back};
use crate::status::value_or_tell;
use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::ops::Bound;
use std::ptr::null_mut;
use waystation::{Db, Error, IterOptions, Snapshot, WriteBatch};

/// An open database.
pub struct leveldb_t {
    pub(crate) db: Db,
}

impl leveldb_t {
    /// The engine's own handle.
    pub fn db(&self) -> &Db {
        &self.db
    }
}

/// A point in the history of a database.
pub struct leveldb_snapshot_t {
    pub(crate) snapshot: Snapshot,
}

/// Opens the database in the directory `name`; null on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut leveldb_t {
    // SAFETY: options, name and error are as the header demands.
    unsafe {
        let opened = (*options)
            .to_engine()
            .and_then(|options| Ok(Db::open(path(name), options).map_err(|it| refusal(it, name))?));
        value_or_tell(opened, errptr).map_or(null_mut(), |db| hand_out(leveldb_t { db }))
    }
}

/// Why the directory `name` is not opened. As with LevelDB, which makes its `LOCK` before it looks for a database, who may
/// not write there hears that in the place of that there is none.
///
/// # Safety
/// `name` ends with a null.
unsafe fn refusal(error: Error, name: *const c_char) -> Error {
    if !matches!(error, Error::Incompatible { .. }) {
        return error;
    }
    // SAFETY: the name ends with a null; nothing is written.
    let denied = unsafe { libc::faccessat(libc::AT_FDCWD, name, libc::W_OK, libc::AT_EACCESS) };
    let cause = io::Error::last_os_error();
    // SAFETY: by the contract of this function.
    let lock = unsafe { path(name) }.join("LOCK");
    match cause.raw_os_error() {
        Some(libc::EACCES | libc::EROFS) if denied != 0 => Error::io("create", lock, cause),
        _ => error,
    }
}

/// Closes a database. What goes wrong then, only `waystation_close` can tell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_close(db: *mut leveldb_t) {
    // SAFETY: the handle is `leveldb_open`'s and not used again.
    drop(unsafe { take_back(db) });
}

/// Puts a value under a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    key_length: usize,
    value: *const c_char,
    value_length: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: handles, bytes and error are as the header demands.
    unsafe {
        let (key, value) = (bytes(key, key_length), bytes(value, value_length));
        let put = if (*options).sync {
            let mut batch = WriteBatch::new();
            batch.put(key, value);
            (*db).db.write(&batch, (*options).durability())
        } else {
            (*db).db.put(key, value)
        };
        value_or_tell(put, errptr);
    }
}

/// Deletes a key, whether it exists or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    key_length: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: handles, bytes and error are as the header demands.
    unsafe {
        let key = bytes(key, key_length);
        let deleted = if (*options).sync {
            let mut batch = WriteBatch::new();
            batch.delete(key);
            (*db).db.write(&batch, (*options).durability())
        } else {
            (*db).db.delete(key)
        };
        value_or_tell(deleted, errptr);
    }
}

/// Writes a batch: all of it or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_write(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    batch: *mut leveldb_writebatch_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: handles and error are as the header demands.
    unsafe {
        let written = (*db).db.write(&(*batch).batch, (*options).durability());
        value_or_tell(written, errptr);
    }
}

/// The value under a key, for the caller to free; null if there is none, and null with an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
    key: *const c_char,
    key_length: usize,
    value_length: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: handles, bytes and error are as the header demands.
    unsafe {
        let found = get(&*db, &*options, bytes(key, key_length));
        let value = value_or_tell(found, errptr).flatten();
        *value_length = value.as_ref().map_or(0, Vec::len);
        value.map_or(null_mut(), |value| copy(&value))
    }
}

/// The value under a key, at the options' snapshot or now.
///
/// # Safety
/// The options' snapshot is live, or there is none.
pub(crate) unsafe fn get(
    db: &leveldb_t,
    options: &leveldb_readoptions_t,
    key: &[u8],
) -> waystation::Result<Option<Vec<u8>>> {
    // SAFETY: it is live, by the contract of this function.
    match unsafe { options.snapshot.as_ref() } {
        None => db.db.get(key),
        Some(held) => db.db.get_at(key, &held.snapshot),
    }
}

/// A cursor over the keys, at the options' snapshot or now, on no entry yet. Never null: what goes wrong is the
/// cursor's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_iterator(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
) -> *mut leveldb_iterator_t {
    // SAFETY: both handles are live, and so is the options' snapshot.
    let (db, snapshot) = unsafe { (&(*db).db, (*options).held_snapshot()) };
    let options = IterOptions {
        snapshot,
        ..IterOptions::default()
    };
    hand_out(leveldb_iterator_t::new(db.iter(options)))
}

/// Marks this point in the history of a database.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_snapshot(db: *mut leveldb_t) -> *const leveldb_snapshot_t {
    // SAFETY: the handle is live.
    let snapshot = unsafe { (*db).db.snapshot() };
    hand_out(leveldb_snapshot_t { snapshot })
}

/// Gives a snapshot back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_release_snapshot(
    _db: *mut leveldb_t,
    snapshot: *const leveldb_snapshot_t,
) {
    // SAFETY: the handle is `leveldb_create_snapshot`'s and not used again.
    drop(unsafe { take_back(snapshot.cast_mut()) });
}

/// The value of a property, for the caller to free; null if there is no such property.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(
    db: *mut leveldb_t,
    name: *const c_char,
) -> *mut c_char {
    // SAFETY: the handle is live, and the name ends with a null.
    let (db, name) = unsafe { (&(*db).db, CStr::from_ptr(name)) };
    let value = name
        .to_str()
        .ok()
        .and_then(|name| property::value(db, name));
    value.map_or(null_mut(), |value| copy_text(&value))
}

/// About how many bytes of tables each range takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: *mut leveldb_t,
    ranges: c_int,
    starts: *const *const c_char,
    start_lengths: *const usize,
    limits: *const *const c_char,
    limit_lengths: *const usize,
    sizes: *mut u64,
) {
    for range in 0..usize::try_from(ranges).unwrap_or(0) {
        // SAFETY: the handle is live, and each array has as many elements as there are ranges.
        unsafe {
            let start = bytes(*starts.add(range), *start_lengths.add(range));
            let limit = bytes(*limits.add(range), *limit_lengths.add(range));
            // There is nobody to tell of a failure; LevelDB says 0 too where it cannot open a table.
            *sizes.add(range) = (*db).db.approximate_bytes(start, limit).unwrap_or(0);
        }
    }
}

/// Rewrites the tables that hold keys of a range; null for a bound that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: *mut leveldb_t,
    start: *const c_char,
    start_length: usize,
    limit: *const c_char,
    limit_length: usize,
) {
    // SAFETY: the handle is live, and the bounds are null or bytes with their lengths.
    let (db, start, limit) = unsafe {
        let bound = |at: *const c_char, length| (!at.is_null()).then(|| bytes(at, length));
        (
            &(*db).db,
            bound(start, start_length),
            bound(limit, limit_length),
        )
    };
    let included = |bound: Option<&'static [u8]>| bound.map_or(Bound::Unbounded, Bound::Included);
    // As LevelDB's, it returns nothing: what failed is tried again in the background, and told to writers.
    let _ = db.compact_range(included(start), included(limit));
}
