//! Looking into directories that LevelDB wrote, and is writing: everything is seen, nothing is touched, and
//! damage is named by file and place.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::{fs, io};
use waystation::inspect::{Inspection, Item, Place, dump};
use waystation::storage::OsStorage;
use waystation_oracle::{LevelDb, Operation, Settings};

/// Several levels, overwrites, deletions, and a log with more.
fn write_database(path: &Path, settings: Settings) -> LevelDb {
    let db = LevelDb::open(path, settings).expect("opens");
    for round in 0..4_u32 {
        for number in 0..5_000_u32 {
            let key = format!("key{:05}", number * 7919 % 5_000).into_bytes();
            let operation = if (number + round) % 11 == 0 {
                Operation::Delete(key)
            } else {
                Operation::Put(
                    key,
                    format!("value {round} {number} {}", "x".repeat(60)).into_bytes(),
                )
            };
            db.write(&[operation], false).expect("writes");
        }
    }
    db.write(
        &[
            Operation::Put(b"key00001".to_vec(), b"last".to_vec()),
            Operation::Delete(b"key00002".to_vec()),
        ],
        false,
    )
    .expect("writes");
    db
}

fn inspect(path: &Path) -> Inspection {
    Inspection::open(OsStorage::new(), path).expect("a database")
}

/// Every file's name, length and time of change.
fn fingerprint(path: &Path) -> io::Result<BTreeMap<String, (u64, std::time::SystemTime)>> {
    fs::read_dir(path)?
        .map(|entry| {
            let entry = entry?;
            let metadata = entry.metadata()?;
            Ok((
                entry.file_name().to_string_lossy().into_owned(),
                (metadata.len(), metadata.modified()?),
            ))
        })
        .collect()
}

#[test]
#[cfg_attr(not(leveldb), ignore = "libleveldb is not installed")]
fn a_directory_that_leveldb_has_open_is_seen_whole_and_not_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = write_database(
        directory.path(),
        Settings {
            filter_bits_per_key: 10,
            ..Settings::default()
        },
    );
    std::thread::sleep(std::time::Duration::from_millis(300)); // its background compaction settles
    let before = fingerprint(directory.path()).expect("listed");

    let inspection = inspect(directory.path());
    let summary = inspection.summary().expect("summary");
    assert!(summary.is_plain_leveldb);
    assert!(summary.journal.is_none());
    assert!(!summary.leveldb_logs.is_empty());
    assert!(
        summary
            .levels
            .iter()
            .map(|level| level.tables)
            .sum::<usize>()
            > 1
    );

    let report = inspection
        .check(&mut |progress| assert!(progress.done_bytes <= progress.total_bytes))
        .expect("check");
    assert_eq!(report.problems, []);
    assert!(report.entries > 4_000, "{report:?}");

    let found = inspection.find(b"key00001").expect("find");
    assert_eq!(found[0].value.as_deref(), Some(&b"last"[..]));
    assert_eq!(found[0].place, Place::Log);
    assert!(found.is_sorted_by(|a, b| a.sequence >= b.sequence));
    assert!(
        found
            .iter()
            .any(|found| matches!(found.place, Place::Level(_))),
        "{found:?}"
    );
    let found = inspection.find(b"key00002").expect("find");
    assert_eq!(
        (found[0].value.as_deref(), found[0].place),
        (None, Place::Log)
    );
    assert_eq!(inspection.find(b"nothing").expect("find"), []);

    assert_eq!(fingerprint(directory.path()).expect("listed"), before);
    drop(db);
}

