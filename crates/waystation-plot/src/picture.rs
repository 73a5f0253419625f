//! Pictures that stand alone, as files: with their own style, title and legend inside. Their values may lie apart by
//! powers of ten.

use crate::svg::{COLOURS, Line, RIGHT, marks, open, short, write_text};
use std::fmt::Write as _;

/// Light or dark as the reader has it.
const STYLE: &str = "<style>svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#5b6068}\
text.title{font-size:15px;fill:#1c1e21}line{stroke:#d9dce1}\
@media(prefers-color-scheme:dark){svg{background:#16181b}text{fill:#a3a9b3}text.title{fill:#e8eaed}line{stroke:#3a3e45}}</style>";

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
/// Where what is drawn begins, below title and legend.
const TOP: f64 = 64.0;
const FOOT: f64 = 40.0;
/// Space for the names of groups of bars.
const NAMES: f64 = 190.0;
/// Space for the figures behind bars.
const FIGURES: f64 = 110.0;
const BAR: f64 = 16.0;

/// Bars that are compared with each other.
pub struct Group {
    /// What they show.
    pub name: String,
    /// Name, length and the figure behind it. The same names have the same colour in all groups.
    pub bars: Vec<(String, f64, String)>,
}

/// An axis.
struct Axis {
    from: f64,
    to: f64,
    is_logarithmic: bool,
}

impl Axis {
    /// One that holds all of `values`, from 0 on or between powers of ten.
    fn around(values: impl Iterator<Item = f64> + Clone, is_logarithmic: bool) -> Self {
        let finite = values.filter(|it| it.is_finite());
        let largest = finite.clone().fold(0.0, f64::max);
        if !is_logarithmic {
            let to = if largest > 0.0 { largest } else { 1.0 };
            return Self {
                from: 0.0,
                to,
                is_logarithmic,
            };
        }
        let smallest = finite.filter(|it| *it > 0.0).fold(f64::INFINITY, f64::min);
        let (low, high) = if largest > 0.0 {
            (smallest.log10().floor(), largest.log10().ceil())
        } else {
            (0.0, 1.0)
        };
        Self {
            from: low,
            to: high.max(low + 1.0),
            is_logarithmic,
        }
    }

    /// Where `value` lies on it, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let at = if self.is_logarithmic {
            value.max(1e-30).log10()
        } else {
            value
        };
        ((at - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    /// Values to be marked.
    fn marks(&self) -> Vec<f64> {
        if !self.is_logarithmic {
            return marks(self.from, self.to);
        }
        let mut exponent = self.from;
        let mut powers = Vec::new();
        while exponent <= self.to {
            powers.push(10_f64.powf(exponent));
            exponent += 1.0;
        }
        powers
    }
}

fn begin(height: f64, title: &str) -> String {
    let mut svg = open(WIDTH, height, title);
    svg.push_str(STYLE);
    let _ = write!(
        svg,
        "<text class=\"title\" x=\"16\" y=\"22\">{}</text>",
        crate::escape(title)
    );
    svg
}

fn legend<'a>(svg: &mut String, names: impl Iterator<Item = &'a str>) {
    let mut x = 16.0;
    for (number, name) in names.enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let _ = write!(
            svg,
            "<rect x=\"{x:.0}\" y=\"34\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
        );
        write_text(svg, (x + 15.0, 43.0), "start", name);
        x += 32.0 + 6.8 * name.chars().count() as f64;
    }
}

