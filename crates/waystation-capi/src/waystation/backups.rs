//! Backups: many in one directory, made of an open database; looked at and restored without any.

use super::{code, json, waystation_code_t};
use crate::leveldb::leveldb_t;
use crate::memory::{copy_text, path};
use crate::status::{Failure, value_or_tell};
use std::ffi::c_char;
use std::path::Path;
use std::ptr::null_mut;
use waystation::backup::Backups;
use waystation::storage::OsStorage;

/// The backups in `dir`.
fn open(dir: &Path) -> Result<Backups, Failure> {
    Ok(Backups::open(OsStorage::new(), dir)?)
}

/// The backup that a number of C's names: 0 stands for none in particular.
fn named(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

/// Adds a backup of the database as it is now to the directory `target`, made if missing; its number goes to `number`
/// unless that is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_backup(
    db: *mut leveldb_t,
    target: *const c_char,
    number: *mut u64,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handle, name, number and error are as the header demands.
    unsafe {
        let made = (*db).db.backup(path(target), &mut |_| ());
        let told = made.map(|made| {
            if !number.is_null() {
                *number = made.backup.number;
            }
        });
        code(told, errptr)
    }
}

/// The backups in a directory as JSON for the caller to free; null on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_backups_json(
    backups: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: name and error are as the header demands.
    unsafe {
        let listing = open(path(backups)).and_then(|backups| json(&backups.list()?));
        value_or_tell(listing, errptr).map_or(null_mut(), |listing| copy_text(&listing))
    }
}

/// Reads every file of backup `number`, or of all for 0; the report as JSON for the caller to free, with a list of
/// problems that is empty if all is well. Null if it could not be made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_backups_verify_json(
    backups: *const c_char,
    number: u64,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: name and error are as the header demands.
    unsafe {
        let report = open(path(backups))
            .and_then(|backups| json(&backups.verify(named(number), &mut |_| ())?));
        value_or_tell(report, errptr).map_or(null_mut(), |report| copy_text(&report))
    }
}

/// Removes all but the newest `keep` backups, and what none of those that stay needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_backups_prune(
    backups: *const c_char,
    keep: usize,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: name and error are as the header demands.
    unsafe {
        let pruned = open(path(backups)).and_then(|backups| Ok(backups.prune(keep)?));
        code(pruned.map(drop), errptr)
    }
}

/// Writes backup `number`, or the newest for 0, to the new directory `target`; every byte is verified.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_restore(
    backups: *const c_char,
    number: u64,
    target: *const c_char,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: names and error are as the header demands.
    unsafe {
        let restored = open(path(backups))
            .and_then(|backups| Ok(backups.restore(named(number), path(target), &mut |_| ())?));
        code(restored.map(drop), errptr)
    }
}
