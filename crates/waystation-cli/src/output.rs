//! Standard output: lines for people, or JSON.

use serde::Serialize;
use std::convert::Infallible;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::PathBuf;
use std::str::FromStr;

/// Where JSON goes: `--json` alone means standard output; commands with reports take a file, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JsonTarget {
    /// Standard output, in place of text.
    Output,
    /// A file.
    File(PathBuf),
}

impl FromStr for JsonTarget {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "" | "-" => Self::Output,
            path => Self::File(path.into()),
        })
    }
}

/// Where results go. Buffered: flushed by [`Output::finish`].
pub(crate) struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    is_json: bool,
}

impl Output {
    /// Standard output, as lines or as JSON.
    pub(crate) fn new(is_json: bool) -> Self {
        Self {
            writer: BufWriter::with_capacity(64 * 1024, io::stdout().lock()),
            is_json,
        }
    }

    /// Whether JSON was asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    /// One line of text.
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) -> io::Result<()> {
        writeln!(self.writer, "{text}")
    }

    /// One JSON value on a line of its own (lists are such lines).
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.writer, value)?;
        self.writer.write_all(b"\n")
    }

    /// One JSON value, laid out to be read.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut self.writer, value)?;
        self.writer.write_all(b"\n")
    }

    /// Hands what there is by now to the operating system.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Hands everything to the operating system.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// A number of bytes as people say it: three digits and a decimal unit.
pub(crate) fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    // Round where the digits are cut, so that 999,999 is 1.00 MB and not 1000 kB.
    let mut scaled = bytes as f64 / 1000.0;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let decimals = if scaled < 9.995 {
        2
    } else {
        usize::from(scaled < 99.95)
    };
    format!("{scaled:.decimals$} {}", UNITS[unit])
}

/// A time, in seconds since the Unix epoch, by the clock of Greenwich.
pub(crate) fn time_text(seconds: u64) -> String {
    let (days, within) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March: the day that leap years have more comes last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let day = day - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (within / 3600, within / 60 % 60, within % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// A count with its thousands apart.
pub(crate) fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_said_with_three_digits() {
        let said: Vec<String> = [
            0,
            999,
            1000,
            9994,
            12_345,
            999_499,
            999_500,
            1_000_000,
            67_108_864,
            u64::MAX,
        ]
        .map(bytes_text)
        .to_vec();
        assert_eq!(
            said,
            [
                "0 B", "999 B", "1.00 kB", "9.99 kB", "12.3 kB", "999 kB", "1.00 MB", "1.00 MB",
                "67.1 MB", "18.4 EB"
            ]
        );
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let said = [0, 951_782_399, 951_782_400, 1_709_251_199, 4_102_444_799].map(time_text);
        assert_eq!(
            said,
            [
                "1970-01-01 00:00:00Z",
                "2000-02-28 23:59:59Z",
                "2000-02-29 00:00:00Z",
                "2024-02-29 23:59:59Z",
                "2099-12-31 23:59:59Z"
            ]
        );
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!(
            [0, 999, 1000, 143_402, 1_000_000].map(count_text),
            ["0", "999", "1,000", "143,402", "1,000,000"]
        );
    }
}
