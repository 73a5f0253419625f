//! The list of mutants: which text of which file becomes what.
//!
//! All of them are put into one copy of the source as switches, of which a run turns one on: so the copy is built once.
//! In a replacement `{on}` stands for the question whether its mutant is on, and `{hold}` for a call that sometimes holds
//! the thread up: a mistake that shows only if another thread gets in between needs one there.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The list, read from `mutants.toml`.
#[derive(Debug, Deserialize)]
pub(crate) struct List {
    #[serde(rename = "mutant")]
    pub(crate) mutants: Vec<Mutant>,
}

/// One mistake.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    pub(crate) edit: Vec<Edit>,
    /// Tests that are to find it; the first that does ends its run.
    #[serde(default = "simulation")]
    pub(crate) tests: Vec<String>,
    /// Why no test finds it, if that is so.
    pub(crate) survives: Option<String>,
}

/// One place of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// A source file of the engine, below `crates/waystation/src`.
    file: PathBuf,
    /// Text that stands there once.
    find: String,
    replace: String,
}

fn simulation() -> Vec<String> {
    vec!["simulation".to_owned()]
}

/// The files that change, with their new content; or all that does not fit.
pub(crate) type Changed = Result<BTreeMap<PathBuf, String>, Vec<String>>;

impl List {
    /// The list of this crate.
    pub(crate) fn read() -> Result<Self, String> {
        toml::from_str(include_str!("../mutants.toml")).map_err(|error| error.to_string())
    }

    /// Puts every mutant into the source below `source`.
    pub(crate) fn apply(&self, source: &Path) -> Changed {
        let mut by_file: BTreeMap<&Path, Vec<(&str, &Edit)>> = BTreeMap::new();
        for mutant in &self.mutants {
            for edit in &mutant.edit {
                let edits = by_file.entry(&edit.file).or_default();
                edits.push((&mutant.name, edit));
            }
        }
        let (mut changed, mut misfits) = (BTreeMap::new(), Vec::new());
        for (file, edits) in by_file {
            match std::fs::read_to_string(source.join(file)) {
                Ok(text) => match apply_all(&text, &edits) {
                    Ok(text) => drop(changed.insert(file.to_owned(), text)),
                    Err(some) => misfits.extend(some),
                },
                Err(error) => misfits.push(format!("{}: {error}", file.display())),
            }
        }
        if misfits.is_empty() {
            Ok(changed)
        } else {
            Err(misfits)
        }
    }
}

/// `text` with all `edits`, each of which is named by its mutant.
fn apply_all(text: &str, edits: &[(&str, &Edit)]) -> Result<String, Vec<String>> {
    let mut places = Vec::new();
    let mut misfits = Vec::new();
    for (name, edit) in edits {
        let mut found = text.match_indices(&edit.find);
        match (found.next(), found.next()) {
            (Some((at, _)), None) => places.push((at, *name, *edit)),
            (None, _) => misfits.push(format!(
                "{name}: not in {}: {}",
                edit.file.display(),
                edit.find
            )),
            _ => misfits.push(format!(
                "{name}: twice in {}: {}",
                edit.file.display(),
                edit.find
            )),
        }
    }
    places.sort_by_key(|place| place.0);
    let (mut out, mut end) = (String::new(), 0);
    for (at, name, edit) in places {
        if at < end {
            misfits.push(format!(
                "{name}: overlaps another one in {}",
                edit.file.display()
            ));
            continue;
        }
        out.push_str(&text[end..at]);
        let is_on = format!("crate::mutants::is_on(\"{name}\")");
        let replaced = edit.replace.replace("{on}", &is_on);
        out.push_str(&replaced.replace("{hold}", "crate::mutants::hold_up();"));
        end = at + edit.find.len();
    }
    out.push_str(&text[end..]);
    if misfits.is_empty() {
        Ok(out)
    } else {
        Err(misfits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of the engine that moves such a place moves it here, too.
    #[test]
    fn every_mutant_fits_the_source() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../waystation/src");
        let list = List::read().expect("the list can be read");
        if let Err(misfits) = list.apply(&source) {
            panic!("{}", misfits.join("\n"));
        }
        let mut names: Vec<_> = list.mutants.iter().map(|it| &it.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), list.mutants.len(), "two have the same name");
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let edit = |find: &str| Edit {
            file: "a.rs".into(),
            find: find.to_owned(),
            replace: "[{on}]{hold}".to_owned(),
        };
        let (once, twice, never) = (edit("b"), edit("a"), edit("c"));
        let applied = apply_all("aba", &[("one", &once)]).expect("fits");
        assert_eq!(
            applied,
            "a[crate::mutants::is_on(\"one\")]crate::mutants::hold_up();a"
        );
        for misfit in [&twice, &never] {
            assert_eq!(
                apply_all("aba", &[("one", misfit)]).map_err(|it| it.len()),
                Err(1)
            );
        }
        let wide = edit("ba");
        assert!(apply_all("aba", &[("one", &once), ("two", &wide)]).is_err());
    }
}
