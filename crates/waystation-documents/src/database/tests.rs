//! Databases: routing, merged reads, and what creations and deletions leave behind.

use super::*;
use crate::document::Document;
use crate::json::Json;
use crate::shard::{Edits, ScanOptions};
use waystation::Durability;

fn catalogue() -> (tempfile::TempDir, Catalogue) {
    let directory = tempfile::tempdir().expect("a directory");
    let catalogue = reopen(&directory);
    (directory, catalogue)
}

fn reopen(directory: &tempfile::TempDir) -> Catalogue {
    let mut settings = Settings {
        open_max: 2,
        ..Settings::default()
    };
    settings.options.ring_bytes = 256 << 10;
    settings.options.memtable_bytes = 64 << 10;
    Catalogue::open(directory.path(), settings).expect("a catalogue")
}

fn put(database: &Database, json: &str) -> Revision {
    let document = Document::parse(json.as_bytes()).expect("a document");
    let updated = database.update_one(document, Edits::Interactive, Durability::ProcessCrash);
    updated.expect("an update")
}

fn fill(database: &Database, count: usize) {
    let document = |at: usize| {
        let json = format!(r#"{{"_id":"{at:05}","n":{at},"odd":{}}}"#, at % 2 == 1);
        Document::parse(json.as_bytes()).expect("a document")
    };
    let documents = (0..count).map(document).collect();
    let updated = database.update(documents, Edits::Interactive, Durability::ProcessCrash);
    assert!(updated.expect("an update").iter().all(Result::is_ok));
}

fn listed(database: &Database, mut listing: Listing) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let page = database.list(&listing).expect("a page");
        ids.extend(page.rows.into_iter().map(|row| row.id));
        match page.rest {
            Some(rest) => listing = rest,
            None => return ids,
        }
    }
}

fn find(database: &Database, query: &str) -> (Vec<String>, Finder) {
    let request = FindRequest::parse(Json::new(query)).expect("a query");
    let mut finder = database.finder(request).expect("a plan");
    let mut found = Vec::new();
    loop {
        let page = database.find(&mut finder).expect("a page");
        found.extend(page.documents);
        if page.is_end {
            return (found, finder);
        }
    }
}

fn ids(count: impl Iterator<Item = usize>) -> Vec<String> {
    count.map(|at| format!("{{\"_id\":\"{at:05}\"}}")).collect()
}

