//! Times to live, as commands name them.

use crate::commands::is;
use crate::failure::{Failure, NOT_INTEGER, Outcome};
use crate::number::parse_integer;

/// How a command counts time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    pub(crate) millis: i64,
    /// Counted from 1970, and not from now.
    pub(crate) is_absolute: bool,
}

pub(crate) const SECONDS: Unit = Unit {
    millis: 1000,
    is_absolute: false,
};
pub(crate) const MILLIS: Unit = Unit {
    millis: 1,
    is_absolute: false,
};
pub(crate) const SECONDS_AT: Unit = Unit {
    millis: 1000,
    is_absolute: true,
};
pub(crate) const MILLIS_AT: Unit = Unit {
    millis: 1,
    is_absolute: true,
};

impl Unit {
    /// The unit that an option names.
    pub(crate) fn named(option: &[u8]) -> Option<Self> {
        [
            ("EX", SECONDS),
            ("PX", MILLIS),
            ("EXAT", SECONDS_AT),
            ("PXAT", MILLIS_AT),
        ]
        .into_iter()
        .find(|(name, _)| is(option, name))
        .map(|it| it.1)
    }

    /// The time that `argument` names (milliseconds since 1970), which may have passed; below zero is zero.
    pub(crate) fn time(self, argument: &[u8], now: u64, command: &str) -> Outcome<u64> {
        let number = parse_integer(argument).ok_or(NOT_INTEGER)?;
        let start = if self.is_absolute {
            0
        } else {
            now.cast_signed()
        };
        let time = number
            .checked_mul(self.millis)
            .and_then(|it| it.checked_add(start))
            .ok_or_else(|| invalid(command))?;
        Ok(u64::try_from(time).unwrap_or(0))
    }

    /// The same, for commands that refuse times of nothing.
    pub(crate) fn coming(self, argument: &[u8], now: u64, command: &str) -> Outcome<u64> {
        let number = parse_integer(argument).ok_or(NOT_INTEGER)?;
        if number <= 0 {
            return Err(invalid(command));
        }
        self.time(argument, now, command)
    }
}

fn invalid(command: &str) -> Failure {
    Failure::of(format!("ERR invalid expire time in '{command}' command"))
}
