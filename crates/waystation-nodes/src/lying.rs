//! An agent that lies: it greets as it should, and answers what cannot be true. Each lie is a typed error of the request
//! that met it; other databases are not affected, and no lie makes a host wait or take memory without end.

use crate::frame::{self, MESSAGE_BYTES_MAX};
use crate::greeting::{DRIVES, Token};
use crate::message::{Answer, Call};
use crate::{DriveSettings, Drives};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use waystation_documents::database::{
    Catalogue, Feed, Filter, FindRequest, LOCAL_NODE, Listing, Settings,
};
use waystation_documents::json::Json;
use waystation_documents::mango::Groups;
use waystation_documents::shard::{
    Change, FindPart, ListedDocument, ReadChange, Reply, Request, ScanStats, ShardInfo, Told, Turns,
};
use waystation_documents::wire::{decode, encode};
use waystation_documents::{Database, Document, Edits, Error, NodeFault};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn token() -> Token {
    Token::new(TOKEN).expect("a token")
}

/// How the agent answers requests; `None`: never.
type Liar = fn(Request) -> Option<Result<Reply, Error>>;

fn told(reply: Result<Reply, Error>) -> Told {
    Told {
        latest: 7,
        turns: Turns::default(),
        reply,
    }
}

/// Starts the agent. Its threads end with the process.
fn start(liar: Liar) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let thread = std::thread::Builder::new().spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let talk = std::thread::Builder::new().spawn(move || talk(&stream, liar));
            talk.expect("a thread");
        }
    });
    thread.expect("a thread");
    address
}

fn talk(mut stream: &TcpStream, liar: Liar) {
    if DRIVES.welcome(&mut stream, &token()).is_err() {
        return;
    }
    while let Ok(Some(message)) = frame::read(&mut stream, MESSAGE_BYTES_MAX) {
        let answer = match decode(&message).expect("a call") {
            Call::Ask { request, .. } => match liar(request) {
                Some(reply) => Answer::Replied {
                    told: Ok(told(reply)),
                },
                None => continue,
            },
            _ => Answer::Done { outcome: Ok(()) },
        };
        if frame::write(&mut stream, &encode(&answer)).is_err() {
            return;
        }
    }
}

/// What is true of an empty shard.
fn truth(request: &Request) -> Reply {
    match request {
        Request::Info => Reply::Info {
            info: ShardInfo {
                documents: 3,
                deleted: 0,
                update_sequence: 7,
                purge_sequence: 0,
                revs_limit: 1000,
            },
        },
        Request::Split { .. } => Reply::Points { ids: Vec::new() },
        Request::IndexDefinitions => Reply::Indexes {
            definitions: Vec::new(),
        },
        Request::List { .. } => Reply::Listed {
            rows: Vec::new(),
            is_end: true,
        },
        _ => Reply::Done,
    }
}

/// A host with the database `far` of two shards on the agent, and `near` of its own.
struct Host {
    catalogue: Catalogue,
    far: Arc<Database>,
    _directory: tempfile::TempDir,
}

fn host(liar: Liar) -> Host {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = DriveSettings {
        name: "one".to_owned(),
        address: start(liar),
        token: token(),
        authorities: None,
    };
    let drives = Drives::new(vec![settings]).with_patience(Duration::from_millis(500));
    let settings = Settings {
        nodes: Some(Arc::new(drives)),
        ..Settings::default()
    };
    let catalogue = Catalogue::open(directory.path(), settings).expect("a catalogue");
    let far = catalogue.create("far", 2, Some(&[("one".to_owned(), 1.0)]));
    let near = catalogue.create("near", 1, Some(&[(LOCAL_NODE.to_owned(), 1.0)]));
    near.expect("a database");
    Host {
        far: far.expect("a database"),
        catalogue,
        _directory: directory,
    }
}

