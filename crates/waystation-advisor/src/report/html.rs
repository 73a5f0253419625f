//! The report as one file that needs nothing else.

use std::fmt::Write as _;

use super::{AreaReport, Report, TIME_COLUMNS};
use crate::svg::{Line, escape, heat_map, lines, stacked};
use crate::units::{format_bytes, format_ns, seconds};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1e21;--soft:#5b6068;--paper:#fff;--card:#f6f7f9;--line:#d9dce1}\
@media(prefers-color-scheme:dark){:root{--ink:#e8eaed;--soft:#a3a9b3;--paper:#16181b;--card:#1f2226;--line:#3a3e45}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:74rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin:0 0 .4rem}p{margin:.3rem 0}.soft{color:var(--soft)}\
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(28rem,1fr));gap:1rem}\
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:1rem;margin:1rem 0;overflow-x:auto}\
.grid2 section{margin:0}svg{width:100%;height:auto;font-size:11px}svg text{fill:var(--soft)}svg .title{font-style:italic}\
svg .inside{fill:#fff}svg .grid{stroke:var(--line)}svg .field{fill:var(--paper);stroke:var(--line)}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}td,th{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--line)}\
td:first-child,th:first-child{text-align:left}.legend span{margin-right:1rem;font-size:.85rem}.legend i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.35em}\
.note{border-left:4px solid #d55e00;padding-left:.8rem}.answer{font-size:1.15rem}pre{white-space:pre-wrap;background:var(--paper);border:1px solid var(--line);padding:.6rem;border-radius:6px}";

/// The page; `advice` is a finished part to put first.
pub fn render(report: &Report, advice: Option<&str>) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Storage areas: {}</title><style>{STYLE}</style></head><body>",
        escape(&report.source)
    );
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
    if let Some(advice) = advice {
        page.push_str(advice);
    }
    page.push_str("<div class=\"grid2\">");
    section(
        &mut page,
        "Where the traffic goes",
        "Bytes mislead: a flush moves none. Busy time is what the application waits for.",
        &traffic(report),
    );
    section(
        &mut page,
        "Touched once, or again",
        "Blocks touched by exactly one request. A cache cannot help with a first access; storage that was there before can.",
        &multiplicity(report),
    );
    section(
        &mut page,
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
        &mut page,
        "Misses by cache size",
        "LRU cache for one area alone; sizes in MiB.",
        &miss_ratio(report),
    );
    section(
        &mut page,
        "Requests outstanding",
        "Mean over each moment.",
        &queue_depth(report),
    );
    section(
        &mut page,
        "Latency",
        "Half / 99 % / 99.9 % of the requests are faster.",
        &latency(report),
    );
    page.push_str("</div>");
    for area in report
        .areas
        .iter()
        .filter(|area| area.read.bytes + area.write.bytes > 0)
    {
        let text = format!(
            "Blue is read, orange is written; {} of address space from bottom to top.",
            format_bytes(area.extent_bytes)
        );
        section(
            &mut page,
            &format!("Addresses over time: {}", area.name),
            &text,
            &heat_map(&area.heat_read, &area.heat_write, TIME_COLUMNS),
        );
    }
    page.push_str("</body></html>\n");
    page
}

fn section(page: &mut String, title: &str, text: &str, body: &str) {
    let _ = write!(
        page,
        "<section><h2>{}</h2><p class=\"soft\">{}</p>{body}</section>",
        escape(title),
        escape(text)
    );
}

fn names(report: &Report) -> Vec<String> {
    report.areas.iter().map(|area| area.name.clone()).collect()
}

fn traffic(report: &Report) -> String {
    let part =
        |of: fn(&AreaReport) -> u64| report.areas.iter().map(|area| of(area) as f64).collect();
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
    let mut body = stacked(&rows, &names(report));
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
    for area in report.areas.iter().filter(|area| area.unique_bytes > 0) {
        let once = &area.multiplicity;
        rows.push((
            format!("{}: blocks", area.name),
            vec![once.single_of_blocks, 1.0 - once.single_of_blocks],
        ));
        rows.push((
            format!("{}: access", area.name),
            vec![once.single_of_accesses, 1.0 - once.single_of_accesses],
        ));
    }
    stacked(
        &rows,
        &["touched once".to_owned(), "touched again".to_owned()],
    )
}

fn over_time(report: &Report, values: impl Fn(&AreaReport) -> Vec<f64>, title: &str) -> String {
    let step = seconds(report.duration_ns) / TIME_COLUMNS as f64;
    let all: Vec<Line> = report
        .areas
        .iter()
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
    lines(&all, "s", title, false)
}

fn miss_ratio(report: &Report) -> String {
    let all: Vec<Line> = report
        .areas
        .iter()
        .map(|area| Line {
            name: area.name.clone(),
            points: area
                .miss_ratio
                .iter()
                .map(|point| (point.cache_bytes as f64 / 1_048_576.0, point.miss_ratio))
                .collect(),
            dashed: false,
        })
        .collect();
    lines(&all, "MiB", "miss ratio", true)
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
    lines(&[line], "s", "requests", false)
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
