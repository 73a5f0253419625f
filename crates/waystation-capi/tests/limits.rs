//! Sizes that no database takes: an error for the program, not its end.

#![expect(unsafe_code, reason = "calls the C interface, as C does")]

use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;
use waystation_capi::leveldb::{
    leveldb_cache_create_lru, leveldb_cache_destroy, leveldb_close, leveldb_delete, leveldb_free,
    leveldb_open, leveldb_options_create, leveldb_options_destroy, leveldb_options_set_cache,
    leveldb_options_set_create_if_missing, leveldb_options_set_write_buffer_size, leveldb_put,
    leveldb_write, leveldb_writebatch_append, leveldb_writebatch_create, leveldb_writebatch_delete,
    leveldb_writebatch_destroy, leveldb_writebatch_put, leveldb_writeoptions_create,
    leveldb_writeoptions_destroy, leveldb_writeoptions_set_sync,
};
use waystation_capi::waystation::{
    waystation_delete_range, waystation_put_ttl, waystation_write_bytes,
};

/// The error's text; there must be one, of an argument that is refused.
fn refusal(error: *mut c_char) {
    assert!(!error.is_null(), "it was refused");
    // SAFETY: errors are texts that end with a null, and go by `leveldb_free`.
    let told = unsafe {
        let told = CStr::from_ptr(error).to_string_lossy().into_owned();
        leveldb_free(error.cast());
        told
    };
    assert!(told.starts_with("Invalid argument"), "{told}");
    assert!(told.contains("at most"), "{told}");
}

#[test]
fn what_is_too_long_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = CString::new(dir.path().join("db").to_string_lossy().as_bytes()).expect("a name");
    // Memory that nobody touches.
    let absurd = vec![0_u8; (4 << 30) + 1];
    let (long, length) = (absurd.as_ptr().cast::<c_char>(), absurd.len());
    let (short, one) = (b"k".as_ptr().cast::<c_char>(), 1);
    let refused = |call: &dyn Fn(*mut *mut c_char)| {
        let mut error = null_mut();
        call(&raw mut error);
        refusal(error);
    };
    // SAFETY: handles are used as in C: created, used, given back once; bytes come with their lengths.
    unsafe {
        let options = leveldb_options_create();
        let cache = leveldb_cache_create_lru(usize::MAX);
        leveldb_options_set_create_if_missing(options, 1);
        leveldb_options_set_write_buffer_size(options, 64 << 10);
        leveldb_options_set_cache(options, cache);
        let mut error = null_mut();
        let db = leveldb_open(options, name.as_ptr(), &raw mut error);
        assert!(error.is_null() && !db.is_null(), "the database opens");
        for sync in [0, 1] {
            let write = leveldb_writeoptions_create();
            leveldb_writeoptions_set_sync(write, sync);
            refused(&|error| leveldb_put(db, write, long, length, short, one, error));
            refused(&|error| leveldb_put(db, write, short, one, long, length, error));
            refused(&|error| leveldb_delete(db, write, long, length, error));
            refused(&|error| {
                waystation_put_ttl(db, write, short, one, long, length, 1000, error);
            });
            refused(&|error| {
                waystation_delete_range(db, write, long, length, short, one, error);
            });
            refused(&|error| {
                waystation_write_bytes(db, write, long, length, error);
            });
            for appended in [false, true] {
                let batch = leveldb_writebatch_create();
                let all = leveldb_writebatch_create();
                leveldb_writebatch_put(batch, short, one, long, length);
                leveldb_writebatch_delete(batch, long, length);
                leveldb_writebatch_append(all, batch);
                refused(&|error| {
                    leveldb_write(db, write, if appended { all } else { batch }, error);
                });
                leveldb_writebatch_destroy(batch);
                leveldb_writebatch_destroy(all);
            }
            leveldb_writeoptions_destroy(write);
        }
        leveldb_close(db);
        leveldb_options_destroy(options);
        leveldb_cache_destroy(cache);
    }
}
