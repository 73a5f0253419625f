//! A study as text and as a page with pictures.

use super::bench::Outcome;
use super::study::{Effect, Origin, PLACES, Row, Study};
use serde::Serialize;
use std::fmt::{self, Write as _};
use waystation_plot::{Group, bar_picture, escape, page_head, section};

/// What the command shows.
#[derive(Debug, Clone, Serialize)]
pub struct ModelReport {
    /// All places under the load.
    pub study: Study,
    /// The paper's figures beside the model's.
    pub rows: Vec<Row>,
    /// How busy each part was, in the order of the places.
    pub bottlenecks: Vec<(&'static str, Vec<f64>)>,
    /// What each figure of the machine does to the result; empty if that was not asked for.
    pub sensitivity: Vec<Effect>,
}

impl ModelReport {
    /// The report of a study.
    pub fn new(study: Study, sensitivity: Vec<Effect>) -> Self {
        Self {
            rows: study.rows(),
            bottlenecks: study.bottlenecks(),
            study,
            sensitivity,
        }
    }

    /// The report as one page without scripts.
    pub fn html(&self) -> String {
        let study = &self.study;
        let title = format!("Model of the drive: {}", study.machine.name);
        let mut page = page_head(&title);
        let load = &study.load;
        let _ = write!(
            page,
            "<h1>{}</h1><p>{} puts in random order, keys of {} bytes, values of {} bytes, tables of {} MiB. Simulated.</p>",
            escape(&title),
            load.records,
            load.key_bytes,
            load.value_bytes,
            load.table_bytes >> 20
        );
        let groups = |value: fn(&Outcome) -> f64, unit: &str| -> Vec<Group> {
            let bars = PLACES
                .iter()
                .zip(&study.outcomes)
                .map(|((name, _), it)| Group {
                    name: (*name).to_owned(),
                    bars: vec![(unit.to_owned(), value(it), format!("{:.1}", value(it)))],
                });
            bars.collect()
        };
        let speed = bar_picture(
            "Puts per second",
            "thousands",
            &groups(
                |it| it.records as f64 * 1e6 / it.ns.max(1) as f64,
                "thousand puts/s",
            ),
            false,
        );
        section(
            &mut page,
            "The whole load",
            "Until the last put returned.",
            &speed,
        );
        let rates = [
            ("level 0", groups(|it| it.level0.mb_s(), "MB/s")),
            ("level 1 and deeper", groups(|it| it.deeper.mb_s(), "MB/s")),
        ];
        for (levels, groups) in rates {
            let picture = bar_picture(&format!("Compactions of {levels}"), "MB/s", &groups, false);
            let text = "Bytes read from and written to flash, per second of compaction.";
            section(&mut page, levels, text, &picture);
        }
        let text = "Fitted: figures of the machine were chosen so that these come near the paper's. Predicted: the rest follows.";
        section(&mut page, "Beside the paper", text, &self.rows_table());
        let busy = bar_picture(
            "Busy while level 1 and deeper were compacted",
            "%",
            &self.busy(),
            false,
        );
        section(
            &mut page,
            "Bottlenecks",
            "The longest bar is what limits.",
            &busy,
        );
        if !self.sensitivity.is_empty() {
            let text = "Ratios after one figure of the machine is changed.";
            section(&mut page, "Sensitivity", text, &self.effects_table());
        }
        page.push_str("</body></html>");
        page
    }

    fn busy(&self) -> Vec<Group> {
        let group = |(name, shares): &(&'static str, Vec<f64>)| {
            let bars = PLACES.iter().zip(shares).map(|((place, _), share)| {
                let percent = share * 100.0;
                ((*place).to_owned(), percent, format!("{percent:.0} %"))
            });
            Group {
                name: (*name).to_owned(),
                bars: bars.collect(),
            }
        };
        self.bottlenecks.iter().map(group).collect()
    }

    fn rows_table(&self) -> String {
        let mut table =
            "<table><tr><th>figure</th><th></th><th>paper</th><th>model</th><th>off</th></tr>"
                .to_owned();
        for row in &self.rows {
            let (origin, paper, off) = beside(row);
            let _ = write!(
                table,
                "<tr><td>{}</td><td>{origin}</td><td>{paper}</td><td>{:.2}</td><td>{off}</td></tr>",
                escape(row.name),
                row.model,
            );
        }
        table + "</table>"
    }

    fn effects_table(&self) -> String {
        let mut table = "<table><tr><th>change</th><th>level 1+: drive / card</th><th>whole load: drive / card</th><th>level 0: 9 / 4 decoders</th></tr>".to_owned();
        for effect in &self.sensitivity {
            let _ = write!(
                table,
                "<tr><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td></tr>",
                escape(&effect.name),
                effect.deeper,
                effect.total,
                effect.level0
            );
        }
        table + "</table>"
    }
}

/// What the paper adds to a row: whether the figure was fitted, the paper's, and how far off the model is.
fn beside(row: &Row) -> (&'static str, String, String) {
    let (Some((paper, origin)), Some(off)) = (row.paper, row.off_percent()) else {
        return Default::default();
    };
    let origin = match origin {
        Origin::Fitted => "fitted",
        Origin::Predicted => "predicted",
    };
    (origin, format!("{paper:.2}"), format!("{off:+.0} %"))
}

impl fmt::Display for ModelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {} puts",
            self.study.machine.name, self.study.load.records
        )?;
        writeln!(
            f,
            "\n{:<18} {:>9} {:>8} {:>10} {:>10} {:>9} {:>9} {:>7}",
            "place", "seconds", "puts/s", "L0 MB/s", "L1+ MB/s", "GB read", "GB writ.", "stalled"
        )?;
        for ((name, _), it) in PLACES.iter().zip(&self.study.outcomes) {
            let all = it.level0.plus(it.deeper);
            writeln!(
                f,
                "{:<18} {:>9.1} {:>8.0} {:>10.0} {:>10.0} {:>9.1} {:>9.1} {:>6.0}%",
                name,
                it.ns as f64 / 1e9,
                it.records as f64 * 1e9 / it.ns.max(1) as f64,
                it.level0.mb_s(),
                it.deeper.mb_s(),
                all.bytes_read as f64 / 1e9,
                all.bytes_written as f64 / 1e9,
                it.stalled_ns as f64 * 100.0 / it.ns.max(1) as f64
            )?;
        }
        writeln!(
            f,
            "\n{:<40} {:<10} {:>7} {:>7} {:>6}",
            "figure", "", "paper", "model", "off"
        )?;
        for row in &self.rows {
            let (origin, paper, off) = beside(row);
            writeln!(
                f,
                "{:<40} {origin:<10} {paper:>7} {:>7.2} {off:>6}",
                row.name, row.model
            )?;
        }
        writeln!(
            f,
            "\nbusy, % (level 1 and deeper)   host  card4  card9 drive4 drive9"
        )?;
        for (name, shares) in &self.bottlenecks {
            write!(f, "{name:<28}")?;
            for share in shares {
                write!(f, " {:>6.0}", share * 100.0)?;
            }
            writeln!(f)?;
        }
        if !self.sensitivity.is_empty() {
            writeln!(
                f,
                "\n{:<32} {:>12} {:>12} {:>12}",
                "change", "L1+ dr/card", "all dr/card", "L0 9/4"
            )?;
        }
        for effect in &self.sensitivity {
            writeln!(
                f,
                "{:<32} {:>12.2} {:>12.2} {:>12.2}",
                effect.name, effect.deeper, effect.total, effect.level0
            )?;
        }
        Ok(())
    }
}
