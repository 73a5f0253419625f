//! LevelDB through its C interface, as a small safe type.
//!
//! Ownership follows `leveldb/c.h`: what a `create` or `open` returned is destroyed exactly once, in `Drop`;
//! strings LevelDB hands out (values, errors, properties) are copied and freed at once; keys and values of an
//! iterator are copied before it moves.

#![expect(unsafe_code, reason = "calls a C library")]

use crate::ffi::{self, Handle};
use crate::{Operation, Settings};
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr;

/// A LevelDB database, opened with paranoid checks and read with checksums verified.
#[derive(Debug)]
pub struct LevelDb {
    db: Handle,
    options: Handle,
    filter: Handle,
    read: Handle,
    write: Handle,
    write_sync: Handle,
}

/// An entry: key and value.
type Entry = (Vec<u8>, Vec<u8>);

impl LevelDb {
    /// Opens (and creates, if missing) the database in `path`. The error is LevelDB's own text.
    pub fn open(path: &Path, settings: Settings) -> Result<Self, String> {
        let name =
            CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        let mut error = ptr::null_mut();
        // SAFETY: every setter gets the object its `create` just returned; `name` outlives the call that reads
        // it; the filter outlives the database (both die in `Drop`, the database first).
        unsafe {
            let options = ffi::leveldb_options_create();
            ffi::leveldb_options_set_create_if_missing(options, 1);
            ffi::leveldb_options_set_paranoid_checks(options, 1);
            ffi::leveldb_options_set_write_buffer_size(options, settings.write_buffer_bytes);
            ffi::leveldb_options_set_max_file_size(options, settings.table_bytes);
            ffi::leveldb_options_set_block_size(options, settings.block_bytes);
            ffi::leveldb_options_set_block_restart_interval(options, settings.restart_interval);
            ffi::leveldb_options_set_compression(options, c_int::from(settings.snappy));
            let filter = if settings.filter_bits_per_key > 0 {
                ffi::leveldb_filterpolicy_create_bloom(settings.filter_bits_per_key)
            } else {
                ptr::null_mut()
            };
            if !filter.is_null() {
                ffi::leveldb_options_set_filter_policy(options, filter);
            }
            let read = ffi::leveldb_readoptions_create();
            ffi::leveldb_readoptions_set_verify_checksums(read, 1);
            let write = ffi::leveldb_writeoptions_create();
            let write_sync = ffi::leveldb_writeoptions_create();
            ffi::leveldb_writeoptions_set_sync(write_sync, 1);
            let db = ffi::leveldb_open(options, name.as_ptr(), &raw mut error);
            // Made before looking at the error, so that a failed open frees the options too.
            let opened = Self {
                db,
                options,
                filter,
                read,
                write,
                write_sync,
            };
            take_error(error).map(|()| opened)
        }
    }

