//! Wrong calls and broken directories: a sentence on standard error, an exit code, never a panic.

#![allow(
    clippy::format_collect,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small texts and sizes of a test"
)]

use crate::support::{self, Shell};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Every command, for the database `db`.
fn commands(db: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["put", db, "k", "v"],
        vec!["get", db, "k"],
        vec!["scan", db],
        vec!["delete", db, "k"],
        vec!["import", db, "/dev/null"],
        vec!["stats", db],
        vec!["check", db],
        vec!["find", db, "k"],
        vec!["compact", db],
        vec!["export-leveldb", db, "target"],
        vec!["checkpoint", db, "target"],
        vec!["repair", db, "target"],
    ]
}

fn creates(command: &str) -> bool {
    matches!(command, "put" | "import")
}

fn is_read_only(command: &str) -> bool {
    matches!(command, "stats" | "check" | "find")
}

#[test]
fn an_empty_path_is_refused() {
    let shell = Shell::new();
    for command in commands("") {
        shell.fails(2, &command);
    }
    shell.fails(2, &["dump", ""]);
}

#[test]
fn a_missing_database_is_named() {
    let shell = Shell::new();
    for command in commands("missing")
        .iter()
        .filter(|command| !creates(command[0]))
    {
        let said = shell.fails(3, command);
        assert!(said.contains("missing"), "{command:?}: {said}");
        assert!(!shell.path("missing").exists(), "{command:?} made it");
    }
    assert!(shell.fails(3, &["dump", "missing"]).contains("missing"));
}

#[test]
fn a_directory_or_file_that_is_no_database_is_left_alone() {
    let shell = Shell::new();
    fs::create_dir(shell.path("photos")).unwrap();
    fs::write(shell.path("photos/cat.jpg"), b"not a table").unwrap();
    fs::write(shell.path("file"), b"text").unwrap();
    for command in commands("photos")
        .iter()
        .filter(|command| !creates(command[0]))
    {
        shell.fails(3, command);
        assert_eq!(
            fs::read_dir(shell.path("photos")).unwrap().count(),
            1,
            "{command:?} left something"
        );
    }
    for command in commands("file") {
        shell.fails_in(&[3, 5], &command);
    }
    assert!(
        shell
            .fails(3, &["dump", "photos/cat.jpg"])
            .contains("neither")
    );
    shell.fails_in(&[3, 5], &["dump", "photos"]);
}

#[test]
fn a_foreign_or_newer_database_is_refused_with_its_name() {
    let shell = Shell::new();
    for (name, comparator) in [
        ("foreign", "idb_cmp1"),
        ("newer", "waystation/2:leveldb.BytewiseComparator"),
    ] {
        support::write_empty_database(&shell.path(name), comparator);
        for command in commands(name)
            .iter()
            .filter(|command| !is_read_only(command[0]))
        {
            let said = shell.fails(3, command);
            assert!(
                said.contains("format 2") || said.contains("idb_cmp1"),
                "{command:?}: {said}"
            );
        }
        shell.ok(&["stats", name]);
    }
    // Files are looked at nevertheless, and what cannot be judged is said.
    assert!(
        shell
            .ok(&["stats", "foreign"])
            .contains("order      idb_cmp1")
    );
    let said = shell.ok(&["check", "foreign"]);
    assert!(
        said.contains("idb_cmp1") && said.contains("no tool can judge"),
        "{said}"
    );
    assert!(
        shell
            .fails(1, &["find", "foreign", "key"])
            .contains("idb_cmp1")
    );
}

#[test]
fn a_database_in_use_is_refused_and_inspected() {
    let shell = Shell::new();
    shell.ok(&["put", "db", "k", "v"]);
    let owner = shell.hold_open("db");
    for command in commands("db") {
        if is_read_only(command[0]) {
            shell.ok(&command);
        } else {
            let said = shell.fails(3, &command);
            assert!(said.contains("in use"), "{command:?}: {said}");
        }
    }
    drop(owner);
    shell.ok(&["get", "db", "k"]);
}

#[test]
fn a_damaged_table_is_reported_by_file_and_place() {
    let shell = Shell::new();
    let lines: String = (0..20_000)
        .map(|n| format!("key{n:06}\tvalue {n}\n"))
        .collect();
    shell.ok_with_input(&["import", "db", "-"], lines.as_bytes());
    shell.ok(&["compact", "db"]);
    let table = shell.files("db", "ldb").remove(0);
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&table, &bytes).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap();

    let said = shell.fails_saying_on_stdout(4, &["check", "db"]);
    assert!(said.contains(name) && said.contains("at byte"), "{said}");
    let said = shell.fails(4, &["scan", "db"]);
    assert!(said.contains(name) && said.contains("damaged"), "{said}");
    shell.fails_saying_on_stdout(4, &["dump", table.to_str().unwrap()]);
    // Reads elsewhere go on.
    shell.ok(&["get", "db", "key000000"]);

    fs::remove_file(&table).unwrap();
    shell.fails_saying_on_stdout(4, &["check", "db"]);
    let said = shell.fails_in(&[3, 4, 5], &["get", "db", "key000000"]);
    assert!(said.contains(name.trim_end_matches(".ldb")), "{said}");
}

