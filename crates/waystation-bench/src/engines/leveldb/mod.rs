//! LevelDB 1.23 through its C interface.
//!
//! Invariants that every call below rests on:
//! - the pointers in [`LevelDb`] were returned by the library, are not null, and live until its `Drop`;
//! - a cursor borrows the database, so that none outlives it;
//! - the library's database is thread-safe, its iterators are used by one thread;
//! - what an iterator points to is valid until it moves, and moving takes `&mut self`.
#![expect(
    unsafe_code,
    reason = "LevelDB is C++ and is reached through its C interface"
)]

mod ffi;

use super::{Cursor, Engine, EngineKind, OpenSettings};
use crate::error::{Error, Result};
use crate::measure;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};
use std::time::Duration;

const MB: usize = 1 << 20;

/// An open LevelDB.
pub(crate) struct LevelDb {
    db: NonNull<ffi::Db>,
    options: Settings,
    read: NonNull<ffi::ReadOptions>,
    write: NonNull<ffi::WriteOptions>,
    write_synced: NonNull<ffi::WriteOptions>,
}

// SAFETY: leveldb::DB may be used by several threads at once (db.h says so), the options are never changed
// after they were made, and nothing of it belongs to the thread that opened it.
unsafe impl Send for LevelDb {}
// SAFETY: as above.
unsafe impl Sync for LevelDb {}

/// The options and what they point to, which must outlive the database.
struct Settings {
    options: NonNull<ffi::Options>,
    cache: *mut ffi::Cache,
    filter: *mut ffi::FilterPolicy,
}

impl Settings {
    fn new(settings: &OpenSettings) -> Result<Self> {
        // SAFETY: constructors without arguments, and setters on what was just constructed; cache and filter
        // are stored here, and so live until the options are destroyed.
        unsafe {
            let options = made(ffi::leveldb_options_create())?;
            let mut made = Self {
                options,
                cache: ptr::null_mut(),
                filter: ptr::null_mut(),
            };
            let options = options.as_ptr();
            ffi::leveldb_options_set_create_if_missing(options, 1);
            if settings.engine == EngineKind::LevelDbTuned {
                made.cache = ffi::leveldb_cache_create_lru(256 * MB);
                made.filter = ffi::leveldb_filterpolicy_create_bloom(10);
                ffi::leveldb_options_set_cache(options, made.cache);
                ffi::leveldb_options_set_filter_policy(options, made.filter);
                ffi::leveldb_options_set_write_buffer_size(options, 64 * MB);
                ffi::leveldb_options_set_max_file_size(options, 32 * MB);
            }
            if let Some(bytes) = settings.memtable_bytes {
                ffi::leveldb_options_set_write_buffer_size(options, bytes);
            }
            Ok(made)
        }
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: each was made by the library, and no database uses it any more: `LevelDb` closes first.
        unsafe {
            ffi::leveldb_options_destroy(self.options.as_ptr());
            if !self.cache.is_null() {
                ffi::leveldb_cache_destroy(self.cache);
            }
            if !self.filter.is_null() {
                ffi::leveldb_filterpolicy_destroy(self.filter);
            }
        }
    }
}

/// A constructor's answer, which is null only when memory is out.
fn made<T>(pointer: *mut T) -> Result<NonNull<T>> {
    NonNull::new(pointer)
        .ok_or_else(|| Error::engine(LevelDb::NAME, "construct an object", "it returned null"))
}

/// Takes the message that a call left in `error`, if it left one.
fn check(operation: &'static str, error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the library sets the error to a C string that it allocated and that is the caller's to free.
    let message = unsafe {
        let message = CStr::from_ptr(error).to_string_lossy().into_owned();
        ffi::leveldb_free(error.cast());
        message
    };
    Err(Error::engine(LevelDb::NAME, operation, message))
}

impl LevelDb {
    #[inline]
    fn write(&self, options: NonNull<ffi::WriteOptions>, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the module's invariants; key and value are readable for their lengths during the call.
        unsafe {
            ffi::leveldb_put(
                self.db.as_ptr(),
                options.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &raw mut error,
            );
        }
        check("put", error)
    }
}

impl Engine for LevelDb {
    const NAME: &'static str = "leveldb";

    type Cursor<'a> = LevelDbCursor<'a>;

    fn open(settings: &OpenSettings) -> Result<Self> {
        let options = Settings::new(settings)?;
        let name = CString::new(settings.directory.as_os_str().as_bytes())
            .map_err(|error| Error::engine(Self::NAME, "open", error))?;
        let mut error = ptr::null_mut();
        // SAFETY: options live, the name is a C string, and the error is checked before the database is used.
        let db =
            unsafe { ffi::leveldb_open(options.options.as_ptr(), name.as_ptr(), &raw mut error) };
        check("open", error)?;
        // SAFETY: constructors without arguments, and a setter on what was just constructed.
        unsafe {
            let opened = Self {
                db: made(db)?,
                options,
                read: made(ffi::leveldb_readoptions_create())?,
                write: made(ffi::leveldb_writeoptions_create())?,
                write_synced: made(ffi::leveldb_writeoptions_create())?,
            };
            ffi::leveldb_writeoptions_set_sync(opened.write_synced.as_ptr(), 1);
            Ok(opened)
        }
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(self.write, key, value)
    }

