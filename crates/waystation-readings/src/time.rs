//! Times: microseconds since 1970 in UTC, without leap seconds, read from RFC 3339.

/// Microseconds in a second.
const SECOND: i64 = 1_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Now, by the wall clock.
#[expect(
    clippy::disallowed_methods,
    reason = "a reading without a time has the time of its arrival"
)]
pub fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

/// The number of the day `year`-`month`-`day` of the Gregorian calendar since 1970. Years begin in March here, so that the
/// leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month > 2 { year } else { year - 1 };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day's number: [`days`] undone.
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// The time of text in RFC 3339: `2026-03-01T12:30:00.25Z`, `2026-03-01T13:30:00+01:00`. Parts of a microsecond are cut.
pub fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| bytes.get(*at) != Some(mark)) || bytes.len() < 20 {
        return None;
    }
    if !matches!(bytes[10], b'T' | b't' | b' ') {
        return None;
    }
    let field = |from: usize, to: usize, most: i64| {
        let digits = text.get(from..to)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: i64 = digits.parse().ok()?;
        (is_number && number <= most).then_some(number)
    };
    let (year, month, day) = (field(0, 4, 9999)?, field(5, 7, 12)?, field(8, 10, 31)?);
    let number = days(year, month, day);
    if date(number) != (year, month, day) {
        return None;
    }
    let of_day = field(11, 13, 23)? * 3600 + field(14, 16, 59)? * 60 + field(17, 19, 60)?;
    let rest = &text[19..];
    let (micros, zone) = match rest.strip_prefix('.') {
        Some(fraction) => {
            let end = fraction.find(|it: char| !it.is_ascii_digit())?;
            let digits = &fraction[..end];
            let padded: String = digits.chars().chain("000000".chars()).take(6).collect();
            (!digits.is_empty()).then_some((padded.parse::<i64>().ok()?, &fraction[end..]))?
        }
        None => (0, rest),
    };
    let offset = offset_seconds(zone)?;
    Some((number * DAY_SECONDS + of_day - offset) * SECOND + micros)
}

/// How far a zone is before UTC.
fn offset_seconds(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let (sign, rest) = match zone.as_bytes().first()? {
        b'+' => (1, &zone[1..]),
        b'-' => (-1, &zone[1..]),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let two = |text: &str, most: i64| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<i64>().ok()?;
        (is_number && number <= most).then_some(number)
    };
    Some(sign * (two(hours, 23)? * 3600 + two(minutes, 59)? * 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `time` in RFC 3339, in UTC, with microseconds.
    fn format(time: i64) -> String {
        let (seconds, micros) = (time.div_euclid(SECOND), time.rem_euclid(SECOND));
        let (year, month, day) = date(seconds.div_euclid(DAY_SECONDS));
        let of_day = seconds.rem_euclid(DAY_SECONDS);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }

    #[test]
    fn known_times() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59.999999Z", -1),
            ("2000-02-29T12:00:00Z", 951_825_600 * SECOND),
            (
                "2026-11-24T18:00:00.5+01:00",
                1_795_539_600 * SECOND + 500_000,
            ),
            (
                "2038-01-19 03:14:07.1234567z",
                2_147_483_647 * SECOND + 123_456,
            ),
        ];
        for (text, time) in cases {
            assert_eq!(parse(text), Some(time), "{text}");
        }
        for wrong in [
            "",
            "now",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+1:00",
            "2026-01-01T00:00:00+ab:00",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:0\u{e9}Z",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn times_are_read_back(time in -62_135_596_800_000_000_i64..253_402_300_800_000_000) {
            prop_assert_eq!(parse(&format(time)), Some(time));
        }
    }
}