#[test]
fn every_truncated_or_emptied_file_gets_an_error_and_no_panic() {
    let shell = Shell::new();
    let lines: String = (0..2_000)
        .map(|n| format!("key{n:06}\tvalue {n}\n"))
        .collect();
    shell.ok_with_input(&["import", "db", "-"], lines.as_bytes());
    let names: Vec<String> = fs::read_dir(shell.path("db"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in names {
        for keep in [0.0, 0.3, 0.9] {
            support::copy_dir(&shell.path("db"), &shell.path("broken"));
            let path = shell.path("broken").join(&name);
            let length = fs::metadata(&path).unwrap().len();
            fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len((length as f64 * keep) as u64)
                .unwrap();
            for command in commands("broken") {
                shell.does_not_panic(&command);
            }
            shell.does_not_panic(&["dump", path.to_str().unwrap()]);
            fs::remove_dir_all(shell.path("broken")).unwrap();
            let _ = fs::remove_dir_all(shell.path("target"));
        }
    }
}

#[test]
fn random_bytes_in_any_file_get_an_error_and_no_panic() {
    let shell = Shell::new();
    let lines: String = (0..2_000)
        .map(|n| format!("key{n:06}\tvalue {n}\n"))
        .collect();
    shell.ok_with_input(&["import", "db", "-"], lines.as_bytes());
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for entry in fs::read_dir(shell.path("db")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if bytes.is_empty() {
            continue;
        }
        for _ in 0..20 {
            let at = (next() % bytes.len().min(4096) as u64) as usize;
            bytes[at] = next() as u8;
        }
        fs::write(shell.path("noise"), &bytes).unwrap();
        shell.does_not_panic(&["dump", "noise"]);
        let copy = shell.path("copies").join(path.file_name().unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::write(&copy, &bytes).unwrap();
        shell.does_not_panic(&["dump", copy.to_str().unwrap()]);
    }
}

#[test]
fn a_directory_that_cannot_be_written_can_still_be_inspected() {
    let shell = Shell::new();
    shell.ok(&["put", "db", "k", "v"]);
    let Some(user) = support::unprivileged() else {
        return;
    };
    fs::set_permissions(shell.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(shell.path("db"), fs::Permissions::from_mode(0o555)).unwrap();
    for entry in fs::read_dir(shell.path("db")).unwrap() {
        fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o444)).unwrap();
    }
    for command in commands("db") {
        if is_read_only(command[0]) {
            shell.ok_as(user, &command);
        } else {
            let said = shell.fails_as(user, 3, &command);
            assert!(said.contains("ermission denied"), "{command:?}: {said}");
        }
    }
    fs::set_permissions(shell.path("db"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_stands_for_no_bytes_and_unknown_arguments_are_explained() {
    let shell = Shell::new();
    assert!(
        shell
            .fails(2, &["put", "db", r"a\q", "v"])
            .contains("backslash")
    );
    assert!(
        shell
            .fails(2, &["put", "--hex", "db", "abc", "00"])
            .contains("pairs")
    );
    assert!(shell.fails(2, &["frobnicate"]).contains("unrecognized"));
    shell.fails(2, &["scan", "db", "--prefix", "a", "--from", "b"]);
    shell.fails(2, &["export-leveldb", "db", "x", "--compression", "zstd"]);
    assert!(
        shell
            .fails(3, &["import", "db", "missing.tsv"])
            .contains("missing.tsv")
    );
    assert!(shell.ok(&["--help"]).contains("Exit codes"));
}

#[test]
fn the_compaction_engine_says_what_it_does_not_take() {
    let shell = Shell::new();
    let missing = shell.fails_in(&[2, 3], &["--json", "ip", "run", "missing.ldb"]);
    assert!(
        missing.contains("missing.ldb")
            || missing.contains("no engine")
            || missing.contains("verilator"),
        "{missing}"
    );
    let size = shell.fails(2, &["ip", "run", "-N", "77", "missing.ldb"]);
    assert!(
        size.contains("no engine with 77 inputs") || size.contains("verilator"),
        "{size}"
    );
    let many = shell.fails(2, &["ip", "run", "-N", "1", "a.ldb", "b.ldb"]);
    assert!(many.contains("2 inputs for an engine of 1"), "{many}");
}
