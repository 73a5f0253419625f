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

use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

/// The result of LevelDB's calls.
pub type Result<T> = std::result::Result<T, Failure>;

/// What LevelDB answered.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What it was asked for.
    pub operation: &'static str,
    /// Its message.
    pub message: String,
}

impl Failure {
    fn new(operation: &'static str, message: impl Into<String>) -> Self {
        Self {
            operation,
            message: message.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LevelDB failed to {}: {}", self.operation, self.message)
    }
}

impl std::error::Error for Failure {}

/// What is not left as it comes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tuning {
    /// The block cache (bytes).
    pub cache_bytes: Option<usize>,
    /// A filter of so many bits for each key.
    pub filter_bits: Option<i32>,
    /// The write buffer (bytes).
    pub write_buffer_bytes: Option<usize>,
    /// How large table files get (bytes).
    pub file_bytes: Option<usize>,
}

/// An open LevelDB, made if missing. Dropping it closes it.
pub struct LevelDb {
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
    fn new(tuning: Tuning) -> Result<Self> {
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
            if let Some(bytes) = tuning.cache_bytes {
                made.cache = ffi::leveldb_cache_create_lru(bytes);
                ffi::leveldb_options_set_cache(options, made.cache);
            }
            if let Some(bits) = tuning.filter_bits {
                made.filter = ffi::leveldb_filterpolicy_create_bloom(bits);
                ffi::leveldb_options_set_filter_policy(options, made.filter);
            }
            if let Some(bytes) = tuning.write_buffer_bytes {
                ffi::leveldb_options_set_write_buffer_size(options, bytes);
            }
            if let Some(bytes) = tuning.file_bytes {
                ffi::leveldb_options_set_max_file_size(options, bytes);
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
    NonNull::new(pointer).ok_or_else(|| Failure::new("construct an object", "it returned null"))
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
    Err(Failure::new(operation, message))
}

impl LevelDb {
    /// Opens the database in `directory`.
    pub fn open(directory: &Path, tuning: Tuning) -> Result<Self> {
        let options = Settings::new(tuning)?;
        let name = CString::new(directory.as_os_str().as_bytes())
            .map_err(|error| Failure::new("open", error.to_string()))?;
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
    fn writing(&self, is_synced: bool) -> *const ffi::WriteOptions {
        if is_synced {
            self.write_synced.as_ptr()
        } else {
            self.write.as_ptr()
        }
    }

    /// Puts; with `is_synced` it survives a power cut, without it the death of the process.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8], is_synced: bool) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the module's invariants; key and value are readable for their lengths during the call.
        unsafe {
            ffi::leveldb_put(
                self.db.as_ptr(),
                self.writing(is_synced),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &raw mut error,
            );
        }
        check("put", error)
    }

    /// Deletes; survives the death of the process.
    #[inline]
    pub fn delete(&self, key: &[u8]) -> Result<()> {
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

    /// Replaces `value` by the key's. False (and anything in `value`) if there is none.
    #[inline]
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
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
            return Err(Failure::new("get", String::from_utf8_lossy(bytes)));
        }
        value.clear();
        value.extend_from_slice(bytes);
        Ok(true)
    }

    /// A new iterator over the database as it is now.
    pub fn cursor(&self) -> Result<Cursor<'_>> {
        // SAFETY: the module's invariants.
        let iter = unsafe { ffi::leveldb_create_iterator(self.db.as_ptr(), self.read.as_ptr()) };
        Ok(Cursor {
            iter: made(iter)?,
            is_valid: false,
            _db: self,
        })
    }

    /// Writes all of `batch` or nothing.
    pub fn write(&self, batch: &Batch, is_synced: bool) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the module's invariants; the batch is alive, and the library only reads it.
        unsafe {
            ffi::leveldb_write(
                self.db.as_ptr(),
                self.writing(is_synced),
                batch.0.as_ptr(),
                &raw mut error,
            );
        }
        check("write a batch", error)
    }
}

/// Operations to be done together.
pub struct Batch(NonNull<ffi::WriteBatch>);

