//! Pictures of merges that run elsewhere: the rows of `offload`.

use super::significant;
use serde::Deserialize;
use waystation_plot::{Group, bar_picture};

/// The figures of a row of `offload` that pictures show.
#[derive(Debug, Deserialize)]
pub(super) struct OffloadSeen {
    executor: String,
    cores: String,
    value_bytes: usize,
    ops_per_s: f64,
    host_cpu_us_per_record: f64,
    worker_cpu_us_per_record: f64,
    p999_us: f64,
}

impl OffloadSeen {
    fn name(&self) -> String {
        match &*self.executor {
            "local" => {
                format!("engine alone, {} cores", self.cores).replace("one cores", "one core")
            }
            other => format!("engine and {other}"),
        }
    }
}

/// What a group of bars is called, and the figure that it shows.
type Figure = (&'static str, fn(&OffloadSeen) -> f64);

/// The pictures of `offload`, with their files' names.
pub(super) fn offload(rows: &[OffloadSeen]) -> Vec<(String, String)> {
    let mut lengths: Vec<usize> = rows.iter().map(|row| row.value_bytes).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let groups = |names: &[Figure]| -> Vec<Group> {
        let mut groups = Vec::new();
        for length in &lengths {
            for (name, figure) in names {
                let of_length = rows.iter().filter(|row| row.value_bytes == *length);
                // There is no other process beside an engine that is alone.
                let bar = |row: &OffloadSeen| {
                    let value = figure(row);
                    (value > 0.0).then(|| (row.name(), value, significant(value)))
                };
                groups.push(Group {
                    name: format!("{name}{length} bytes"),
                    bars: of_length.filter_map(bar).collect(),
                });
            }
        }
        groups
    };
    if rows.is_empty() {
        return Vec::new();
    }
    let puts = groups(&[("", |row| row.ops_per_s / 1e3)]);
    let processor = groups(&[
        ("engine, ", |row| row.host_cpu_us_per_record),
        ("other process, ", |row| row.worker_cpu_us_per_record),
    ]);
    let waits = groups(&[("", |row| row.p999_us / 1e3)]);
    [
        (
            "offload-puts.svg",
            bar_picture(
                "Random puts while tables are merged",
                "thousands a second",
                &puts,
                false,
            ),
        ),
        (
            "offload-processor.svg",
            bar_picture(
                "Processor time of a put, merges included",
                "microseconds",
                &processor,
                false,
            ),
        ),
        (
            "offload-waits.svg",
            bar_picture("p99.9 of a put", "milliseconds", &waits, true),
        ),
    ]
    .map(|(name, picture)| (name.to_owned(), picture))
    .into()
}
