//! `waystation export-leveldb` and the real LevelDB, where it is installed.

use crate::support::Shell;
use std::collections::BTreeMap;
use std::fmt::Write;
use waystation_oracle::{LevelDb, Settings};

#[test]
fn what_the_command_exports_leveldb_reads_and_the_command_reads_again() {
    let shell = Shell::new();
    let mut content = BTreeMap::new();
    let mut lines = String::new();
    for number in 0..5_000_u32 {
        let (key, value) = (
            format!("key{:04}", number * 7 % 3_000),
            format!("value {number}").repeat(10),
        );
        writeln!(lines, "{key}\t{value}").unwrap();
        content.insert(key.into_bytes(), value.into_bytes());
    }
    shell.ok_with_input(&["import", "db", "-"], lines.as_bytes());
    shell.ok(&["delete", "db", "key0007", "key0014"]);
    content.remove(&b"key0007"[..]);
    content.remove(&b"key0014"[..]);
    for compression in ["snappy", "none"] {
        let target = format!("plain-{compression}");
        shell.ok(&[
            "export-leveldb",
            "db",
            &target,
            "--compression",
            compression,
        ]);
        let db = match LevelDb::open(&shell.path(&target), Settings::default()) {
            Err(error) if error.contains("not installed") => return,
            opened => opened.unwrap(),
        };
        assert!(db.entries().unwrap().into_iter().eq(content.clone()));
        drop(db);
        assert!(shell.ok(&["check", &target]).starts_with("sound: "));
    }
}
