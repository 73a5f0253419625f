//! Bytes on their way between C and Rust.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::{CStr, c_char};
use std::path::Path;

/// The `length` bytes at `start`. The pointer counts for nothing if there are none.
///
/// # Safety
/// `start` points at `length` bytes that nobody changes during `'a`, or `length` is 0.
pub(crate) unsafe fn bytes<'a>(start: *const c_char, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: there are that many bytes, by the contract of this function; bytes are aligned anywhere.
    unsafe { std::slice::from_raw_parts(start.cast(), length) }
}

/// Where `bytes` begin, and how many there are.
#[inline]
pub(crate) fn bytes_of(bytes: &[u8]) -> (*const c_char, usize) {
    (bytes.as_ptr().cast(), bytes.len())
}

/// The file name that a C text holds, as the operating system takes it: any bytes.
///
/// # Safety
/// `text` points at bytes that end with a null and that nobody changes during `'a`.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> &'a Path {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: it ends with a null, by the contract of this function.
    let text = unsafe { CStr::from_ptr(text) };
    Path::new(std::ffi::OsStr::from_bytes(text.to_bytes()))
}

/// A copy of `bytes` for C to free. Never null, as null stands for "not found": no bytes take one byte.
#[inline]
pub(crate) fn copy(bytes: &[u8]) -> *mut c_char {
    let copied = allocate(bytes.len());
    // SAFETY: the target has at least as many bytes, and is new, so that the two do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), copied, bytes.len()) };
    copied
}

/// A copy of `text` with a null at its end, for C to free. A null within it ends it.
pub(crate) fn copy_text(text: &str) -> *mut c_char {
    let copied = allocate(text.len() + 1);
    // SAFETY: the target has one byte more than the text, and is new, so that the two do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), copied, text.len());
        copied.add(text.len()).write(0);
    }
    copied
}

/// Memory of `length` bytes, of one at least.
#[inline]
fn allocate(length: usize) -> *mut c_char {
    let length = length.max(1);
    // SAFETY: `malloc` may be asked for any length.
    let memory = unsafe { libc::malloc(length) };
    if memory.is_null() {
        let layout = Layout::array::<u8>(length).unwrap_or(Layout::new::<u8>());
        handle_alloc_error(layout);
    }
    memory.cast()
}

/// Takes a handle back that [`hand_out`] gave.
///
/// # Safety
/// `handle` came from [`hand_out`] with this type and was not taken back before, or is null.
pub(crate) unsafe fn take_back<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: it is a box that was leaked, by the contract of this function, and nobody uses it after.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// A handle on `value` for C.
pub(crate) fn hand_out<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}
