//! Small pictures as SVG text: lines and bars. No scripts, no fonts, nothing fetched.

use std::fmt::Write as _;

/// Colours that keep apart for most eyes (Okabe & Ito).
pub(crate) const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a6d00", "#7a7a7a",
];

/// Width of a picture that has the page for itself; a unit is about a pixel, so that letters have one size everywhere.
pub(crate) const WIDE: f64 = 1130.0;
/// Width of a picture with a neighbour.
const NARROW: f64 = 540.0;

const HEIGHT: f64 = 250.0;
const LEFT: f64 = 64.0;
pub(crate) const BOTTOM: f64 = 36.0;
const TOP: f64 = 24.0;
pub(crate) const RIGHT: f64 = 28.0;
/// Marks along the x axis, about.
const MARKS: f64 = 6.0;

/// A named line of (x, y).
pub struct Line {
    /// For the legend.
    pub name: String,
    /// In order of x.
    pub points: Vec<(f64, f64)>,
    /// Drawn with gaps.
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

pub(crate) fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 1.0 {
        let text = format!("{value:.1}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    } else if value == 0.0 {
        "0".to_owned()
    } else if value >= 0.01 {
        format!("{value:.2}")
    } else {
        format!("{value:.0e}")
    }
}

/// Round numbers from `from` to `to`, both included if they are round.
pub(crate) fn marks(from: f64, to: f64) -> Vec<f64> {
    let wanted = (to - from).max(1e-9) / MARKS;
    let power = 10_f64.powf(wanted.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= wanted)
        .unwrap_or(10.0 * power);
    let mut at = (from / step).ceil() * step;
    let mut marks = Vec::new();
    while at <= to + step * 1e-6 {
        marks.push(at);
        at += step;
    }
    marks
}

/// Powers of two, as exponents, about [`MARKS`] of them.
fn binary_marks(from: f64, to: f64) -> Vec<f64> {
    let step = ((to - from) / MARKS).ceil().max(1.0);
    let mut at = from.ceil();
    let mut marks = Vec::new();
    while at <= to + 1e-6 {
        marks.push(at);
        at += step;
    }
    marks
}

fn binary_bytes(exponent: f64) -> String {
    let mut rest = exponent;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if rest < 10.0 {
            return format!("{:.0} {unit}", rest.exp2());
        }
        rest -= 10.0;
    }
    format!("{:.0} TiB", rest.exp2())
}

/// Lines over the width of the page; y begins at 0. `bytes`: x is in bytes, on a logarithmic axis.
pub fn lines(lines: &[Line], x_title: &str, y_title: &str, bytes: bool) -> String {
    draw_lines(lines, (x_title, y_title), bytes, WIDE)
}

/// The same over half of the page.
pub fn narrow_lines(lines: &[Line], x_title: &str, y_title: &str, bytes: bool) -> String {
    draw_lines(lines, (x_title, y_title), bytes, NARROW)
}

fn draw_lines(lines: &[Line], (x_title, y_title): (&str, &str), bytes: bool, width: f64) -> String {
    let x_of = |x: f64| if bytes { x.max(1.0).log2() } else { x };
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let xs = || all().map(|point| x_of(point.0));
    let x_max = xs().fold(f64::NEG_INFINITY, f64::max);
    if !x_max.is_finite() {
        return "<p class=\"none\">nothing to draw</p>".to_owned();
    }
    let x_min = xs().fold(if bytes { f64::INFINITY } else { 0.0 }, f64::min);
    let x_range = (x_max - x_min).max(1e-9);
    let y_max = ceiling(all().map(|point| point.1).fold(0.0, f64::max));
    let (right, floor) = (width - RIGHT, HEIGHT - BOTTOM);
    let x_at = |x: f64| LEFT + (x - x_min) / x_range * (right - LEFT);
    let y_at = |y: f64| floor - y / y_max * (floor - TOP);
    let mut svg = open(width, HEIGHT, y_title);
    for y in marks(0.0, y_max) {
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
            y_at(y),
            y_at(y)
        );
        write_text(&mut svg, (LEFT - 6.0, y_at(y) + 4.0), "end", &short(y));
    }
    let (marks, label): (_, fn(f64) -> String) = if bytes {
        (binary_marks(x_min, x_max), binary_bytes)
    } else {
        (marks(x_min, x_max), short)
    };
    for mark in marks {
        write_text(&mut svg, (x_at(mark), floor + 15.0), "middle", &label(mark));
    }
    write_text(&mut svg, (right, HEIGHT - 4.0), "end", x_title);
    write_text(&mut svg, (LEFT, 14.0), "start", y_title);
    for (index, line) in lines.iter().enumerate() {
        let place = |point: &(f64, f64)| (x_at(x_of(point.0)), y_at(point.1));
        write_line(&mut svg, line, COLOURS[index % COLOURS.len()], place);
    }
    svg.push_str("</svg>");
    legend(&mut svg, lines.iter().map(|line| line.name.as_str()));
    svg
}

