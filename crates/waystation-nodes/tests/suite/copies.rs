//! Copies of shards: they move while they are written to, and a drive that is pulled out of a database with two copies of
//! each shard loses nothing.

use crate::support::{Running, TOKEN, drive, find, host, weights, write};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use waystation_documents::database::{RebalanceRequest, ShardMove, Standing};
use waystation_documents::{Catalogue, Database, Error, NodeFault};

const LOCAL: &str = "nonode@nohost";
const ALL: &str = r#"{"selector":{},"limit":100000,"fields":["_id","n"]}"#;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// A host with drives `one`, `two` and so on.
struct Machine {
    own: tempfile::TempDir,
    data: Vec<tempfile::TempDir>,
    drives: Vec<Option<Running>>,
}

const NAMES: [&str; 3] = ["one", "two", "three"];

impl Machine {
    fn new(drives: usize) -> Self {
        let data: Vec<tempfile::TempDir> = (0..drives).map(|_| directory()).collect();
        let drives = data.iter().map(|data| Some(Running::start(data.path())));
        Self {
            own: directory(),
            drives: drives.collect(),
            data,
        }
    }

    fn catalogue(&self) -> Catalogue {
        let drives = self.drives.iter().zip(NAMES);
        let drives = drives
            .map(|(running, name)| drive(name, running.as_ref().expect("it runs").address, TOKEN));
        host(self.own.path(), drives.collect())
    }

    /// Pulls drive `at` out, and returns its address.
    fn pull(&mut self, at: usize) -> std::net::SocketAddr {
        self.drives[at].take().expect("it runs").address
    }

    fn put_back(&mut self, at: usize, address: std::net::SocketAddr) {
        self.drives[at] = Some(Running::start_at(self.data[at].path(), address));
    }
}

