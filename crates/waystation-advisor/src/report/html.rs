//! The report as one file that needs nothing else.

use std::cmp::Reverse;
use std::fmt::Write as _;

use super::{AreaReport, Report, TIME_COLUMNS};
use crate::event::BLOCK_BYTES;
use crate::units::{format_bytes, format_ns, seconds};
use waystation_plot::{
    HeatLine, Line, escape, heat_map, narrow_lines, narrow_stacked, page_head, section, stacked,
};

/// Areas in one picture: so many colours there are, less one for all others.
const DRAWN_MAX: usize = 7;

/// The page; `advice` is a finished part to put first.
pub fn render(report: &Report, advice: Option<&str>) -> String {
    let mut page = page_head(&format!("Storage areas: {}", report.source));
    let _ = write!(
        page,
        "<h1>What the storage areas do</h1><p class=\"soft\">{}: {} requests in {:.1} s; the application itself took {:.1} s of it with nothing outstanding (median pause {}).</p>",
        escape(&report.source),
        report.requests,
        seconds(report.duration_ns),
        seconds(report.think_ns),
        format_ns(report.think_p50_ns)
    );
    for sentence in &report.shortcomings {
        let _ = write!(page, "<p class=\"note\">{}</p>", escape(sentence));
    }
    if report.areas.len() > DRAWN_MAX {
        let _ = write!(
            page,
            "<p class=\"note\">Pictures show the {DRAWN_MAX} areas with the most traffic; tables show all {}.</p>",
            report.areas.len()
        );
    }
    if let Some(advice) = advice {
        page.push_str(advice);
    }
    section(
        &mut page,
        "Where the traffic goes",
        "Bytes mislead: a flush moves none. Busy time is what the application waits for.",
        &traffic(report),
    );
    page.push_str("<div class=\"grid2\">");
    reuse_sections(&mut page, report);
    page.push_str("</div>");
    section(
        &mut page,
        "Latency",
        "Half / 99 % / 99.9 % of the requests are faster.",
        &latency(report),
    );
    for area in drawn(report).filter(|area| !area.heat.is_empty()) {
        addresses(&mut page, area, seconds(report.duration_ns));
    }
    page.push_str("</body></html>\n");
    page
}

/// How often blocks are touched again, and after how long.
fn reuse_sections(page: &mut String, report: &Report) {
    section(
        page,
        "Touched once, or again",
        "Blocks touched by exactly one request. A cache cannot help with a first access; storage that was there before can.",
        &multiplicity(report),
    );
    section(
        page,
        "Footprint over time",
        "Megabytes of distinct blocks.",
        &over_time(
            report,
            |area| {
                area.growth
                    .iter()
                    .map(|bytes| *bytes as f64 / 1e6)
                    .collect()
            },
            "MB",
        ),
    );
    section(
        page,
        "Misses by cache size",
        "Share of the block accesses that an LRU cache for this area alone would miss.",
        &miss_ratio(report),
    );
    section(
        page,
        "Reuse distance",
        "Share of the block accesses by the bytes of distinct blocks since the block was last touched; first accesses have none.",
        &reuse(report),
    );
    section(
        page,
        "Working set",
        "Mean over time of the bytes touched within so many seconds.",
        &working_set(report),
    );
    section(
        page,
        "Requests outstanding",
        "Mean over each moment.",
        &queue_depth(report),
    );
}

fn addresses(page: &mut String, area: &AreaReport, span_s: f64) {
    let shown: u64 = area.heat.iter().map(|row| row.to - row.from).sum();
    let text = format!(
        "Blue is read, orange is written. Of the addresses up to {}, those {} are shown in which something was touched; others are left out at the dotted lines.",
        format_bytes(area.extent_bytes),
        format_bytes(shown.min(area.extent_bytes))
    );
    let rows: Vec<HeatLine<'_>> = area
        .heat
        .iter()
        .map(|row| HeatLine {
            from: row.from,
            to: row.to,
            label: format_bytes(row.from),
            read: &row.read,
            written: &row.written,
        })
        .collect();
    section(
        page,
        &format!("Addresses over time: {}", area.name),
        &text,
        &heat_map(&rows, span_s),
    );
}

/// The areas with the most traffic, as many as can be told from each other in a picture, in the report's order.
fn drawn(report: &Report) -> impl Iterator<Item = &AreaReport> {
    let bytes = |area: &AreaReport| area.read.bytes + area.write.bytes;
    let mut order: Vec<usize> = (0..report.areas.len()).collect();
    order.sort_by_key(|at| Reverse(bytes(&report.areas[*at])));
    order.truncate(DRAWN_MAX);
    order.sort_unstable();
    order.into_iter().map(|at| &report.areas[at])
}

/// A name that has room beside a bar.
fn short_name(name: &str) -> String {
    const ROOM: usize = 10;
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= ROOM {
        return name.to_owned();
    }
    let begin: String = letters[..4].iter().collect();
    let end: String = letters[letters.len() - 5..].iter().collect();
    format!("{begin}\u{2026}{end}")
}

