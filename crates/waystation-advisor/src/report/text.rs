//! The report for a terminal.

use std::fmt::Write as _;

use super::{AreaReport, Report};
use crate::units::{format_bytes, format_ns, seconds};

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn share(part: u64, whole: u64) -> String {
    percent(part as f64 / whole.max(1) as f64)
}

/// Eight heights, for a curve in one line.
fn sparkline(values: impl Iterator<Item = f64> + Clone) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.clone().fold(0.0_f64, f64::max);
    values
        .map(|value| {
            let level = if highest > 0.0 {
                (value / highest * 7.0).round() as usize
            } else {
                0
            };
            LEVELS[level.min(7)]
        })
        .collect()
}

/// All tables.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}\n{} requests in {:.1} s; {} of the time something was outstanding, the rest ({:.1} s) the application's own (median pause {})\n",
        report.source,
        report.requests,
        seconds(report.duration_ns),
        share(report.busy_ns, report.duration_ns),
        seconds(report.think_ns),
        format_ns(report.think_p50_ns),
    );
    traffic(&mut text, report);
    footprint(&mut text, report);
    latency(&mut text, report);
    reuse(&mut text, report);
    let _ = writeln!(
        text,
        "Requests outstanding over time\n  {}\n",
        sparkline(report.queue_depth.iter().copied())
    );
    if report.sampled < 1.0 {
        let _ = writeln!(
            text,
            "Footprints come from a uniform sample of 1 in {:.0} chunks of 64 KiB.",
            1.0 / report.sampled
        );
    }
    for sentence in &report.shortcomings {
        let _ = writeln!(text, "Note: {sentence}");
    }
    text
}

/// The width of the column of names.
fn names_wide(report: &Report) -> usize {
    let names = report.areas.iter().map(|area| area.name.chars().count());
    names.max().unwrap_or(0).max(12)
}

fn traffic(text: &mut String, report: &Report) {
    let wide = names_wide(report);
    let total: u64 = report
        .areas
        .iter()
        .map(|area| area.read.bytes + area.write.bytes)
        .sum();
    let busy: u64 = report.areas.iter().map(|area| area.busy_ns).sum();
    let _ = writeln!(
        text,
        "Where the traffic goes\n  {:<wide$} {:>10} {:>8} {:>10} {:>8} {:>8} {:>9}  {:>10} {:>10}",
        "area", "read", "reqs", "written", "reqs", "flushes", "busy", "of bytes", "of busy"
    );
    for area in &report.areas {
        let _ = writeln!(
            text,
            "  {:<wide$} {:>10} {:>8} {:>10} {:>8} {:>8} {:>7.2} s  {:>10} {:>10}",
            area.name,
            format_bytes(area.read.bytes),
            area.read.requests,
            format_bytes(area.write.bytes),
            area.write.requests,
            area.flush.requests,
            seconds(area.busy_ns),
            share(area.read.bytes + area.write.bytes, total),
            share(area.busy_ns, busy),
        );
    }
    text.push('\n');
}

fn footprint(text: &mut String, report: &Report) {
    let wide = names_wide(report);
    let _ = writeln!(
        text,
        "Footprint, and what was touched only once\n  {:<wide$} {:>10} {:>9} {:>9} {:>10} {:>10} {:>12}  working set 1 s / 10 s / 60 s",
        "area", "unique", "of blocks", "of access", "read once", "written 1x", "hottest 10 %"
    );
    for area in &report.areas {
        let once = &area.multiplicity;
        let _ = writeln!(
            text,
            "  {:<wide$} {:>10} {:>9} {:>9} {:>10} {:>10} {:>12}  {} / {} / {}",
            area.name,
            format_bytes(area.unique_bytes),
            percent(once.single_of_blocks),
            percent(once.single_of_accesses),
            percent(once.read_once_of_read),
            percent(once.written_once_of_written),
            percent(once.hottest_tenth_of_accesses),
            format_bytes(area.working_set[0]),
            format_bytes(area.working_set[1]),
            format_bytes(area.working_set[2]),
        );
    }
    text.push('\n');
}

fn latency(text: &mut String, report: &Report) {
    let wide = names_wide(report);
    let _ = writeln!(
        text,
        "Latency (half / 99 % / 99.9 % are faster)\n  {:<wide$} {:<30} {:<30} {:<30} sequential",
        "area", "read", "write", "flush"
    );
    for area in &report.areas {
        let three = |quantiles: &super::Quantiles, requests: u64| {
            if requests == 0 {
                return "-".to_owned();
            }
            format!(
                "{} / {} / {}",
                format_ns(quantiles.p50),
                format_ns(quantiles.p99),
                format_ns(quantiles.p999)
            )
        };
        let _ = writeln!(
            text,
            "  {:<wide$} {:<30} {:<30} {:<30} {}",
            area.name,
            three(&area.read_latency, area.read.requests),
            three(&area.write_latency, area.write.requests),
            three(&area.flush_latency, area.flush.requests),
            percent(area.sequential),
        );
    }
    text.push('\n');
}

fn reuse(text: &mut String, report: &Report) {
    let wide = names_wide(report);
    let _ = writeln!(
        text,
        "Misses of an LRU cache for the area alone, by size; footprint over time"
    );
    for area in &report.areas {
        let _ = writeln!(
            text,
            "  {:<wide$} {}  {}",
            area.name,
            misses(area),
            sparkline(area.growth.iter().map(|bytes| *bytes as f64))
        );
    }
    text.push('\n');
}

fn misses(area: &AreaReport) -> String {
    let mut line = String::new();
    for mib in [1_u64, 4, 16, 64] {
        let wanted = mib << 20;
        let point = area
            .miss_ratio
            .iter()
            .rfind(|point| point.cache_bytes <= wanted);
        let ratio = point.map_or_else(|| "-".to_owned(), |point| percent(point.miss_ratio));
        let _ = write!(line, "{mib} MiB {ratio:>5}   ");
    }
    line
}
