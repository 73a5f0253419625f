//! A heat map: what was read and written where, over time.

use std::fmt::Write as _;

use crate::svg::{BOTTOM, COLOURS, RIGHT, WIDE, marks, open, short, write_text};

const LEFT: f64 = 92.0;
const TOP: f64 = 8.0;
/// Height that the rows share, as far as each stays within its limits.
const ROWS_HEIGHT: f64 = 240.0;

/// A row of a heat map: its range (addresses, for instance) and an amount for each column, read and written.
pub struct HeatLine<'a> {
    /// Where the row begins.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
    /// Its name, where it is the first one or something is left out before it.
    pub label: String,
    /// Read, by column.
    pub read: &'a [u64],
    /// Written, by column.
    pub written: &'a [u64],
}

/// Amounts read (blue) and written (orange) over time (x), rows from the bottom up. Where something is left out
/// between two rows there is a dotted line. The columns cover `span_s` seconds.
pub fn heat_map(rows: &[HeatLine<'_>], span_s: f64) -> String {
    let columns = rows
        .iter()
        .map(|row| row.read.len())
        .max()
        .unwrap_or(1)
        .max(1);
    let height = (ROWS_HEIGHT / rows.len().max(1) as f64).clamp(4.0, 14.0);
    let width = (WIDE - LEFT - RIGHT) / columns as f64;
    let floor = TOP + height * rows.len() as f64;
    let mut svg = open(WIDE, floor + BOTTOM, "amounts by address and time");
    let _ = write!(
        svg,
        "<rect class=\"field\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
        WIDE - LEFT - RIGHT,
        floor - TOP
    );
    let amounts = || {
        rows.iter()
            .flat_map(|row| row.read.iter().chain(row.written))
    };
    let highest = amounts().copied().max().unwrap_or(0).max(2) as f64;
    let mut labelled_at = f64::INFINITY;
    for (number, row) in rows.iter().enumerate() {
        let top = floor - (number + 1) as f64 * height;
        for (amounts, colour) in [(row.read, COLOURS[0]), (row.written, COLOURS[1])] {
            for (column, amount) in amounts
                .iter()
                .enumerate()
                .filter(|(_, amount)| **amount > 0)
            {
                // Logarithmic: one block shall be seen beside a megabyte.
                let strength = 0.25 + 0.75 * (*amount as f64).ln() / highest.ln();
                let _ = write!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\" fill-opacity=\"{:.2}\"/>",
                    LEFT + column as f64 * width,
                    width + 0.3,
                    strength.min(1.0)
                );
            }
        }
        let gap = number > 0 && rows[number - 1].to != row.from;
        let bottom = top + height;
        if gap {
            let _ = write!(
                svg,
                "<line class=\"gap\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{bottom:.1}\" y2=\"{bottom:.1}\"/>",
                WIDE - RIGHT
            );
        }
        // As far as there is room.
        if (number == 0 || gap) && labelled_at - bottom > 13.0 {
            write_text(&mut svg, (LEFT - 6.0, bottom), "end", &row.label);
            labelled_at = bottom;
        }
    }
    for mark in marks(0.0, span_s) {
        let x = LEFT + mark / span_s.max(1e-9) * (WIDE - LEFT - RIGHT);
        write_text(&mut svg, (x, floor + 15.0), "middle", &short(mark));
    }
    write_text(
        &mut svg,
        (WIDE - RIGHT, floor + BOTTOM - 4.0),
        "end",
        "seconds",
    );
    svg.push_str("</svg>");
    svg
}