pub(crate) fn write_text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = write!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(text)
    );
}

fn write_line(
    svg: &mut String,
    line: &Line,
    colour: &str,
    place: impl Fn(&(f64, f64)) -> (f64, f64),
) {
    let mut path = String::new();
    for (number, point) in line.points.iter().enumerate() {
        let (x, y) = place(point);
        let _ = write!(path, "{}{x:.1},{y:.1}", if number == 0 { "M" } else { "L" });
    }
    let dash = if line.dashed {
        " stroke-dasharray=\"5 4\""
    } else {
        ""
    };
    let name = escape(&line.name);
    let _ = write!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}><title>{name}</title></path>"
    );
    // Few points are meant to be looked at one by one.
    for point in line.points.iter().filter(|_| line.points.len() <= 24) {
        let (x, y) = place(point);
        let _ = write!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"><title>{name}: {}, {}</title></circle>",
            short(point.0),
            short(point.1)
        );
    }
}

pub(crate) fn open(width: f64, height: f64, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"{}\">",
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

/// Rows of shares that add up to 1, over the width of the page: (name, parts).
pub fn stacked(rows: &[(String, Vec<f64>)], names: &[String]) -> String {
    draw_stacked(rows, names, WIDE)
}

/// The same over half of the page.
pub fn narrow_stacked(rows: &[(String, Vec<f64>)], names: &[String]) -> String {
    draw_stacked(rows, names, NARROW)
}

fn draw_stacked(rows: &[(String, Vec<f64>)], names: &[String], width: f64) -> String {
    const NAMES: f64 = 112.0;
    let mut svg = open(width, 30.0 * rows.len() as f64 + 10.0, "shares");
    for (number, (name, parts)) in rows.iter().enumerate() {
        let y = 6.0 + 30.0 * number as f64;
        write_text(&mut svg, (NAMES - 8.0, y + 15.0), "end", name);
        let total: f64 = parts.iter().sum();
        let mut x = NAMES;
        for (index, part) in parts.iter().enumerate() {
            let share = if total > 0.0 { part / total } else { 0.0 };
            let part_width = share * (width - NAMES - RIGHT);
            let _ = write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.0}\" width=\"{part_width:.1}\" height=\"22\" fill=\"{}\"><title>{}: {:.1} %</title></rect>",
                COLOURS[index % COLOURS.len()],
                escape(names.get(index).map_or("", String::as_str)),
                share * 100.0
            );
            if share > 0.08 {
                // Letters that stand out from light and from dark colours.
                let ink = if matches!(index % COLOURS.len(), 1 | 4 | 5) {
                    "dark"
                } else {
                    "light"
                };
                let _ = write!(
                    svg,
                    "<text class=\"{ink}\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{:.0} %</text>",
                    x + part_width / 2.0,
                    y + 15.0,
                    share * 100.0
                );
            }
            x += part_width;
        }
    }
    svg.push_str("</svg>");
    legend(&mut svg, names.iter().map(String::as_str));
    svg
}
