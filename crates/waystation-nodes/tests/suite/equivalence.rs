//! A database over drives answers as one in this process: the same documents, rows and changes, in the same order.

use crate::support::{Running, TOKEN, drive, find, host, weights, write};
use waystation_documents::database::{
    Feed, Filter, IndexRequest, Listing, SelectorFilter, ViewEntries,
};
use waystation_documents::json::Json;
use waystation_documents::views::{Limits, ViewQuery};
use waystation_documents::{Catalogue, Database, Error, Revision};

/// A host with two drives, and another one without.
struct Machine {
    _directories: Vec<tempfile::TempDir>,
    _drives: Vec<Running>,
    catalogue: Catalogue,
}

fn machine() -> Machine {
    let directories: Vec<tempfile::TempDir> = (0..3)
        .map(|_| tempfile::tempdir().expect("a directory"))
        .collect();
    let drives: Vec<Running> = directories[1..]
        .iter()
        .map(|directory| Running::start(directory.path()))
        .collect();
    let settings = vec![
        drive("one", drives[0].address, TOKEN),
        drive("two", drives[1].address, TOKEN),
    ];
    Machine {
        catalogue: host(directories[0].path(), settings),
        _directories: directories,
        _drives: drives,
    }
}

impl Machine {
    /// A database over all nodes, and one of the same number of shards in this process.
    fn both(&self, shards: usize) -> [std::sync::Arc<Database>; 2] {
        let spread = weights(&[("nonode@nohost", 1.0), ("one", 1.0), ("two", 2.0)]);
        let here = weights(&[("nonode@nohost", 1.0)]);
        let create = |name: &str, weights: &[(String, f64)]| {
            let created = self.catalogue.create(name, shards, Some(weights));
            created.expect("a database")
        };
        [create("spread", &spread), create("here", &here)]
    }
}

fn cars(count: usize) -> Vec<String> {
    let car = |at: usize| {
        let pad = "x".repeat(at * 37 % 900);
        format!(
            r#"{{"_id":"{:05}","n":{at},"odd":{},"deep":{{"m":{}}},"pad":"{pad}"}}"#,
            at * 7919 % 100_000,
            at % 2 == 1,
            at % 10
        )
    };
    (0..count).map(car).collect()
}

fn listed(database: &Database, mut listing: Listing) -> Result<Vec<String>, Error> {
    let mut rows = Vec::new();
    loop {
        let page = database.list(&listing)?;
        rows.extend(page.rows.into_iter().map(|row| {
            let body = row.opened.map_or(String::new(), |it| it.version.body);
            format!("{} {} {body}", row.id, row.revision)
        }));
        match page.rest {
            Some(rest) => listing = rest,
            None => return Ok(rows),
        }
    }
}

fn changed(
    database: &Database,
    filter: Filter,
    with_documents: bool,
) -> Result<Vec<String>, Error> {
    let mut feed = Feed {
        since: database.sequence("0")?,
        until: None,
        filter,
        limit: None,
        with_documents,
    };
    let mut rows = Vec::new();
    loop {
        let page = database.changes(&mut feed)?;
        rows.extend(page.rows.into_iter().map(|row| {
            let body = row.opened.map_or(String::new(), |it| it.version.body);
            format!("{} {:?} {} {body}", row.id, row.leaves, row.deleted)
        }));
        if page.is_end {
            return Ok(rows);
        }
    }
}

