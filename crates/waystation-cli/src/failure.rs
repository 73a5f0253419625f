//! How a command fails: a sentence on standard error and an exit code (listed in `waystation --help`).
//!
//! That the reader of the output has gone (`| head`) is no failure where the output alone was asked for. It takes nothing
//! from what was found ([`Failure::found`]), and it is a failure where something was changed and the output is what the
//! user needs to go on with ([`Failure::lost`]).

use crate::notation::NotationError;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use waystation::{DeviceError, Error};

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

    /// Ends a command with what it found, whether or not all of that could be `printed`.
    pub(crate) fn found(code: u8, printed: Result<(), Self>) -> Result<(), Self> {
        match printed {
            Err(failure) if failure.code != 0 => Err(failure),
            _ => Err(Self::told(code)),
        }
    }

    /// The output could not be written, and the user needs it: `what` was lost, and how it is had again.
    pub(crate) fn lost(what: &str, error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::BrokenPipe => "its reader has gone".to_owned(),
            _ => error.to_string(),
        };
        Self::new(IO, format!("{what} ({reason})"))
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// The sentence, if the output has not said it.
    pub(crate) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Says it on standard error; the exit code.
    pub(crate) fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            // With nobody to tell, the exit code says it.
            let _ = writeln!(io::stderr(), "waystation: {message}");
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::InvalidArgument(_) => USAGE,
            Error::Locked { .. } | Error::Incompatible { .. } => CANNOT_OPEN,
            Error::Corruption { .. }
            | Error::Device(DeviceError::Stream { .. })
            | Error::Resurrection { .. } => DAMAGED,
            Error::Device(_) => NOT_FOUND,
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
