//! The command from outside: what goes in comes out, and every wrong call is answered by a sentence and an
//! exit code, never by a panic.

#![allow(
    clippy::format_collect,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small texts and sizes of a test"
)]

use crate::support::{Shell, text};
use std::fs;

#[test]
fn what_is_put_is_got_scanned_and_deleted() {
    let shell = Shell::new();
    shell.ok(&["put", "db", "b", "2"]);
    shell.ok(&["put", "db", "a", "one two", "--sync"]);
    shell.ok(&["put", "db", r"c\x00\xff", r"tab\there"]);
    assert_eq!(shell.ok(&["get", "db", "a"]), "one two\n");
    assert_eq!(
        shell.ok(&["get", "--hex", "db", "63 00 ff".replace(' ', "").as_str()]),
        "7461620968657265\n"
    );
    assert_eq!(shell.ok(&["get", "--raw", "db", r"c\x00\xff"]), "tab\there");
    assert_eq!(
        shell.ok(&["scan", "db"]),
        "a\tone two\nb\t2\nc\\x00\\xff\ttab\\there\n"
    );
    assert_eq!(
        shell.ok(&["scan", "db", "--reverse", "--keys-only", "--limit", "2"]),
        "c\\x00\\xff\nb\n"
    );
    assert_eq!(
        shell.ok(&["scan", "db", "--from", "b", "--to", "c"]),
        "b\t2\n"
    );
    assert_eq!(
        shell.ok(&["scan", "db", "--prefix", "c"]),
        "c\\x00\\xff\ttab\\there\n"
    );
    assert_eq!(
        shell.ok(&["--json", "scan", "db", "--to", "b"]),
        "{\"key\":\"a\",\"value\":\"one two\"}\n"
    );
    shell.ok(&["delete", "db", "a", "b"]);
    assert_eq!(shell.ok(&["scan", "db", "--keys-only"]), "c\\x00\\xff\n");
    let missing = shell.fails(1, &["get", "db", "a"]);
    assert!(missing.contains("holds no key a"), "{missing}");
}

#[test]
fn a_value_comes_from_standard_input_as_it_is() {
    let shell = Shell::new();
    shell.ok_with_input(&["put", "db", "k", "-"], b"a\n\xff\0");
    assert_eq!(shell.ok(&["get", "--hex", "db", "6b"]), "610aff00\n");
}

#[test]
fn what_is_scanned_imports_into_the_same_database() {
    let shell = Shell::new();
    let lines: String = (0..2_500)
        .map(|n| format!("key{:04}\tvalue\\x0{} {n}\n", n * 7 % 2_500, n % 10))
        .collect();
    let said = shell.ok_with_input(&["import", "db"], lines.as_bytes());
    assert!(said.starts_with("2,500 entries"), "{said}");
    let scanned = shell.ok(&["scan", "db"]);
    assert_eq!(scanned.lines().count(), 2_500);
    fs::write(shell.path("dump.tsv"), &scanned).unwrap();
    shell.ok(&["import", "copy", "dump.tsv", "--batch", "7"]);
    assert_eq!(shell.ok(&["scan", "copy"]), scanned);

    let bad = shell.fails_with_input(2, &["import", "other"], b"a\t1\nno tab\n");
    assert!(bad.contains("line 2") && bad.contains("no tab"), "{bad}");
}

#[test]
fn placement_shows_what_a_fast_directory_holds() {
    let shell = Shell::new();
    shell.ok(&["put", "plain", "a", "1"]);
    let none = shell.fails(3, &["placement", "plain"]);
    assert!(none.contains("no database with a fast directory"), "{none}");
    let fast = waystation::FastTier::new(shell.path("fast"), 8 << 20);
    let options = waystation::Options {
        fast: Some(fast),
        ..waystation::Options::default()
    };
    let db = waystation::Db::open(shell.path("db"), options).unwrap();
    db.put(b"a", b"1").unwrap();
    db.flush().unwrap();
    db.get(b"a").unwrap();
    db.close().unwrap();
    let said = shell.ok(&["placement", "db"]);
    for part in [
        "in use",
        "slow reads",
        "seconds/1000 reads",
        "tables",
        "spill",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&shell.ok(&["--json", "placement", "db"])).unwrap();
    assert_eq!(json["capacity_bytes"], 8 << 20);
    // The report is one more file that the tools know.
    assert!(shell.ok(&["check", "db"]).starts_with("sound: "));
    let report = shell.path("db/PLACEMENT");
    let damaged = fs::read_to_string(&report).unwrap().replacen('8', "9", 1);
    fs::write(&report, damaged).unwrap();
    let told = shell.fails(4, &["placement", "db"]);
    assert!(told.contains("checksum"), "{told}");
}

