//! Pictures of devices that come and go: the rows of `iot`, and what others notice of a departure.

use super::significant;
use crate::engines::EngineKind;
use serde::Deserialize;
use waystation_plot::{Group, Line, bar_picture, line_picture};

/// What is drawn of a row of `iot`.
#[derive(Debug, Deserialize)]
pub(super) struct IotSeen {
    engine: EngineKind,
    workload: String,
    ops_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    longest_stall_ms: f64,
    write_amplification: Option<f64>,
}

/// What is drawn of a row of `depart`.
#[derive(Debug, Deserialize)]
pub(super) struct DepartureSeen {
    engine: EngineKind,
    flags: DepartureFlags,
    p99_us_by_second: Vec<f64>,
}

#[derive(Debug, Deserialize)]
struct DepartureFlags {
    settled: bool,
}

/// The pictures of `iot`, with their files' names.
pub(super) fn iot(rows: &[IotSeen]) -> Vec<(String, String)> {
    let rows: Vec<_> = rows.iter().filter(|row| row.workload == "iot").collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let group = |name: &str, figure: &dyn Fn(&IotSeen) -> Option<(f64, String)>| Group {
        name: name.to_owned(),
        bars: (rows.iter())
            .filter_map(|row| {
                figure(row).map(|(value, shown)| (row.engine.to_string(), value, shown))
            })
            .collect(),
    };
    let thousands = |row: &IotSeen| {
        let thousands = row.ops_per_s / 1e3;
        Some((thousands, significant(thousands)))
    };
    let amplification = |row: &IotSeen| row.write_amplification.map(|it| (it, format!("{it:.2}")));
    let milliseconds = |name: &str, figure: fn(&IotSeen) -> f64| {
        group(name, &|row| {
            let value = figure(row);
            Some((value, format!("{} ms", significant(value))))
        })
    };
    let waits = [
        milliseconds("median", |row| row.p50_us / 1e3),
        milliseconds("p99", |row| row.p99_us / 1e3),
        milliseconds("p99.9", |row| row.p999_us / 1e3),
        milliseconds("longest stall", |row| row.longest_stall_ms),
    ];
    let pictures = [
        (
            "iot-inserts.svg",
            bar_picture(
                "Inserts of devices that come and go",
                "thousands a second",
                &[group("inserts", &thousands)],
                false,
            ),
        ),
        (
            "iot-written.svg",
            bar_picture(
                "Written to the device for each byte of keys and values",
                "bytes",
                &[group("written", &amplification)],
                false,
            ),
        ),
        (
            "iot-waits.svg",
            bar_picture("How long an insert takes", "milliseconds", &waits, true),
        ),
    ];
    pictures
        .map(|(name, picture)| (name.to_owned(), picture))
        .into()
}

/// The picture of departures, if there are any.
pub(super) fn departures(rows: &[DepartureSeen]) -> Option<(String, String)> {
    let line = |row: &DepartureSeen| Line {
        name: if row.flags.settled {
            format!("{}, settled", row.engine)
        } else {
            row.engine.to_string()
        },
        points: (row.p99_us_by_second.iter().enumerate())
            .map(|(second, p99)| (second as f64, p99 / 1e3))
            .collect(),
        dashed: row.flags.settled,
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    let title = "Others' puts while a device with a million records departs, half-way";
    let axes = ("seconds", "p99 of each second (milliseconds)");
    let picture = line_picture(title, axes, &lines, true);
    (!lines.is_empty()).then(|| ("departure.svg".to_owned(), picture))
}