fn numbered(ids: std::ops::Range<usize>) -> Vec<String> {
    let pad = "x".repeat(3000);
    ids.map(|at| format!(r#"{{"_id":"{at:06}","n":{at},"pad":"{pad}"}}"#))
        .collect()
}

fn fill(database: &Database, ids: std::ops::Range<usize>) {
    for begin in ids.clone().step_by(100) {
        let end = (begin + 100).min(ids.end);
        let written = write(database, &numbered(begin..end));
        assert!(written.iter().all(Result::is_ok), "{written:?}");
    }
}

/// How many documents there are, all different.
fn count(database: &Database) -> Result<usize, Error> {
    let found = find(database, ALL)?.0;
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len());
    Ok(found.len())
}

/// The nodes of each shard's copies, with what is unusual of them.
fn standing(database: &Database) -> Vec<Vec<String>> {
    let shown = |copy: &waystation_documents::database::ShardCopy| match copy.standing {
        Standing::Whole => copy.node.clone(),
        other => format!("{} {}", copy.node, other.name()),
    };
    let places = database.places().expect("places");
    let nodes = places
        .iter()
        .map(|(_, copies)| copies.iter().map(shown).collect());
    nodes.collect()
}

/// Mends until nothing is left to be done.
fn mend(catalogue: &Catalogue) {
    while catalogue.mend().expect("mending") {}
}

fn move_to(
    catalogue: &Catalogue,
    to: &[(&str, f64)],
    is_dry: bool,
) -> Result<Vec<ShardMove>, Error> {
    catalogue.rebalance(&RebalanceRequest {
        databases: None,
        weights: Some(weights(to)),
        is_dry,
    })
}

#[test]
fn shards_move_between_nodes_and_back() -> Result<(), Error> {
    let machine = Machine::new(2);
    let catalogue = machine.catalogue();
    let database = catalogue.create("cars", 4, Some(&weights(&[(LOCAL, 1.0)])))?;
    fill(&database, 0..600);
    let index = r#"{"index":{"fields":["n"]},"ddoc":"d","name":"n"}"#;
    let index = waystation_documents::json::Json::new(index);
    database.create_index(&waystation_documents::database::IndexRequest::parse(index)?)?;
    let by_index = r#"{"selector":{"n":{"$gte":590,"$lt":600}},"use_index":"d","fields":["n"]}"#;
    let before = find(&database, by_index)?.0;
    assert_eq!(before.len(), 10);
    let planned = move_to(&catalogue, &[("one", 1.0), ("two", 1.0)], true)?;
    assert_eq!(planned.len(), 4);
    assert_eq!(standing(&database), vec![[LOCAL]; 4]);
    let moved = move_to(&catalogue, &[("one", 1.0), ("two", 1.0)], false)?;
    assert_eq!(moved, planned);
    assert_eq!(count(&database)?, 600);
    mend(&catalogue);
    let mut nodes = standing(&database).concat();
    nodes.sort();
    assert_eq!(nodes, ["one", "one", "two", "two"]);
    assert_eq!(count(&database)?, 600);
    assert_eq!(find(&database, by_index)?.0, before);
    assert!(catalogue.fills().is_empty());
    // What moved away is gone here.
    let own = machine.own.path().join("databases").join(database.uuid());
    let left: Vec<_> = std::fs::read_dir(own).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
    fill(&database, 600..700);
    move_to(&catalogue, &[(LOCAL, 1.0), ("two", 3.0)], false)?;
    drop(database);
    drop(catalogue);
    // The move goes on after the host started anew.
    let catalogue = machine.catalogue();
    mend(&catalogue);
    let database = catalogue.get("cars")?;
    let mut nodes = standing(&database).concat();
    nodes.sort();
    assert_eq!(nodes, [LOCAL, "two", "two", "two"]);
    assert_eq!(count(&database)?, 700);
    // The index is a document, too.
    assert_eq!(database.info()?.documents, 701);
    assert_eq!(find(&database, by_index)?.0, before);
    catalogue.delete("cars")?;
    for data in &machine.data {
        let left = std::fs::read_dir(data.path()).expect("a directory").count();
        assert_eq!(left, 1, "only the lock is left");
    }
    Ok(())
}

#[test]
fn documents_that_are_written_while_shards_move_are_there() -> Result<(), Error> {
    let machine = Machine::new(1);
    let catalogue = machine.catalogue();
    let database = catalogue.create("cars", 2, Some(&weights(&[(LOCAL, 1.0)])))?;
    fill(&database, 0..1000);
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut next = 1000;
            while !is_over.load(Ordering::SeqCst) {
                fill(&database, next..next + 10);
                // Each document is written again, so that changes go on where pages were copied already.
                let again = find(
                    &database,
                    &format!(r#"{{"selector":{{"_id":"{:06}"}}}}"#, next - 1000),
                );
                let again = again.expect("a document").0.concat();
                assert!(write(&database, &[again.replace("xxx", "yyy")])[0].is_ok());
                next += 10;
            }
            next
        });
        for to in ["one", LOCAL, "one"] {
            move_to(&catalogue, &[(to, 1.0)], false).expect("moves");
            mend(&catalogue);
            assert_eq!(standing(&database), vec![[to]; 2]);
        }
        is_over.store(true, Ordering::SeqCst);
        writer.join().expect("the writer ends")
    });
    assert!(written > 1000);
    assert_eq!(count(&database)?, written);
    assert_eq!(database.info()?.documents as usize, written);
    let changed = find(
        &database,
        r#"{"selector":{"pad":{"$regex":"^y"}},"limit":100000}"#,
    )?;
    assert_eq!(changed.0.len(), (written - 1000) / 10);
    Ok(())
}

