//! `plot`: pictures of deletions, devices, merges elsewhere and placement, from the reports that measured them.

mod devices;
mod offload;
mod placement;

use super::deletions::{Ran, ratios};
use crate::cli::PlotArgs;
use crate::error::{Error, Result};
use crate::workload::DeletionRow;
use devices::{DepartureSeen, IotSeen};
use offload::OffloadSeen;
use placement::PlacementSeen;
use serde::Deserialize;
use std::fs;
use std::path::Path;
use waystation_plot::{Group, Line, bar_picture, line_picture};

/// What is drawn of a report.
#[derive(Debug, Deserialize)]
struct Read {
    rows: Vec<Row>,
    runs: Vec<Row>,
}

/// A row of any report of which there is something to draw.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Row {
    Deletion(Box<Ran>),
    Iot(IotSeen),
    Departure(DepartureSeen),
    Offload(OffloadSeen),
    Placement(PlacementSeen),
}

/// The rows of all reports.
#[derive(Default)]
struct All {
    rows: Vec<Ran>,
    runs: Vec<Ran>,
    iot: Vec<IotSeen>,
    departures: Vec<DepartureSeen>,
    offload: Vec<OffloadSeen>,
    placement: Vec<PlacementSeen>,
}

impl All {
    fn add(&mut self, report: Read) {
        for row in report.rows {
            match row {
                Row::Deletion(row) => self.rows.push(*row),
                Row::Iot(row) => self.iot.push(row),
                Row::Departure(row) => self.departures.push(row),
                Row::Offload(row) => self.offload.push(row),
                Row::Placement(row) => self.placement.push(row),
            }
        }
        for run in report.runs {
            if let Row::Deletion(run) = run {
                self.runs.push(*run);
            }
        }
    }
}

