//! The house rules as a test.
//!
//! What rustfmt and clippy cannot see is checked here: how long files grow, whether a file says what it is
//! about, what was left lying about, which doors to the outside world are used, and whether the book knows
//! every dependency and every island of `unsafe`. Each rule is a pure function from a file to complaints, and
//! a complaint tells what to do, not only what is wrong.
//!
//! The test in `tests/repository.rs` applies them to the repository; a new rule needs a line in [`check`].

mod arrows;
mod book;
mod rules;
mod walk;
mod words;

pub use arrows::check_arrows;
pub use book::{check_contents, check_dependencies, check_links, check_unsafe_islands};
pub use walk::{SourceFile, read_repository};
pub use words::check_words;

/// Something to change: where, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The file, relative to the repository's root.
    pub path: String,
    /// The line, counted from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What to do about it.
    pub advice: String,
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.advice),
            line => write!(f, "{}:{line}: {}", self.path, self.advice),
        }
    }
}

/// Applies every rule that looks at one file alone.
pub fn check(file: &SourceFile) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    rules::whitespace(file, &mut complaints);
    rules::leftovers(file, &mut complaints);
    if file.is_rust() {
        rules::length(file, &mut complaints);
        rules::chapter(file, &mut complaints);
        rules::doors(file, &mut complaints);
    }
    complaints
}

#[cfg(test)]
mod tests;
