//! Views: what rows there are, in which order, and that they follow their documents through crashes.

use super::super::tests::{changes, document, put, replicate, shard};
use super::super::{Edits, Shard, keys};
use crate::error::{Error, Result};
use crate::json::canonical;
use crate::views::{DesignDocument, Limits, MergedGroups, MergedRows, ViewQuery, ViewRow};
use std::time::Duration;
use waystation::Durability;

mod histories;
mod queries;
mod random;

/// A design document whose views are `views`: names, maps, reducers.
pub(in crate::shard) fn design(views: &[(&str, &str, &str)]) -> DesignDocument {
    let view = |(name, map, reduce): &(&str, &str, &str)| {
        let [map, reduce] = [map, reduce].map(|it| crate::json::quote(it));
        format!(r#""{name}":{{"map":{map},"reduce":{reduce}}}"#)
    };
    let views: Vec<String> = views.iter().map(view).collect();
    design_of(&format!(r#"{{"views":{{{}}}}}"#, views.join(",")))
}

pub(in crate::shard) fn design_of(body: &str) -> DesignDocument {
    let body = canonical(body.as_bytes()).expect(body);
    DesignDocument::parse("_design/d", &body).expect("a design document")
}

pub(in crate::shard) fn query(parameters: &[(&str, &str)]) -> ViewQuery {
    let mut query = ViewQuery::default();
    for (name, value) in parameters {
        assert!(
            query.set(name, value).expect(value),
            "{name} is a parameter"
        );
    }
    query
}

/// The rows of the view `v` over shards, as `id key value`.
pub(in crate::shard) fn rows(
    shards: &[&Shard],
    design: &DesignDocument,
    query: &ViewQuery,
) -> Result<Vec<String>> {
    let rows = shards
        .iter()
        .map(|shard| shard.view_rows(design, "v", query, Limits::default()));
    let rows = MergedRows::new(rows.collect::<Result<_>>()?, query);
    let shown = |row: ViewRow| format!("{} {} {}", row.id, row.key, row.value);
    rows.map(|row| row.map(shown)).collect()
}

/// The groups of the view `v` over shards, as `key value`.
pub(super) fn groups(
    shards: &[&Shard],
    design: &DesignDocument,
    query: &ViewQuery,
) -> Result<Vec<String>> {
    let limits = Limits::default();
    let rows = shards
        .iter()
        .map(|shard| shard.view_rows(design, "v", query, limits));
    let groups = MergedGroups::new(
        rows.collect::<Result<_>>()?,
        design.view("v")?,
        query,
        limits,
    )?;
    groups
        .map(|group| group.map(|group| format!("{} {}", group.key, group.value)))
        .collect()
}

#[test]
fn rows_follow_their_documents() -> Result<()> {
    let (_dir, shard) = shard();
    let design = design(&[(
        "v",
        "function(doc) { doc.tags.forEach(function(tag) { emit(tag, doc._rev); }); }",
        "",
    )]);
    let all = query(&[]);
    let ids = |shard: &Shard| -> Result<Vec<String>> {
        let rows = rows(&[shard], &design, &all)?;
        Ok(rows
            .iter()
            .map(|row| row.rsplit_once(' ').expect("a value").0.to_owned())
            .collect())
    };
    assert!(ids(&shard)?.is_empty());
    let first = put(&shard, r#"{"_id":"a","tags":["x","y"]}"#)?;
    put(&shard, r#"{"_id":"b","tags":["x","x"]}"#)?;
    put(&shard, r#"{"_id":"c"}"#)?;
    put(&shard, r#"{"_id":"_design/z","tags":["x"]}"#)?;
    assert_eq!(
        ids(&shard)?,
        [r#"a "x""#, r#"b "x""#, r#"b "x""#, r#"a "y""#]
    );
    let stale = query(&[("update", "false")]);
    let second = put(
        &shard,
        &format!(r#"{{"_id":"a","_rev":"{first}","tags":["z","y"]}}"#),
    )?;
    assert_eq!(
        rows(&[&shard], &design, &stale)?[0],
        format!(r#"a "x" "{first}""#)
    );
    assert_eq!(
        rows(&[&shard], &design, &all)?[2..],
        [
            format!(r#"a "y" "{second}""#),
            format!(r#"a "z" "{second}""#),
        ]
    );
    put(
        &shard,
        &format!(r#"{{"_id":"a","_rev":"{second}","_deleted":true}}"#),
    )?;
    assert_eq!(ids(&shard)?, [r#"b "x""#, r#"b "x""#]);
    let rows = shard.view_rows(&design, "v", &all, Limits::default())?;
    assert_eq!(
        (rows.total_rows(), rows.update_sequence()),
        (2, shard.info().update_sequence)
    );
    let info = shard.views_info(&design)?;
    let figures = (info.rows, info.update_sequence);
    assert_eq!(figures, (2, shard.info().update_sequence));
    shard.db().flush()?;
    assert!(shard.views_info(&design)?.bytes > 0);
    Ok(())
}

#[test]
fn documents_are_seen_as_couchdb_shows_them() -> Result<()> {
    let (_dir, shard) = shard();
    replicate(
        &shard,
        r#"{"_id":"a","_rev":"1-b","x":{},"_attachments":{"t":{"data":"aGVsbG8="}}}"#,
    )?;
    replicate(&shard, r#"{"_id":"a","_rev":"1-a","x":1}"#)?;
    replicate(
        &shard,
        r#"{"_id":"a","_rev":"2-d","_revisions":{"start":2,"ids":["d","c"]},"_deleted":true}"#,
    )?;
    put(&shard, r#"{"_id":"_design/e"}"#)?;
    let design = design_of(
        r#"{"options":{"local_seq":true,"include_design":true},"views":{"v":{"map":"doc => emit(doc._id, doc)"}}}"#,
    );
    let rows = rows(&[&shard], &design, &query(&[]))?;
    assert_eq!(rows.len(), 2);
    assert_eq!(
        rows[1],
        r#"a "a" {"_id":"a","_rev":"1-b","x":{},"_attachments":{"t":{"content_type":"application/octet-stream","revpos":1,"digest":"md5-XUFAKrxLKna5cZ2REBfFkg==","length":5,"stub":true}},"_local_seq":1,"_conflicts":["1-a"],"_deleted_conflicts":["2-d"]}"#
    );
    Ok(())
}

#[test]
fn purged_documents_have_no_rows_even_while_an_index_is_built() -> Result<()> {
    let (_dir, shard) = shard();
    let design = design(&[("v", "doc => emit(1)", "")]);
    let other = self::design(&[("v", "doc => { emit(2); emit(3) }", "")]);
    for id in ["a", "b"] {
        put(&shard, &format!(r#"{{"_id":"{id}"}}"#))?;
    }
    for design in [&design, &other] {
        shard.build_views(design, Limits::default())?;
    }
    let leaf = shard.open_winner("a")?.version.revision;
    shard.purge("a", &[leaf])?;
    let stale = query(&[("update", "false")]);
    assert_eq!(rows(&[&shard], &design, &stale)?, ["b 1 null"]);
    assert_eq!(rows(&[&shard], &other, &stale)?, ["b 2 null", "b 3 null"]);
    assert_eq!(
        shard
            .view_rows(&other, "v", &stale, Limits::default())?
            .total_rows(),
        2
    );
    assert_eq!(rows(&[&shard], &design, &query(&[]))?, ["b 1 null"]);
    assert_eq!(
        shard.views_info(&design)?.update_sequence,
        shard.info().update_sequence
    );
    Ok(())
}

#[test]
fn a_purge_of_the_winner_leaves_the_rows_of_the_next_one() -> Result<()> {
    let (_dir, shard) = shard();
    let design = design(&[("v", "doc => emit(doc.x)", "")]);
    for revision in ["1-a", "1-b"] {
        let json = format!(r#"{{"_id":"a","_rev":"{revision}","x":"{revision}"}}"#);
        replicate(&shard, &json)?;
    }
    assert_eq!(rows(&[&shard], &design, &query(&[]))?, [r#"a "1-b" null"#]);
    shard.purge("a", &["1-b".parse()?])?;
    let lazy = query(&[("update", "lazy")]);
    assert_eq!(rows(&[&shard], &design, &lazy)?, [r#"a "1-b" null"#]);
    shard.build_views(&design, Limits::default())?;
    assert_eq!(rows(&[&shard], &design, &lazy)?, [r#"a "1-a" null"#]);
    Ok(())
}

#[test]
fn a_purge_and_updates_beside_a_build_leave_no_rows_behind() -> Result<()> {
    let (_dir, shard) = shard();
    let design = design(&[("v", "doc => emit(doc.n)", "_count")]);
    let documents: Vec<_> = (0..600)
        .map(|at| document(&format!(r#"{{"_id":"d{at:03}","n":{at}}}"#)))
        .collect();
    for updated in shard.update(&documents, Edits::Interactive, Durability::ProcessCrash)? {
        updated?;
    }
    std::thread::scope(|scope| {
        let builders =
            [0, 1].map(|_| scope.spawn(|| shard.build_views(&design, Limits::default())));
        for at in (0..600).step_by(3) {
            let id = format!("d{at:03}");
            let leaf = shard.open_winner(&id).expect("a document").version.revision;
            shard.purge(&id, &[leaf]).expect("a purge");
        }
        for builder in builders {
            builder.join().expect("no panic").expect("it is built");
        }
    });
    let expected: Vec<String> = (0..600)
        .filter(|at| at % 3 != 0)
        .map(|at| format!("d{at:03} {at} null"))
        .collect();
    assert_eq!(
        rows(&[&shard], &design, &query(&[("reduce", "false")]))?,
        expected
    );
    assert_eq!(groups(&[&shard], &design, &query(&[]))?, ["null 400"]);
    assert_eq!(changes(&shard, 0).len(), 400);
    Ok(())
}

#[test]
fn work_that_was_done_is_kept_where_a_build_fails() -> Result<()> {
    let (_dir, shard) = shard();
    let map = "doc => { if (doc.n === 'fatal') throw 'fatal_error'; emit(doc.n) }";
    let design = design(&[("v", map, "")]);
    let number = |at: usize| {
        if at == 400 {
            "\"fatal\"".to_owned()
        } else {
            at.to_string()
        }
    };
    let documents: Vec<_> = (0..600)
        .map(|at| document(&format!(r#"{{"_id":"d{at:03}","n":{}}}"#, number(at))))
        .collect();
    for updated in shard.update(&documents, Edits::Interactive, Durability::ProcessCrash)? {
        updated?;
    }
    let failed = shard
        .build_views(&design, Limits::default())
        .expect_err("a document is fatal");
    assert_eq!(failed.word(), "map_runtime_error");
    let done = shard.views_info(&design)?.update_sequence;
    assert!((1..=400).contains(&done), "{done}");
    let stale = shard.view_rows(
        &design,
        "v",
        &query(&[("update", "false")]),
        Limits::default(),
    )?;
    assert_eq!((stale.total_rows(), stale.count() as u64), (done, done));
    let leaf = shard.open_winner("d400")?.version.revision;
    put(
        &shard,
        &format!(r#"{{"_id":"d400","_rev":"{leaf}","n":400}}"#),
    )?;
    let expected: Vec<String> = (0..600).map(|at| format!("d{at:03} {at} null")).collect();
    assert_eq!(rows(&[&shard], &design, &query(&[]))?, expected);
    Ok(())
}

#[test]
fn views_that_nothing_names_are_removed() -> Result<()> {
    let (_dir, shard) = shard();
    put(&shard, r#"{"_id":"a"}"#)?;
    let (kept, gone) = (
        design(&[("v", "doc => emit(1)", "")]),
        design(&[("v", "doc => emit(2)", "")]),
    );
    for design in [&kept, &gone] {
        assert_eq!(rows(&[&shard], design, &query(&[]))?.len(), 1);
    }
    assert_eq!(shard.clean_up_views(&[kept.signature()])?, 1);
    let stale = query(&[("update", "false")]);
    assert_eq!(rows(&[&shard], &kept, &stale)?, ["a 1 null"]);
    assert!(rows(&[&shard], &gone, &stale)?.is_empty());
    assert_eq!(shard.views_info(&gone)?, super::ViewsInfo::default());
    assert_eq!(rows(&[&shard], &gone, &query(&[]))?, ["a 2 null"]);
    assert_eq!(shard.clean_up_views(&[])?, 2);
    let left = |space: u8| -> Result<bool> {
        let mut entries = shard.db().iter(waystation::IterOptions::prefix([space]))?;
        entries.seek_to_first()?;
        Ok(entries.valid())
    };
    for space in [keys::GROUP, keys::ROW, keys::ROWS] {
        assert!(!left(space)?, "{space}");
    }
    Ok(())
}

#[test]
fn wrong_functions_fail_their_own_queries_only() -> Result<()> {
    let (_dir, shard) = shard();
    put(&shard, r#"{"_id":"a"}"#)?;
    let limits = Limits {
        memory_bytes: 8 << 20,
        time: Duration::from_secs(2),
        ..Limits::default()
    };
    let cases = [
        ("function(doc) { for (;;) {} }", "timeout"),
        (
            "function(doc) { var a = [1]; for (;;) a = a.concat(a); }",
            "os_process_error",
        ),
        ("function(doc) {", "compilation_error"),
        (
            "function(doc) { require('views/lib/none'); }",
            "invalid_require_path",
        ),
    ];
    for (map, word) in cases {
        let design = design(&[("v", map, "")]);
        let failed = shard.view_rows(&design, "v", &query(&[]), limits);
        assert_eq!(failed.err().map(|error| error.word()), Some(word), "{map}");
        put(&shard, &format!(r#"{{"_id":"after {word}"}}"#))?;
    }
    let design = design(&[(
        "v",
        "doc => { if (doc._id !== 'a') throw 'no'; emit(1) }",
        "",
    )]);
    assert_eq!(rows(&[&shard], &design, &query(&[]))?, ["a 1 null"]);
    assert!(matches!(
        shard.view_rows(&design, "w", &query(&[]), limits),
        Err(Error::Query {
            word: "not_found",
            ..
        })
    ));
    Ok(())
}

#[test]
fn keys_that_are_too_long_and_values_that_are_too_deep_are_left_out() -> Result<()> {
    let (_dir, shard) = shard();
    put(&shard, r#"{"_id":"a"}"#)?;
    let map = "function(doc) { var deep = 1; for (var i = 0; i < 600; i++) deep = [deep];
        emit(doc.deep ? deep : 'x'.repeat(2000000), 1); emit('kept', 2); }";
    let design = design(&[("v", map, "")]);
    assert_eq!(rows(&[&shard], &design, &query(&[]))?, [r#"a "kept" 2"#]);
    put(&shard, r#"{"_id":"b","deep":1}"#)?;
    assert_eq!(rows(&[&shard], &design, &query(&[]))?, [r#"a "kept" 2"#]);
    Ok(())
}
