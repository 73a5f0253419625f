//! The report for a terminal. Its last line is the audit's.

use super::{EngineReport, Report, rows};
use crate::output::{bytes_text, count_text};
use std::fmt::Write as _;

/// Lines that begin with what was asked and end with the audit.
pub(crate) fn text(report: &Report) -> String {
    let mut text = format!(
        "{}: {} vehicles, {} cells\n",
        report.trace,
        count_text(report.vehicles as u64),
        report.cells
    );
    if let Some(terms) = report.terms {
        let _ = writeln!(text, "({terms})");
    }
    let settings = &report.settings;
    let _ = writeln!(
        text,
        "{} readings a second from each vehicle, {} sensors, values of {} bytes, {} threads, {} for all engines",
        settings.readings_per_second,
        settings.sensors,
        settings.value_bytes,
        settings.threads,
        bytes_text(settings.memory_bytes)
    );
    let _ = writeln!(
        text,
        "acknowledged readings survive the death of the process, finished hand-offs {}\n",
        settings.hand_offs_survive
    );
    table(&mut text, &report.engines);
    for engine in &report.engines {
        let _ = writeln!(text, "{}: {}", engine.engine, engine.settings);
    }
    for engine in &report.engines {
        notes(&mut text, engine, settings.memory_bytes);
    }
    for engine in report.engines.iter().skip(1) {
        let _ = writeln!(text, "{} {}", engine.engine, engine.audit);
    }
    if let Some(first) = report.engines.first() {
        let _ = writeln!(text, "{}", first.audit);
    }
    text
}

fn table(text: &mut String, engines: &[EngineReport]) {
    let rows = rows();
    let first = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
    let columns: Vec<(Vec<String>, usize)> = engines
        .iter()
        .map(|engine| {
            let cells: Vec<String> = rows.iter().map(|row| row.1(engine)).collect();
            let width = cells.iter().map(String::len).max().unwrap_or(0);
            (cells, width.max(engine.engine.len()))
        })
        .collect();
    let mut line = |name: &str, cell: &dyn Fn(usize) -> String| {
        let _ = write!(text, "{name:<first$}");
        for (index, (_, width)) in columns.iter().enumerate() {
            let _ = write!(text, "  {:>width$}", cell(index));
        }
        text.push('\n');
    };
    line("", &|index| engines[index].engine.to_owned());
    for (number, row) in rows.iter().enumerate() {
        line(row.0, &|index| columns[index].0[number].clone());
    }
}

/// What the figures alone do not say.
fn notes(text: &mut String, engine: &EngineReport, memory: u64) {
    let name = engine.engine;
    if engine.was_stopped {
        let seconds = engine.city_s;
        let _ = writeln!(text, "{name}: stopped after {seconds} s of the city's time");
    }
    if engine.peak_memory_bytes > memory.saturating_add(engine.memory_before_bytes) {
        let peak = bytes_text(engine.peak_memory_bytes);
        let allowed = bytes_text(memory);
        let _ = writeln!(
            text,
            "{name}: the process took up to {peak}, more than the {allowed} for the engines and what it had before"
        );
    }
    if engine.audit.wrong_answers > 0 {
        let wrong = engine.audit.wrong_answers;
        let _ = writeln!(text, "{name}: {wrong} queries were answered wrong");
    }
}
