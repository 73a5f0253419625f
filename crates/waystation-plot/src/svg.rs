//! Small pictures as SVG text: lines, bars, heat maps. No scripts, no fonts, nothing fetched.

use std::fmt::Write as _;

/// Colours that keep apart for most eyes (Okabe & Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a6d00", "#7a7a7a",
];

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 12.0;

/// A named line of (x, y).
pub struct Line {
    /// For the legend.
    pub name: String,
    /// In order of x.
    pub points: Vec<(f64, f64)>,
    /// Drawn as steps.
    pub dashed: bool,
}

/// Text that is safe inside markup.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

/// A round number at or above `value`.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= value)
        .unwrap_or(10.0 * power)
}

fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 1.0 {
        let text = format!("{value:.1}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    } else if value == 0.0 {
        "0".to_owned()
    } else {
        format!("{value:.2}")
    }
}

/// Lines over a linear or logarithmic x axis; y begins at 0.
pub fn lines(lines: &[Line], x_title: &str, y_title: &str, logarithmic: bool) -> String {
    let x_of = |x: f64| if logarithmic { x.max(1e-9).log2() } else { x };
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let x_min = all()
        .map(|point| x_of(point.0))
        .fold(f64::INFINITY, f64::min);
    let x_max = all()
        .map(|point| x_of(point.0))
        .fold(f64::NEG_INFINITY, f64::max);
    if !x_min.is_finite() {
        return "<p class=\"none\">nothing to draw</p>".to_owned();
    }
    let x_min = if logarithmic {
        x_min
    } else {
        0.0_f64.min(x_min)
    };
    let x_range = (x_max - x_min).max(1e-9);
    let y_max = ceiling(all().map(|point| point.1).fold(0.0, f64::max));
    let x_at = |x: f64| LEFT + (x_of(x) - x_min) / x_range * (WIDTH - LEFT - RIGHT);
    let y_at = |y: f64| HEIGHT - BOTTOM - y / y_max * (HEIGHT - BOTTOM - TOP);
    let mut svg = open(HEIGHT, y_title);
    for step in 0..=4 {
        let y = y_max * f64::from(step) / 4.0;
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            y_at(y),
            y_at(y),
            LEFT - 6.0,
            y_at(y) + 4.0,
            short(y)
        );
    }
    for step in 0..=5 {
        let at = x_min + x_range * f64::from(step) / 5.0;
        let x = if logarithmic { at.exp2() } else { at };
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x_at(x),
            HEIGHT - BOTTOM + 15.0,
            short(x)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" class=\"title\">{}</text>",
        WIDTH - RIGHT,
        HEIGHT - 4.0,
        escape(x_title)
    );
    for (index, line) in lines.iter().enumerate() {
        let mut path = String::new();
        for (number, point) in line.points.iter().enumerate() {
            let _ = write!(
                path,
                "{}{:.1},{:.1}",
                if number == 0 { "M" } else { "L" },
                x_at(point.0),
                y_at(point.1)
            );
        }
        let dash = if line.dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let colour = COLOURS[index % COLOURS.len()];
        let _ = write!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}><title>{}</title></path>",
            escape(&line.name)
        );
        if line.points.len() <= 24 {
            for point in &line.points {
                let _ = write!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {} {}, {} {}</title></circle>",
                    x_at(point.0),
                    y_at(point.1),
                    escape(&line.name),
                    short(point.0),
                    escape(x_title),
                    short(point.1),
                    escape(y_title)
                );
            }
        }
    }
    svg.push_str("</svg>");
    legend(&mut svg, lines.iter().map(|line| line.name.as_str()));
    svg
}

fn open(height: f64, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">",
        escape(label)
    )
}

/// Names with their colours.
fn legend<'a>(out: &mut String, names: impl Iterator<Item = &'a str>) {
    out.push_str("<p class=\"legend\">");
    for (index, name) in names.enumerate() {
        let _ = write!(
            out,
            "<span><i style=\"background:{}\"></i>{}</span> ",
            COLOURS[index % COLOURS.len()],
            escape(name)
        );
    }
    out.push_str("</p>");
}

/// Rows of shares that add up to 1: (name, parts).
pub fn stacked(rows: &[(String, Vec<f64>)], names: &[String]) -> String {
    let height = 30.0 * rows.len() as f64 + 10.0;
    let mut svg = open(height, "shares");
    for (number, (name, parts)) in rows.iter().enumerate() {
        let y = 6.0 + 30.0 * number as f64;
        let _ = write!(
            svg,
            "<text x=\"104\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
            y + 15.0,
            escape(name)
        );
        let total: f64 = parts.iter().sum();
        let mut x = 112.0;
        for (index, part) in parts.iter().enumerate() {
            let share = if total > 0.0 { part / total } else { 0.0 };
            let width = share * (WIDTH - 112.0 - RIGHT);
            let _ = write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"22\" fill=\"{}\"><title>{}: {:.1} %</title></rect>",
                COLOURS[index % COLOURS.len()],
                escape(names.get(index).map_or("", String::as_str)),
                share * 100.0
            );
            if share > 0.08 {
                let _ = write!(
                    svg,
                    "<text class=\"inside\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{:.0} %</text>",
                    x + width / 2.0,
                    y + 15.0,
                    share * 100.0
                );
            }
            x += width;
        }
    }
    svg.push_str("</svg>");
    legend(&mut svg, names.iter().map(String::as_str));
    svg
}

/// Bytes read (blue) and written (orange) over time (x) and address (y, from the bottom).
pub fn heat_map(read: &[u64], write: &[u64], columns: usize) -> String {
    let rows = read.len() / columns.max(1);
    let highest = read.iter().chain(write).copied().max().unwrap_or(0).max(1);
    let (cell_width, cell_height) = ((WIDTH - LEFT - RIGHT) / columns as f64, 4.0);
    let height = cell_height * rows as f64 + 20.0;
    let mut svg = open(height, "bytes by address and time");
    let _ = write!(
        svg,
        "<rect class=\"field\" x=\"{LEFT}\" y=\"4\" width=\"{:.1}\" height=\"{:.1}\"/>",
        WIDTH - LEFT - RIGHT,
        cell_height * rows as f64
    );
    for (bytes, colour) in [(read, COLOURS[0]), (write, COLOURS[1])] {
        for (index, amount) in bytes.iter().enumerate().filter(|(_, amount)| **amount > 0) {
            let (row, column) = (index / columns, index % columns);
            // Logarithmic: one block shall be seen beside a megabyte.
            let strength = 0.25 + 0.75 * (*amount as f64).ln() / (highest as f64).ln().max(1.0);
            let _ = write!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{cell_height}\" fill=\"{colour}\" fill-opacity=\"{:.2}\"/>",
                LEFT + column as f64 * cell_width,
                4.0 + (rows - 1 - row) as f64 * cell_height,
                cell_width + 0.3,
                strength.min(1.0)
            );
        }
    }
    let _ = write!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">0</text><text x=\"{:.0}\" y=\"14\" text-anchor=\"end\">end</text><text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">time</text></svg>",
        LEFT - 6.0,
        height - 16.0,
        LEFT - 6.0,
        WIDTH - RIGHT,
        height - 4.0
    );
    svg
}
