//! Updates, replication, changes, compaction, and what survives a crash.

use super::*;
use crate::json::{Json, canonical};
use crate::mango::Selector;
use crate::{Absence, Document, Revision};
use std::collections::BTreeMap;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};

mod fixture;
mod histories;
mod indexes;
mod pieces;

pub(super) fn shard() -> (tempfile::TempDir, Shard) {
    let dir = tempfile::tempdir().expect("a directory");
    let shard = Shard::open(dir.path(), Options::default()).expect("a shard");
    (dir, shard)
}

pub(super) fn document(json: &str) -> Document {
    Document::parse(json.as_bytes()).expect(json)
}

pub(super) fn put(shard: &Shard, json: &str) -> Updated {
    let updated = shard.update(
        &[document(json)],
        Edits::Interactive,
        Durability::ProcessCrash,
    );
    updated.expect("the engine takes it").remove(0)
}

pub(super) fn replicate(shard: &Shard, json: &str) -> Updated {
    let updated = shard.update(
        &[document(json)],
        Edits::Replicated,
        Durability::ProcessCrash,
    );
    updated.expect("the engine takes it").remove(0)
}

/// The shard on a simulated machine, with little memory.
pub(super) fn open_simulated(storage: &Arc<SimStorage>) -> Shard {
    let options = Options {
        memtable_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        ..Options::default()
    };
    let storage: Arc<dyn Storage> = Arc::clone(storage) as Arc<dyn Storage>;
    let db = Db::open_with(storage, "/shard", options).expect("the engine opens");
    Shard::over(Arc::new(db), Clock::default()).expect("a shard")
}

pub(super) fn changes(shard: &Shard, since: u64) -> Vec<(u64, String, bool)> {
    let changes = shard.changes(since).expect("changes");
    let changes = changes.map(|change| change.expect("a change"));
    changes
        .map(|change| (change.sequence, change.id, change.deleted))
        .collect()
}

