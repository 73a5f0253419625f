//! Databases that are not open.

use super::leveldb_options_t;
use crate::memory::path;
use crate::status::value_or_tell;
use std::ffi::c_char;
use std::sync::Arc;
use waystation::Db;
use waystation::repair::{Resurrection, repair_in_place};
use waystation::storage::{OsStorage, Storage};

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

/// Makes a database one that opens and checks, where it is; the files from before stay beside it. As with LevelDB, what
/// was deleted may come back if the MANIFEST or a part of the log is lost; not so if the files are that tell of deletions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: options, name and error are as the header demands.
    unsafe {
        let repaired = (*options).to_engine().and_then(|options| {
            let storage: Arc<dyn Storage> = OsStorage::new();
            let accepted = Resurrection::Possible;
            let dir = path(name);
            Ok(repair_in_place(
                &storage,
                dir,
                &options,
                accepted,
                &mut |_| (),
            )?)
        });
        value_or_tell(repaired, errptr);
    }
}
