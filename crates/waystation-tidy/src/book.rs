//! The rules that compare the code with the book: dependencies and islands of `unsafe`; and the book with
//! itself: its links, their headings, and its table of contents.

use crate::{Complaint, SourceFile};
use std::path::Path;

/// Every dependency of every crate has its line in `docs/dependencies.md`.
pub fn check_dependencies(files: &[SourceFile]) -> Vec<Complaint> {
    let page = page(files, "docs/dependencies.md");
    let mut complaints = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.path.ends_with("Cargo.toml"))
    {
        for (line, name) in dependencies(file) {
            if !name.starts_with("waystation") && !page.contains(&format!("`{name}`")) {
                let advice = format!(
                    "`{name}` is new: add one line to docs/dependencies.md that says why it is worth its weight"
                );
                complaints.push(Complaint {
                    path: file.path.clone(),
                    line,
                    advice,
                });
            }
        }
    }
    complaints
}

/// Every file with unsafe code is described, with its proof, in `docs/unsafe.md`.
pub fn check_unsafe_islands(files: &[SourceFile]) -> Vec<Complaint> {
    let page = page(files, "docs/unsafe.md");
    let mut complaints = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.is_rust() && !file.path.starts_with("crates/waystation-tidy/"))
    {
        let island = file
            .lines()
            .find(|(_, line)| line.contains("expect(unsafe_code") || line.contains("unsafe_code,"));
        if let Some((line, _)) = island
            && !page.contains(&format!("`{}`", file.path))
        {
            let advice = format!(
                "an island of unsafe code: name `{}` in docs/unsafe.md with what proves it sound",
                file.path
            );
            complaints.push(Complaint {
                path: file.path.clone(),
                line,
                advice,
            });
        }
    }
    complaints
}

/// Every relative link of a page leads to a file that is there, and to a heading of it.
pub fn check_links(root: &Path, files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.has_ending("md")) {
        for (line, target) in links(file) {
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let target_path = resolve(&file.path, path);
            let page = files.iter().find(|it| it.path == target_path);
            let advice = if page.is_none() && !root.join(&target_path).exists() {
                format!("the link to {target} leads nowhere: write that page, or link to another")
            } else if page.is_some_and(|page| page.has_ending("md") && !has_heading(page, heading))
            {
                format!("{target_path} has no heading `#{heading}`: link to one that it has")
            } else {
                continue;
            };
            complaints.push(Complaint {
                path: file.path.clone(),
                line,
                advice,
            });
        }
    }
    complaints
}

/// Every page of the book stands in its table of contents, `docs/SUMMARY.md`.
pub fn check_contents(files: &[SourceFile]) -> Vec<Complaint> {
    const CONTENTS: &str = "docs/SUMMARY.md";
    let contents = files.iter().find(|file| file.path == CONTENTS);
    let listed: Vec<String> = contents
        .map(|file| {
            links(file)
                .map(|(_, path)| resolve(CONTENTS, path))
                .collect()
        })
        .unwrap_or_default();
    let is_page = |file: &&SourceFile| {
        file.path.starts_with("docs/") && file.has_ending("md") && file.path != CONTENTS
    };
    files
        .iter()
        .filter(is_page)
        .filter(|file| !listed.contains(&file.path))
        .map(|file| Complaint {
            path: file.path.clone(),
            line: 0,
            advice: format!("the book does not list this page: give it a line in {CONTENTS}"),
        })
        .collect()
}

/// The path that `link` names in the file `from`; both relative to the repository's root.
fn resolve(from: &str, link: &str) -> String {
    if link.is_empty() {
        return from.to_owned();
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "" | "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether a page has the heading with the anchor `anchor`; the empty one is the page itself.
fn has_heading(page: &SourceFile, anchor: &str) -> bool {
    let anchor_of = |line: &str| -> String {
        line.trim_start_matches('#')
            .trim()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                '-' | '_' => Some(c),
                _ => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
            })
            .collect()
    };
    anchor.is_empty()
        || page
            .lines()
            .any(|(_, line)| line.starts_with('#') && anchor_of(line) == anchor)
}

/// The targets of links `[text](target)`, with their lines.
fn links(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let targets = |line| {
        let after: Vec<&str> = str::split(line, "](").skip(1).collect();
        after
            .into_iter()
            .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
    };
    file.lines()
        .flat_map(move |(number, line)| targets(line).map(move |target| (number, target)))
}

/// The text of a page, empty if there is none (then everything that should stand there is complained about).
fn page<'a>(files: &'a [SourceFile], path: &str) -> &'a str {
    files
        .iter()
        .find(|file| file.path == path)
        .map_or("", |file| file.text.as_str())
}

/// The names in the dependency sections of a Cargo.toml, with their lines.
fn dependencies(file: &SourceFile) -> Vec<(usize, String)> {
    let mut inside = false;
    let mut names = Vec::new();
    for (number, line) in file.lines() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies");
            if let Some((_, name)) = section.rsplit_once("dependencies.") {
                names.push((number, name.to_owned()));
            }
        } else if inside && let Some((name, _)) = line.split_once(['=', '.']) {
            names.push((number, name.trim().to_owned()));
        }
    }
    names.retain(|(_, name)| !name.is_empty() && !name.starts_with('#'));
    names
}
