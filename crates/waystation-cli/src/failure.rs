//! How a command fails: a sentence on standard error and an exit code (listed in `waystation --help`).

use crate::notation::NotationError;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use waystation::Error;

/// The key is not there; or an audit found something.
pub(crate) const NOT_FOUND: u8 = 1;
/// The call is wrong.
pub(crate) const USAGE: u8 = 2;
/// The database or file cannot be opened.
pub(crate) const CANNOT_OPEN: u8 = 3;
/// Damage was found.
pub(crate) const DAMAGED: u8 = 4;
/// Reading or writing failed.
pub(crate) const IO: u8 = 5;

/// Why a command ended without doing what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// The sentence; none when the output has already said it.
    message: Option<String>,
}

impl Failure {
    /// A failure with its sentence.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: Some(message.into()),
        }
    }

    /// A failure that the output has already told.
    pub(crate) fn told(code: u8) -> Self {
        Self {
            code,
            message: None,
        }
    }

    /// A file the command itself reads or writes refused.
    pub(crate) fn file(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::from(Error::io(operation, path, source))
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Says it on standard error; the exit code.
    pub(crate) fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            eprintln!("waystation: {message}");
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::InvalidArgument(_) => USAGE,
            Error::Locked { .. } | Error::Incompatible { .. } => CANNOT_OPEN,
            Error::Corruption { .. } | Error::Stream { .. } | Error::Resurrection { .. } => DAMAGED,
            Error::UnknownDevice { .. }
            | Error::Moving { .. }
            | Error::Moved { .. }
            | Error::AlreadyHere { .. }
            | Error::Ticket { .. } => NOT_FOUND,
            Error::Io {
                operation, source, ..
            } => match source.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::IsADirectory => CANNOT_OPEN,
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                    if *operation != "write" =>
                {
                    CANNOT_OPEN
                }
                _ => IO,
            },
            _ => IO,
        };
        Self::new(code, error.to_string())
    }
}

impl From<NotationError> for Failure {
    fn from(error: NotationError) -> Self {
        Self::new(USAGE, error.to_string())
    }
}

/// Writing to standard output failed. That its reader has gone (`| head`) is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::told(0)
        } else {
            Self::new(IO, format!("standard output cannot be written: {error}"))
        }
    }
}
