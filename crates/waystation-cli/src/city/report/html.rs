//! The report as one page that needs nothing else.

use super::{EngineReport, Report, Sample, rows};
use crate::output::{bytes_text, count_text};
use std::fmt::Write as _;
use waystation_plot::{Line, escape, lines, page_head, section};

/// The page.
pub(crate) fn html(report: &Report) -> String {
    let mut page = page_head(&format!("The city: {}", report.trace));
    let settings = &report.settings;
    let _ = write!(
        page,
        "<h1>A city on {}</h1><p class=\"soft\">{}: {} vehicles, {} cells, each an engine of its own. {} readings a second from each vehicle, values of {} bytes, {} threads, {} of memory for all engines. Acknowledged readings survive the death of the process, finished hand-offs {}.</p>",
        escape(&engines(report)),
        escape(&report.trace),
        count_text(report.vehicles as u64),
        report.cells,
        settings.readings_per_second,
        settings.value_bytes,
        settings.threads,
        bytes_text(settings.memory_bytes),
        settings.hand_offs_survive
    );
    for engine in &report.engines {
        let class = if engine.audit.is_clean() {
            "answer"
        } else {
            "note"
        };
        let _ = write!(
            page,
            "<p class=\"{class}\">{}: {}</p>",
            escape(engine.engine),
            engine.audit
        );
    }
    section(&mut page, "Figures", "", &table(report));
    page.push_str("<div class=\"grid2\">");
    traffic(&mut page, report);
    inside(&mut page, report);
    page.push_str("</div>");
    for engine in &report.engines {
        section(
            &mut page,
            &format!("Cells: {}", engine.engine),
            "Learned residency: nine of ten vehicles had left within it.",
            &cells(engine),
        );
    }
    if let Some(terms) = report.terms {
        let _ = write!(
            page,
            "<p class=\"soft\">Of the data: {}.</p>",
            escape(terms)
        );
    }
    page.push_str("</body></html>\n");
    page
}

fn engines(report: &Report) -> String {
    let names: Vec<&str> = report.engines.iter().map(|engine| engine.engine).collect();
    names.join(", ")
}

fn table(report: &Report) -> String {
    let mut table = "<table><tr><th></th>".to_owned();
    for engine in &report.engines {
        let _ = write!(table, "<th>{}</th>", escape(engine.engine));
    }
    table.push_str("</tr>");
    for (name, figure) in rows() {
        let _ = write!(table, "<tr><td>{}</td>", escape(name));
        for engine in &report.engines {
            let _ = write!(table, "<td>{}</td>", escape(&figure(engine)));
        }
        table.push_str("</tr>");
    }
    table.push_str("</table>");
    for engine in &report.engines {
        let _ = write!(
            table,
            "<p class=\"soft\">{}: {}</p>",
            escape(engine.engine),
            escape(&engine.settings)
        );
    }
    table
}

fn cells(engine: &EngineReport) -> String {
    let mut table =
        "<table><tr><th>cell</th><th>visits</th><th>settled</th><th>residency (s)</th></tr>"
            .to_owned();
    for cell in &engine.cells {
        let _ = write!(
            table,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&cell.cell),
            count_text(cell.visits),
            count_text(cell.settled),
            cell.residency_s
        );
    }
    table.push_str("</table>");
    table
}

/// A line over the city's minutes.
fn over_time(name: String, samples: &[Sample], value: impl Fn(&Sample) -> f64) -> Line {
    let points = samples
        .iter()
        .map(|sample| (minutes(sample), value(sample)))
        .collect();
    Line {
        name,
        points,
        dashed: false,
    }
}

/// A line of how fast a count grows in real time.
fn rate(name: String, samples: &[Sample], count: impl Fn(&Sample) -> u64) -> Line {
    let points = samples
        .windows(2)
        .filter(|pair| pair[1].elapsed_s > pair[0].elapsed_s)
        .map(|pair| {
            let more = (count(&pair[1]) - count(&pair[0])) as f64;
            let seconds = pair[1].elapsed_s - pair[0].elapsed_s;
            (minutes(&pair[1]), more / seconds)
        })
        .collect();
    Line {
        name,
        points,
        dashed: false,
    }
}

fn minutes(sample: &Sample) -> f64 {
    f64::from(sample.city_s) / 60.0
}

/// Adds a plot with lines of every engine.
fn plot(
    page: &mut String,
    report: &Report,
    (title, text, y_title): (&str, &str, &str),
    of: impl Fn(&EngineReport) -> Vec<Line>,
) {
    let drawn: Vec<Line> = report.engines.iter().flat_map(of).collect();
    let picture = lines(&drawn, "minutes of the city", y_title, false);
    section(page, title, text, &picture);
}

/// Bytes written so far for each byte sent or handed over.
fn amplification(sample: &Sample) -> f64 {
    let counts = &sample.counts;
    super::ratio(
        sample.written_bytes as f64,
        (counts.reading_bytes + counts.handed_bytes) as f64,
    )
}

/// How many samples at the beginning have more than twice the amplification of the last: engines write their files in
/// full when they are made, and little was sent then. A line from there to the end would be flat.
fn warm_up(samples: &[Sample]) -> usize {
    let Some(last) = samples.last() else {
        return 0;
    };
    let most = 2.0 * amplification(last);
    let later = samples
        .iter()
        .rposition(|sample| amplification(sample) > most);
    later.map_or(0, |index| index + 1)
}