#[test]
fn names_are_created_deleted_and_created_again() -> Result<()> {
    let (directory, catalogue) = catalogue();
    let first = catalogue.create("cars", 2, None)?;
    put(&first, r#"{"_id":"a"}"#);
    assert!(matches!(
        catalogue.create("cars", 2, None),
        Err(Error::DatabaseExists)
    ));
    catalogue.delete("cars")?;
    assert!(matches!(first.open_winner("a"), Err(Error::NoDatabase)));
    assert!(matches!(catalogue.get("cars"), Err(Error::NoDatabase)));
    assert!(matches!(catalogue.delete("cars"), Err(Error::NoDatabase)));
    let second = catalogue.create("cars", 3, None)?;
    assert!(matches!(second.open_winner("a"), Err(Error::NotFound(_))));
    assert!(matches!(first.open_winner("a"), Err(Error::NoDatabase)));
    for name in ["", "Cars", "1a", "_x", "a b", "a\u{e9}"] {
        let refused = catalogue.create(name, 2, None).expect_err(name);
        assert_eq!(refused.word(), "illegal_database_name");
    }
    assert_eq!(catalogue.names(), ["cars"]);
    drop((first, second, catalogue));
    assert_eq!(reopen(&directory).get("cars")?.ranges().len(), 3);
    Ok(())
}

#[test]
fn what_a_crash_left_without_a_name_is_removed() -> Result<()> {
    let (directory, catalogue) = catalogue();
    let cars = catalogue.create("cars", 1, None)?;
    put(&cars, r#"{"_id":"a"}"#);
    drop((cars, catalogue));
    let orphan = directory.path().join("databases/0123");
    std::fs::create_dir(&orphan).expect("a directory");
    std::fs::write(orphan.join("x"), "x").expect("a file");
    let catalogue = reopen(&directory);
    assert!(!orphan.exists());
    assert!(catalogue.get("cars")?.open_winner("a").is_ok());
    Ok(())
}

#[test]
fn databases_that_are_not_used_are_closed_and_opened_again() -> Result<()> {
    let (_directory, catalogue) = catalogue();
    for name in ["a", "b", "c", "d"] {
        let database = catalogue.create(name, 1, None)?;
        put(&database, r#"{"_id":"x"}"#);
    }
    let is_open = |name: &str| catalogue.get(name).is_ok_and(|it| it.is_open());
    let open = ["a", "b", "c", "d"]
        .into_iter()
        .filter(|name| is_open(name));
    assert!(open.count() <= 3);
    for name in ["a", "b", "c", "d"] {
        assert!(catalogue.get(name)?.open_winner("x").is_ok(), "{name}");
    }
    Ok(())
}

#[test]
fn security_is_kept() -> Result<()> {
    let (directory, catalogue) = catalogue();
    let cars = catalogue.create("cars", 1, None)?;
    assert_eq!(cars.security(), "");
    catalogue.set_security(&cars, r#"{"admins":{}}"#)?;
    catalogue.put_record("secret", b"s")?;
    drop((cars, catalogue));
    let catalogue = reopen(&directory);
    assert_eq!(catalogue.get("cars")?.security(), r#"{"admins":{}}"#);
    assert_eq!(catalogue.record("secret")?.as_deref(), Some(&b"s"[..]));
    Ok(())
}

#[test]
fn listings_are_in_order_over_shards_and_pages() -> Result<()> {
    let (_directory, catalogue) = catalogue();
    let database = catalogue.create("cars", 3, None)?;
    fill(&database, 2500);
    let all: Vec<String> = (0..2500).map(|at| format!("{at:05}")).collect();
    assert_eq!(listed(&database, Listing::default()), all);
    let mut listing = Listing {
        skip: 3,
        limit: Some(1500),
        with_documents: true,
        ..Listing::default()
    };
    assert_eq!(listed(&database, listing.clone()), all[3..1503]);
    listing.scan = ScanOptions {
        from: Some("02000".to_owned()),
        to: Some("00100".to_owned()),
        is_before: true,
        descending: true,
        ..ScanOptions::default()
    };
    let expected: Vec<String> = all[101..=1997].iter().rev().take(1500).cloned().collect();
    assert_eq!(listed(&database, listing.clone()), expected);
    assert_eq!(database.offset(&listing)?, Some(499 + 3));
    let deleted = r#"{"_id":"00007","_deleted":true,"_rev":""#.to_owned()
        + &database.open_winner("00007")?.version.revision.to_string()
        + "\"}";
    put(&database, &deleted);
    assert_eq!(listed(&database, Listing::default()).len(), 2499);
    let one = database.list_one("00007", true)?.expect("a document");
    assert!(one.deleted && one.opened.is_none());
    assert_eq!(database.list_one("x", true)?, None);
    assert_eq!(database.info()?.documents, 2499);
    Ok(())
}

#[test]
fn changes_are_in_the_order_of_updates_over_shards() -> Result<()> {
    let (_directory, catalogue) = catalogue();
    let database = catalogue.create("cars", 3, None)?;
    let names: Vec<String> = (0..1200)
        .map(|at| format!("{}", at * 7919 % 1200))
        .collect();
    for name in &names {
        put(&database, &format!(r#"{{"_id":"{name}","n":{name}}}"#));
    }
    let mut feed = Feed {
        since: database.sequence("0")?,
        until: None,
        filter: Filter::All,
        limit: None,
        with_documents: false,
    };
    let (mut seen, mut last) = (Vec::new(), 0);
    loop {
        let page = database.changes(&mut feed)?;
        for row in &page.rows {
            assert!(row.sequence.number() > last);
            last = row.sequence.number();
            seen.push(row.id.clone());
        }
        if page.is_end {
            break;
        }
        assert_eq!(database.pending(&feed)?, (1200 - seen.len()) as u64);
    }
    assert_eq!(seen, names);
    assert_eq!(feed.since, database.update_sequence()?);
    // A sequence is where a reader goes on, through text too.
    let middle = Feed {
        limit: Some(600),
        since: database.sequence("0")?,
        ..feed.clone()
    };
    let mut middle = middle;
    assert_eq!(database.changes(&mut middle)?.rows.len(), 600);
    middle.since = database.sequence(&middle.since.to_string())?;
    middle.limit = Some(1);
    assert_eq!(database.changes(&mut middle)?.rows[0].id, names[600]);
    let mut down = Feed {
        until: Some(u64::MAX),
        limit: Some(2),
        ..feed.clone()
    };
    let page = database.changes(&mut down)?;
    assert_eq!(page.rows[0].id, names[1199]);
    assert_eq!(page.rows[1].id, names[1198]);
    let selector = SelectorFilter::parse(Json::new(r#"{"n":{"$lt":3}}"#))?;
    let mut filtered = Feed {
        since: database.sequence("0")?,
        filter: Filter::Selector(selector),
        ..feed
    };
    let mut found = 0;
    while !{
        let page = database.changes(&mut filtered)?;
        found += page.rows.len();
        page.is_end
    } {}
    assert_eq!(found, 3);
    Ok(())
}

#[test]
fn queries_agree_with_and_without_an_index() -> Result<()> {
    let (_directory, catalogue) = catalogue();
    let database = catalogue.create("cars", 3, None)?;
    fill(&database, 700);
    let query =
        r#"{"selector":{"n":{"$gte":100,"$lt":400},"odd":true},"fields":["_id"],"limit":1000}"#;
    let expected = ids((100..400).filter(|at| at % 2 == 1));
    let (found, finder) = find(&database, query);
    assert_eq!(found, expected);
    assert!(
        finder
            .warning()
            .is_some_and(|it| it.starts_with("No matching index"))
    );
    let definition = r#"{"index":{"fields":["n"]},"ddoc":"d","name":"by-n"}"#;
    let request = IndexRequest::parse(Json::new(definition))?;
    assert!(database.create_index(&request)?.1);
    assert!(!database.create_index(&request)?.1);
    let (found, finder) = find(&database, query);
    assert_eq!(found, expected);
    assert_eq!(finder.warning(), None);
    assert_eq!(finder.stats().returned, 150);
    assert!(finder.stats().examined <= 303, "{:?}", finder.stats());
    let down = r#"{"selector":{"n":{"$lt":5}},"sort":[{"n":"desc"}],"fields":["_id"]}"#;
    assert_eq!(find(&database, down).0, ids((0..5).rev()));
    assert_eq!(database.indexes()?.len(), 2);
    assert!(database.delete_index("_design/d", Some("by-n"))?);
    assert!(!database.delete_index("_design/d", Some("by-n"))?);
    let (found, finder) = find(&database, query);
    assert_eq!(found, expected);
    assert!(finder.warning().is_some());
    Ok(())
}

#[test]
fn a_bookmark_goes_on_where_an_answer_ended() -> Result<()> {
    let (_directory, catalogue) = catalogue();
    let database = catalogue.create("cars", 2, None)?;
    fill(&database, 100);
    for index in [false, true] {
        if index {
            let definition = r#"{"index":{"fields":["n"]}}"#;
            database.create_index(&IndexRequest::parse(Json::new(definition))?)?;
        }
        let (mut bookmark, mut all) = (String::new(), Vec::new());
        loop {
            let query = format!(
                r#"{{"selector":{{"n":{{"$gte":0}}}},"fields":["_id"],"limit":7,"bookmark":"{bookmark}"}}"#
            );
            let (found, finder) = find(&database, &query);
            if found.is_empty() {
                assert_eq!(finder.bookmark(), bookmark);
                break;
            }
            all.extend(found);
            bookmark = finder.bookmark();
        }
        assert_eq!(all, ids(0..100));
        let query = r#"{"selector":{"n":1},"bookmark":"!"}"#;
        let refused = database.finder(FindRequest::parse(Json::new(query))?);
        assert_eq!(refused.expect_err("no bookmark").word(), "invalid_bookmark");
    }
    Ok(())
}

#[test]
fn local_documents_are_apart() -> Result<()> {
    let (_directory, catalogue) = catalogue();
    let database = catalogue.create("cars", 2, None)?;
    assert_eq!(
        put(&database, r#"{"_id":"_local/a","x":1}"#).to_string(),
        "0-1"
    );
    assert_eq!(
        put(&database, r#"{"_id":"_local/a","_rev":"0-1"}"#).to_string(),
        "0-2"
    );
    let stale = Document::parse(br#"{"_id":"_local/a","_rev":"0-1"}"#)?;
    let refused = database.update_one(stale, Edits::Interactive, Durability::ProcessCrash);
    assert!(matches!(refused, Err(Error::Conflict)));
    assert_eq!(database.local_documents()?.len(), 1);
    assert_eq!(database.info()?.documents, 0);
    put(
        &database,
        r#"{"_id":"_local/a","_deleted":true,"_rev":"0-2"}"#,
    );
    assert!(database.open_local("a").is_err());
    Ok(())
}
