//! Backups from the command line.

use crate::support::Shell;
use std::fs;

#[test]
fn a_lost_database_comes_back() {
    let shell = Shell::new();
    shell.ok(&["devices", "create", "db", "until/3a"]);
    shell.ok(&["put", "db", "car:1", "one"]);
    let made = shell.ok(&["backup", "db", "backups"]);
    assert!(made.starts_with("backup 1: "), "{made}");
    shell.ok(&["put", "db", "car:1", "two"]);
    shell.ok(&["put", "db", "plain", "x"]);
    let made = shell.ok(&["--json", "backup", "db", "backups"]);
    assert!(made.contains("\"number\": 2"), "{made}");
    fs::remove_dir_all(shell.path("db")).unwrap();

    let listed = shell.ok(&["backups", "list", "backups"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(listed.contains("until/3a"), "{listed}");
    let verified = shell.ok(&["backups", "verify", "backups"]);
    assert!(verified.starts_with("sound: 2 backups"), "{verified}");
    let restored = shell.ok(&["restore", "backups", "db"]);
    assert!(restored.contains("every byte verified"), "{restored}");
    assert_eq!(shell.ok(&["scan", "db"]), "car:1\ttwo\nplain\tx\n");
    shell.ok(&["restore", "--number", "1", "backups", "older"]);
    assert_eq!(shell.ok(&["scan", "older"]), "car:1\tone\n");
    let refused = shell.fails(2, &["restore", "backups", "db"]);
    assert!(refused.contains("is not empty"), "{refused}");

    shell.ok(&["backups", "prune", "--keep", "1", "backups"]);
    assert_eq!(shell.ok(&["backups", "list", "backups"]).lines().count(), 2);
    let gone = shell.fails(2, &["restore", "--number", "1", "backups", "new"]);
    assert!(gone.contains("there is no backup 1"), "{gone}");
}

#[test]
fn damage_and_wrong_directories_are_named() {
    let shell = Shell::new();
    shell.ok(&["put", "db", "a", "1"]);
    shell.ok(&["backup", "db", "backups"]);
    shell.fails(3, &["backups", "list", "db"]);
    shell.fails(3, &["backups", "list", "nowhere"]);
    shell.fails(2, &["backup", "db", "db"]);
    let owner = shell.hold_open("db");
    let locked = shell.fails(3, &["backup", "db", "backups"]);
    assert!(locked.contains("let the owner make the backup"), "{locked}");
    drop(owner);
    let file = fs::read_dir(shell.path("backups/files"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains(".ldb"))
        .unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[3] ^= 1;
    fs::write(&file, bytes).unwrap();
    let told = shell.fails_saying_on_stdout(4, &["backups", "verify", "backups"]);
    assert!(told.contains(".ldb"), "{told}");
    let refused = shell.fails(4, &["restore", "backups", "new"]);
    assert!(refused.contains("is not what was written"), "{refused}");
    assert!(!shell.path("new/CURRENT").exists());
}
