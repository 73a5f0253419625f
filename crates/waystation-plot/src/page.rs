//! A page that needs nothing else: head, style, and sections with a title and a sentence.

use crate::svg::escape;
use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1e21;--soft:#5b6068;--paper:#fff;--card:#f6f7f9;--line:#d9dce1}\
@media(prefers-color-scheme:dark){:root{--ink:#e8eaed;--soft:#a3a9b3;--paper:#16181b;--card:#1f2226;--line:#3a3e45}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:74rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin:0 0 .4rem}p{margin:.3rem 0}.soft{color:var(--soft)}\
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(28rem,1fr));gap:1rem}\
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:1rem;margin:1rem 0;overflow-x:auto}\
.grid2 section{margin:0}svg{width:100%;height:auto;font-size:12px}svg text{fill:var(--soft)}\
svg .light{fill:#fff}svg .dark{fill:#1c1e21}svg .grid{stroke:var(--line)}svg .gap{stroke:var(--soft);stroke-dasharray:1 3}svg .field{fill:var(--paper);stroke:var(--line)}\
table{border-collapse:collapse;width:100%;font-size:.95rem;font-variant-numeric:tabular-nums}td,th{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--line)}\
td,th{white-space:nowrap}td.text{white-space:normal;min-width:11rem}td.text,td:first-child,th:first-child{text-align:left}tr.best td{font-weight:600}.legend span{display:inline-block;white-space:nowrap;margin-right:1rem;font-size:.85rem}.legend i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.35em}\
.note{border-left:4px solid #d55e00;padding-left:.8rem}.answer{font-size:1.15rem}pre{white-space:pre-wrap;background:var(--paper);border:1px solid var(--line);padding:.6rem;border-radius:6px}";

/// The beginning of a page, up to its body; it ends with `</body></html>`.
pub fn page_head(title: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{}</title><style>{STYLE}</style></head><body>",
        escape(title)
    )
}

/// A picture or table (`body`, markup) with its title and what it shows.
pub fn section(page: &mut String, title: &str, text: &str, body: &str) {
    let _ = write!(
        page,
        "<section><h2>{}</h2><p class=\"soft\">{}</p>{body}</section>",
        escape(title),
        escape(text)
    );
}
