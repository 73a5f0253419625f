//! Devices: they arrive with their first write, settle, and depart.

use super::{code, waystation_code_t};
use crate::leveldb::{leveldb_options_t, leveldb_t};
use crate::memory::{bytes, copy_text};
use crate::status::Failure;
use std::ffi::{CStr, c_char};
use std::time::Duration;
use waystation::UnknownExtractor;

/// Names the part of a key that names its device: "until/3a" for what stands before the first colon, "fixed/8" for
/// eight bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_options_set_device_extractor(
    options: *mut leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: the handle is live, name and error are as the header demands.
    unsafe {
        let parsed = CStr::from_ptr(name).to_string_lossy().parse();
        let set = parsed.map(|extractor| (*options).extractor = Some(extractor));
        code(
            set.map_err(|error: UnknownExtractor| Failure::invalid_argument(error.to_string())),
            errptr,
        )
    }
}

/// How long a device stays in the upper level before it settles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_options_set_residency_ms(
    options: *mut leveldb_options_t,
    milliseconds: u64,
) {
    // SAFETY: the handle is live.
    unsafe { (*options).residency = Some(Duration::from_millis(milliseconds)) }
}

/// Lets a device depart: all it wrote is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_depart(
    db: *mut leveldb_t,
    device: *const c_char,
    device_length: usize,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handle, bytes and error are as the header demands.
    unsafe {
        code(
            (*db).db.devices().depart(bytes(device, device_length)),
            errptr,
        )
    }
}

/// Lets a device settle into the tree now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_settle(
    db: *mut leveldb_t,
    device: *const c_char,
    device_length: usize,
    errptr: *mut *mut c_char,
) -> waystation_code_t {
    // SAFETY: handle, bytes and error are as the header demands.
    unsafe {
        code(
            (*db).db.devices().settle(bytes(device, device_length)),
            errptr,
        )
    }
}

/// All devices that have data, as JSON for the caller to free; null on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waystation_devices_json(
    db: *mut leveldb_t,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: handle and error are as the header demands.
    unsafe {
        let devices = (*db).db.devices().list().map_err(Failure::from);
        let json = devices.and_then(|devices| super::json(&devices));
        crate::status::value_or_tell(json, errptr)
            .map_or(std::ptr::null_mut(), |json| copy_text(&json))
    }
}
