//! Reports as one HTML file: small pictures as SVG text, and the page around them. No scripts, no fonts, nothing
//! fetched, light or dark as the reader has it.

mod page;
mod svg;

pub use page::{page_head, section};
pub use svg::{Line, escape, heat_map, lines, stacked};

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
}
