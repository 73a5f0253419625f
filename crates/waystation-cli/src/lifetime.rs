//! Times to live as they are written on the command line: a whole number and a unit.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// The time that `text` says, or why it says none.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("a time to live cannot be negative".to_owned());
    }
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let Some((_, unit_ms)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err("it is a whole number with ms, s, m, h or d behind it, as in 90s".to_owned());
    };
    if number.is_empty() {
        return Err("there is no number before the unit; say 90s, for example".to_owned());
    }
    let number: Option<u64> = number.parse().ok();
    let ms = number.and_then(|number| number.checked_mul(*unit_ms));
    match ms {
        None => Err("the time is too long".to_owned()),
        Some(0) => Err("a time to live must be longer than nothing".to_owned()),
        Some(ms) => Ok(Duration::from_millis(ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(parse("7d"), Ok(Duration::from_secs(604_800)));
        for bad in [
            "",
            "10",
            "s",
            "1.5s",
            "0s",
            "-5s",
            "5 s",
            "5y",
            "99999999999999999999s",
            "999999999999999999d",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
