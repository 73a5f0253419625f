//! Which files the rules read: every text file of the repository, and nothing that was built or given.

use std::fs;
use std::io;
use std::path::Path;

/// Directories that hold what was built, measured or given, by name anywhere in the tree.
const SKIPPED_DIRECTORIES: [&str; 7] = [
    ".git",
    "target",
    "data",
    "testdata",
    "corpus",
    "artifacts",
    "node_modules",
];
/// Endings of files the rules understand.
const ENDINGS: [&str; 8] = ["rs", "toml", "md", "sh", "mk", "sv", "v", "yml"];
/// Files the rules understand although their names have no ending.
const NAMES: [&str; 2] = ["Makefile", "run"];

/// A text file of the repository.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// The path relative to the repository's root, with forward slashes.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl SourceFile {
    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.has_ending("rs")
    }

    /// Whether the name ends in a dot and `ending`.
    pub fn has_ending(&self, ending: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|other| other == ending)
    }

    /// Whether it is only ever compiled for tests, or is a tool beside the engine: what the rules for the
    /// engine's own code do not bind.
    pub fn is_test(&self) -> bool {
        let path = &self.path;
        path.contains("/tests/")
            || path.contains("/benches/")
            || path.contains("/examples/")
            || path.ends_with("tests.rs")
            || path.ends_with("build.rs")
    }

    /// The lines, counted from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

/// Reads every file the rules understand below `root`, in the order of their paths.
pub fn read_repository(root: &Path) -> io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                if !SKIPPED_DIRECTORIES.contains(&name.as_str()) {
                    pending.push(path);
                }
                continue;
            }
            let ending = path
                .extension()
                .and_then(|ending| ending.to_str())
                .unwrap_or_default();
            if ENDINGS.contains(&ending) || NAMES.contains(&name.as_str()) {
                let relative = path.strip_prefix(root).unwrap_or(&path);
                files.push(SourceFile {
                    path: relative.to_string_lossy().replace('\\', "/"),
                    text: fs::read_to_string(&path)?,
                });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
