//! The advice for a terminal, and as a part of the HTML report.

use std::fmt::Write as _;

use super::{Advice, CapacityAdvice};
use crate::units::format_bytes;
use waystation_plot::{Line, escape, lines};

/// Candidates shown per capacity on a terminal.
const SHOWN: usize = 12;

/// Tables and sentences.
pub fn text(advice: &Advice) -> String {
    let mut text = format!(
        "Recorded {:.1} s; simulated {:.1} s with everything slow, {:.1} s with everything fast.\n",
        advice.recorded_s, advice.slow_s, advice.fast_s
    );
    for capacity in &advice.capacities {
        let _ = writeln!(
            text,
            "\nWith {} of fast storage",
            format_bytes(capacity.capacity)
        );
        let _ = writeln!(
            text,
            "  {:>8}  {:>15}  {:>9}  {:>8}  {:>9}  candidate",
            "seconds", "nine of ten in", "takes", "s per MB", "wear MB/h"
        );
        for (index, candidate) in capacity.candidates.iter().enumerate().take(SHOWN) {
            let mark = if Some(index) == capacity.advised {
                '*'
            } else if Some(index) == capacity.advised_here {
                '+'
            } else {
                ' '
            };
            let _ = writeln!(
                text,
                "{mark} {:>8.1}  {:>6.1} .. {:>5.1}  {:>9}  {:>8.2}  {:>9.0}  {} [{}]",
                candidate.seconds,
                candidate.band_s.0,
                candidate.band_s.1,
                format_bytes(candidate.bytes),
                candidate.saved_s_per_mb,
                candidate.wear_mb_per_hour,
                candidate.name,
                candidate.realisable.words()
            );
        }
        let _ = writeln!(text, "\n{}", capacity.sentence);
        for command in &capacity.commands {
            let _ = writeln!(text, "    {command}");
        }
    }
    if !advice.notes.is_empty() {
        text.push('\n');
    }
    for note in &advice.notes {
        let _ = writeln!(text, "Note: {note}");
    }
    text
}

/// A part of the HTML report: sentences, the curves of seconds against capacity, commands.
pub fn html(advice: &Advice) -> String {
    let mut part = "<section><h2>What to do</h2>".to_owned();
    for capacity in &advice.capacities {
        let _ = write!(
            part,
            "<p class=\"answer\">{}</p>",
            escape(&capacity.sentence)
        );
        if !capacity.commands.is_empty() {
            let _ = write!(part, "<pre>{}</pre>", escape(&capacity.commands.join("\n")));
        }
    }
    part.push_str("</section><section><h2>Seconds against capacity</h2><p class=\"soft\">Every kind of candidate at each size that was asked for; dashed: it needs device-mapper or an application change.</p>");
    part.push_str(&lines(&curves(advice), "MB", "s", false));
    part.push_str("</section><section><h2>Candidates</h2><table><tr><th>candidate</th><th>capacity</th><th>takes</th><th>seconds</th><th>nine of ten in</th><th>saved per MB</th><th>wear MB/h</th><th></th></tr>");
    for capacity in &advice.capacities {
        rows(&mut part, capacity);
    }
    part.push_str("</table>");
    for note in &advice.notes {
        let _ = write!(part, "<p class=\"note\">{}</p>", escape(note));
    }
    part.push_str("</section>");
    part
}

fn rows(part: &mut String, capacity: &CapacityAdvice) {
    for candidate in &capacity.candidates {
        let _ = write!(
            part,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.1} .. {:.1}</td><td>{:.2} s</td><td>{:.0}</td><td>{}</td></tr>",
            escape(&candidate.name),
            format_bytes(capacity.capacity),
            format_bytes(candidate.bytes),
            candidate.seconds,
            candidate.band_s.0,
            candidate.band_s.1,
            candidate.saved_s_per_mb,
            candidate.wear_mb_per_hour,
            candidate.realisable.words()
        );
    }
}

/// One line per kind of candidate: which areas, and how.
fn curves(advice: &Advice) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    for capacity in &advice.capacities {
        for candidate in &capacity.candidates {
            let name = if candidate.shares.len() > 1 {
                format!("split, {}", candidate.realisable.words())
            } else {
                candidate.name.clone()
            };
            let point = (capacity.capacity as f64 / 1e6, candidate.seconds);
            match all.iter_mut().find(|line| line.name == name) {
                Some(line) if line.points.last().is_some_and(|last| last.0 >= point.0) => {}
                Some(line) => line.points.push(point),
                None => all.push(Line {
                    name,
                    points: vec![(0.0, advice.slow_s), point],
                    dashed: candidate.realisable == super::Realisable::DeviceMapper,
                }),
            }
        }
    }
    all
}