fn find(database: &Database) -> Result<Vec<String>, Error> {
    let request = FindRequest::parse(Json::new(r#"{"selector":{},"limit":1000}"#))?;
    let mut finder = database.finder(request)?;
    let mut found = Vec::new();
    loop {
        let page = database.find(&mut finder)?;
        found.extend(page.documents);
        if page.is_end {
            return Ok(found);
        }
    }
}

fn write(database: &Database, id: &str) -> Result<(), Error> {
    let document = Document::parse(format!(r#"{{"_id":"{id}"}}"#).as_bytes())?;
    let durability = waystation::Durability::ProcessCrash;
    database
        .update_one(document, Edits::Interactive, durability)
        .map(drop)
}

/// Checks that `outcome` is the fault `expected`, and that the database `near` works.
#[track_caller]
fn check<T>(host: &Host, outcome: Result<T, Error>, expected: NodeFault, says: &str) {
    match outcome {
        Err(Error::Node { fault, reason }) => {
            assert_eq!(fault, expected, "{reason}");
            assert!(reason.contains(says), "{reason}");
        }
        Err(other) => panic!("expected a fault of the node, got {other}"),
        Ok(_) => panic!("a lie was believed"),
    }
    let near = host.catalogue.get("near").expect("a database");
    let id = format!("{}", near.info().expect("figures").documents);
    write(&near, &id).expect("the other database works");
    assert!(!find(&near).expect("documents").is_empty());
}

/// A step's outcome with these places.
fn part(places: &[&str], reached: Option<&str>, is_end: bool) -> Reply {
    let bytes = |text: &&str| text.as_bytes().to_vec();
    Reply::Found {
        part: FindPart {
            found: places
                .iter()
                .map(|it| (bytes(it), "{}".to_owned()))
                .collect(),
            reached: reached.map(|it| bytes(&it)),
            groups: Groups::default(),
            is_end,
            stats: ScanStats::default(),
        },
    }
}

#[test]
fn rows_out_of_their_order_are_noticed() {
    let host = host(|request| match request {
        Request::Find { .. } => Some(Ok(part(&["b", "a"], Some("b"), true))),
        other => Some(Ok(truth(&other))),
    });
    check(
        &host,
        find(&host.far),
        NodeFault::Lying,
        "out of their order",
    );
}

#[test]
fn documents_of_another_range_are_noticed() {
    // "a" and "b" cannot both belong to either shard that names them.
    let host = host(|request| match request {
        Request::Find { .. } => Some(Ok(part(&["a", "b", "c", "d"], Some("d"), true))),
        Request::Changes { .. } => {
            let change = |sequence: u64, id: &str| ReadChange {
                sequence,
                change: Some(Change {
                    sequence,
                    id: id.to_owned(),
                    leaves: vec!["1-a".parse().expect("a revision")],
                    deleted: false,
                }),
                opened: None,
            };
            Some(Ok(Reply::Changes {
                rows: vec![
                    change(1, "a"),
                    change(2, "b"),
                    change(3, "c"),
                    change(4, "d"),
                ],
                is_end: true,
            }))
        }
        Request::List { options, .. } if options.from.is_none() => {
            let row = |id: &str| ListedDocument {
                id: id.to_owned(),
                revision: "1-a".parse().expect("a revision"),
                opened: None,
            };
            Some(Ok(Reply::Listed {
                rows: vec![row("a"), row("b"), row("c"), row("d")],
                is_end: true,
            }))
        }
        other => Some(Ok(truth(&other))),
    });
    check(&host, find(&host.far), NodeFault::Lying, "another range");
    let listed = host.far.list(&Listing::default());
    check(&host, listed, NodeFault::Lying, "another range");
    let mut feed = Feed {
        since: host.far.sequence("0").expect("the beginning"),
        until: None,
        filter: Filter::All,
        limit: None,
        with_documents: false,
    };
    let changed = host.far.changes(&mut feed);
    check(&host, changed, NodeFault::Lying, "another range");
}

#[test]
fn steps_without_end_are_noticed() {
    // It comes nowhere, again and again.
    let nowhere = host(|request| match request {
        Request::Find { .. } => Some(Ok(part(&[], None, false))),
        other => Some(Ok(truth(&other))),
    });
    check(
        &nowhere,
        find(&nowhere.far),
        NodeFault::Lying,
        "without an end",
    );
    let same = host(|request| match request {
        Request::Find { .. } => Some(Ok(part(&[], Some("k"), false))),
        other => Some(Ok(truth(&other))),
    });
    check(&same, find(&same.far), NodeFault::Lying, "where it began");
    let too_many = host(|request| match request {
        Request::Find { step } => {
            let number = usize::try_from(step.found_max).expect("a number") + 1;
            let places: Vec<String> = (0..number).map(|at| format!("{at:09}")).collect();
            let places: Vec<&str> = places.iter().map(String::as_str).collect();
            Some(Ok(part(&places, places.last().copied(), false)))
        }
        other => Some(Ok(truth(&other))),
    });
    check(
        &too_many,
        find(&too_many.far),
        NodeFault::Lying,
        "more rows than",
    );
}

#[test]
fn replies_to_other_requests_and_impossible_figures_are_noticed() {
    let host_of_others = host(|request| match request {
        Request::Find { .. } => Some(Ok(Reply::Done)),
        Request::Update { .. } => Some(Ok(Reply::Updated {
            outcomes: Vec::new(),
        })),
        other => Some(Ok(truth(&other))),
    });
    let host = host_of_others;
    check(&host, find(&host.far), NodeFault::Lying, "something else");
    check(
        &host,
        write(&host.far, "x"),
        NodeFault::Lying,
        "another number of outcomes",
    );
    let groups = self::host(|request| match request {
        Request::Find { .. } => {
            let mut reply = part(&[], None, true);
            if let Reply::Found { part } = &mut reply {
                part.reached = None;
                part.found = vec![
                    (b"k".to_vec(), "{}".to_owned()),
                    (b"k".to_vec(), "{}".to_owned()),
                ];
            }
            Some(Ok(reply))
        }
        other => Some(Ok(truth(&other))),
    });
    check(
        &groups,
        find(&groups.far),
        NodeFault::Lying,
        "out of their order",
    );
}

#[test]
fn full_disks_and_silence_have_their_own_words() {
    let full = host(|request| match request {
        Request::Update { .. } => Some(Err(Error::Node {
            fault: NodeFault::Full,
            reason: "no space left".to_owned(),
        })),
        other => Some(Ok(truth(&other))),
    });
    check(
        &full,
        write(&full.far, "x"),
        NodeFault::Full,
        "no space left",
    );
    let silent = host(|request| match request {
        Request::Find { .. } => None,
        other => Some(Ok(truth(&other))),
    });
    check(
        &silent,
        find(&silent.far),
        NodeFault::Slow,
        "did not answer in time",
    );
}

/// A copy that answers something else than the other one is not read, and costs no write.
#[test]
fn a_copy_that_answers_something_else_becomes_stale() {
    let directory = tempfile::tempdir().expect("a directory");
    let liar: Liar = |request| match request {
        Request::Update { documents, .. } => {
            let revision = "1-ffffffffffffffffffffffffffffffff".parse();
            let revision: waystation_documents::Revision = revision.expect("a revision");
            let outcomes = documents.iter().map(|_| Ok(revision.clone())).collect();
            Some(Ok(Reply::Updated { outcomes }))
        }
        other => Some(Ok(truth(&other))),
    };
    let settings = DriveSettings {
        name: "one".to_owned(),
        address: start(liar),
        token: token(),
        authorities: None,
    };
    let settings = Settings {
        nodes: Some(Arc::new(Drives::new(vec![settings]))),
        ..Settings::default()
    };
    let catalogue = Catalogue::open(directory.path(), settings).expect("a catalogue");
    let both = [(LOCAL_NODE.to_owned(), 1.0), ("one".to_owned(), 1.0)];
    let created = catalogue.create_copies("both", (1, 2), Some(&both));
    let database = created.expect("a database");
    write(&database, "x").expect("the copy here suffices");
    let places = database.places().expect("places");
    let stale = places[0].1.iter().find(|copy| copy.node == "one");
    let stale = stale.expect("a copy").standing;
    assert_eq!(stale, waystation_documents::database::Standing::Stale);
    assert_eq!(find(&database).expect("documents").len(), 1);
}