impl Batch {
    /// One without operations.
    pub fn new() -> Result<Self> {
        // SAFETY: a constructor without arguments.
        Ok(Self(made(unsafe { ffi::leveldb_writebatch_create() })?))
    }

    /// Adds a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: the batch is alive; key and value are readable for their lengths while they are copied into it.
        unsafe {
            ffi::leveldb_writebatch_put(
                self.0.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
    }

    /// Adds a deletion.
    pub fn delete(&mut self, key: &[u8]) {
        // SAFETY: the batch is alive; the key is readable for its length while it is copied into it.
        unsafe {
            ffi::leveldb_writebatch_delete(self.0.as_ptr(), key.as_ptr().cast(), key.len());
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: made by the library, used by nobody after this.
        unsafe { ffi::leveldb_writebatch_destroy(self.0.as_ptr()) };
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

/// LevelDB's iterator. Every step says whether there is an entry now; from nowhere, `next` and `prev` lead nowhere.
pub struct Cursor<'a> {
    iter: NonNull<ffi::Iter>,
    /// Whether there is an entry here.
    is_valid: bool,
    _db: &'a LevelDb,
}

impl Cursor<'_> {
    /// Whether there is an entry here; if not, whether that is the end or a failure.
    #[inline]
    fn landed(&mut self) -> Result<bool> {
        // SAFETY: the module's invariants.
        self.is_valid = unsafe { ffi::leveldb_iter_valid(self.iter.as_ptr()) } != 0;
        if self.is_valid {
            return Ok(true);
        }
        let mut error = ptr::null_mut();
        // SAFETY: as above; the error is taken by `check`.
        unsafe { ffi::leveldb_iter_get_error(self.iter.as_ptr(), &raw mut error) };
        check("iterate", error)?;
        Ok(false)
    }

    /// To the first entry.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        // SAFETY: the module's invariants.
        unsafe { ffi::leveldb_iter_seek_to_first(self.iter.as_ptr()) };
        self.landed()
    }

    /// To the last entry.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        // SAFETY: the module's invariants.
        unsafe { ffi::leveldb_iter_seek_to_last(self.iter.as_ptr()) };
        self.landed()
    }

    /// To the first entry at or after `key`.
    #[inline]
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        // SAFETY: the module's invariants; the key is readable for its length during the call.
        unsafe { ffi::leveldb_iter_seek(self.iter.as_ptr(), key.as_ptr().cast(), key.len()) };
        self.landed()
    }

    /// One forward.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor's step, not an iterator's"
    )]
    pub fn next(&mut self) -> Result<bool> {
        if self.is_valid {
            // SAFETY: the module's invariants; there is an entry here.
            unsafe { ffi::leveldb_iter_next(self.iter.as_ptr()) };
        }
        self.landed()
    }

    /// One back.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        if self.is_valid {
            // SAFETY: as for `next`.
            unsafe { ffi::leveldb_iter_prev(self.iter.as_ptr()) };
        }
        self.landed()
    }

    /// The key here; empty where there is no entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if !self.is_valid {
            return &[];
        }
        let mut length = 0;
        // SAFETY: there is an entry; its bytes stay until the iterator moves.
        unsafe {
            let bytes = ffi::leveldb_iter_key(self.iter.as_ptr(), &raw mut length);
            std::slice::from_raw_parts(bytes.cast(), length)
        }
    }

    /// The value here; empty where there is no entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if !self.is_valid {
            return &[];
        }
        let mut length = 0;
        // SAFETY: as for `key`.
        unsafe {
            let bytes = ffi::leveldb_iter_value(self.iter.as_ptr(), &raw mut length);
            std::slice::from_raw_parts(bytes.cast(), length)
        }
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library, used by nobody after this.
        unsafe { ffi::leveldb_iter_destroy(self.iter.as_ptr()) };
    }
}

/// The library's version.
pub const VERSION: &str = "1.23";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_the_version_that_is_named() {
        // SAFETY: functions without arguments that return constants.
        let version = unsafe { (ffi::leveldb_major_version(), ffi::leveldb_minor_version()) };
        assert_eq!(format!("{}.{}", version.0, version.1), VERSION);
    }
}