#[test]
fn queries_find_the_same_in_the_same_order() -> Result<(), Error> {
    let machine = machine();
    let databases = machine.both(7);
    for database in &databases {
        assert!(write(database, &cars(3000)).iter().all(Result::is_ok));
    }
    let nodes: Vec<String> = databases[0]
        .places()?
        .into_iter()
        .map(|(_, copies)| copies[0].node.clone())
        .collect();
    let on = |name: &str| nodes.iter().filter(|node| *node == name).count();
    assert_eq!((on("nonode@nohost"), on("one"), on("two")), (2, 2, 3));
    let index = r#"{"index":{"fields":["n"]},"ddoc":"d","name":"n"}"#;
    let queries = [
        r#"{"selector":{"n":{"$lt":40}},"limit":1000}"#,
        r#"{"selector":{"deep.m":3},"limit":100000,"fields":["_id","n"]}"#,
        r#"{"selector":{"odd":true,"deep.m":{"$in":[1,2]}},"skip":7,"limit":29}"#,
        r#"{"selector":{"_id":{"$gt":"5","$lt":"7"}},"limit":100000,"fields":["_id"]}"#,
        r#"{"selector":{"pad":{"$regex":"^x{800,}$"}},"limit":100000,"conflicts":true}"#,
        r#"{"selector":{"n":{"$gte":100}},"sort":[{"n":"desc"}],"limit":50}"#,
        r#"{"selector":{"$or":[{"n":5},{"n":{"$gt":2990}}]},"limit":50}"#,
        r#"{"selector":{"n":-1}}"#,
        r#"{"selector":{},"limit":0}"#,
    ];
    for with_index in [false, true] {
        if with_index {
            for database in &databases {
                database.create_index(&IndexRequest::parse(Json::new(index))?)?;
            }
        }
        for query in queries {
            let [spread, here] = [0, 1].map(|at| find(&databases[at], query));
            match (spread, here) {
                (Ok(spread), Ok(here)) => assert_eq!(spread, here, "{query}"),
                (spread, here) => assert_eq!(
                    spread.expect_err(query).to_string(),
                    here.expect_err(query).to_string()
                ),
            }
        }
    }
    let states = machine.catalogue.node_states();
    assert!(
        states
            .iter()
            .all(|state| state.documents_per_second.is_some()),
        "{states:?}"
    );
    Ok(())
}

#[test]
fn bookmarks_lead_through_all_pages() -> Result<(), Error> {
    let machine = machine();
    let [spread, _] = machine.both(5);
    write(&spread, &cars(500));
    let (mut ids, mut bookmark) = (Vec::new(), "nil".to_owned());
    loop {
        let query = format!(
            r#"{{"selector":{{"odd":true}},"fields":["_id"],"limit":23,"bookmark":"{bookmark}"}}"#
        );
        let (found, next) = find(&spread, &query)?;
        if found.is_empty() {
            break;
        }
        ids.extend(found);
        bookmark = next;
    }
    assert_eq!(ids.len(), 250);
    assert!(ids.is_sorted());
    ids.dedup();
    assert_eq!(ids.len(), 250);
    Ok(())
}