fn rule(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = write!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

/// Groups of bars, one below the other.
pub fn bar_picture(
    title: &str,
    axis_title: &str,
    groups: &[Group],
    is_logarithmic: bool,
) -> String {
    let all = || groups.iter().flat_map(|group| &group.bars);
    let axis = Axis::around(all().map(|bar| bar.1), is_logarithmic);
    let mut names: Vec<&str> = Vec::new();
    for (name, ..) in all() {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    let rows = all().count() as f64 * BAR + groups.len() as f64 * 14.0;
    let floor = TOP + rows;
    let mut svg = begin(floor + FOOT, title);
    legend(&mut svg, names.iter().copied());
    let x_at = |value: f64| NAMES + axis.place(value) * (WIDTH - NAMES - FIGURES);
    for mark in axis.marks() {
        rule(&mut svg, (x_at(mark), TOP), (x_at(mark), floor));
        write_text(&mut svg, (x_at(mark), floor + 15.0), "middle", &short(mark));
    }
    write_text(&mut svg, (WIDTH - RIGHT, floor + 32.0), "end", axis_title);
    let mut y = TOP + 4.0;
    for group in groups {
        write_text(&mut svg, (NAMES - 10.0, y + 12.0), "end", &group.name);
        for (name, length, figure) in &group.bars {
            let number = names.iter().position(|it| it == name).unwrap_or(0);
            let colour = COLOURS[number % COLOURS.len()];
            let width = (x_at(*length) - NAMES).max(1.0);
            let _ = write!(
                svg,
                "<rect x=\"{NAMES}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{:.0}\" fill=\"{colour}\"/>",
                BAR - 3.0
            );
            write_text(&mut svg, (NAMES + width + 6.0, y + 11.0), "start", figure);
            y += BAR;
        }
        y += 14.0;
    }
    svg.push_str("</svg>\n");
    svg
}

/// Lines over an axis that begins at 0.
pub fn line_picture(
    title: &str,
    (x_title, y_title): (&str, &str),
    lines: &[Line],
    is_logarithmic: bool,
) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_axis = Axis::around(points().map(|point| point.0), false);
    let y_axis = Axis::around(points().map(|point| point.1), is_logarithmic);
    let (right, floor) = (WIDTH - RIGHT, HEIGHT - FOOT);
    let mut svg = begin(HEIGHT, title);
    legend(&mut svg, lines.iter().map(|line| line.name.as_str()));
    let x_at = |x: f64| LEFT + x_axis.place(x) * (right - LEFT);
    let y_at = |y: f64| floor - y_axis.place(y) * (floor - TOP);
    for mark in y_axis.marks() {
        rule(&mut svg, (LEFT, y_at(mark)), (right, y_at(mark)));
        let place = (LEFT - 6.0, y_at(mark) + 4.0);
        write_text(&mut svg, place, "end", &short(mark));
    }
    for mark in x_axis.marks() {
        write_text(&mut svg, (x_at(mark), floor + 15.0), "middle", &short(mark));
    }
    write_text(&mut svg, (right, HEIGHT - 8.0), "end", x_title);
    write_text(&mut svg, (LEFT, HEIGHT - 8.0), "start", y_title);
    for (number, line) in lines.iter().enumerate() {
        let mut path = String::new();
        for (at, (x, y)) in line.points.iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1},{:.1}", x_at(*x), y_at(*y));
        }
        let dash = if line.dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let colour = COLOURS[number % COLOURS.len()];
        let _ = write!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>"
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_one_name_have_one_colour_and_lengths_by_powers() {
        let group = |name: &str, bars: &[(&str, f64)]| Group {
            name: name.to_owned(),
            bars: (bars.iter())
                .map(|(name, length)| ((*name).to_owned(), *length, format!("{length} ms")))
                .collect(),
        };
        let groups = [
            group("first", &[("a", 0.01), ("b", 100.0)]),
            group("then", &[("b", 1.0)]),
        ];
        let drawn = bar_picture("seeks <1>", "ms", &groups, true);
        assert!(drawn.starts_with("<svg xmlns=") && drawn.ends_with("</svg>\n"));
        assert!(drawn.contains("seeks &lt;1&gt;") && drawn.contains(">100 ms<"));
        // The legend and two bars.
        assert_eq!(drawn.matches(COLOURS[1]).count(), 3);
        // From 0.01 to 100 there are four powers of ten; 1 lies in the middle.
        let half = (WIDTH - NAMES - FIGURES) / 2.0;
        assert!(drawn.contains(&format!("width=\"{half:.1}\"")), "{drawn}");
    }

    #[test]
    fn lines_stay_inside_whatever_their_values() {
        let line = |points: &[(f64, f64)]| Line {
            name: "x".to_owned(),
            points: points.to_vec(),
            dashed: false,
        };
        let odd = [line(&[(0.0, 0.0), (5.0, -3.0), (10.0, 1e9)])];
        for is_logarithmic in [false, true] {
            let drawn = line_picture("t", ("s", "us"), &odd, is_logarithmic);
            assert!(drawn.contains("M64.0,300.0L448.0,300.0L832.0,"), "{drawn}");
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
        }
        assert!(line_picture("t", ("s", "us"), &[], true).contains("</svg>"));
    }
}