#[test]
fn a_document_is_created_updated_deleted_and_created_again() -> Result<()> {
    let (_dir, shard) = shard();
    let first = put(&shard, r#"{"_id":"a","x":1}"#)?;
    assert_eq!(first.generation, 1);
    assert!(matches!(
        put(&shard, r#"{"_id":"a","x":2}"#),
        Err(Error::Conflict)
    ));
    assert!(matches!(
        put(&shard, r#"{"_id":"b","_rev":"1-x"}"#),
        Err(Error::Conflict)
    ));
    let second = put(&shard, &format!(r#"{{"_id":"a","_rev":"{first}","x":2}}"#))?;
    assert_eq!(shard.open_winner("a")?.version.body, r#"{"x":2}"#);
    assert_eq!(shard.open_revision("a", &first)?.version.body, r#"{"x":1}"#);
    let stale = format!(r#"{{"_id":"a","_rev":"{first}","x":3}}"#);
    assert!(matches!(put(&shard, &stale), Err(Error::Conflict)));
    put(
        &shard,
        &format!(r#"{{"_id":"a","_rev":"{second}","_deleted":true}}"#),
    )?;
    let gone = shard.open_winner("a").expect_err("it is deleted");
    assert!(matches!(gone, Error::NotFound(Absence::Deleted)));
    assert!(matches!(
        shard.open_winner("b"),
        Err(Error::NotFound(Absence::Missing))
    ));
    assert_eq!((shard.info().documents, shard.info().deleted), (0, 1));
    let again = put(&shard, r#"{"_id":"a","x":4}"#)?;
    assert_eq!(again.generation, 4, "on top of its deletion");
    assert_eq!((shard.info().documents, shard.info().deleted), (1, 0));
    assert_eq!(
        changes(&shard, 0),
        [(4, "a".to_owned(), false)],
        "once, at its latest sequence"
    );
    Ok(())
}

#[test]
fn equal_edits_are_one_revision() -> Result<()> {
    let ((_one, one), (_other, other)) = (shard(), shard());
    let json = r#"{"_id":"a","x":[1,2]}"#;
    assert_eq!(put(&one, json)?, put(&other, json)?);
    let elsewhere = shard().1;
    assert_ne!(
        put(&one, r#"{"_id":"b","x":1}"#)?,
        put(&elsewhere, r#"{"_id":"b","x":1.0}"#)?
    );
    Ok(())
}

#[test]
fn replicas_make_conflicts_and_agree_on_the_winner() -> Result<()> {
    let ((_one, one), (_other, other)) = (shard(), shard());
    let edits = [
        r#"{"_id":"a","_rev":"2-b","_revisions":{"start":2,"ids":["b","a"]},"x":"b"}"#,
        r#"{"_id":"a","_rev":"2-c","_revisions":{"start":2,"ids":["c","a"]},"x":"c"}"#,
        r#"{"_id":"a","_rev":"3-d","_revisions":{"start":3,"ids":["d","c","a"]},"_deleted":true}"#,
    ];
    for edit in edits {
        replicate(&one, edit)?;
    }
    for edit in edits.iter().rev() {
        replicate(&other, edit)?;
    }
    for shard in [&one, &other] {
        let opened = shard.open_winner("a")?;
        assert_eq!(opened.version.body, r#"{"x":"b"}"#);
        let deleted: Vec<String> = opened
            .deleted_conflicts()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            (opened.conflicts().len(), deleted),
            (0, vec!["3-d".to_owned()])
        );
    }
    let before = one.info().update_sequence;
    replicate(&one, edits[0])?;
    assert_eq!(one.info().update_sequence, before, "known already");
    let asked: Vec<Revision> = ["2-b", "2-z", "4-e"]
        .iter()
        .filter_map(|it| it.parse().ok())
        .collect();
    let (missing, ancestors) = one.missing_revisions("a", &asked)?;
    assert_eq!(missing, asked[1..]);
    assert_eq!(
        ancestors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["2-b", "3-d"]
    );
    let named = Revisions::Named(vec![asked[0].clone(), asked[1].clone()]);
    let opened = one.open_revisions("a", &named, false)?;
    assert!(
        opened[0].is_ok()
            && opened[1]
                .as_ref()
                .is_err_and(|missing| *missing == asked[1])
    );
    assert_eq!(one.open_revisions("a", &Revisions::Leaves, false)?.len(), 2);
    Ok(())
}

#[test]
fn an_update_of_a_losing_branch_keeps_the_winners_fields() -> Result<()> {
    let (_dir, shard) = shard();
    replicate(&shard, r#"{"_id":"a","_rev":"1-b","x":"b"}"#)?;
    replicate(&shard, r#"{"_id":"a","_rev":"1-a","x":"a"}"#)?;
    let is_found = |json: &str| -> Result<bool> {
        let selector = Selector::parse(Json::new(json))?;
        let mut scan = shard.scan(&ScanOptions::default())?;
        let found = scan
            .next_document()?
            .map(|document| document.is_matched_by(&selector));
        found.unwrap_or(Ok(false))
    };
    assert!(is_found(r#"{"x":"b"}"#)?);
    put(&shard, r#"{"_id":"a","_rev":"1-b","_deleted":true}"#)?;
    assert!(is_found(r#"{"x":"a"}"#)?, "the other branch has won");
    Ok(())
}

#[test]
fn a_filter_on_top_level_fields_reads_no_bodies() -> Result<()> {
    let (_dir, shard) = shard();
    let long = "x".repeat(100_000);
    for number in 0..20 {
        let json =
            format!(r#"{{"_id":"d{number:02}","n":{number},"o":{{"k":{number}}},"s":"{long}"}}"#);
        put(&shard, &json)?;
    }
    let find = |json: &str| -> Result<(Vec<String>, ScanStats)> {
        let selector = Selector::parse(Json::new(json))?;
        let mut scan = shard.scan(&ScanOptions::default())?;
        let mut found = Vec::new();
        while let Some(document) = scan.next_document()? {
            if document.is_matched_by(&selector)? {
                found.push(document.id().to_owned());
            }
        }
        Ok((found, scan.stats()))
    };
    let (found, stats) = find(r#"{"n":{"$gte":18}}"#)?;
    assert_eq!(found, ["d18", "d19"]);
    assert_eq!((stats.examined, stats.bodies), (20, 0));
    assert!(stats.bytes < 20 * 200, "{} bytes", stats.bytes);
    let (found, stats) = find(r#"{"o.k":3,"n":{"$lt":5}}"#)?;
    assert_eq!((found, stats.bodies), (vec!["d03".to_owned()], 20));
    let (found, _) = find(r#"{"_id":"d07","missing":{"$exists":false}}"#)?;
    assert_eq!(found, ["d07"]);
    Ok(())
}

#[test]
fn scans_begin_where_they_are_told() -> Result<()> {
    let (_dir, shard) = shard();
    for id in ["a", "b", "c"] {
        put(&shard, &format!(r#"{{"_id":"{id}"}}"#))?;
    }
    let ids = |from: &str, is_behind: bool| -> Result<Vec<String>> {
        let from = Some(from.to_owned());
        let mut scan = shard.scan(&ScanOptions {
            from,
            is_behind,
            ..ScanOptions::default()
        })?;
        let mut ids = Vec::new();
        while let Some(document) = scan.next_document()? {
            ids.push(document.id().to_owned());
        }
        Ok(ids)
    };
    assert_eq!(ids("b", false)?, ["b", "c"]);
    assert_eq!(ids("b", true)?, ["c"]);
    assert_eq!(ids("bb", false)?, ["c"]);
    Ok(())
}

#[test]
fn attachments_are_stored_once_and_swept() -> Result<()> {
    let (_dir, shard) = shard();
    // "hello"
    let attachment = r#"{"content_type":"text/plain","data":"aGVsbG8="}"#;
    let first = put(
        &shard,
        &format!(r#"{{"_id":"a","_attachments":{{"t":{attachment}}}}}"#),
    )?;
    put(
        &shard,
        &format!(r#"{{"_id":"b","_attachments":{{"u":{attachment}}}}}"#),
    )?;
    let stub =
        format!(r#"{{"_id":"a","_rev":"{first}","x":1,"_attachments":{{"t":{{"stub":true}}}}}}"#);
    put(&shard, &stub)?;
    let opened = shard.open_winner("a")?;
    let info = &opened.version.attachments[0];
    assert_eq!((info.revpos, info.length), (1, 5));
    assert_eq!(info.digest.to_string(), "md5-XUFAKrxLKna5cZ2REBfFkg==");
    assert_eq!(shard.attachment(info)?, b"hello");
    let unknown = r#"{"_id":"c","_attachments":{"t":{"stub":true}}}"#;
    assert!(matches!(
        put(&shard, unknown),
        Err(Error::MissingStub { .. })
    ));
    assert_eq!(
        shard.compact()?,
        Compacted {
            bodies: 1,
            attachment_parts: 0
        }
    );
    assert!(matches!(
        shard.open_revision("a", &first),
        Err(Error::NotFound(_))
    ));
    for id in ["a", "b"] {
        let leaf = shard.open_winner(id)?.version.revision;
        assert_eq!(shard.purge(id, std::slice::from_ref(&leaf))?, [leaf]);
    }
    assert_eq!(
        shard.compact()?,
        Compacted {
            bodies: 0,
            attachment_parts: 1
        }
    );
    assert_eq!(
        (
            shard.info().documents,
            shard.info().deleted,
            shard.info().purge_sequence
        ),
        (0, 0, 2)
    );
    assert!(changes(&shard, 0).is_empty());
    Ok(())
}

#[test]
fn large_attachments_are_put_together_again() -> Result<()> {
    let (_dir, shard) = shard();
    let bytes: Vec<u8> = (0..3 * update::PART_BYTES + 17)
        .map(|at| (at % 251) as u8)
        .collect();
    let attachment = crate::Attachment {
        name: "large".into(),
        content_type: "application/octet-stream".into(),
        revpos: None,
        content: crate::Given::Bytes(bytes.clone()),
    };
    let document = Document {
        attachments: vec![attachment],
        ..document(r#"{"_id":"a"}"#)
    };
    shard
        .update(&[document], Edits::Interactive, Durability::ProcessCrash)?
        .remove(0)?;
    let info = shard.open_winner("a")?.version.attachments.remove(0);
    assert_eq!(shard.attachment(&info)?, bytes);
    Ok(())
}

#[test]
fn ancestors_beyond_the_limit_are_forgotten() -> Result<()> {
    let (_dir, shard) = shard();
    assert!(shard.set_revs_limit(0).is_err());
    shard.set_revs_limit(3)?;
    let mut revision = put(&shard, r#"{"_id":"a","n":0}"#)?;
    let first = revision.clone();
    for number in 1..6 {
        revision = put(
            &shard,
            &format!(r#"{{"_id":"a","_rev":"{revision}","n":{number}}}"#),
        )?;
    }
    assert_eq!(shard.open_winner("a")?.tree.path(&revision).len(), 3);
    assert!(shard.open_revision("a", &first).is_err());
    let db = shard.db();
    assert_eq!(
        db.get(&keys::body("a", &first))?,
        None,
        "its body is gone, too"
    );
    Ok(())
}

#[test]
fn local_documents_have_no_history() -> Result<()> {
    let (_dir, shard) = shard();
    let power = Durability::PowerLoss;
    assert_eq!(shard.put_local("c", None, r#"{"a":1}"#, power)?, 1);
    assert!(matches!(
        shard.put_local("c", Some(0), "{}", power),
        Err(Error::Conflict)
    ));
    assert_eq!(shard.put_local("c", Some(1), r#"{"a":2}"#, power)?, 2);
    assert_eq!(shard.open_local("c")?.body, r#"{"a":2}"#);
    assert_eq!(shard.local_documents()?.len(), 1);
    assert_eq!(
        (shard.info().documents, shard.info().update_sequence),
        (0, 0)
    );
    assert!(matches!(
        shard.delete_local("c", Some(1)),
        Err(Error::Conflict)
    ));
    shard.delete_local("c", Some(2))?;
    assert!(matches!(
        shard.delete_local("c", None),
        Err(Error::NotFound(_))
    ));
    Ok(())
}

#[test]
fn damaged_records_are_errors() -> Result<()> {
    let (_dir, shard) = shard();
    put(&shard, r#"{"_id":"a","x":[1]}"#)?;
    shard.db().put(&keys::head("a"), b"\x07")?;
    assert!(matches!(shard.open_winner("a"), Err(Error::Damaged { .. })));
    assert!(matches!(
        shard.scan(&ScanOptions::default())?.next_document(),
        Err(Error::Damaged { .. })
    ));
    assert!(put_fails(&shard));
    Ok(())
}

fn put_fails(shard: &Shard) -> bool {
    let update = [document(r#"{"_id":"a","x":2}"#)];
    shard
        .update(&update, Edits::Interactive, Durability::ProcessCrash)
        .is_err()
}
