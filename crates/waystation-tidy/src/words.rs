//! The rule about words: the engine's source keeps to the glossary of `ARCHITECTURE.md`.
//!
//! The table under the heading [`HEADING`] is the list: words and phrases that do not stand in the engine, and the words that
//! do. Whole words count, in code and in comments, whatever their case.

use crate::{Complaint, SourceFile};

const GLOSSARY: &str = "ARCHITECTURE.md";
const HEADING: &str = "### Instead of";
const ENGINE: &str = "crates/waystation/src/";

/// No file of the engine uses a word that the glossary replaces.
pub fn check_words(files: &[SourceFile]) -> Vec<Complaint> {
    let replaced = replaced_words(files);
    if replaced.is_empty() {
        return vec![Complaint {
            path: GLOSSARY.to_owned(),
            line: 0,
            advice: format!(
                "a table under `{HEADING}` names the words that the engine does not use"
            ),
        }];
    }
    let sources = files.iter().filter(|file| file.path.starts_with(ENGINE));
    sources
        .flat_map(|file| complaints_about(file, &replaced))
        .collect()
}

/// Each replaced word or phrase in lower case, with the words to write.
fn replaced_words(files: &[SourceFile]) -> Vec<(String, String)> {
    let glossary = files.iter().find(|file| file.path == GLOSSARY);
    let lines = glossary.into_iter().flat_map(|file| file.text.lines());
    let rows = lines
        .skip_while(|line| *line != HEADING)
        .filter_map(|line| {
            line.strip_prefix("| ")?
                .strip_suffix(" |")?
                .split_once(" | ")
        })
        // The table's own heading.
        .skip(1);
    let words = rows.flat_map(|(words, instead)| {
        let words = words.split(", ");
        words.map(move |word| (word.to_lowercase(), instead.to_owned()))
    });
    words.collect()
}

fn complaints_about(file: &SourceFile, replaced: &[(String, String)]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (number, line) in file.lines() {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let words: Vec<String> = words.map(str::to_lowercase).collect();
        let text = format!(" {} ", words.join(" "));
        let found = replaced
            .iter()
            .filter(|(word, _)| text.contains(&format!(" {word} ")));
        complaints.extend(found.map(|(word, instead)| Complaint {
            path: file.path.clone(),
            line: number,
            advice: format!("`{word}` is not in the glossary of {GLOSSARY}: write {instead}"),
        }));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let glossary = "# Words\n\n### Instead of\n\n| not | but |\n|---|---|\n| plot, ground, those that | graves |\n";
        let file = |path: &str, text: &str| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let files = [file(GLOSSARY, glossary), file(path, text)];
        let found = check_words(&files);
        found.into_iter().map(|it| it.to_string()).collect()
    }

    #[test]
    fn a_replaced_word_is_found_in_any_case_and_only_as_a_word() {
        let found = complaints(
            "crates/waystation/src/a.rs",
            "struct Plot;\n// on the ground\nlet plotted = backgrounds;\n",
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains(":1: `plot`") && found[0].contains("write graves"));
        assert!(found[1].contains(":2: `ground`"), "{found:?}");
    }

    #[test]
    fn a_replaced_phrase_is_found() {
        let found = complaints(
            "crates/waystation/src/a.rs",
            "/// Those that wait.\n/// Of those, that one.\n/// Whose that is.\n",
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(":1: `those that`"), "{found:?}");
    }

    #[test]
    fn other_crates_have_their_own_words() {
        assert!(complaints("crates/waystation-plot/src/a.rs", "struct Plot;").is_empty());
    }

    #[test]
    fn a_glossary_without_the_table_is_a_complaint() {
        assert_eq!(check_words(&[]).len(), 1);
    }
}
