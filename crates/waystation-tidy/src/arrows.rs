//! The rule about arrows: inside the engine a room imports from the rooms below it in the map of `ARCHITECTURE.md`.
//!
//! The map is the table: a line of six spaces, a room and a word about it. Tests may import from everywhere.

use crate::{Complaint, SourceFile};

const MAP: &str = "ARCHITECTURE.md";
const ENGINE: &str = "crates/waystation/src/";
/// The rooms of the map are indented by so much, crates by less.
const INDENT: &str = "      ";

/// Every room of the engine is in the map, and imports from rooms below it.
pub fn check_arrows(files: &[SourceFile]) -> Vec<Complaint> {
    let rooms = rooms(files);
    let engine = files.iter().filter(|file| file.path.starts_with(ENGINE));
    engine
        .filter(|file| file.is_rust() && !is_test(&file.path))
        .flat_map(|file| complaints_about(file, &rooms))
        .collect()
}

/// The rooms of the map, from the top.
fn rooms(files: &[SourceFile]) -> Vec<&str> {
    let map = files.iter().find(|file| file.path == MAP);
    let lines = map.into_iter().flat_map(|map| map.text.lines());
    lines
        .filter_map(|line| line.strip_prefix(INDENT))
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.ends_with("model_storage.rs")
}

/// The room of a file below the engine's sources; `None` for the crate's face, which shows them all.
fn room_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix(ENGINE)?;
    let first = inside.split('/').next()?;
    let room = first.strip_suffix(".rs").unwrap_or(first);
    (room != "lib").then_some(room)
}

fn complaints_about(file: &SourceFile, rooms: &[&str]) -> Vec<Complaint> {
    let Some(room) = room_of(&file.path) else {
        return Vec::new();
    };
    let complaint = |line, advice| Complaint {
        path: file.path.clone(),
        line,
        advice,
    };
    let Some(own) = rooms.iter().position(|it| *it == room) else {
        let advice = format!(
            "the room `{room}` is not in the map of {MAP}: add it above the rooms it imports from"
        );
        return vec![complaint(0, advice)];
    };
    let mut complaints = Vec::new();
    for (line, text) in file.lines() {
        // The tests at the end of a file.
        if text.starts_with("mod tests {") {
            break;
        }
        let code = text.split("//").next().unwrap_or_default();
        for imported in code.split("crate::").skip(1) {
            let end = imported.find(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
            let name = &imported[..end.unwrap_or(imported.len())];
            match rooms.iter().position(|it| *it == name) {
                Some(below) if below >= own => {}
                Some(_) => complaints.push(complaint(
                    line,
                    format!("`{room}` imports from `{name}`, which lies above it in the map of {MAP}: move what both need below them"),
                )),
                None => complaints.push(complaint(
                    line,
                    format!("import `{name}` from its room, not from the crate's face"),
                )),
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn told(path: &str, text: &str) -> Vec<String> {
        let map = file(MAP, "  engine\n      db   the handle\n      log  the log\n");
        let files = [map, file(&format!("{ENGINE}{path}"), text)];
        check_arrows(&files)
            .into_iter()
            .map(|it| it.advice)
            .collect()
    }

    #[test]
    fn arrows_point_down() {
        assert!(told("db/get.rs", "use crate::log::Log;").is_empty());
        assert!(told("db/get.rs", "use crate::db::open;").is_empty());
        let up = told("log/ring.rs", "use crate::log::a;\nuse crate::db::open;");
        assert!(
            matches!(&up[..], [one] if one.contains("above it")),
            "{up:?}"
        );
        let face = told("log/ring.rs", "use crate::Db;");
        assert!(
            matches!(&face[..], [one] if one.contains("face")),
            "{face:?}"
        );
        let unknown = told("attic.rs", "");
        assert!(
            matches!(&unknown[..], [one] if one.contains("not in the map")),
            "{unknown:?}"
        );
    }

    #[test]
    fn tests_comments_and_the_face_may_name_all() {
        assert!(told("log/tests/a.rs", "use crate::db::open;").is_empty());
        assert!(told("log/ring.rs", "/// See [`crate::db`].").is_empty());
        assert!(
            told(
                "log/ring.rs",
                "#[cfg(test)]\nmod tests { use crate::db::open; }"
            )
            .is_empty()
        );
        assert!(told("lib.rs", "use crate::db::Db;").is_empty());
        assert!(!told("log/mod.rs", "#[cfg(test)]\nmod tests;\nuse crate::db::Db;").is_empty());
    }
}
