//! Figures in the text format of Prometheus, and what has some to tell.
//!
//! All samples of a name stand together, behind one line of help and one of type, from all parts: the writer collects
//! and sorts by name.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How a figure moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts durations by their length.
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A part of the daemon with figures of its own.
pub trait Part: Send + Sync {
    /// Its name in `/ready` and in the status.
    fn name(&self) -> &str;
    /// Adds its figures.
    fn measure(&self, out: &mut Exposition);
    /// What the console shows of it: JSON.
    fn status(&self) -> serde_json::Value;
    /// Why it cannot do its work now; `None` if it can.
    fn fault(&self) -> Option<String>;
}

struct Family {
    help: &'static str,
    kind: Kind,
    lines: String,
}

/// Collects figures.
#[derive(Default)]
pub struct Exposition {
    families: BTreeMap<&'static str, Family>,
}

impl Exposition {
    /// Adds a sample of `name`. The help and the kind of a name's first sample count.
    pub fn add(
        &mut self,
        (name, kind, help): (&'static str, Kind, &'static str),
        labels: &[(&str, &str)],
        value: f64,
    ) {
        let lines = self.family(name, kind, help);
        sample(lines, name, "", labels, None, value);
    }

    /// Adds a histogram.
    pub fn add_histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        histogram: &Histogram,
    ) {
        let lines = self.family(name, Kind::Histogram, help);
        let mut so_far = 0;
        for (bucket, border) in histogram.buckets.iter().zip(BORDERS) {
            so_far += bucket.load(Relaxed);
            let border = border.to_string();
            sample(lines, name, "_bucket", labels, Some(&border), so_far as f64);
        }
        let all = so_far + histogram.beyond.load(Relaxed);
        sample(lines, name, "_bucket", labels, Some("+Inf"), all as f64);
        let seconds = histogram.micros.load(Relaxed) as f64 / 1e6;
        sample(lines, name, "_sum", labels, None, seconds);
        sample(lines, name, "_count", labels, None, all as f64);
    }

    fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut String {
        let family = self.families.entry(name).or_insert_with(|| Family {
            help,
            kind,
            lines: String::new(),
        });
        &mut family.lines
    }

    /// The names so far.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.families.keys().copied()
    }

    /// The text.
    pub fn into_text(self) -> String {
        let mut text = String::new();
        for (name, family) in self.families {
            let Family { help, kind, lines } = family;
            let kind = kind.word();
            // Writing into a string cannot fail.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
        }
        text
    }
}

/// Writes one line.
fn sample(
    lines: &mut String,
    name: &str,
    suffix: &str,
    labels: &[(&str, &str)],
    border: Option<&str>,
    value: f64,
) {
    let _ = write!(lines, "{name}{suffix}");
    let border = border.map(|border| ("le", border));
    for (at, (label, value)) in labels.iter().copied().chain(border).enumerate() {
        let opening = if at == 0 { '{' } else { ',' };
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = write!(lines, "{opening}{label}=\"{value}\"");
    }
    let closing = if labels.is_empty() && border.is_none() {
        ""
    } else {
        "}"
    };
    let _ = writeln!(lines, "{closing} {value}");
}

/// The upper borders of a histogram's buckets (seconds).
const BORDERS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0,
];

/// Durations, counted by their length.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BORDERS.len()],
    beyond: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    /// Counts `seconds`, `times` times.
    pub fn note(&self, seconds: f64, times: u64) {
        let bucket = BORDERS.iter().position(|border| seconds <= *border);
        let counter = bucket.map_or(&self.beyond, |at| &self.buckets[at]);
        counter.fetch_add(times, Relaxed);
        let micros = std::time::Duration::from_secs_f64(seconds.max(0.0)).as_micros();
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros.saturating_mul(times), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_name_stand_together() {
        let mut out = Exposition::default();
        let bytes = ("waystation_bytes", Kind::Gauge, "Bytes.");
        out.add(bytes, &[("database", "a\"\\\n")], 1.0);
        out.add(("waystation_a_total", Kind::Counter, "Things."), &[], 5.0);
        out.add(bytes, &[("database", "b"), ("level", "0")], 2.5);
        let expected = "# HELP waystation_a_total Things.\n# TYPE waystation_a_total counter\nwaystation_a_total 5\n\
            # HELP waystation_bytes Bytes.\n# TYPE waystation_bytes gauge\nwaystation_bytes{database=\"a\\\"\\\\\\n\"} 1\n\
            waystation_bytes{database=\"b\",level=\"0\"} 2.5\n";
        assert_eq!(out.into_text(), expected);
    }

    #[test]
    fn histograms_are_cumulative() {
        let histogram = Histogram::default();
        histogram.note(0.0001, 2);
        histogram.note(0.003, 1);
        histogram.note(60.0, 1);
        let mut out = Exposition::default();
        out.add_histogram("waystation_x_seconds", "X.", &[], &histogram);
        let text = out.into_text();
        for line in [
            "waystation_x_seconds_bucket{le=\"0.0001\"} 2",
            "waystation_x_seconds_bucket{le=\"0.0025\"} 2",
            "waystation_x_seconds_bucket{le=\"0.005\"} 3",
            "waystation_x_seconds_bucket{le=\"10\"} 3",
            "waystation_x_seconds_bucket{le=\"+Inf\"} 4",
            "waystation_x_seconds_count 4",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert!(
            text.contains("waystation_x_seconds_sum 60.0032\n"),
            "{text}"
        );
    }
}
