//! The rules that look at one file alone.

use crate::{Complaint, SourceFile};

/// The longest a Rust file may grow. One idea fits; two do not.
const MAX_LINES: usize = 600;

/// Words that promise work instead of doing it. Written in halves, so that this file may pass its own test.
const LEFTOVERS: [(&str, &str); 7] = [
    (
        concat!("TO", "DO"),
        "do it now, or open an issue and say here what holds today",
    ),
    (
        concat!("FIX", "ME"),
        "fix it, or describe the limit as a fact where the user reads it",
    ),
    (concat!("XX", "X:"), "say what is meant, as a fact"),
    (
        concat!("HA", "CK:"),
        "say why it must be so, and what would let it go",
    ),
    (concat!("to", "do!("), "implement it, or do not offer it"),
    (
        concat!("unimple", "mented!("),
        "return a typed error, or do not offer it",
    ),
    (
        concat!("db", "g!("),
        "remove the print; use the `log` crate for what a user should see",
    ),
];

/// Calls that go around a seam of the engine: what, where it is allowed, why and what instead.
const DOORS: [(&str, &[&str], &str); 8] = [
    (
        "std::fs::",
        &["/storage/"],
        "files are reached through the Storage trait only, so that they can crash in a test",
    ),
    (
        "File::open(",
        &["/storage/"],
        "files are reached through the Storage trait only, so that they can crash in a test",
    ),
    (
        "thread::sleep(",
        &["/storage/", "/sync/restless.rs"],
        "sleep through Storage::sleep, so that simulated time can pass",
    ),
    (
        "Instant::now(",
        &["/storage/"],
        "take the time from Storage::now, so that it can be simulated",
    ),
    (
        "SystemTime::now(",
        &["/storage/"],
        "take the time from Storage::wall_clock, so that it can be simulated",
    ),
    (
        "println!(",
        &[],
        "a library prints nothing; return it, or use the `log` crate",
    ),
    (
        "process::exit(",
        &[],
        "a library ends no process; return an error",
    ),
    (
        ".unwrap()",
        &[],
        "return an error, or use expect with the reason why it cannot fail",
    ),
];

/// The crates whose product code is bound by [`DOORS`].
const ENGINE: [&str; 2] = ["crates/waystation/src/", "crates/waystation-format/src/"];

/// Lines end where their text ends, tabs only where the format asks for them, one newline at the end.
pub(crate) fn whitespace(file: &SourceFile, complaints: &mut Vec<Complaint>) {
    let mut complain = |line: usize, advice: &str| {
        complaints.push(Complaint {
            path: file.path.clone(),
            line,
            advice: advice.to_owned(),
        });
    };
    for (number, line) in file.lines() {
        if line.ends_with([' ', '\t']) {
            complain(number, "remove the white space at the end of the line");
        }
        if file.is_rust() && line.contains('\t') {
            complain(number, "indent with spaces; write \\t inside strings");
        }
    }
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        complain(0, "end the file with exactly one newline");
    }
}

/// Nothing is left for later.
pub(crate) fn leftovers(file: &SourceFile, complaints: &mut Vec<Complaint>) {
    for (number, line) in file.lines() {
        for (word, advice) in LEFTOVERS {
            if contains_word(line, word) {
                let advice = format!("`{word}` was left behind: {advice}");
                complaints.push(Complaint {
                    path: file.path.clone(),
                    line: number,
                    advice,
                });
            }
        }
    }
}

/// A file holds one idea.
pub(crate) fn length(file: &SourceFile, complaints: &mut Vec<Complaint>) {
    let lines = file.text.lines().count();
    if lines > MAX_LINES {
        let advice = format!(
            "{lines} lines are more than {MAX_LINES}: name the second idea in it and give it a module of its own \
             (tests move to a tests.rs beside the code once they pass 150 lines)"
        );
        complaints.push(Complaint {
            path: file.path.clone(),
            line: 0,
            advice,
        });
    }
}

/// A file opens with its chapter: the idea, what holds, the source.
pub(crate) fn chapter(file: &SourceFile, complaints: &mut Vec<Complaint>) {
    let first = file
        .lines()
        .find(|(_, line)| !line.trim().is_empty() && !line.starts_with("#!["));
    if !first.is_some_and(|(_, line)| line.starts_with("//!")) {
        let advice =
            "open the file with a `//!` comment: its idea, its invariants, where they come from"
                .to_owned();
        complaints.push(Complaint {
            path: file.path.clone(),
            line: 1,
            advice,
        });
    }
}

/// The engine reaches the outside world through its seams only. Code below a `#[cfg(test)]` line is free.
pub(crate) fn doors(file: &SourceFile, complaints: &mut Vec<Complaint>) {
    if file.is_test() || !ENGINE.iter().any(|engine| file.path.starts_with(engine)) {
        return;
    }
    for (number, line) in file.lines() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            return;
        }
        if line.trim_start().starts_with("//") {
            continue;
        }
        for (call, allowed, advice) in DOORS {
            let is_allowed = allowed.iter().any(|part| file.path.contains(part));
            if line.contains(call) && !is_allowed {
                let advice = format!("`{call}` goes around a seam: {advice}");
                complaints.push(Complaint {
                    path: file.path.clone(),
                    line: number,
                    advice,
                });
            }
        }
    }
}

/// Whether `line` holds `word` not as a part of a longer word.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_letter(before) && (!word.ends_with(char::is_alphanumeric) || !is_letter(after))
    })
}
