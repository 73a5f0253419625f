//! Refusals, as the protocol words them: a kind in capitals, then a sentence.
//!
//! What Redis refuses too has the words of Redis, because clients look for them.

use crate::encoding::EncodingError;
use std::borrow::Cow;
use waystation::{DeviceError, Error};

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) Cow<'static, str>);

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub(crate) fn of(text: impl Into<String>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    pub(crate) fn arguments(command: &str) -> Self {
        let name = command.to_ascii_lowercase();
        Self::of(format!(
            "ERR wrong number of arguments for '{name}' command"
        ))
    }
}

pub(crate) const SYNTAX: Failure = Failure::new("ERR syntax error");
pub(crate) const NOT_INTEGER: Failure = Failure::new("ERR value is not an integer or out of range");
pub(crate) const NOT_FLOAT: Failure = Failure::new("ERR value is not a valid float");
pub(crate) const WRONG_TYPE: Failure =
    Failure::new("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(crate) const TOO_LONG: Failure = Failure::new("ERR the key is too long");
pub(crate) const TOO_LONG_VALUE: Failure =
    Failure::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
pub(crate) const TOO_MUCH: Failure =
    Failure::new("ERR the command would write more than 256 MiB at once");
pub(crate) const STOPPING: Failure =
    Failure::new("ERR the server is stopping: connect again and repeat the command");
pub(crate) const NO_KEY: Failure = Failure::new("ERR no such key");

/// The engine's errors, by what a client can do about them.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::DiskFull { .. } => "OOM",
            Error::Suspended { .. } | Error::Io { .. } => "MISCONF",
            Error::Corruption { .. } => "CORRUPT",
            Error::Device(DeviceError::Moving { .. }) => "TRYAGAIN",
            Error::Device(DeviceError::Moved { .. }) => "GONE",
            Error::Device(DeviceError::Unknown { .. }) => "NODEVICE",
            _ => "ERR",
        };
        Self::of(format!("{kind} {error}"))
    }
}

impl From<EncodingError> for Failure {
    fn from(error: EncodingError) -> Self {
        Self::of(format!("ERR {error}"))
    }
}
