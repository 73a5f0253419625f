//! Bodies in pieces.

use super::*;
use crate::shard::keys;
use crate::shard::record::Head;

/// A document of some 60 KB: text of three bytes a letter, so that letters lie across the ends of pieces, a long object,
/// and numbers behind them.
fn long(id: &str, rest: &str) -> String {
    let letters = "\u{4e2d}".repeat(9000);
    let members: Vec<String> = (0..800)
        .map(|at| format!("\"f{at}\":\"{at:030}\","))
        .collect();
    let members = members.concat();
    format!(
        r#"{{"_id":"{id}"{rest},"text":"{letters}","car":{{{members}"at":[1,{{"x":"y"}}],"number":7}},"n":2.50}}"#
    )
}

fn count(shard: &Shard, space: u8) -> Result<usize> {
    let mut entries = shard.db().iter(waystation::IterOptions::prefix([space]))?;
    entries.seek_to_first()?;
    let mut count = 0;
    while entries.valid() {
        count += 1;
        entries.next()?;
    }
    Ok(count)
}

fn find(shard: &Shard, json: &str) -> Result<(usize, ScanStats)> {
    let selector = Selector::parse(Json::new(json))?;
    let mut scan = shard.scan(&ScanOptions::default())?;
    let mut found = 0;
    while let Some(document) = scan.next_document()? {
        found += usize::from(document.is_matched_by(&selector)?);
    }
    Ok((found, scan.stats()))
}