    #[inline]
    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(self.write_synced, key, value)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the module's invariants; the key is readable for its length during the call.
        unsafe {
            ffi::leveldb_delete(
                self.db.as_ptr(),
                self.write.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                &raw mut error,
            );
        }
        check("delete", error)
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut found = ptr::null();
        let mut length = 0;
        // SAFETY: the module's invariants; the key is readable for its length during the call, and the two
        // results are written where they may be.
        let outcome = unsafe {
            ffi::waystation_bench_leveldb_get(
                self.db.as_ptr(),
                0,
                1,
                key.as_ptr().cast(),
                key.len(),
                &raw mut found,
                &raw mut length,
            )
        };
        if outcome == 0 {
            return Ok(false);
        }
        // SAFETY: any other outcome sets both results to bytes that are valid until this thread's next call.
        let bytes = unsafe { std::slice::from_raw_parts(found.cast::<u8>(), length) };
        if outcome < 0 {
            let message = String::from_utf8_lossy(bytes);
            return Err(Error::engine(Self::NAME, "get", message));
        }
        value.clear();
        value.extend_from_slice(bytes);
        Ok(true)
    }

    fn cursor(&self) -> Result<LevelDbCursor<'_>> {
        // SAFETY: the module's invariants.
        let iter = unsafe { ffi::leveldb_create_iterator(self.db.as_ptr(), self.read.as_ptr()) };
        Ok(LevelDbCursor {
            iter: made(iter)?,
            _db: self,
        })
    }

    fn depart(&self, _name: &[u8], keys: impl Iterator<Item = Vec<u8>>) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the batch is made here, used by this thread only and destroyed once, before any return; each key
        // is readable for its length while it is copied into the batch; and the module's invariants.
        unsafe {
            let batch = made(ffi::leveldb_writebatch_create())?.as_ptr();
            for key in keys {
                ffi::leveldb_writebatch_delete(batch, key.as_ptr().cast(), key.len());
            }
            ffi::leveldb_write(self.db.as_ptr(), self.write.as_ptr(), batch, &raw mut error);
            ffi::leveldb_writebatch_destroy(batch);
        }
        check("delete a batch", error)
    }

    fn wait_idle(&self) -> Result<Duration> {
        // The library has no sign for it but the end of its activity.
        measure::wait_quiet()
    }

    fn close(self) -> Result<()> {
        drop(self);
        Ok(())
    }
}

impl Drop for LevelDb {
    fn drop(&mut self) {
        // SAFETY: the module's invariants: no cursor is left, and nothing uses these after. The options go
        // with the field, after this.
        unsafe {
            ffi::leveldb_close(self.db.as_ptr());
            ffi::leveldb_readoptions_destroy(self.read.as_ptr());
            ffi::leveldb_writeoptions_destroy(self.write.as_ptr());
            ffi::leveldb_writeoptions_destroy(self.write_synced.as_ptr());
        }
        let _ = &self.options;
    }
}

/// LevelDB's iterator.
pub(crate) struct LevelDbCursor<'a> {
    iter: NonNull<ffi::Iter>,
    _db: &'a LevelDb,
}

impl LevelDbCursor<'_> {
    /// Whether there is an entry here; if not, whether that is the end or a failure.
    #[inline]
    fn landed(&self) -> Result<bool> {
        // SAFETY: the module's invariants.
        if unsafe { ffi::leveldb_iter_valid(self.iter.as_ptr()) } != 0 {
            return Ok(true);
        }
        let mut error = ptr::null_mut();
        // SAFETY: as above; the error is taken by `check`.
        unsafe { ffi::leveldb_iter_get_error(self.iter.as_ptr(), &raw mut error) };
        check("iterate", error)?;
        Ok(false)
    }
}

impl Cursor for LevelDbCursor<'_> {
    fn seek_to_first(&mut self) -> Result<bool> {
        // SAFETY: the module's invariants.
        unsafe { ffi::leveldb_iter_seek_to_first(self.iter.as_ptr()) };
        self.landed()
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        // SAFETY: the module's invariants.
        unsafe { ffi::leveldb_iter_seek_to_last(self.iter.as_ptr()) };
        self.landed()
    }

    #[inline]
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        // SAFETY: the module's invariants; the key is readable for its length during the call.
        unsafe { ffi::leveldb_iter_seek(self.iter.as_ptr(), key.as_ptr().cast(), key.len()) };
        self.landed()
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        // SAFETY: the module's invariants, and the trait's: there was an entry.
        unsafe { ffi::leveldb_iter_next(self.iter.as_ptr()) };
        self.landed()
    }

    #[inline]
    fn prev(&mut self) -> Result<bool> {
        // SAFETY: as for `next`.
        unsafe { ffi::leveldb_iter_prev(self.iter.as_ptr()) };
        self.landed()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: the trait's invariant: there is an entry; its bytes stay until the iterator moves.
        unsafe {
            let bytes = ffi::leveldb_iter_key(self.iter.as_ptr(), &raw mut length);
            std::slice::from_raw_parts(bytes.cast(), length)
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: as for `key`.
        unsafe {
            let bytes = ffi::leveldb_iter_value(self.iter.as_ptr(), &raw mut length);
            std::slice::from_raw_parts(bytes.cast(), length)
        }
    }
}

impl Drop for LevelDbCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library, used by nobody after this.
        unsafe { ffi::leveldb_iter_destroy(self.iter.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_the_version_that_reports_name() {
        // SAFETY: functions without arguments that return constants.
        let version = unsafe { (ffi::leveldb_major_version(), ffi::leveldb_minor_version()) };
        let name = format!("{}.{}", version.0, version.1);
        assert_eq!(name, EngineKind::LevelDb.version());
    }
}
