//! Reports as one HTML file: small pictures as SVG text, and the page around them; and pictures as files of their own.
//! No scripts, no fonts, nothing fetched, light or dark as the reader has it.

mod heat;
mod page;
mod picture;
mod svg;

pub use heat::{HeatLine, heat_map};
pub use page::{page_head, section};
pub use picture::{Group, bar_picture, line_picture};
pub use svg::{Line, escape, lines, narrow_lines, narrow_stacked, stacked};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_whole_and_its_text_is_safe() {
        let line = Line {
            name: "a<b".into(),
            points: vec![(0.0, 1.0), (10.0, 3.0)],
            dashed: false,
        };
        let drawn = lines(&[line], "s", "MB", false);
        assert!(drawn.contains("<path d=\"M64.0") && drawn.contains("a&lt;b"));
        assert!(!drawn.contains("a<b"));
        assert!(lines(&[], "s", "MB", true).contains("nothing to draw"));
        let mut page = page_head("x & y");
        section(&mut page, "<t>", "s", &drawn);
        assert!(page.contains("<title>x &amp; y</title>") && page.contains("<h2>&lt;t&gt;</h2>"));
    }

    #[test]
    fn marks_are_round_and_powers_of_two_have_their_units() {
        assert_eq!(svg::marks(0.0, 64.0), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(svg::marks(0.0, 1.5), [0.0, 0.5, 1.0, 1.5]);
        assert_eq!(
            [0.0, 0.002, 0.25, 2.5, 250.0].map(svg::short),
            ["0", "2e-3", "0.25", "2.5", "250"]
        );
        let line = Line {
            name: "misses".into(),
            points: vec![(4096.0, 1.0), (f64::from(1 << 30), 0.1)],
            dashed: false,
        };
        let drawn = narrow_lines(&[line], "cache", "misses", true);
        assert!(
            drawn.contains(">4 KiB<") && drawn.contains(">1 GiB<"),
            "{drawn}"
        );
    }

    #[test]
    fn a_heat_map_says_where_something_is_left_out() {
        let row = |from, to, read| HeatLine {
            from,
            to,
            label: format!("at {from}"),
            read,
            written: &[0, 0],
        };
        let whole = heat_map(&[row(0, 8, &[1, 2]), row(8, 16, &[0, 9])], 10.0);
        assert!(!whole.contains("gap") && whole.contains("at 0") && !whole.contains("at 8"));
        let gap = heat_map(&[row(0, 8, &[1, 2]), row(80, 88, &[0, 9])], 10.0);
        assert!(gap.contains("gap") && gap.contains("at 80"));
    }
}
