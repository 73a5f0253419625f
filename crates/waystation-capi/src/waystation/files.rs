//! What is in memory and what is on storage: syncs, flushes, copies, checks, and an orderly end.

use super::{code, json, waystation_code_t};
use crate::leveldb::{leveldb_options_t, leveldb_t};
use crate::memory::{copy_text, path, take_back};
use crate::status::{Failure, value_or_tell};
use std::ffi::{c_char, c_int, c_uchar};
use std::ptr::null_mut;
use std::sync::Arc;
use waystation::repair::{Resurrection, repair};
use waystation::storage::{OsStorage, Storage};
use waystation::{Compression, FastTier};

/// Closes a database and tells how that went. The handle is gone in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_close(
    db: *mut leveldb_t,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: the handle is `leveldb_open`'s and not used again; the error is as the header demands.
    unsafe {
        let closed = take_back(db).map_or(Ok(()), |handle| handle.db.close());
        code(closed, errptr)
    }
}

/// Makes everything written so far survive a power loss.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_sync(
    db: *mut leveldb_t,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handle and error are as the header demands.
    unsafe { code((*db).db.sync(), errptr) }
}

/// Writes what is in memory to tables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_flush(
    db: *mut leveldb_t,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handle and error are as the header demands.
    unsafe { code((*db).db.flush(), errptr) }
}

/// Waits until no thread writes and neither flush nor compaction is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_wait_idle(
    db: *mut leveldb_t,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handle and error are as the header demands.
    unsafe { code((*db).db.wait_idle(), errptr) }
}

/// Writes a copy of the database to the new directory `target`, by hard links where they can be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_checkpoint(
    db: *mut leveldb_t,
    target: *const c_char,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handle, name and error are as the header demands.
    unsafe { code((*db).db.checkpoint(path(target)), errptr) }
}

/// Writes the database to the new directory `target` as a plain LevelDB database, compressed by snappy or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_export_leveldb(
    db: *mut leveldb_t,
    target: *const c_char,
    compression: c_int,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    let compression = match compression {
        0 => Compression::None,
        1 => Compression::Snappy,
        _ => Compression::Zstd,
    };
    // SAFETY: handle, name and error are as the header demands.
    unsafe {
        let exported = (*db)
            .db
            .export_leveldb(path(target), compression, &mut |_| ());
        code(exported.map(|_| ()), errptr)
    }
}

/// Reads every table in full; the report as JSON for the caller to free, with a list of problems that is empty if
/// all is well. Null if it could not be made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_check_json(
    db: *mut leveldb_t,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: handle and error are as the header demands.
    unsafe {
        let report = (*db).db.check().map_err(Failure::from);
        let report = report.and_then(|report| json(&report));
        value_or_tell(report, errptr).map_or(null_mut(), |report| copy_text(&report))
    }
}

/// Saves all that can be read of the database `name` to the new directory `target`; a report as JSON for the caller to
/// free. Refused where what was deleted may come back, unless `accept_resurrection`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_repair_json(
    options: *const leveldb_options_t,
    name: *const c_char,
    target: *const c_char,
    accept_resurrection: c_int,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    let accepted = match accept_resurrection {
        0 => Resurrection::Impossible,
        _ => Resurrection::Likely,
    };
    // SAFETY: options, names and error are as the header demands.
    unsafe {
        let report = (*options).to_engine().and_then(|options| {
            let storage: Arc<dyn Storage> = OsStorage::new();
            let (name, target) = (path(name), path(target));
            let repaired = repair(&storage, name, target, &options, accepted, &mut |_| ())?;
            json(&repaired)
        });
        value_or_tell(report, errptr).map_or(null_mut(), |report| copy_text(&report))
    }
}

/// Figures about the database as JSON for the caller to free; "failure" in it says why writes are suspended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_stats_json(
    db: *mut leveldb_t,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: handle and error are as the header demands.
    unsafe {
        let stats = json(&(*db).db.stats());
        value_or_tell(stats, errptr).map_or(null_mut(), |stats| copy_text(&stats))
    }
}

/// Has copies of what is read most kept in a directory on a faster device, up to so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_options_set_fast_directory(
    options: *mut leveldb_options_t,
    directory: *const c_char,
    capacity: u64,
) {
    // SAFETY: the handle is live, the name is as the header demands.
    unsafe {
        (*options).set_fast(FastTier::new(path(directory), capacity));
    }
}

/// Says whether that directory survives what the main one survives: segments of the log and tables may lie there alone then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_options_set_fast_durable(
    options: *mut leveldb_options_t,
    is_durable: c_uchar,
) {
    // SAFETY: the handle is live.
    unsafe {
        (*options).set_fast_durable(is_durable != 0);
    }
}
