//! Sizes and times as people write them.

use crate::error::{Error, Result};

/// Reads "20MB" (powers of ten), "20MiB" or "20M" (powers of two), or plain bytes.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let wrong = || {
        Error::Usage(format!(
            "\"{text}\" is not a size; write for instance 20MB, 16MiB or 4096"
        ))
    };
    let trimmed = text.trim();
    let digits = trimmed
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(wrong()),
    };
    let bytes = number * factor;
    if bytes < 9e18 {
        Ok(bytes as u64)
    } else {
        Err(wrong())
    }
}

/// Writes bytes with the unit that fits, in powers of ten.
pub fn format_bytes(bytes: u64) -> String {
    let bytes_f = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes_f / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes_f / 1e6),
        _ => format!("{:.2} GB", bytes_f / 1e9),
    }
}

/// Writes nanoseconds with the unit that fits.
pub fn format_ns(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// Nanoseconds as seconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
