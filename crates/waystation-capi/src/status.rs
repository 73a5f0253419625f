//! Errors as C sees them: a text, whose beginning tells the kind.
//!
//! LevelDB passes nothing but texts, so programs look at how they begin; the beginnings here are LevelDB's, byte for
//! byte. Our own functions return a [`waystation_code_t`](crate::waystation::waystation_code_t) besides.

use crate::memory;
use crate::waystation::waystation_code_t as Code;
use std::ffi::c_char;
use std::io;
use waystation::{DeviceError, Error};

/// An error on its way to C.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    text: String,
}

impl Failure {
    /// Something that LevelDB can do and Waystation cannot.
    pub(crate) fn not_implemented(what: impl Into<String>) -> Self {
        Self {
            code: Code::NotImplemented,
            text: what.into(),
        }
    }

    /// A call that is wrong in itself.
    pub(crate) fn invalid_argument(what: impl Into<String>) -> Self {
        Self {
            code: Code::InvalidArgument,
            text: what.into(),
        }
    }

    /// The text that C gets.
    pub(crate) fn sentence(&self) -> String {
        format!("{}{}", prefix(self.code), self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            code: code(&error),
            text: error.to_string(),
        }
    }
}

/// Which kind of error LevelDB would call it. A missing file is "not found", as there.
fn code(error: &Error) -> Code {
    match error {
        Error::InvalidArgument(_) | Error::Incompatible { .. } | Error::Closed(_) => {
            Code::InvalidArgument
        }
        Error::Corruption { .. } | Error::Resurrection { .. } => Code::Corruption,
        Error::Device(DeviceError::Unknown { .. }) => Code::NotFound,
        Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Code::NotFound,
        Error::Locked { .. } => Code::Locked,
        Error::Suspended { .. } => Code::Suspended,
        _ => Code::IoError,
    }
}

fn prefix(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::NotFound => "NotFound: ",
        Code::Corruption => "Corruption: ",
        Code::NotImplemented => "Not implemented: ",
        Code::InvalidArgument => "Invalid argument: ",
        Code::IoError | Code::Locked | Code::Suspended => "IO error: ",
    }
}

/// Tells the caller of a failure: what `errptr` held is freed, and the text takes its place.
///
/// # Safety
/// `errptr` is null, or points at null or at a text from `malloc` that belongs to the caller.
pub(crate) unsafe fn tell(errptr: *mut *mut c_char, failure: &Failure) {
    if errptr.is_null() {
        return;
    }
    // SAFETY: it points at a pointer that may be freed and replaced, by the contract of this function.
    unsafe {
        libc::free((*errptr).cast());
        *errptr = memory::copy_text(&failure.sentence());
    }
}

/// The value of `result`; a failure goes to `errptr`, which success leaves alone.
///
/// # Safety
/// As [`tell`].
pub(crate) unsafe fn value_or_tell<T>(
    result: Result<T, impl Into<Failure>>,
    errptr: *mut *mut c_char,
) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(failure) => {
            // SAFETY: as this function's own.
            unsafe { tell(errptr, &failure.into()) };
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_begin_as_those_of_leveldb() {
        let io = |kind| Error::io("write", "/x", io::Error::from(kind));
        let cases = [
            (io(io::ErrorKind::StorageFull), "IO error: "),
            (io(io::ErrorKind::NotFound), "NotFound: "),
            (Error::corruption("/x", 7, "bad"), "Corruption: "),
            (Error::InvalidArgument("no".into()), "Invalid argument: "),
            (
                Error::Suspended {
                    cause: "the disk is full".into(),
                },
                "IO error: ",
            ),
        ];
        for (error, prefix) in cases {
            let text = Failure::from(error.clone()).sentence();
            assert_eq!(text, format!("{prefix}{error}"));
        }
    }

    #[test]
    fn an_older_error_is_freed_and_replaced() {
        let mut error = memory::copy_text("older");
        // SAFETY: `error` holds a text from `malloc`, ours.
        unsafe {
            tell(&raw mut error, &Failure::not_implemented("time travel"));
            let text = std::ffi::CStr::from_ptr(error);
            assert_eq!(text.to_bytes(), b"Not implemented: time travel");
            libc::free(error.cast());
            tell(
                std::ptr::null_mut(),
                &Failure::not_implemented("nobody asks"),
            );
        }
    }
}
