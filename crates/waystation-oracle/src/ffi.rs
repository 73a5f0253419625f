//! The part of LevelDB's C interface (`leveldb/c.h`, 1.23) that the tests need, declared by hand.

#![expect(unsafe_code, reason = "declares the functions of a C library")]

use std::ffi::{c_char, c_int, c_uchar, c_void};

/// Any of LevelDB's objects, behind the pointer that its `create` or `open` returned.
pub(crate) type Handle = *mut c_void;

unsafe extern "C" {
    pub(crate) fn leveldb_open(
        options: Handle,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> Handle;
    pub(crate) fn leveldb_close(db: Handle);
    pub(crate) fn leveldb_write(
        db: Handle,
        options: Handle,
        batch: Handle,
        error: *mut *mut c_char,
    );
    pub(crate) fn leveldb_get(
        db: Handle,
        options: Handle,
        key: *const c_char,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    pub(crate) fn leveldb_compact_range(
        db: Handle,
        start: *const c_char,
        start_len: usize,
        limit: *const c_char,
        limit_len: usize,
    );
    pub(crate) fn leveldb_property_value(db: Handle, name: *const c_char) -> *mut c_char;
    pub(crate) fn leveldb_free(memory: *mut c_void);

    pub(crate) fn leveldb_create_iterator(db: Handle, options: Handle) -> Handle;
    pub(crate) fn leveldb_iter_destroy(iterator: Handle);
    pub(crate) fn leveldb_iter_valid(iterator: Handle) -> c_uchar;
    pub(crate) fn leveldb_iter_seek_to_first(iterator: Handle);
    pub(crate) fn leveldb_iter_seek_to_last(iterator: Handle);
    pub(crate) fn leveldb_iter_seek(iterator: Handle, key: *const c_char, key_len: usize);
    pub(crate) fn leveldb_iter_next(iterator: Handle);
    pub(crate) fn leveldb_iter_prev(iterator: Handle);
    pub(crate) fn leveldb_iter_key(iterator: Handle, len: *mut usize) -> *const c_char;
    pub(crate) fn leveldb_iter_value(iterator: Handle, len: *mut usize) -> *const c_char;
    pub(crate) fn leveldb_iter_get_error(iterator: Handle, error: *mut *mut c_char);

    pub(crate) fn leveldb_writebatch_create() -> Handle;
    pub(crate) fn leveldb_writebatch_destroy(batch: Handle);
    pub(crate) fn leveldb_writebatch_put(
        batch: Handle,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    );
    pub(crate) fn leveldb_writebatch_delete(batch: Handle, key: *const c_char, key_len: usize);

    pub(crate) fn leveldb_options_create() -> Handle;
    pub(crate) fn leveldb_options_destroy(options: Handle);
    pub(crate) fn leveldb_options_set_create_if_missing(options: Handle, on: c_uchar);
    pub(crate) fn leveldb_options_set_paranoid_checks(options: Handle, on: c_uchar);
    pub(crate) fn leveldb_options_set_write_buffer_size(options: Handle, bytes: usize);
    pub(crate) fn leveldb_options_set_max_file_size(options: Handle, bytes: usize);
    pub(crate) fn leveldb_options_set_block_size(options: Handle, bytes: usize);
    pub(crate) fn leveldb_options_set_block_restart_interval(options: Handle, entries: c_int);
    pub(crate) fn leveldb_options_set_compression(options: Handle, kind: c_int);
    pub(crate) fn leveldb_options_set_filter_policy(options: Handle, policy: Handle);
    pub(crate) fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> Handle;
    pub(crate) fn leveldb_filterpolicy_destroy(policy: Handle);

    pub(crate) fn leveldb_readoptions_create() -> Handle;
    pub(crate) fn leveldb_readoptions_destroy(options: Handle);
    pub(crate) fn leveldb_readoptions_set_verify_checksums(options: Handle, on: c_uchar);
    pub(crate) fn leveldb_writeoptions_create() -> Handle;
    pub(crate) fn leveldb_writeoptions_destroy(options: Handle);
    pub(crate) fn leveldb_writeoptions_set_sync(options: Handle, on: c_uchar);
}