    /// Applies a batch, atomically; `sync` makes it survive a power cut.
    pub fn write(&self, operations: &[Operation], sync: bool) -> Result<(), String> {
        let mut error = ptr::null_mut();
        // SAFETY: the batch lives from its create to its destroy below; LevelDB copies keys and values, whose
        // pointers and lengths come from live slices.
        unsafe {
            let batch = ffi::leveldb_writebatch_create();
            for operation in operations {
                match operation {
                    Operation::Put(key, value) => {
                        ffi::leveldb_writebatch_put(
                            batch,
                            chars(key),
                            key.len(),
                            chars(value),
                            value.len(),
                        );
                    }
                    Operation::Delete(key) => {
                        ffi::leveldb_writebatch_delete(batch, chars(key), key.len());
                    }
                }
            }
            let options = if sync { self.write_sync } else { self.write };
            ffi::leveldb_write(self.db, options, batch, &raw mut error);
            ffi::leveldb_writebatch_destroy(batch);
            take_error(error)
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let (mut error, mut length) = (ptr::null_mut(), 0_usize);
        // SAFETY: the key's slice is live; a value that is not null has `length` bytes and is freed once.
        unsafe {
            let value = ffi::leveldb_get(
                self.db,
                self.read,
                chars(key),
                key.len(),
                &raw mut length,
                &raw mut error,
            );
            take_error(error)?;
            if value.is_null() {
                return Ok(None);
            }
            let copy = copy(value, length);
            ffi::leveldb_free(value.cast());
            Ok(Some(copy))
        }
    }

    /// Everything, from the first key to the last.
    pub fn entries(&self) -> Result<Vec<Entry>, String> {
        self.walk(ffi::leveldb_iter_seek_to_first, ffi::leveldb_iter_next)
    }

    /// Everything, from the last key to the first.
    pub fn entries_backwards(&self) -> Result<Vec<Entry>, String> {
        self.walk(ffi::leveldb_iter_seek_to_last, ffi::leveldb_iter_prev)
    }

    /// The first entry at or behind a key, as an iterator's seek finds it.
    pub fn seek(&self, key: &[u8]) -> Result<Option<Entry>, String> {
        let mut error = ptr::null_mut();
        // SAFETY: the iterator lives from its create to its destroy below; the target's slice is live during the seek;
        // key and value are asked for only while the iterator is valid, and copied before it dies.
        unsafe {
            let iterator = ffi::leveldb_create_iterator(self.db, self.read);
            ffi::leveldb_iter_seek(iterator, chars(key), key.len());
            let entry = (ffi::leveldb_iter_valid(iterator) != 0).then(|| entry(iterator));
            ffi::leveldb_iter_get_error(iterator, &raw mut error);
            ffi::leveldb_iter_destroy(iterator);
            take_error(error)?;
            Ok(entry)
        }
    }

    fn walk(
        &self,
        start: unsafe extern "C" fn(Handle),
        step: unsafe extern "C" fn(Handle),
    ) -> Result<Vec<Entry>, String> {
        let (mut error, mut entries) = (ptr::null_mut(), Vec::new());
        // SAFETY: the iterator lives from its create to its destroy below; key and value are asked for only
        // while it is valid, and copied before it moves; `start` and `step` are iterator functions.
        unsafe {
            let iterator = ffi::leveldb_create_iterator(self.db, self.read);
            start(iterator);
            while ffi::leveldb_iter_valid(iterator) != 0 {
                entries.push(entry(iterator));
                step(iterator);
            }
            ffi::leveldb_iter_get_error(iterator, &raw mut error);
            ffi::leveldb_iter_destroy(iterator);
            take_error(error)?;
        }
        Ok(entries)
    }

    /// Merges everything down.
    pub fn compact(&self) {
        // SAFETY: null bounds mean everything.
        unsafe { ffi::leveldb_compact_range(self.db, ptr::null(), 0, ptr::null(), 0) }
    }

    /// How many tables a level has.
    pub fn files_at_level(&self, level: usize) -> usize {
        let name = CString::new(format!("leveldb.num-files-at-level{level}"))
            .expect("a format without a zero byte");
        // SAFETY: a property that is not null is a string of LevelDB's, freed once.
        unsafe {
            let value = ffi::leveldb_property_value(self.db, name.as_ptr());
            if value.is_null() {
                return 0;
            }
            let text = CStr::from_ptr(value).to_string_lossy().into_owned();
            ffi::leveldb_free(value.cast());
            text.parse().unwrap_or(0)
        }
    }
}

impl Drop for LevelDb {
    fn drop(&mut self) {
        // SAFETY: each handle came from its `create` or `open` and dies once, here; the database goes first
        // because it uses the options' filter.
        unsafe {
            if !self.db.is_null() {
                ffi::leveldb_close(self.db);
            }
            ffi::leveldb_options_destroy(self.options);
            if !self.filter.is_null() {
                ffi::leveldb_filterpolicy_destroy(self.filter);
            }
            ffi::leveldb_readoptions_destroy(self.read);
            ffi::leveldb_writeoptions_destroy(self.write);
            ffi::leveldb_writeoptions_destroy(self.write_sync);
        }
    }
}

fn chars(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

/// The entry an iterator stands on.
///
/// # Safety
/// `iterator` must be alive and valid.
unsafe fn entry(iterator: Handle) -> Entry {
    let (mut key_len, mut value_len) = (0_usize, 0_usize);
    // SAFETY: the caller's promise; key and value stay until the iterator moves, and are copied before.
    unsafe {
        let key = ffi::leveldb_iter_key(iterator, &raw mut key_len);
        let value = ffi::leveldb_iter_value(iterator, &raw mut value_len);
        (copy(key, key_len), copy(value, value_len))
    }
}

/// # Safety
/// `data` must point to `length` readable bytes.
unsafe fn copy(data: *const c_char, length: usize) -> Vec<u8> {
    // SAFETY: the caller's promise; LevelDB's empty slices are not null, and a zero length reads nothing.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec()
}

/// # Safety
/// `error` must be null or a string that LevelDB handed out for an error, not yet freed.
unsafe fn take_error(error: *mut c_char) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        ffi::leveldb_free(error.cast());
        Err(text)
    }
}