fn traffic(report: &Report) -> String {
    // What is not drawn by itself is one part.
    let part = |of: fn(&AreaReport) -> u64| {
        let mut parts: Vec<f64> = drawn(report).map(|area| of(area) as f64).collect();
        let all: f64 = report.areas.iter().map(|area| of(area) as f64).sum();
        if report.areas.len() > DRAWN_MAX {
            parts.push(all - parts.iter().sum::<f64>());
        }
        parts
    };
    let mut names: Vec<String> = drawn(report).map(|area| area.name.clone()).collect();
    if report.areas.len() > DRAWN_MAX {
        names.push("all others".to_owned());
    }
    let rows = [
        ("bytes read".to_owned(), part(|area| area.read.bytes)),
        ("bytes written".to_owned(), part(|area| area.write.bytes)),
        (
            "requests".to_owned(),
            part(|area| area.read.requests + area.write.requests),
        ),
        ("flushes".to_owned(), part(|area| area.flush.requests)),
        ("busy time".to_owned(), part(|area| area.busy_ns)),
    ];
    let mut body = stacked(&rows, &names);
    body.push_str("<table><tr><th>area</th><th>read</th><th>written</th><th>flushes</th><th>busy</th><th>unique</th><th>sequential</th></tr>");
    for area in &report.areas {
        let _ = write!(
            body,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.2} s</td><td>{}</td><td>{:.0} %</td></tr>",
            escape(&area.name),
            format_bytes(area.read.bytes),
            format_bytes(area.write.bytes),
            area.flush.requests,
            seconds(area.busy_ns),
            format_bytes(area.unique_bytes),
            area.sequential * 100.0
        );
    }
    body.push_str("</table>");
    body
}

fn multiplicity(report: &Report) -> String {
    let mut rows = Vec::new();
    for area in drawn(report).filter(|area| area.unique_bytes > 0) {
        let once = &area.multiplicity;
        rows.push((
            format!("{}: blocks", short_name(&area.name)),
            vec![once.single_of_blocks, 1.0 - once.single_of_blocks],
        ));
        rows.push((
            format!("{}: access", short_name(&area.name)),
            vec![once.single_of_accesses, 1.0 - once.single_of_accesses],
        ));
    }
    narrow_stacked(
        &rows,
        &["touched once".to_owned(), "touched again".to_owned()],
    )
}

fn over_time(report: &Report, values: impl Fn(&AreaReport) -> Vec<f64>, title: &str) -> String {
    let step = seconds(report.duration_ns) / TIME_COLUMNS as f64;
    let all: Vec<Line> = drawn(report)
        .map(|area| Line {
            name: area.name.clone(),
            points: values(area)
                .into_iter()
                .enumerate()
                .map(|(at, value)| ((at + 1) as f64 * step, value))
                .collect(),
            dashed: false,
        })
        .collect();
    narrow_lines(&all, "seconds", title, false)
}

fn miss_ratio(report: &Report) -> String {
    let all: Vec<Line> = drawn(report)
        .map(|area| Line {
            name: area.name.clone(),
            points: area
                .miss_ratio
                .iter()
                .map(|point| (point.cache_bytes as f64, point.miss_ratio))
                .collect(),
            dashed: false,
        })
        .collect();
    narrow_lines(&all, "size of the cache", "misses", true)
}

fn reuse(report: &Report) -> String {
    let all: Vec<Line> = drawn(report)
        .map(|area| {
            let total = area.reuse.iter().sum::<f64>().max(1.0);
            let by_distance = area.reuse.iter().skip(1).enumerate();
            Line {
                name: area.name.clone(),
                points: by_distance
                    .map(|(class, count)| ((BLOCK_BYTES << class) as f64, count / total))
                    .collect(),
                dashed: false,
            }
        })
        .collect();
    narrow_lines(&all, "reuse distance, up to", "share", true)
}

fn working_set(report: &Report) -> String {
    let mut body = "<table><tr><th>area</th><th>1 s</th><th>10 s</th><th>60 s</th></tr>".to_owned();
    for area in &report.areas {
        let _ = write!(body, "<tr><td>{}</td>", escape(&area.name));
        for bytes in area.working_set {
            let _ = write!(body, "<td>{}</td>", format_bytes(bytes));
        }
        body.push_str("</tr>");
    }
    body.push_str("</table>");
    body
}

fn queue_depth(report: &Report) -> String {
    let step = seconds(report.duration_ns) / TIME_COLUMNS as f64;
    let line = Line {
        name: "all areas".to_owned(),
        points: report
            .queue_depth
            .iter()
            .enumerate()
            .map(|(at, depth)| (at as f64 * step, *depth))
            .collect(),
        dashed: false,
    };
    narrow_lines(&[line], "seconds", "requests", false)
}

fn latency(report: &Report) -> String {
    let mut body =
        "<table><tr><th>area</th><th>read</th><th>write</th><th>flush</th></tr>".to_owned();
    for area in &report.areas {
        let cell = |quantiles: &super::Quantiles, requests: u64| {
            if requests == 0 {
                "-".to_owned()
            } else {
                format!(
                    "{} / {} / {}",
                    format_ns(quantiles.p50),
                    format_ns(quantiles.p99),
                    format_ns(quantiles.p999)
                )
            }
        };
        let _ = write!(
            body,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&area.name),
            cell(&area.read_latency, area.read.requests),
            cell(&area.write_latency, area.write.requests),
            cell(&area.flush_latency, area.flush.requests)
        );
    }
    body.push_str("</table>");
    body
}