#[test]
fn stats_check_find_and_dump_show_what_is_in_the_files() {
    let shell = Shell::new();
    let lines: String = (0..20_000)
        .map(|n| format!("key{:06}\t{n} {}\n", n * 7919 % 20_000, "v".repeat(50)))
        .collect();
    shell.ok_with_input(&["import", "db", "-"], lines.as_bytes());
    shell.ok(&["put", "db", "key000007", "changed"]);
    shell.ok(&["delete", "db", "key000008"]);
    // The log tells of it, until another life has left that behind.
    let found = shell.ok(&["find", "db", "key000008"]);
    assert!(
        found.lines().next().unwrap().ends_with("deleted"),
        "{found}"
    );
    shell.ok(&["compact", "db", "--from", "key01", "--to", "key02"]);

    let stats: serde_json::Value =
        serde_json::from_str(&shell.ok(&["--json", "stats", "db"])).unwrap();
    assert!(stats["table_bytes"].as_u64().unwrap() > 10_000, "{stats}");
    assert!(shell.ok(&["stats", "db"]).contains("not included"));

    let report: serde_json::Value =
        serde_json::from_str(&shell.ok(&["--json", "check", "db"])).unwrap();
    assert_eq!(report["problems"].as_array().unwrap().len(), 0);
    assert!(report["entries"].as_u64().unwrap() >= 19_999, "{report}");
    assert!(shell.ok(&["check", "db"]).starts_with("sound: "));

    let found = shell.ok(&["find", "db", "key000007"]);
    assert!(
        found.lines().next().unwrap().ends_with("= changed"),
        "{found}"
    );
    shell.fails(1, &["find", "db", "nothing"]);

    for entry in fs::read_dir(shell.path("db")).unwrap() {
        let path = entry.unwrap().path();
        let dumped = shell.ok(&["dump", "--entries", "3", text(&path)]);
        let is_empty = path.ends_with("LOCK") || path.ends_with("LOG");
        assert!(is_empty || !dumped.is_empty(), "{}", path.display());
        shell.ok(&["--json", "dump", "--entries", "3", text(&path)]);
    }
}

#[test]
fn what_a_damaged_table_does_not_hold_is_saved() {
    let shell = Shell::new();
    let lines: String = (0..5_000).map(|n| format!("key{n:06}\t{n}\n")).collect();
    shell.ok_with_input(&["import", "db", "-"], lines.as_bytes());
    assert_eq!(
        shell.ok(&["repair", "db", "same"]),
        "5,000 entries saved, 0 losses, 0 gaps\n"
    );
    assert_eq!(shell.ok(&["scan", "same"]), lines);
    let table = shell.files("db", "ldb").pop().unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes).unwrap();
    let said = shell.ok(&["repair", "db", "saved"]);
    assert!(
        said.contains("1 gaps") && said.contains("may be missing"),
        "{said}"
    );
    let saved = shell.ok(&["scan", "saved"]);
    let lost = 5_000 - saved.lines().count();
    assert!((1..1_000).contains(&lost), "{lost} lost");
    assert!(saved.lines().all(|line| lines.contains(line)));
    assert!(shell.ok(&["check", "saved"]).starts_with("sound: "));

    fs::remove_file(shell.path("same/CURRENT")).unwrap();
    let said = shell.ok(&["repair", "same", "again"]);
    assert!(
        said.contains("CURRENT") && said.contains("1 losses"),
        "{said}"
    );
    assert_eq!(shell.ok(&["scan", "again"]), lines);
    for entry in fs::read_dir(shell.path("same")).unwrap() {
        let path = entry.unwrap().path();
        if text(&path).contains("MANIFEST") {
            fs::remove_file(path).unwrap();
        }
    }
    let said = shell.fails(4, &["repair", "same", "more"]);
    assert!(said.contains("--accept-resurrection"), "{said}");
    shell.ok(&["repair", "--accept-resurrection", "same", "more"]);
    assert_eq!(shell.ok(&["scan", "more"]), lines);
}