#[test]
fn documents_listings_and_changes_are_the_same() -> Result<(), Error> {
    let machine = machine();
    let databases = machine.both(5);
    let mut seen = Vec::new();
    for database in &databases {
        // One by one: the shards of a batch are written beside each other, and their sequences have no order among them.
        let one_by_one = |documents: &[String]| -> Vec<_> {
            let each = documents.chunks(1);
            each.flat_map(|one| write(database, one)).collect()
        };
        let first = one_by_one(&cars(700));
        let revision = first[3].clone().expect("a revision");
        let id = format!("{:05}", 3 * 7919);
        let later = [
            format!(r#"{{"_id":"{id}","_rev":"{revision}","n":"later"}}"#),
            format!(r#"{{"_id":"{id}","n":"conflict"}}"#),
            r#"{"_id":"_local/l","a":1}"#.to_owned(),
            r#"{"_id":"t","_attachments":{"a":{"data":"aGVsbG8=","content_type":"text/plain"}}}"#
                .to_owned(),
        ];
        let outcomes = one_by_one(&later);
        let with_documents = Listing {
            with_documents: true,
            skip: 100,
            limit: Some(300),
            ..Listing::default()
        };
        let mut down = Listing::default();
        down.scan.descending = true;
        let selector = SelectorFilter::parse(Json::new(r#"{"odd":true}"#))?;
        let attached = database.open_winner("t")?.version.attachments;
        let known: Revision = revision.parse()?;
        let unknown: Revision = "9-0123456789abcdef0123456789abcdef".parse()?;
        seen.push((
            outcomes,
            [
                listed(database, Listing::default())?,
                listed(database, with_documents)?,
                listed(database, down)?,
            ],
            [
                changed(database, Filter::All, false)?,
                changed(database, Filter::All, true)?,
                changed(database, Filter::Selector(selector), true)?,
            ],
            database.attachment("t", &attached[0])?,
            database.missing_revisions(&id, &[known.clone(), unknown])?,
            database.open_revision(&id, &known)?,
            database.open_local("l")?,
            database.purge(&id, &[known])?,
            database
                .info()
                .map(|info| (info.documents, info.deleted, info.purge_sequence))?,
        ));
    }
    assert_eq!(seen[0], seen[1]);
    let absent = databases.each_ref().map(|it| it.open_winner("none"));
    for absent in absent {
        assert!(matches!(absent, Err(Error::NotFound(_))));
    }
    Ok(())
}

/// The rows or groups of a view.
fn rows(
    database: &Database,
    parameters: &[(&str, &str)],
) -> Result<(u64, Option<u64>, Vec<String>), Error> {
    let mut query = ViewQuery::default();
    for (name, value) in parameters {
        query.set(name, value)?;
    }
    let design = database.design_document("_design/v")?;
    let answer = database.view(&design, "v", &query, Limits::default())?;
    let rows: Result<Vec<String>, Error> = match answer.entries {
        ViewEntries::Rows(rows) => rows
            .map(|row| row.map(|row| format!("{} {} {}", row.id, row.key, row.value)))
            .collect(),
        ViewEntries::Groups(groups) => groups
            .map(|group| group.map(|group| format!("{} {}", group.key, group.value)))
            .collect(),
    };
    Ok((answer.total_rows, answer.offset, rows?))
}

#[test]
fn views_have_the_same_rows_and_groups() -> Result<(), Error> {
    let machine = machine();
    let databases = machine.both(4);
    let map = "function (doc) { if (doc.deep) { emit([doc.deep.m, doc.n], doc.n); } }";
    let design = format!(
        r#"{{"_id":"_design/v","views":{{"v":{{"map":{},"reduce":"_sum"}}}}}}"#,
        waystation_documents::json::quote(map)
    );
    for database in &databases {
        write(database, &cars(1500));
        write(database, std::slice::from_ref(&design));
    }
    let queries: [&[(&str, &str)]; 5] = [
        &[("reduce", "false")],
        &[
            ("reduce", "false"),
            ("descending", "true"),
            ("limit", "7"),
            ("skip", "3"),
        ],
        &[
            ("reduce", "false"),
            ("startkey", "[3]"),
            ("endkey", "[4,{}]"),
        ],
        &[("group_level", "1")],
        &[],
    ];
    for query in queries {
        let [spread, here] = [0, 1].map(|at| rows(&databases[at], query));
        assert_eq!(spread?, here?, "{query:?}");
    }
    let refused = rows(&databases[0], &[("reduce", "false"), ("group", "true")]);
    assert_eq!(refused.expect_err("refused").word(), "query_parse_error");
    Ok(())
}

#[test]
fn sequences_of_all_shards_stand_in_one_order() -> Result<(), Error> {
    let machine = machine();
    let [spread, _] = machine.both(6);
    let mut written = Vec::new();
    for at in 0..60 {
        let id = format!("d{at}");
        write(&spread, &[format!(r#"{{"_id":"{id}"}}"#)]);
        written.push(id);
    }
    let order = changed(&spread, Filter::All, false)?;
    let order = order.iter().filter_map(|row| row.split(' ').next());
    assert!(order.eq(written.iter().map(String::as_str)));
    assert_eq!(spread.update_sequence()?.number(), 60);
    Ok(())
}
