//! The oracle itself: what is written comes back, in order, from several levels.

use waystation_oracle::{LevelDb, Operation, Settings};

#[test]
#[cfg_attr(not(leveldb), ignore = "libleveldb is not installed")]
fn what_is_written_comes_back_in_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = LevelDb::open(directory.path(), Settings::default()).expect("opens");
    for number in (0..10_000_u32).rev() {
        let key = format!("key{number:06}").into_bytes();
        db.write(&[Operation::Put(key, vec![b'v'; 100])], false)
            .expect("writes");
    }
    db.write(&[Operation::Delete(b"key000007".to_vec())], true)
        .expect("deletes");
    db.compact();
    assert!((1..7).map(|level| db.files_at_level(level)).sum::<usize>() > 0);
    drop(db);

    let db = LevelDb::open(
        directory.path(),
        Settings {
            filter_bits_per_key: 10,
            ..Settings::default()
        },
    )
    .expect("reopens");
    assert_eq!(db.get(b"key000007"), Ok(None));
    assert_eq!(db.get(b"key000008"), Ok(Some(vec![b'v'; 100])));
    let entries = db.entries().expect("reads");
    assert_eq!(entries.len(), 9_999);
    assert!(entries.is_sorted());
    let mut backwards = db.entries_backwards().expect("reads backwards");
    backwards.reverse();
    assert_eq!(entries, backwards);
    assert!(
        LevelDb::open(directory.path(), Settings::default())
            .expect_err("locked")
            .contains("lock")
    );
}
