//! Each rule complains about what it is for, and about nothing else.

use super::*;

fn rust(path: &str, text: &str) -> SourceFile {
    SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

fn advice(file: &SourceFile) -> Vec<String> {
    check(file).iter().map(ToString::to_string).collect()
}

#[test]
fn a_tidy_file_passes() {
    let file = rust(
        "crates/waystation/src/a.rs",
        "//! An idea.\n\n/// Adds.\npub fn add() {}\n",
    );
    assert_eq!(advice(&file), Vec::<String>::new());
}

#[test]
fn a_file_without_a_chapter_is_told_to_open_with_one() {
    let found = advice(&rust("crates/a/src/a.rs", "use std::io;\n"));
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("open the file with"), "{found:?}");
}

#[test]
fn leftovers_are_found_as_words_only() {
    let word = concat!("TO", "DO");
    let found = check(&rust(
        "crates/a/src/a.rs",
        &format!("//! A.\n// {word} later\n// MAS{word}NS\n"),
    ));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].line, 2);
}

#[test]
fn long_files_are_told_to_split() {
    let text = format!("//! A.\n{}", "// line\n".repeat(600));
    assert!(advice(&rust("crates/a/src/a.rs", &text))[0].contains("601 lines"));
}

#[test]
fn the_engine_may_not_go_around_its_seams_but_its_tests_may() {
    let text = "//! A.\nfn a() { std::fs::remove_file(p); }\n";
    assert_eq!(check(&rust("crates/waystation/src/db/a.rs", text)).len(), 1);
    assert_eq!(
        check(&rust("crates/waystation/src/storage/os.rs", text)).len(),
        0
    );
    assert_eq!(
        check(&rust("crates/waystation/src/db/tests.rs", text)).len(),
        0
    );
    assert_eq!(
        check(&rust("crates/waystation-cli/src/main.rs", text)).len(),
        0
    );
    let below = format!(
        "//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n",
        "fn a() { x.unwrap(); }\n"
    );
    assert_eq!(
        check(&rust("crates/waystation/src/db/a.rs", &below)).len(),
        0
    );
}

#[test]
fn white_space_and_the_last_newline_are_watched() {
    let found = check(&rust("docs/a.md", "text \nmore"));
    assert_eq!(
        found
            .iter()
            .map(|complaint| complaint.line)
            .collect::<Vec<_>>(),
        [1, 0]
    );
}

#[test]
fn a_dependency_needs_its_line_in_the_book() {
    let manifest = rust(
        "crates/a/Cargo.toml",
        "[dependencies]\nserde.workspace = true\nnew = \"1\"\n\n[lints]\nx = 1\n",
    );
    let page = rust("docs/dependencies.md", "| `serde` | data |\n");
    let found = check_dependencies(&[manifest, page]);
    assert_eq!(found.len(), 1);
    assert!(found[0].advice.contains("`new`"));
}

#[test]
fn an_island_of_unsafe_needs_its_proof_in_the_book() {
    let island = rust(
        "crates/a/src/a.rs",
        "//! A.\n#![expect(unsafe_code, reason = \"r\")]\n",
    );
    assert_eq!(check_unsafe_islands(std::slice::from_ref(&island)).len(), 1);
    let page = rust("docs/unsafe.md", "`crates/a/src/a.rs`\n");
    assert_eq!(check_unsafe_islands(&[island, page]).len(), 0);
}

#[test]
fn a_link_must_lead_somewhere() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = "[a](src/lib.rs#top) and [b](missing.md), [c](https://example.org), [d](#here)\n";
    let found = check_links(root, &[rust("README.md", text)]);
    assert_eq!(found.len(), 2);
    assert!(found[0].advice.contains("missing.md"));
    assert!(found[1].advice.contains("no heading `#here`"));
}

#[test]
fn a_link_names_a_heading_as_the_book_writes_it() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = "# The `file`, and its name\n[up](#the-file-and-its-name)\n[no](docs/../README.md#the-file)\n";
    let found = check_links(root, &[rust("README.md", text)]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].line, 3);
}

#[test]
fn a_page_must_stand_in_the_table_of_contents() {
    let contents = rust("docs/SUMMARY.md", "- [A](a.md)\n- [B](parts/b.md)\n");
    let pages = ["docs/a.md", "docs/parts/b.md", "docs/parts/c.md"].map(|path| rust(path, "# P\n"));
    let found = check_contents(&[&[contents][..], &pages].concat());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "docs/parts/c.md");
}