#[test]
fn a_pulled_drive_costs_nothing_and_is_refilled() -> Result<(), Error> {
    let mut machine = Machine::new(2);
    let catalogue = machine.catalogue();
    let both = weights(&[("one", 1.0), ("two", 1.0)]);
    let database = catalogue.create_copies("cars", (3, 2), Some(&both))?;
    fill(&database, 0..300);
    assert_eq!(database.copies_max()?, 2);
    let address = machine.pull(0);
    // Reads go on at once, and writes after the copy is noted as stale.
    assert_eq!(count(&database)?, 300);
    fill(&database, 300..500);
    assert_eq!(count(&database)?, 500);
    for nodes in standing(&database) {
        assert!(nodes.contains(&"one stale".to_owned()), "{nodes:?}");
        assert!(nodes.contains(&"two".to_owned()), "{nodes:?}");
    }
    assert!(!catalogue.mend()?);
    assert!(catalogue.fills().iter().all(|fill| fill.failure.is_some()));
    machine.put_back(0, address);
    // It lacks what was written meanwhile, and is not read before it is filled.
    assert_eq!(count(&database)?, 500);
    mend(&catalogue);
    assert!(standing(&database).iter().all(|nodes| nodes.len() == 2));
    assert!(
        standing(&database)
            .concat()
            .iter()
            .all(|node| !node.contains(' '))
    );
    // Now the other one is pulled out.
    machine.pull(1);
    assert_eq!(count(&database)?, 500);
    fill(&database, 500..520);
    assert_eq!(count(&database)?, 520);
    machine.pull(0);
    match count(&database) {
        Err(Error::Node { fault, .. }) => assert_eq!(fault, NodeFault::Down),
        other => panic!("nothing is there: {other:?}"),
    }
    Ok(())
}

#[test]
fn an_empty_drive_in_the_place_of_another_is_filled() -> Result<(), Error> {
    let mut machine = Machine::new(2);
    let catalogue = machine.catalogue();
    let all = weights(&[(LOCAL, 1.0), ("one", 1.0), ("two", 1.0)]);
    let database = catalogue.create_copies("cars", (2, 3), Some(&all))?;
    fill(&database, 0..200);
    let address = machine.pull(0);
    machine.data[0] = directory();
    machine.put_back(0, address);
    fill(&database, 200..210);
    mend(&catalogue);
    assert!(
        standing(&database)
            .concat()
            .iter()
            .all(|node| !node.contains(' '))
    );
    // Only the new drive is left beside a host that is asked last.
    machine.pull(1);
    assert_eq!(count(&database)?, 210);
    Ok(())
}

#[test]
fn a_copy_that_lost_its_last_changes_is_noticed() -> Result<(), Error> {
    let mut machine = Machine::new(2);
    let catalogue = machine.catalogue();
    let both = weights(&[("one", 1.0), ("two", 1.0)]);
    let database = catalogue.create_copies("cars", (1, 2), Some(&both))?;
    fill(&database, 0..100);
    // The drive as it stood then: what came after is lost with the power.
    let address = machine.pull(0);
    let earlier = directory();
    copy_directory(machine.data[0].path(), earlier.path());
    machine.put_back(0, address);
    fill(&database, 100..200);
    assert_eq!(standing(&database), [["one", "two"]]);
    machine.pull(0);
    machine.data[0] = earlier;
    machine.put_back(0, address);
    for _ in 0..10 {
        assert_eq!(count(&database)?, 200);
    }
    drop(database);
    drop(catalogue);
    let catalogue = machine.catalogue();
    let database = catalogue.get("cars")?;
    assert_eq!(count(&database)?, 200);
    assert_eq!(standing(&database), [["one stale", "two"]]);
    mend(&catalogue);
    machine.pull(1);
    assert_eq!(count(&database)?, 200);
    Ok(())
}

fn copy_directory(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

#[test]
fn a_drive_is_emptied_by_its_weight() -> Result<(), Error> {
    let mut machine = Machine::new(3);
    let catalogue = machine.catalogue();
    let all = weights(&[("one", 1.0), ("two", 1.0), ("three", 1.0)]);
    let database: Arc<Database> = catalogue.create_copies("cars", (3, 2), Some(&all))?;
    fill(&database, 0..150);
    // A drive that is gone for good: its copies are made elsewhere.
    machine.pull(2);
    fill(&database, 150..200);
    move_to(&catalogue, &[("one", 1.0), ("two", 1.0)], false)?;
    mend(&catalogue);
    for mut nodes in standing(&database) {
        nodes.sort();
        assert_eq!(nodes, ["one", "two"]);
    }
    machine.pull(0);
    assert_eq!(count(&database)?, 200);
    Ok(())
}