#[test]
fn a_field_of_a_long_body_is_found_without_the_rest() -> Result<()> {
    let (_dir, shard) = shard();
    put(&shard, &long("a", ""))?;
    let cases = [
        (r#"{"n":2.5}"#, 1, 100),
        (r#"{"car":{"number":7}}"#, 1, 6000),
        (r#"{"car.at.1.x":"y"}"#, 1, 6000),
        (r#"{"car.f700":{"$gt":null}}"#, 1, 6000),
        (r#"{"car.at.7":{"$exists":false}}"#, 0, 6000),
        (r#"{"car.wheels":{"$exists":false}}"#, 1, 6000),
        (r#"{"missing.x":{"$exists":true}}"#, 0, 100),
        (r#"{"car":{"$type":"object"}}"#, 1, 60_000),
        (r#"{"text":{"$regex":"^\u4e2d+$"}}"#, 1, 40_000),
    ];
    for (json, expected, bytes_max) in cases {
        let (found, stats) = find(&shard, &canonical(json.as_bytes()).expect("JSON"))?;
        assert_eq!(found, expected, "{json}");
        assert!(
            stats.bytes < bytes_max + 200,
            "{json}: {} bytes",
            stats.bytes
        );
        assert!(stats.bodies <= 1, "{json}");
    }
    // More fields than are read one by one.
    let many: Vec<String> = (0..40)
        .map(|at| format!("{{\"car.f{at}\":\"{at:030}\"}}"))
        .collect();
    let (found, stats) = find(&shard, &format!("{{\"$and\":[{}]}}", many.join(",")))?;
    assert_eq!((found, stats.bodies), (1, 1));
    assert!(stats.bytes < 80_000, "{} bytes", stats.bytes);
    Ok(())
}

#[test]
fn a_long_body_comes_back_and_goes_whole() -> Result<()> {
    let (_dir, shard) = shard();
    let first = put(&shard, &long("a", ""))?;
    let body = shard.open_winner("a")?.version.body;
    let expected = Document::parse(long("a", "").as_bytes())?.body;
    assert_eq!(body, expected);
    let mut scan = shard.scan(&ScanOptions::default())?;
    let document = scan.next_document()?.expect("a document");
    assert_eq!(
        (document.body()?, document.opened()?.version.body),
        (&*expected, expected.clone())
    );
    let pieces = count(&shard, keys::PIECE)?;
    assert_eq!(
        (pieces, count(&shard, keys::OUTLINE)?),
        (expected.len().div_ceil(8192), 1)
    );
    let rest = format!(r#","_rev":"{first}","more":1"#);
    let second = put(&shard, &long("a", &rest))?;
    assert_eq!(count(&shard, keys::PIECE)?, 2 * pieces);
    assert_eq!(shard.compact()?.bodies, 1);
    assert_eq!(
        (count(&shard, keys::PIECE)?, count(&shard, keys::OUTLINE)?),
        (pieces, 1)
    );
    assert_eq!(find(&shard, r#"{"more":1,"car.number":7}"#)?.0, 1);
    assert_eq!(shard.purge("a", std::slice::from_ref(&second))?, [second]);
    for space in [keys::BODY, keys::PIECE, keys::OUTLINE] {
        assert_eq!(count(&shard, space)?, 0);
    }
    Ok(())
}

#[test]
fn a_long_body_that_is_superseded_in_its_own_batch_is_forgotten() -> Result<()> {
    let (_dir, shard) = shard();
    shard.set_revs_limit(1)?;
    let edits = [
        long("a", r#","_rev":"1-a""#),
        r#"{"_id":"a","_rev":"2-b","_revisions":{"start":2,"ids":["b","a"]}}"#.to_owned(),
    ];
    let documents: Result<Vec<Document>> = edits
        .iter()
        .map(|it| Document::parse(it.as_bytes()))
        .collect();
    for updated in shard.update(&documents?, Edits::Replicated, Durability::ProcessCrash)? {
        updated?;
    }
    assert_eq!(
        (
            count(&shard, keys::BODY)?,
            count(&shard, keys::PIECE)?,
            count(&shard, keys::OUTLINE)?
        ),
        (1, 0, 0)
    );
    Ok(())
}

/// Gives document `a` the revision 2-b, which is long.
fn replicate_long_branch(shard: &Shard) -> Result<()> {
    let revisions = r#","_rev":"2-b","_revisions":{"start":2,"ids":["b","0"]}"#;
    replicate(shard, &long("a", revisions))?;
    Ok(())
}

#[test]
fn a_long_branch_that_wins_is_filtered() -> Result<()> {
    let (_dir, shard) = shard();
    replicate(
        &shard,
        r#"{"_id":"a","_rev":"2-x","_revisions":{"start":2,"ids":["x","0"]},"n":1}"#,
    )?;
    replicate_long_branch(&shard)?;
    assert_eq!(find(&shard, r#"{"car.number":7}"#)?.0, 0);
    replicate(
        &shard,
        r#"{"_id":"a","_rev":"3-x","_revisions":{"start":3,"ids":["x","x","0"]},"_deleted":true}"#,
    )?;
    assert_eq!(find(&shard, r#"{"car.number":7}"#)?.0, 1);
    Ok(())
}

/// Keeps a body as earlier versions did, and returns its text.
fn keep_whole(shard: &Shard, id: &str, revision: &Revision) -> Result<String> {
    let text = shard.open_revision(id, revision)?.version.body;
    // Version 1, and no attachments.
    let whole = [&[1, 0], text.as_bytes()].concat();
    shard.db().put(&keys::body(id, revision), &whole)?;
    shard.db().delete(&keys::outline(id, revision))?;
    for place in 0..text.len().div_ceil(8192) {
        shard.db().delete(&keys::piece(id, revision, place))?;
    }
    Ok(text)
}

#[test]
fn a_long_document_of_an_earlier_version_is_read_and_updated() -> Result<()> {
    let (_dir, shard) = shard();
    let revision = put(&shard, &long("a", ""))?;
    let text = keep_whole(&shard, "a", &revision)?;
    let head = shard.db().get(&keys::head("a"))?.expect("a head");
    let mut head = Head::decode(&head).expect("a head");
    head.fields.is_of_pieces = false;
    shard.db().put(&keys::head("a"), &head.encode())?;
    assert_eq!(shard.open_winner("a")?.version.body, text);
    for json in [r#"{"n":2.5}"#, r#"{"car.number":7}"#] {
        assert_eq!(find(&shard, json)?.0, 1, "{json}");
    }
    let second = put(&shard, &format!(r#"{{"_id":"a","_rev":"{revision}"}}"#))?;
    assert_eq!(shard.compact()?.bodies, 1);
    assert_eq!(shard.open_winner("a")?.version.revision, second);
    assert_eq!(count(&shard, keys::BODY)?, 1);
    Ok(())
}

#[test]
fn a_long_body_that_an_earlier_version_kept_whole_may_win() -> Result<()> {
    let (_dir, shard) = shard();
    let loser: Revision = "2-b".parse()?;
    replicate_long_branch(&shard)?;
    replicate(
        &shard,
        r#"{"_id":"a","_rev":"2-x","_revisions":{"start":2,"ids":["x","0"]},"n":1}"#,
    )?;
    let text = keep_whole(&shard, "a", &loser)?;
    assert_eq!(shard.open_revision("a", &loser)?.version.body, text);
    let winner = "2-x".parse()?;
    assert_eq!(shard.purge("a", std::slice::from_ref(&winner))?, [winner]);
    assert_eq!(find(&shard, r#"{"car.number":7}"#)?.0, 1);
    assert_eq!(shard.open_winner("a")?.version.body, text);
    Ok(())
}

#[test]
fn a_piece_that_is_missing_is_told() -> Result<()> {
    let (_dir, shard) = shard();
    let revision = put(&shard, &long("a", ""))?;
    shard.db().delete(&keys::piece("a", &revision, 1))?;
    assert!(matches!(shard.open_winner("a"), Err(Error::Damaged { .. })));
    let found = find(&shard, r#"{"text":"x"}"#);
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    shard.db().delete(&keys::outline("a", &revision))?;
    let found = find(&shard, r#"{"car.number":7}"#);
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    Ok(())
}
