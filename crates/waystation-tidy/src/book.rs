//! The rules that compare the code with the book: dependencies and islands of `unsafe`; and the book with
//! itself: its links.

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

/// Every relative link of a page leads to something that is there.
pub fn check_links(root: &Path, files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.has_ending("md")) {
        let directory = root
            .join(&file.path)
            .parent()
            .map_or_else(|| root.to_owned(), Path::to_owned);
        for (line, target) in links(file) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains("://") && !directory.join(path).exists() {
                let advice = format!(
                    "the link to {target} leads nowhere: write that page, or link to another"
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

/// The targets of links `[text](target)`, with their lines.
fn links(file: &SourceFile) -> Vec<(usize, &str)> {
    let targets = |line| {
        let after: Vec<&str> = str::split(line, "](").skip(1).collect();
        after
            .into_iter()
            .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
    };
    file.lines()
        .flat_map(|(number, line)| targets(line).map(move |target| (number, target)))
        .collect()
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
