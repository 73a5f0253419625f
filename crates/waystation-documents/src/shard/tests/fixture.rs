//! Records as they were kept when their version was fixed: later versions read them, and write the same ones.
//!
//! Each line of the file is the key and the value of a record, in hexadecimal digits. With `WAYSTATION_REWRITE` set the
//! file is written anew: only where a new version begins, beside the old ones.

use super::super::views::tests::{design, query, rows};
use super::indexes::{by_index, definition, selector};
use super::*;
use crate::mango::Direction;
use crate::views::DesignDocument;
use std::fmt::Write;
use std::path::PathBuf;

/// A key and a value.
type Record = (Vec<u8>, Vec<u8>);

/// The file of the records of `version`.
fn path(version: u8) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/records-{version}.txt"))
}

fn by_number() -> DesignDocument {
    design(&[("v", "function(doc) { emit(doc.n, doc.text); }", "")])
}

/// A shard with a record of every kind.
fn write_history(shard: &Shard) -> Result<()> {
    let many: Vec<String> = (0..3).map(|at| format!("\"f{at}\":{at}")).collect();
    let first = put(
        shard,
        r#"{"_id":"a\u0000b","n":2.50,"text":"\u00e9\"","_attachments":{"x.txt":{"content_type":"text/plain","data":"aGVsbG8="}}}"#,
    )?;
    let text = "x".repeat(60);
    put(
        shard,
        &format!(
            r#"{{"_id":"a\u0000b","_rev":"{first}","n":-1,"text":"{text}","car":{{"n":[1,null]}},"_attachments":{{"x.txt":{{"stub":true}}}}}}"#
        ),
    )?;
    let gone = put(shard, r#"{"_id":"gone","n":7}"#)?;
    put(
        shard,
        &format!(r#"{{"_id":"gone","_rev":"{gone}","_deleted":true}}"#),
    )?;
    for edit in [
        r#"{"_id":"\u4e2d","_rev":"3-c","_revisions":{"start":3,"ids":["c","b","a"]},"n":[]}"#,
        r#"{"_id":"\u4e2d","_rev":"2-d","_revisions":{"start":2,"ids":["d","a"]},"n":true}"#,
        r#"{"_id":"\u4e2d","_rev":"3-0123456789abcdef0123456789abcdef","_deleted":true}"#,
    ] {
        replicate(shard, edit)?;
    }
    put(
        shard,
        &format!(r#"{{"_id":"many","n":{{"a":"b"}},{}}}"#, many.join(",")),
    )?;
    shard.put_local("note", None, r#"{"y":1}"#, Durability::ProcessCrash)?;
    shard.create_index(definition("by_n", &["n"]))?;
    rows(&[shard], &by_number(), &query(&[]))?;
    shard.set_turn(300)
}

/// A shard with a body in pieces, whose records are of version 2.
fn write_long_history(shard: &Shard) -> Result<()> {
    let members = |count: usize| -> String {
        let members = (0..count).map(|at| format!("\"f{at}\":\"{at:040}\","));
        members.collect::<Vec<_>>().concat()
    };
    let (top, car) = (members(250), members(90));
    let json = format!(r#"{{"_id":"a",{top}"car":{{{car}"n":[1,null]}},"n":2.50}}"#);
    put(shard, &json).map(drop)
}

fn records(shard: &Shard) -> Result<Vec<Record>> {
    let mut entries = shard.db().iter(waystation::IterOptions::default())?;
    let mut records = Vec::new();
    entries.seek_to_first()?;
    while entries.valid() {
        records.push((entries.key().to_vec(), entries.value().to_vec()));
        entries.next()?;
    }
    Ok(records)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(|pair| byte(pair).expect("two digits")).collect()
}

fn kept(version: u8) -> Vec<Record> {
    let text = std::fs::read_to_string(path(version)).expect("the file");
    let lines = text.lines().map(|line| line.split_once(' '));
    lines
        .map(|line| line.expect("a key and a value"))
        .map(|(key, value)| (bytes(key), bytes(value)))
        .collect()
}

#[test]
fn the_same_history_writes_what_was_kept() -> Result<()> {
    compare(1, write_history)?;
    compare(2, write_long_history)
}

fn compare(version: u8, write: fn(&Shard) -> Result<()>) -> Result<()> {
    let (_dir, shard) = shard();
    write(&shard)?;
    let written = records(&shard)?;
    if std::env::var_os("WAYSTATION_REWRITE").is_some() {
        let line = |(key, value): &Record| format!("{} {}\n", hexadecimal(key), hexadecimal(value));
        std::fs::write(path(version), written.iter().map(line).collect::<String>())
            .expect("written");
    }
    let shown = |records: Vec<Record>| -> Vec<String> {
        let shown =
            |(key, value): Record| format!("{} {}", key.escape_ascii(), value.escape_ascii());
        records.into_iter().map(shown).collect()
    };
    assert_eq!(shown(written), shown(kept(version)));
    Ok(())
}

/// A shard that holds the records of `version`, which are of `spaces`.
fn shard_of(version: u8, spaces: &str) -> Result<(tempfile::TempDir, Shard)> {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Arc::new(Db::open(dir.path(), Options::default())?);
    let mut seen = Vec::new();
    for (key, value) in kept(version) {
        check_record(&key, &value)?;
        seen.extend(key.first().copied());
        db.put(&key, &value)?;
    }
    seen.dedup();
    assert_eq!(String::from_utf8_lossy(&seen), spaces);
    Ok((dir, Shard::over(db, Clock::default())?))
}

#[test]
fn a_body_that_was_kept_in_pieces_is_read() -> Result<()> {
    let (_dir, shard) = shard_of(2, "bcdfms")?;
    let body = shard.open_winner("a")?.version.body;
    assert!(body.ends_with(r#""n":[1,null]},"n":2.50}"#), "{body}");
    let selector = Selector::parse(Json::new(r#"{"car.n.0":1,"n":2.5}"#))?;
    let mut scan = shard.scan(&ScanOptions::default())?;
    let document = scan.next_document()?.expect("a document");
    assert!(document.is_matched_by(&selector)?);
    Ok(())
}

#[test]
fn what_was_kept_is_read() -> Result<()> {
    let (_dir, shard) = shard_of(1, "abdiklmsvwxy")?;
    let opened = shard.open_winner("a\0b")?;
    assert_eq!(
        opened.version.body,
        format!(
            r#"{{"n":-1,"text":"{}","car":{{"n":[1,null]}}}}"#,
            "x".repeat(60)
        )
    );
    let [attachment] = opened.version.attachments.as_slice() else {
        panic!("one attachment: {:?}", opened.version.attachments);
    };
    assert_eq!(shard.attachment(attachment)?, b"hello");
    let opened = shard.open_winner("\u{4e2d}")?;
    assert_eq!(opened.version.revision.to_string(), "3-c");
    assert_eq!(opened.conflicts().len(), 1);
    assert_eq!(opened.deleted_conflicts().len(), 1);
    assert_eq!(shard.open_local("note")?.body, r#"{"y":1}"#);
    assert_eq!((shard.info().documents, shard.info().deleted), (3, 1));
    assert_eq!(changes(&shard, 0).len(), 4);
    let all = selector(r#"{"n":{"$exists":true}}"#);
    let (found, _) = by_index(&shard, "by_n", None, Direction::Ascending, &all);
    assert_eq!(found, ["a\0b", "\u{4e2d}", "many"]);
    let rows = rows(&[&shard], &by_number(), &query(&[("update", "false")]))?;
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert_eq!(
        shard.follow(Turn::default(), Request::Info).turns,
        Turns::at(300)
    );
    Ok(())
}