#[test]
#[cfg_attr(not(leveldb), ignore = "libleveldb is not installed")]
fn every_file_dumps_and_the_dumps_hold_every_entry() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = write_database(directory.path(), Settings::default());
    let expected = db.entries().expect("reads");
    // A background compaction that closing ends would leave half a table.
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(db);

    let mut newest: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)> = BTreeMap::new();
    let (mut edits, mut added, mut files) = (0, 0, 0);
    for entry in fs::read_dir(directory.path()).expect("listed") {
        let path = entry.expect("entry").path();
        files += 1;
        dump(&*OsStorage::new(), &path, &mut |item| {
            match item {
                Item::Version(version) => {
                    let slot = newest.entry(version.key).or_default();
                    if version.sequence >= slot.0 {
                        *slot = (version.sequence, version.value);
                    }
                }
                Item::Edit { .. } => edits += 1,
                Item::TableAdded { .. } => added += 1,
                Item::Problem { offset, reason } => {
                    panic!("{}: {offset}: {reason}", path.display())
                }
                Item::Fact { .. }
                | Item::RangeDeletion { .. }
                | Item::Expiry { .. }
                | Item::Device { .. }
                | Item::Block { .. }
                | Item::TableRemoved { .. }
                | Item::Batch { .. } => {}
            }
            ControlFlow::Continue(())
        })
        .expect("dumps");
    }
    assert!(
        files >= 5 && edits > 1 && added > 1,
        "{files} files, {edits} edits, {added} tables"
    );
    let seen: Vec<_> = newest
        .into_iter()
        .filter_map(|(key, (_, value))| Some((key, value?)))
        .collect();
    assert_eq!(seen, expected);
}

#[test]
#[cfg_attr(not(leveldb), ignore = "libleveldb is not installed")]
fn a_flipped_bit_anywhere_in_a_table_or_manifest_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = write_database(
        directory.path(),
        Settings {
            filter_bits_per_key: 10,
            ..Settings::default()
        },
    );
    db.compact();
    drop(db);
    let tables: Vec<_> = fs::read_dir(directory.path())
        .expect("listed")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "ldb"))
        .collect();
    let path = tables.first().expect("a table");
    let sound = fs::read(path).expect("read");
    // The 40 bytes of the footer's handles are padded with zeros that nobody reads.
    let step = sound.len() / 150;
    for position in (0..sound.len() - 48)
        .step_by(step)
        .chain(sound.len() - 8..sound.len())
    {
        let mut damaged = sound.clone();
        damaged[position] ^= 1 << (position % 8);
        fs::write(path, &damaged).expect("written");
        let report = inspect(directory.path()).check(&mut |_| ()).expect("check");
        let name = path
            .file_name()
            .expect("name")
            .to_string_lossy()
            .into_owned();
        assert!(
            report.problems.iter().any(|problem| problem.file == name),
            "byte {position}: {report:?}"
        );
    }
    fs::write(path, &sound[..sound.len() - 10]).expect("written");
    assert!(
        !inspect(directory.path())
            .check(&mut |_| ())
            .expect("check")
            .problems
            .is_empty()
    );
    fs::remove_file(path).expect("removed");
    let report = inspect(directory.path()).check(&mut |_| ()).expect("check");
    assert!(
        report.problems[0].reason.contains("file is missing"),
        "{report:?}"
    );
}

#[test]
#[cfg_attr(not(leveldb), ignore = "libleveldb is not installed")]
fn what_is_no_database_is_said_to_be_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let refuse = |path: &Path| match Inspection::open(OsStorage::new(), path) {
        Ok(_) => panic!("{} opened", path.display()),
        Err(error) => error.to_string(),
    };
    assert!(refuse(directory.path()).contains("not a database"));
    assert!(refuse(&directory.path().join("missing")).contains("missing"));
    assert!(refuse(Path::new("")).contains("path is empty"));
    drop(LevelDb::open(directory.path(), Settings::default()).expect("creates"));
    fs::remove_file(directory.path().join("CURRENT")).expect("removed");
    assert!(refuse(directory.path()).contains("CURRENT file is missing"));
    fs::write(directory.path().join("CURRENT"), "MANIFEST-000099\n").expect("written");
    assert!(refuse(directory.path()).contains("MANIFEST-000099"));
    fs::write(directory.path().join("CURRENT"), "no newline").expect("written");
    assert!(refuse(directory.path()).contains("damaged"));
}
