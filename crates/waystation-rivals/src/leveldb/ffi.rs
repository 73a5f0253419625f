//! LevelDB's C interface (include/leveldb/c.h of 1.23), as far as comparisons need it.
//!
//! Declarations only, and the checksum that LevelDB is built with. What is called with what, and why that is
//! sound, stands in the module above.
#![expect(
    unsafe_code,
    reason = "a foreign library's declarations, and the one function it calls back"
)]

use std::ffi::{c_char, c_int, c_uchar, c_void};

/// An opaque type of the library.
macro_rules! opaque {
    ($($name:ident: $what:literal),* $(,)?) => {$(
        #[doc = $what]
        #[repr(C)]
        pub(super) struct $name { _opaque: [u8; 0] }
    )*};
}

opaque! {
    Db: "`leveldb_t`. Its first member is the C++ object; our own read relies on that.",
    Options: "`leveldb_options_t`",
    Cache: "`leveldb_cache_t`",
    FilterPolicy: "`leveldb_filterpolicy_t`",
    ReadOptions: "`leveldb_readoptions_t`",
    WriteOptions: "`leveldb_writeoptions_t`",
    Iter: "`leveldb_iterator_t`",
    WriteBatch: "`leveldb_writebatch_t`",
}

unsafe extern "C" {
    pub(super) fn leveldb_open(
        options: *const Options,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut Db;
    pub(super) fn leveldb_close(db: *mut Db);
    pub(super) fn leveldb_put(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_length: usize,
        value: *const c_char,
        value_length: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn leveldb_delete(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_length: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn leveldb_write(
        db: *mut Db,
        options: *const WriteOptions,
        batch: *mut WriteBatch,
        error: *mut *mut c_char,
    );
    pub(super) fn leveldb_writebatch_create() -> *mut WriteBatch;
    pub(super) fn leveldb_writebatch_destroy(batch: *mut WriteBatch);
    pub(super) fn leveldb_writebatch_put(
        batch: *mut WriteBatch,
        key: *const c_char,
        key_length: usize,
        value: *const c_char,
        value_length: usize,
    );
    pub(super) fn leveldb_writebatch_delete(
        batch: *mut WriteBatch,
        key: *const c_char,
        key_length: usize,
    );
    pub(super) fn leveldb_free(memory: *mut c_void);

    pub(super) fn leveldb_create_iterator(db: *mut Db, options: *const ReadOptions) -> *mut Iter;
    pub(super) fn leveldb_iter_destroy(iter: *mut Iter);
    pub(super) fn leveldb_iter_valid(iter: *const Iter) -> c_uchar;
    pub(super) fn leveldb_iter_seek_to_first(iter: *mut Iter);
    pub(super) fn leveldb_iter_seek_to_last(iter: *mut Iter);
    pub(super) fn leveldb_iter_seek(iter: *mut Iter, key: *const c_char, length: usize);
    pub(super) fn leveldb_iter_next(iter: *mut Iter);
    pub(super) fn leveldb_iter_prev(iter: *mut Iter);
    pub(super) fn leveldb_iter_key(iter: *const Iter, length: *mut usize) -> *const c_char;
    pub(super) fn leveldb_iter_value(iter: *const Iter, length: *mut usize) -> *const c_char;
    pub(super) fn leveldb_iter_get_error(iter: *const Iter, error: *mut *mut c_char);

    pub(super) fn leveldb_options_create() -> *mut Options;
    pub(super) fn leveldb_options_destroy(options: *mut Options);
    pub(super) fn leveldb_options_set_create_if_missing(options: *mut Options, value: c_uchar);
    pub(super) fn leveldb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    pub(super) fn leveldb_options_set_max_file_size(options: *mut Options, bytes: usize);
    pub(super) fn leveldb_options_set_cache(options: *mut Options, cache: *mut Cache);
    pub(super) fn leveldb_options_set_filter_policy(
        options: *mut Options,
        policy: *mut FilterPolicy,
    );
    pub(super) fn leveldb_cache_create_lru(bytes: usize) -> *mut Cache;
    pub(super) fn leveldb_cache_destroy(cache: *mut Cache);
    pub(super) fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut FilterPolicy;
    pub(super) fn leveldb_filterpolicy_destroy(policy: *mut FilterPolicy);
    pub(super) fn leveldb_readoptions_create() -> *mut ReadOptions;
    pub(super) fn leveldb_readoptions_destroy(options: *mut ReadOptions);
    pub(super) fn leveldb_writeoptions_create() -> *mut WriteOptions;
    pub(super) fn leveldb_writeoptions_destroy(options: *mut WriteOptions);
    pub(super) fn leveldb_writeoptions_set_sync(options: *mut WriteOptions, value: c_uchar);
    #[cfg(test)]
    pub(super) fn leveldb_major_version() -> c_int;
    #[cfg(test)]
    pub(super) fn leveldb_minor_version() -> c_int;

    /// The read of `native/leveldb_get.cc`: 1 and the value, 0 for none, -1 and a message. What it points to is
    /// valid until this thread's next call.
    pub(super) fn waystation_bench_leveldb_get(
        db: *const Db,
        verify_checksums: c_int,
        fill_cache: c_int,
        key: *const c_char,
        key_length: usize,
        value: *mut *const c_char,
        value_length: *mut usize,
    ) -> c_int;
}

/// The checksum that LevelDB is built with (native/crc32c/crc32c.h): Waystation's own.
///
/// # Safety
///
/// `data` must be readable for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn waystation_bench_crc32c(crc: u32, data: *const u8, length: usize) -> u32 {
    if length == 0 {
        return crc;
    }
    // SAFETY: the caller, LevelDB's checksum of a buffer of its own, passes its address and length.
    let bytes = unsafe { std::slice::from_raw_parts(data, length) };
    crc32c::crc32c_append(crc, bytes)
}
