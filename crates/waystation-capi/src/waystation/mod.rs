//! What LevelDB's interface does not have: devices, ranges, checkpoints, backups, figures, and calls that save a copy.
//!
//! These functions work on LevelDB's handles, return a [`waystation_code_t`] and give the error's text to `errptr` as
//! LevelDB's do. Text that they hand out is for the caller to free.

mod backups;
mod devices;
mod files;
mod values;

pub use backups::*;
pub use devices::*;
pub use files::*;
pub use values::*;

use crate::status::{Failure, tell};
use std::ffi::c_char;

/// The kind of an error. Never renumbered.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum waystation_code_t {
    /// No error.
    Ok = 0,
    /// There is no such key, device or file.
    NotFound = 1,
    /// Bytes on storage are not what was written.
    Corruption = 2,
    /// It cannot be done here.
    NotImplemented = 3,
    /// The call is wrong: fix the call.
    InvalidArgument = 4,
    /// The operating system refused.
    IoError = 5,
    /// Another process has the database open.
    Locked = 6,
    /// Writes are refused until the cause of an earlier failure is gone; reads go on.
    Suspended = 7,
}

/// What a call returns, whose error goes to `errptr`.
///
/// # Safety
/// As [`tell`].
unsafe fn code(
    result: Result<(), impl Into<Failure>>,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    match result {
        Ok(()) => waystation_code_t::Ok,
        Err(failure) => {
            let failure = failure.into();
            // SAFETY: by the contract of this function.
            unsafe { tell(errptr, &failure) };
            failure.code
        }
    }
}

/// `value` as JSON.
fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::invalid_argument(error.to_string()))
}