/// Draws whatever the reports hold, a file for each picture, and names them.
pub(crate) fn plot(args: &PlotArgs) -> Result<()> {
    let mut all = All::default();
    for path in &args.reports {
        all.add(read(path)?);
    }
    fs::create_dir_all(&args.to).map_err(|source| Error::io("create", &args.to, source))?;
    let pictures = pictures(&all);
    if pictures.is_empty() {
        let message = "the reports hold no row of p2, massdelete, churn, iot, depart, offload or placement: nothing was drawn";
        return Err(Error::Refused(message.to_owned()));
    }
    for (name, picture) in pictures {
        let path = args.to.join(name);
        fs::write(&path, picture).map_err(|source| Error::io("write", &path, source))?;
        println!("{}", path.display());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Read> {
    let text = fs::read(path).map_err(|source| Error::io("read", path, source))?;
    serde_json::from_slice(&text).map_err(|error| {
        let path = path.display();
        Error::Refused(format!(
            "{path} is no report on deletions, devices, offloading or placement: {error}"
        ))
    })
}

/// All pictures of which there is something to see, with their files' names.
fn pictures(all: &All) -> Vec<(String, String)> {
    let mut drawn = Vec::new();
    let mut draw = |name: &str, is_there: bool, picture: String| {
        if is_there {
            drawn.push((name.to_owned(), picture));
        }
    };
    let seeks = seeks(&all.rows);
    let title = "Seeks into 500,000 deleted keys";
    let picture = bar_picture(title, "milliseconds", &seeks, true);
    draw("massdelete-seeks.svg", !seeks.is_empty(), picture);

    let over_time = |row: &str, factor: f64| over_time(&all.rows, row, factor);
    let space = over_time("massdelete-space-10s", 100.0);
    let title = "Space that comes back after 500,000 deletions";
    let axes = ("seconds", "% of the deleted bytes");
    let picture = line_picture(title, axes, &space, false);
    draw("massdelete-space.svg", !space.is_empty(), picture);

    let queue = over_time("churn-queue-read", 1.0);
    let title = "A queue: reading the oldest, median of each second";
    let picture = line_picture(title, ("seconds", "microseconds"), &queue, true);
    draw("churn-queue.svg", !queue.is_empty(), picture);

    let expiry = over_time("churn-expiry", 1.0);
    let title = "Ingest of what expires after 10 s: space occupied";
    let picture = line_picture(title, ("seconds", "MB"), &expiry, false);
    draw("churn-expiry.svg", !expiry.is_empty(), picture);

    for value_bytes in value_lengths(&all.runs) {
        let groups = p2(&all.runs, value_bytes);
        let title = format!("P2's sequence, values of {value_bytes} B: times as fast as others");
        let picture = bar_picture(&title, "times as many operations a second", &groups, true);
        let name = format!("p2-{value_bytes}.svg");
        draw(&name, !groups.is_empty(), picture);
    }
    drawn.extend(devices::iot(&all.iot));
    drawn.extend(devices::departures(&all.departures));
    drawn.extend(offload::offload(&all.offload));
    drawn.extend(placement::placement(&all.placement));
    drawn
}

/// Seeks after a mass deletion, by kind.
fn seeks(rows: &[Ran]) -> Vec<Group> {
    type Figure = fn(&DeletionRow) -> f64;
    let kinds: [(&str, &str, Figure); 4] = [
        ("massdelete-gap-first", "the first seek", |row| row.max_us),
        ("massdelete-gap", "later ones, median", |row| row.p50_us),
        ("massdelete-gap", "later ones, worst", |row| row.max_us),
        ("massdelete-range-first", "first, deleted as range", |row| {
            row.max_us
        }),
    ];
    let group = |(wanted, name, figure): (&str, &str, Figure)| Group {
        name: name.to_owned(),
        bars: (rows.iter().filter(|run| run.row.row == wanted))
            .map(|run| {
                let milliseconds = figure(&run.row) / 1e3;
                let shown = format!("{} ms", significant(milliseconds));
                (run.engine.to_string(), milliseconds, shown)
            })
            .collect(),
    };
    let mut groups: Vec<Group> = kinds.into_iter().map(group).collect();
    groups.retain(|group| !group.bars.is_empty());
    groups
}

/// As many digits as a person reads.
fn significant(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// What a row shows over time, a line for each engine.
fn over_time(rows: &[Ran], wanted: &str, factor: f64) -> Vec<Line> {
    let some = rows
        .iter()
        .filter(|run| run.row.row == wanted && !run.row.over_time.is_empty());
    some.map(|run| Line {
        name: run.engine.to_string(),
        points: (run.row.over_time.iter())
            .map(|(second, figure)| (*second, figure * factor))
            .collect(),
        dashed: false,
    })
    .collect()
}

fn value_lengths(runs: &[Ran]) -> Vec<usize> {
    let mut lengths: Vec<usize> = runs.iter().map(|run| run.value_bytes).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// P2's rows, against each other engine.
fn p2(runs: &[Ran], value_bytes: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for ratio in ratios(runs) {
        if ratio.value_bytes != value_bytes {
            continue;
        }
        let (low, high) = ratio.interval;
        let figure = match ratio.pairs {
            1 => format!("{:.2} (one pair)", ratio.median),
            _ => format!("{:.2} ({low:.2} to {high:.2})", ratio.median),
        };
        let bar = (ratio.baseline.to_string(), ratio.median, figure);
        match groups.iter_mut().find(|group| group.name == ratio.row) {
            Some(group) => group.bars.push(bar),
            None => groups.push(Group {
                name: ratio.row,
                bars: vec![bar],
            }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(engine: &str, scenario: &str, row: &str, round: u32, speed: f64) -> serde_json::Value {
        json!({
            "engine": engine, "engine_version": "1", "engine_settings": "default", "scenario": scenario,
            "value_bytes": 100, "threads": 4, "round": round, "row": row, "ops": 1, "seconds": 1.0, "ops_per_s": speed,
            "p50_us": 12.0, "p99_us": 20.0, "max_us": 5300.0, "disk_mb": 1.0, "returned": null,
            "over_time": if row.contains("space") || row.contains("churn") { json!([[0.0, 0.0], [1.0, 0.5]]) } else { json!([]) },
        })
    }

    #[test]
    fn every_scenario_is_drawn_from_a_report() {
        let rows = [
            row("waystation", "massdelete", "massdelete-gap-first", 1, 1.0),
            row("leveldb", "massdelete", "massdelete-gap-first", 1, 1.0),
            row("waystation", "massdelete", "massdelete-space-10s", 1, 0.0),
            row("waystation", "churn", "churn-queue-read", 1, 9.0),
            row("waystation", "churn", "churn-expiry", 1, 9.0),
        ];
        let runs: Vec<_> = (1..=3)
            .flat_map(|round| {
                [
                    row("waystation", "p2", "readseq", round, 300.0),
                    row("leveldb", "p2", "readseq", round, 100.0),
                ]
            })
            .collect();
        let directory = tempfile::tempdir().unwrap();
        let report = directory.path().join("report.json");
        fs::write(
            &report,
            json!({"machine": {}, "rows": rows, "runs": runs}).to_string(),
        )
        .unwrap();
        let to = directory.path().join("pictures");
        let reports = vec![report];
        plot(&PlotArgs {
            reports,
            to: to.clone(),
        })
        .unwrap();
        let read = |name: &str| fs::read_to_string(to.join(name)).unwrap();
        assert!(read("massdelete-seeks.svg").contains(">5.3 ms<"));
        assert!(read("massdelete-space.svg").contains(">50<"));
        assert!(read("churn-queue.svg").contains(">microseconds<"));
        assert!(read("churn-expiry.svg").contains(">MB<"));
        assert!(read("p2-100.svg").contains(">3.00 (3.00 to 3.00)<"));
        assert_eq!(fs::read_dir(&to).unwrap().count(), 5);
    }

    #[test]
    fn devices_are_drawn_from_their_reports() {
        let iot = |engine: &str, workload: &str, speed: f64| {
            json!({
                "engine": engine, "workload": workload, "ops_per_s": speed, "p50_us": 2.0, "p99_us": 500.0,
                "p999_us": 1400.0, "longest_stall_ms": 30.0, "write_amplification": 1.08, "round": 1,
            })
        };
        let departure = json!({
            "engine": "waystation", "flags": {"settled": true, "records": 5}, "p99_us_by_second": [300.0, 400.0],
        });
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, rows: serde_json::Value| {
            let path = directory.path().join(name);
            let report = json!({"machine": {}, "rows": rows, "runs": rows}).to_string();
            fs::write(&path, report).unwrap();
            path
        };
        let rows = [
            iot("waystation", "iot", 424_000.0),
            iot("waystation", "iot-open", 212_000.0),
            iot("leveldb", "iot", 54_000.0),
        ];
        let reports = vec![
            write("iot", json!(rows)),
            write("depart", json!([departure])),
        ];
        let to = directory.path().join("pictures");
        let args = PlotArgs {
            reports,
            to: to.clone(),
        };
        plot(&args).unwrap();
        let read = |name: &str| fs::read_to_string(to.join(name)).unwrap();
        assert!(read("iot-inserts.svg").contains(">424<"));
        assert!(!read("iot-inserts.svg").contains(">212<"));
        assert!(read("iot-written.svg").contains(">1.08<"));
        assert!(read("iot-waits.svg").contains(">30.0 ms<"));
        assert!(read("departure.svg").contains(">waystation, settled<"));
        assert_eq!(fs::read_dir(&to).unwrap().count(), 4);
    }

    #[test]
    fn merges_elsewhere_are_drawn_from_their_report() {
        let row = |executor: &str, cores: &str, speed: f64, worker: f64| {
            json!({
                "engine": "waystation", "workload": "offload", "executor": executor, "cores": cores, "value_bytes": 100,
                "ops_per_s": speed, "host_cpu_us_per_record": 2.35, "worker_cpu_us_per_record": worker, "p999_us": 383.0,
            })
        };
        let rows = [
            row("local", "one", 268_000.0, 0.0),
            row("worker", "both", 341_000.0, 2.25),
        ];
        let directory = tempfile::tempdir().unwrap();
        let report = directory.path().join("report.json");
        fs::write(
            &report,
            json!({"machine": {}, "rows": rows, "runs": rows}).to_string(),
        )
        .unwrap();
        let to = directory.path().join("pictures");
        let reports = vec![report];
        let to_there = to.clone();
        plot(&PlotArgs {
            reports,
            to: to_there,
        })
        .unwrap();
        let read = |name: &str| fs::read_to_string(to.join(name)).unwrap();
        let puts = read("offload-puts.svg");
        assert!(puts.contains(">341<") && puts.contains(">engine alone, one core<"));
        assert!(read("offload-processor.svg").contains(">2.2<"));
        assert!(read("offload-waits.svg").contains(">0.383<"));
    }

    #[test]
    fn a_report_on_something_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let report = directory.path().join("report.json");
        for text in ["{}", "no JSON", "{\"rows\":[],\"runs\":[]}"] {
            fs::write(&report, text).unwrap();
            let args = PlotArgs {
                reports: vec![report.clone()],
                to: directory.path().to_owned(),
            };
            assert!(plot(&args).is_err(), "{text}");
        }
    }
}