/// Says which samples are not drawn, and what they were.
fn left_out(report: &Report) -> String {
    let one = |engine: &EngineReport| {
        let left = warm_up(&engine.samples);
        let (first, last) = (engine.samples.first()?, engine.samples[..left].last()?);
        Some(format!(
            "{}: the first {:.1} minutes are left out, as engines write their files in full when they are made ({:.0} bytes for a byte at first).",
            engine.engine,
            minutes(last),
            amplification(first)
        ))
    };
    let all: Vec<String> = report.engines.iter().filter_map(one).collect();
    all.join(" ")
}

/// What goes in and out.
fn traffic(page: &mut String, report: &Report) {
    plot(
        page,
        report,
        (
            "Throughput",
            "Thousands of readings a second of real time: what vehicles send, and what hand-offs carry.",
            "thousands a second",
        ),
        |it| {
            let thousand = |mut line: Line| {
                line.points.iter_mut().for_each(|point| point.1 /= 1e3);
                line
            };
            let sent = rate(named(it, "sent"), &it.samples, |sample| {
                sample.counts.readings
            });
            let mut handed = rate(named(it, "handed over"), &it.samples, |sample| {
                sample.counts.handed_records
            });
            handed.dashed = true;
            vec![thousand(sent), thousand(handed)]
        },
    );
    plot(
        page,
        report,
        (
            "Write amplification",
            &format!(
                "Bytes written to storage so far for each byte sent or handed over. {}",
                left_out(report)
            ),
            "bytes for a byte",
        ),
        |it| {
            let mut line = over_time(it.engine.to_owned(), &it.samples, amplification);
            line.points.drain(..warm_up(&it.samples));
            vec![line]
        },
    );
    plot(
        page,
        report,
        (
            "Bytes sent, and bytes handed over",
            "What vehicles sent so far, and what hand-offs carried: an engine writes both.",
            "MB",
        ),
        |it| {
            let sent = over_time(named(it, "sent"), &it.samples, |sample| {
                sample.counts.reading_bytes as f64 / 1e6
            });
            let mut handed = over_time(named(it, "handed over"), &it.samples, |sample| {
                sample.counts.handed_bytes as f64 / 1e6
            });
            handed.dashed = true;
            vec![sent, handed]
        },
    );
}

/// What the engines make of it.
fn inside(page: &mut String, report: &Report) {
    plot(
        page,
        report,
        ("Disk", "Files of all engines.", "MB"),
        |it| {
            vec![over_time(it.engine.to_owned(), &it.samples, |sample| {
                sample.disk_bytes as f64 / 1e6
            })]
        },
    );
    plot(
        page,
        report,
        (
            "Levels",
            "What lies in the upper level and in the tree, and the memory of the upper level's indexes.",
            "MB",
        ),
        |it| {
            let of = |name: &str, bytes: fn(&Sample) -> u64| {
                over_time(named(it, name), &it.samples, |sample| {
                    bytes(sample) as f64 / 1e6
                })
            };
            vec![
                of("upper level", |sample| sample.occupancy.upper_bytes),
                of("tree", |sample| sample.occupancy.tree_bytes),
                of("indexes", |sample| sample.occupancy.index_bytes),
            ]
        },
    );
    plot(
        page,
        report,
        (
            "Latency of a put",
            "Microseconds; half, 99 % and 99.9 % of the puts of each half minute were faster.",
            "us",
        ),
        |it| {
            let of = |name: &str, time: fn(&Sample) -> f64| {
                over_time(named(it, name), &it.samples, time)
            };
            vec![
                of("p50", |sample| sample.put.p50_us),
                of("p99", |sample| sample.put.p99_us),
                of("p99.9", |sample| sample.put.p999_us),
            ]
        },
    );
    vehicles(page, report);
}

/// Where they are, and for how long.
fn vehicles(page: &mut String, report: &Report) {
    plot(
        page,
        report,
        (
            "Vehicles",
            "How many are in the city, and whose data is in the upper level and in the tree.",
            "vehicles",
        ),
        |it| {
            vec![
                over_time(named(it, "in the city"), &it.samples, |sample| {
                    sample.vehicles as f64
                }),
                over_time(named(it, "upper level"), &it.samples, |sample| {
                    sample.occupancy.upper_vehicles as f64
                }),
                over_time(named(it, "tree"), &it.samples, |sample| {
                    sample.occupancy.tree_vehicles as f64
                }),
            ]
        },
    );
    plot(
        page,
        report,
        (
            "Learned residency",
            "Seconds within which nine of ten had left so far; the shortest, the middle and the longest of all cells.",
            "s",
        ),
        |it| {
            ["shortest", "median", "longest"]
                .iter()
                .enumerate()
                .map(|(index, name)| {
                    over_time(named(it, name), &it.samples, |sample| {
                        f64::from(sample.residency_s[index])
                    })
                })
                .collect()
        },
    );
}

fn named(engine: &EngineReport, what: &str) -> String {
    format!("{}: {what}", engine.engine)
}
