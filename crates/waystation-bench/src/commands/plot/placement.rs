//! Pictures of a slow and a fast device: the rows of `placement`, seconds against capacity, a line for each policy (the figure
//! 5 of Kim and Bahn, JIIBC 19(4), 2019).

use serde::Deserialize;
use waystation_plot::{Line, line_picture};

/// The figures of a row of `placement` that pictures show.
#[derive(Debug, Deserialize)]
pub(super) struct PlacementSeen {
    engine: String,
    load: String,
    policy: String,
    capacity_share: f64,
    seconds: f64,
}

/// A picture of each load, with its file's name.
pub(super) fn placement(rows: &[PlacementSeen]) -> Vec<(String, String)> {
    let mut loads: Vec<&str> = rows.iter().map(|row| &*row.load).collect();
    loads.sort_unstable();
    loads.dedup();
    let picture = |load: &str| {
        let title = match load {
            "ingest" => "A load of records on a slow device".to_owned(),
            "delete" => "Deletions of all records on a slow device".to_owned(),
            "graves" => "Scans of spilled graves on a slow device".to_owned(),
            "iot" => "Devices that write to a slow device".to_owned(),
            "phases" => "Ingest, reads and deletions on a slow device".to_owned(),
            workload => format!("YCSB {} on a slow device", workload.to_uppercase()),
        };
        let axes = ("% of the data on the fast device", "seconds");
        let lines = lines(rows.iter().filter(|row| row.load == load));
        let picture = line_picture(&title, axes, &lines, false);
        (format!("placement-{load}.svg"), picture)
    };
    loads.into_iter().map(picture).collect()
}

/// A line for each engine and policy. Nothing on the fast device costs the same whatever its capacity.
fn lines<'r>(rows: impl Iterator<Item = &'r PlacementSeen>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut most = 0.0_f64;
    for row in rows {
        let name = format!("{}, {}", row.engine, row.policy);
        let point = (row.capacity_share * 100.0, row.seconds);
        most = most.max(point.0);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name,
                points: vec![point],
                dashed: row.policy == "none",
            }),
        }
    }
    for line in lines.iter_mut().filter(|line| line.dashed) {
        let seconds = line.points[0].1;
        line.points.push((most, seconds));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_on_the_fast_device_is_a_level_line() {
        let row = |policy: &str, capacity_share, seconds| PlacementSeen {
            engine: "waystation".to_owned(),
            load: "c".to_owned(),
            policy: policy.to_owned(),
            capacity_share,
            seconds,
        };
        let rows = [
            row("none", 0.0, 30.0),
            row("own", 0.05, 25.0),
            row("own", 0.2, 20.0),
        ];
        let lines = lines(rows.iter());
        assert_eq!(lines[0].points, [(0.0, 30.0), (20.0, 30.0)]);
        assert_eq!(lines[1].points, [(5.0, 25.0), (20.0, 20.0)]);
        assert_eq!(placement(&rows).len(), 1);
    }
}
