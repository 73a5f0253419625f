//! The time of day, for cookies and for what is told of replications.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "cookies carry the time of day; nothing that is stored depends on it"
)]
pub(crate) fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}

/// Days of a week, and the day of 1970-01-01 first.
const WEEK: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Year, month (from 1) and day of the Gregorian calendar, so many days after 1970-01-01. Years begin in March here, so
/// that the leap day is the last one of them.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096;
    let year_of_era = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
    let before = 365 * year_of_era + year_of_era / 4 - year_of_era / 100;
    let day_of_year = day_of_era - before;
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

fn time(seconds: u64) -> String {
    let seconds = seconds % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

/// `seconds` since 1970 as in `2026-11-23T15:46:32Z`.
pub(crate) fn iso(seconds: u64) -> String {
    let (year, month, day) = date(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}T{}Z", time(seconds))
}

/// `seconds` since 1970 as in `Mon, 23 Nov 2026 15:46:32 GMT`.
pub(crate) fn http_date(seconds: u64) -> String {
    let (year, month, day) = date(seconds / 86_400);
    let weekday = WEEK[(seconds / 86_400 % 7) as usize];
    let month = MONTHS[(month - 1) as usize];
    format!(
        "{weekday}, {day:02} {month} {year:04} {} GMT",
        time(seconds)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_read_them() {
        let cases = [
            (0, "1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            (
                951_827_696,
                "2000-02-29T12:34:56Z",
                "Tue, 29 Feb 2000 12:34:56 GMT",
            ),
            (
                1_795_448_792,
                "2026-11-23T15:46:32Z",
                "Mon, 23 Nov 2026 15:46:32 GMT",
            ),
        ];
        for (seconds, one, other) in cases {
            assert_eq!(
                (iso(seconds), http_date(seconds)),
                (one.into(), other.into())
            );
        }
    }
}