#[test]
fn checkpoints_and_exports_are_databases_of_their_own() {
    let shell = Shell::new();
    let lines: String = (0..5_000).map(|n| format!("key{n:06}\t{n}\n")).collect();
    shell.ok_with_input(&["import", "db", "-"], lines.as_bytes());
    shell.ok(&["checkpoint", "db", "copy"]);
    let exported = shell.ok(&["export-leveldb", "db", "plain"]);
    assert!(exported.starts_with("5,000 entries in "), "{exported}");
    shell.ok(&["put", "db", "key000000", "changed"]);
    let expected: String = lines;
    for other in ["copy", "plain"] {
        assert!(shell.ok(&["check", other]).starts_with("sound: "));
        assert_eq!(shell.ok(&["scan", other]), expected, "{other}");
    }
    let plain: serde_json::Value =
        serde_json::from_str(&shell.ok(&["--json", "stats", "plain"])).unwrap();
    assert_eq!(plain["levels"].as_array().unwrap().len(), 7);
    for command in ["checkpoint", "export-leveldb"] {
        let refused = shell.fails_in(&[2, 3, 5], &[command, "db", "copy"]);
        assert!(refused.contains("copy"), "{refused}");
    }
    let empty = Shell::new();
    empty.ok(&["put", "db", "k", "v"]);
    empty.ok(&["delete", "db", "k"]);
    assert!(
        empty
            .ok(&["export-leveldb", "db", "plain", "--compression", "none"])
            .starts_with("0 entries in 0 tables")
    );
    assert_eq!(empty.ok(&["scan", "plain"]), "");
}

#[test]
fn output_that_nobody_reads_is_no_failure() {
    let shell = Shell::new();
    let lines: String = (0..50_000).map(|n| format!("key{n:06}\t{n}\n")).collect();
    shell.ok_with_input(&["import", "db", "-"], lines.as_bytes());
    let table = shell.files("db", "ldb").pop().unwrap();
    let reading = [
        &["scan", "db"][..],
        &["get", "db", "key000001"],
        &["check", "db"],
        &["stats", "db"],
        &["dump", text(&table)],
    ];
    for arguments in reading {
        assert_eq!(shell.unread(arguments, b""), (Some(0), String::new()));
    }
    // What was found counts all the same.
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes).unwrap();
    assert_eq!(shell.unread(&["check", "db"], b"").0, Some(4));
    assert_eq!(shell.unread(&["--json", "check", "db"], b"").0, Some(4));
}

/// Something was changed, and the output is what the user goes on with.
#[test]
fn output_that_a_hand_off_needs_is_missed() {
    let shell = Shell::new();
    for db in ["west", "east"] {
        shell.ok(&["devices", "create", db, "until/3a"]);
    }
    let long = "v".repeat(200_000);
    for value in ["short", &long] {
        shell.ok_with_input(&["put", "west", "car-1:photo", "-"], value.as_bytes());
        let export = ["devices", "export", "west", "car-1", "east"];
        let (code, said) = shell.unread(&export, b"");
        assert_eq!(code, Some(5), "{said}");
        for part in [
            "cut",
            "frozen for east",
            "Repeat the command",
            "devices refuse",
        ] {
            assert!(said.contains(part), "{said}");
        }
        // The way out that it names.
        let stream = shell.bytes(&export);
        let (code, said) = shell.unread(&["devices", "refuse", "east"], &stream[..100]);
        assert_eq!(code, Some(5), "{said}");
        let refusal = shell.ok_with_input(&["devices", "refuse", "east"], &stream[..100]);
        shell.ok(&["devices", "end", "west", refusal.trim()]);
        // And the other one.
        let stream = shell.bytes(&export);
        let (code, said) = shell.unread(&["--json", "devices", "admit", "east"], &stream);
        assert_eq!(code, Some(5), "{said}");
        assert!(said.contains("give the same stream"), "{said}");
        let receipt = shell.ok_with_input(&["devices", "admit", "east"], &stream);
        shell.ok(&["devices", "end", "west", receipt.trim()]);
        shell.ok(&["devices", "lift", "west", "car-1"]);
        shell.ok(&["devices", "depart", "east", "car-1"]);
    }
}

