//! The advice for a terminal, and as a part of the HTML report.

use std::fmt::Write as _;

use super::{Advice, Candidate, CapacityAdvice, How, Realisable};
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
        // A script is longer than all the rest: it is shown where one answer was asked for.
        for script in &capacity.scripts {
            if advice.capacities.len() > 1 {
                let _ = writeln!(
                    text,
                    "For the script that does it, ask for this size alone."
                );
            } else {
                let _ = writeln!(
                    text,
                    "\nThe script for {} (it writes the one that undoes it; --json has it in .capacities[0].scripts):\n\n{}",
                    script.what, script.text
                );
            }
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

/// A part of the HTML report: sentences, commands, the curves of seconds against capacity (`dense` has more
/// capacities than were asked for), all candidates.
pub fn html(advice: &Advice, dense: &Advice) -> String {
    let mut part = "<section><h2>What to do</h2>".to_owned();
    for capacity in &advice.capacities {
        let _ = write!(
            part,
            "<p class=\"answer\">{}</p>",
            escape(&capacity.sentence)
        );
        for script in &capacity.scripts {
            let _ = write!(
                part,
                "<details><summary>The script for {}</summary><pre>{}</pre></details>",
                escape(&script.what),
                escape(&script.text)
            );
        }
    }
    part.push_str("</section><section><h2>Seconds against capacity</h2><p class=\"soft\">What gains nothing is left out. Dashed: it needs device-mapper or an application change.</p>");
    part.push_str(&lines(
        &curves(dense),
        "MB of fast storage",
        "seconds",
        false,
    ));
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
    for (index, candidate) in capacity.candidates.iter().enumerate() {
        let advised = Some(index) == capacity.advised || Some(index) == capacity.advised_here;
        let _ = write!(
            part,
            "<tr{}><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.1} .. {:.1}</td><td>{:.2} s</td><td>{:.0}</td><td class=\"text\">{}</td></tr>",
            if advised { " class=\"best\"" } else { "" },
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

/// The lines that a candidate is a point of.
fn lines_of(candidate: &Candidate) -> Vec<String> {
    let [share] = &candidate.shares[..] else {
        return vec!["best split".to_owned()];
    };
    let first_touch = || format!("{}: blocks touched first", share.area);
    let hottest = || format!("{}: hottest blocks", share.area);
    match share.how {
        // Both ways to fill an area end here.
        How::Whole => vec![first_touch(), hottest()],
        How::FirstTouch | How::SwapSized => vec![first_touch()],
        How::HotSet => vec![hottest()],
        How::JournalSized | How::CacheWriteBack | How::CacheWriteThrough | How::EngineCopies => {
            vec![candidate.name.clone()]
        }
    }
}

/// One line per area and way to use its share, one for the best split, one per cache.
fn curves(advice: &Advice) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    for capacity in &advice.capacities {
        let megabytes = capacity.capacity as f64 / 1e6;
        // Fastest first, so that the first split is the best one.
        for candidate in &capacity.candidates {
            // A journal either fits or not; of anything else there may be a little.
            let gradual =
                candidate.shares.len() == 1 && candidate.shares[0].how != How::JournalSized;
            for name in lines_of(candidate) {
                let at = all.iter().position(|line| line.name == name);
                let at = at.unwrap_or_else(|| {
                    let mut points = Vec::new();
                    if gradual {
                        points.push((0.0, advice.slow_s));
                    }
                    all.push(Line {
                        name,
                        points,
                        dashed: candidate.realisable == Realisable::DeviceMapper,
                    });
                    all.len() - 1
                });
                let points = &mut all[at].points;
                if points.last().is_none_or(|last| last.0 < megabytes) {
                    points.push((megabytes, candidate.seconds));
                }
            }
        }
    }
    all.retain(|line| {
        line.points
            .iter()
            .any(|point| point.1 < advice.slow_s * (1.0 - super::WORTHWHILE))
    });
    let end = advice.capacities.iter().map(|one| one.capacity).max();
    let end = end.unwrap_or(0) as f64 / 1e6;
    for (name, seconds) in [
        ("everything slow", advice.slow_s),
        ("everything fast", advice.fast_s),
    ] {
        all.push(Line {
            name: name.to_owned(),
            points: vec![(0.0, seconds), (end, seconds)],
            dashed: false,
        });
    }
    all
}
