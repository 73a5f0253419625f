//! Databases that are not open.

use super::leveldb_options_t;
use crate::memory::path;
use crate::status::value_or_tell;
use std::ffi::c_char;
use waystation::Db;

/// Removes a database; what else is in its directory stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    _options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: name and error are as the header demands.
    unsafe {
        value_or_tell(Db::destroy(path(name)), errptr);
    }
}

/// Opens a database, which mends what a crash left, and closes it in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: options, name and error are as the header demands.
    unsafe {
        let repaired = (*options)
            .to_engine()
            .and_then(|options| Ok(Db::open(path(name), options)?.close()?));
        value_or_tell(repaired, errptr);
    }
}