#[test]
fn devices_change_databases() {
    let shell = Shell::new();
    for db in ["west", "east"] {
        shell.ok(&["devices", "create", db, "until/3a"]);
    }
    shell.ok(&["put", "west", "car-1:speed:1", "13"]);
    let stream = shell.bytes(&["devices", "export", "west", "car-1", "east"]);
    let frozen = shell.fails(1, &["put", "west", "car-1:speed:2", "14"]);
    assert!(frozen.contains("handed on to east"), "{frozen}");
    let listed = shell.ok(&["devices", "list", "west"]);
    assert!(listed.contains("moving to east"), "{listed}");

    // Refused, it stays.
    let refusal = shell.ok_with_input(&["devices", "refuse", "east"], &stream);
    shell.fails_with_input(1, &["devices", "admit", "east"], &stream);
    shell.ok(&["devices", "end", "west", refusal.trim()]);
    shell.ok(&["put", "west", "car-1:speed:2", "14"]);

    let stream = shell.bytes(&["devices", "export", "west", "car-1", "east"]);
    let damaged = [&stream[..40], b"!", &stream[41..]].concat();
    shell.fails_with_input(4, &["devices", "admit", "east"], &damaged);
    let receipt = shell.ok_with_input(&["devices", "admit", "east"], &stream);
    shell.fails(2, &["devices", "end", "west", "00ff"]);
    shell.ok(&["devices", "end", "west", receipt.trim()]);
    assert_eq!(
        shell.ok(&["scan", "east"]),
        "car-1:speed:1\t13\ncar-1:speed:2\t14\n"
    );
    assert_eq!(shell.ok(&["scan", "west"]), "");
    let moved = shell.fails(1, &["put", "west", "car-1:speed:3", "15"]);
    assert!(moved.contains("was handed on to east"), "{moved}");
    let dumped = shell.ok(&["dump", "west/DEVICES"]);
    assert!(
        dumped.contains("device car-1: was handed on to east"),
        "{dumped}"
    );
    shell.ok(&["devices", "lift", "west", "car-1"]);
    shell.ok(&["put", "west", "car-1:speed:3", "15"]);
}

#[test]
fn devices_are_listed_and_depart() {
    let shell = Shell::new();
    shell.ok(&["devices", "create", "db", "until/3a"]);
    shell.ok(&["put", "db", "car-1:speed:1", "13"]);
    shell.ok(&["put", "db", "car-2:speed:1", "17"]);
    shell.ok(&["put", "db", "settings", "none"]);
    let listed = shell.ok(&["devices", "list", "db"]);
    assert!(
        listed.starts_with("car-1\tupper level\t1 records\t"),
        "{listed}"
    );
    assert_eq!(listed.lines().count(), 2);
    assert_eq!(shell.ok(&["get", "db", "car-2:speed:1"]), "17\n");
    shell.ok(&["devices", "depart", "db", "car-2"]);
    assert_eq!(
        shell.ok(&["scan", "db", "--keys-only"]),
        "car-1:speed:1\nsettings\n"
    );
    assert_eq!(
        shell
            .ok(&["--json", "devices", "list", "db"])
            .lines()
            .count(),
        1
    );
    let unknown = shell.fails(1, &["devices", "depart", "db", "car-2"]);
    assert!(unknown.contains("no device car-2"), "{unknown}");
    let impossible = shell.fails(2, &["devices", "depart", "db", "a:b"]);
    assert!(
        impossible.contains("no device can be called"),
        "{impossible}"
    );
    let other = shell.fails(3, &["devices", "create", "db", "fixed/4"]);
    assert!(other.contains("until/3a"), "{other}");
    shell.fails(2, &["devices", "create", "other", "first/4"]);
    shell.ok(&["check", "db"]);
    shell.ok(&["export-leveldb", "db", "plain"]);
    assert_eq!(
        shell.ok(&["scan", "plain", "--keys-only"]),
        "car-1:speed:1\nsettings\n"
    );
    shell.fails(2, &["devices", "list", "plain"]);
}
