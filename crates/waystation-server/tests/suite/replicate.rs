//! Replications: both ways between two servers and within one, with conflicts, attachments, choices and checkpoints;
//! orders in `_replicator` through every state; sides that are dead, closed or against the protocol.

use crate::support::{Reply, Running};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(50);
/// Looks before a test gives up: a minute.
const LOOKS: usize = 1200;

fn server() -> Running {
    Running::start(|settings| settings.replication_backoff = Duration::from_millis(100))
}

fn make(server: &Running, name: &str) {
    let made = server.json("PUT", &format!("/{name}"), "");
    assert_eq!(made.status, 201, "{}", made.text());
}

fn put(server: &Running, path: &str, body: &Value) -> String {
    let put = server.json("PUT", path, &body.to_string());
    assert_eq!(put.status, 201, "{}", put.text());
    put.value()["rev"].as_str().unwrap().to_owned()
}

fn load(server: &Running, name: &str, ids: std::ops::Range<u32>) {
    let docs: Vec<Value> = ids
        .map(|n| json!({"_id": format!("d{n:04}"), "n": n}))
        .collect();
    let loaded = server.json(
        "POST",
        &format!("/{name}/_bulk_docs"),
        &json!({ "docs": docs }).to_string(),
    );
    assert_eq!(loaded.status, 201);
}

fn replicate(server: &Running, order: &Value) -> Reply {
    server.json("POST", "/_replicate", &order.to_string())
}

fn count(server: &Running, name: &str) -> u64 {
    server.get(&format!("/{name}")).value()["doc_count"]
        .as_u64()
        .unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("it did not come to this: {what}");
}

/// All leaves of all documents, as a feed tells them.
fn leaves(server: &Running, name: &str) -> Vec<String> {
    let feed = server
        .get(&format!("/{name}/_changes?style=all_docs"))
        .value();
    let rows = feed["results"].as_array().unwrap().iter();
    let mut leaves: Vec<String> = rows
        .map(|row| format!("{}{}", row["id"], row["changes"]))
        .collect();
    leaves.sort();
    leaves
}

#[test]
fn two_servers_become_equal_in_both_directions() {
    let (one, other) = (server(), server());
    make(&one, "cars");
    load(&one, "cars", 0..1200);
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    let photo = one.ask(
        "PUT",
        "/cars/photo/x%20y.bin",
        &["Content-Type: a/b"],
        &bytes,
    );
    assert_eq!(photo.status, 201);
    let remote = format!("{}/cars", other.url());
    let order = json!({"source": "cars", "target": remote, "create_target": true});
    let pushed = replicate(&one, &order);
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    let told = pushed.value();
    assert_eq!(told["ok"], true);
    assert_eq!(told["history"][0]["docs_written"], 1201, "{told}");
    assert_eq!(told["history"][0]["doc_write_failures"], 0);
    assert_eq!(leaves(&one, "cars"), leaves(&other, "cars"));
    assert_eq!(other.get("/cars/photo/x%20y.bin").body, bytes);
    // Nothing is new: no session is noted.
    let again = replicate(&one, &order).value();
    assert_eq!(
        (&again["no_changes"], &again["session_id"]),
        (&json!(true), &told["session_id"])
    );
    // Both change one document; after a replication in each direction both have both versions.
    let first = one.get("/cars/d0001").value();
    put(
        &one,
        "/cars/d0001",
        &json!({"_rev": first["_rev"], "n": "here"}),
    );
    put(
        &other,
        "/cars/d0001",
        &json!({"_rev": first["_rev"], "n": "there"}),
    );
    let seventh = one.get("/cars/d0007").value()["_rev"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        one.json("DELETE", &format!("/cars/d0007?rev={seventh}"), "")
            .status,
        200
    );
    // The attachment is known: its document changes without its bytes.
    let photo = one.get("/cars/photo").value();
    put(
        &one,
        "/cars/photo",
        &json!({"_rev": photo["_rev"], "seen": 1, "_attachments": photo["_attachments"]}),
    );
    assert_eq!(replicate(&one, &order).status, 200);
    let back = json!({"source": remote, "target": "cars"});
    assert_eq!(replicate(&one, &back).status, 200);
    assert_eq!(leaves(&one, "cars"), leaves(&other, "cars"));
    let conflicts = one.get("/cars/d0001?conflicts=true").value();
    assert_eq!(conflicts["_conflicts"].as_array().unwrap().len(), 1);
    assert_eq!(other.get("/cars/photo/x%20y.bin").body, bytes);
    assert_eq!(other.get("/cars/photo").value()["seen"], 1);
}

#[test]
fn checkpoints_let_a_replication_go_on_where_it_was() {
    let (one, other) = (server(), server());
    make(&one, "a");
    make(&other, "b");
    load(&one, "a", 0..300);
    let order = json!({"source": "a", "target": format!("{}/b", other.url())});
    let first = replicate(&one, &order).value();
    load(&one, "a", 300..310);
    let second = replicate(&one, &order).value();
    assert_eq!(second["history"][0]["missing_checked"], 10, "{second}");
    assert_eq!(
        second["history"][0]["start_last_seq"],
        first["source_last_seq"]
    );
    assert_eq!(second["history"].as_array().unwrap().len(), 2);
    // The target forgets what it had: the replication begins anew.
    assert_eq!(other.json("DELETE", "/b", "").status, 200);
    make(&other, "b");
    let third = replicate(&one, &order).value();
    assert_eq!(third["history"][0]["docs_written"], 310, "{third}");
    assert_eq!(count(&other, "b"), 310);
    // Without checkpoints nothing is noted.
    make(&one, "c");
    let order = json!({"source": "a", "target": "c", "use_checkpoints": false});
    assert_eq!(
        replicate(&one, &order).value(),
        json!({"ok": true, "use_checkpoints": false})
    );
    assert_eq!(one.get("/c/_local_docs").value()["rows"], json!([]));
    assert_eq!(count(&one, "c"), 310);
}

#[test]
fn choices_leave_the_other_documents_out() {
    let one = server();
    make(&one, "a");
    load(&one, "a", 0..20);
    let design = json!({"filters": {"odd": "function (doc, req) { return doc.n % 2 === 1 && doc.n < Number(req.query.below); }"}});
    put(&one, "/a/_design/f", &design);
    let cases = [
        (json!({"doc_ids": ["d0003", "d0004", "nothing"]}), 2),
        (json!({"selector": {"n": {"$gte": 15}}}), 5),
        (json!({"filter": "f/odd", "query_params": {"below": 10}}), 5),
    ];
    for (at, (choice, expected)) in cases.into_iter().enumerate() {
        let name = format!("t{at}");
        make(&one, &name);
        let mut order = json!({"source": "a", "target": name});
        order
            .as_object_mut()
            .unwrap()
            .extend(choice.as_object().unwrap().clone());
        let done = replicate(&one, &order);
        assert_eq!(done.status, 200, "{}", done.text());
        assert_eq!(count(&one, &name), expected, "{choice}");
    }
    make(&one, "late");
    let since = one.get("/a/_changes?limit=15").value()["last_seq"].clone();
    let done = replicate(
        &one,
        &json!({"source": "a", "target": "late", "since_seq": since}),
    );
    assert_eq!(
        (done.status, count(&one, "late")),
        (200, 6),
        "{}",
        done.text()
    );
}

#[test]
fn continuous_replications_follow_until_they_are_cancelled() {
    let (one, other) = (server(), server());
    make(&one, "a");
    make(&other, "b");
    let order = json!({"source": format!("{}/a", one.url()), "target": "b", "continuous": true, "checkpoint_interval": 200});
    let begun = replicate(&other, &order);
    assert_eq!(begun.status, 202, "{}", begun.text());
    let id = begun.value()["_local_id"].as_str().unwrap().to_owned();
    for round in 0..3 {
        load(&one, "a", round * 10..round * 10 + 10);
        wait_until("changes arrive", || {
            count(&other, "b") == u64::from(round + 1) * 10
        });
    }
    wait_until("the task tells what is written", || {
        let task = other.get("/_active_tasks").value()[0].clone();
        task["type"] == "replication" && task["docs_written"] == 30
    });
    let jobs = other.get("/_scheduler/jobs").value();
    assert_eq!(
        (&jobs["total_rows"], &jobs["jobs"][0]["id"]),
        (&json!(1), &json!(id))
    );
    let path = format!("/_scheduler/jobs/{}", id.replace('+', "%2B"));
    assert_eq!(other.get(&path).value()["history"][0]["type"], "started");
    wait_until("a checkpoint is written while nothing changes", || {
        other.get("/b/_local_docs").value()["rows"]
            .as_array()
            .unwrap()
            .len()
            == 1
    });
    let cancelled = replicate(&other, &json!({"cancel": true, "replication_id": id}));
    assert_eq!(
        (cancelled.status, &cancelled.value()["_local_id"]),
        (200, &json!(id))
    );
    assert_eq!(
        replicate(&other, &json!({"cancel": true, "replication_id": id})).status,
        404
    );
    assert_eq!(other.get("/_scheduler/jobs").value()["jobs"], json!([]));
    load(&one, "a", 30..31);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(count(&other, "b"), 30);
}

fn state(server: &Running, id: &str) -> String {
    let doc = server
        .get(&format!("/_scheduler/docs/_replicator/{id}"))
        .value();
    doc["state"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn orders_in_the_database_are_carried_out_and_told_their_end() {
    let one = server();
    make(&one, "a");
    load(&one, "a", 0..10);
    put(
        &one,
        "/_replicator/copy",
        &json!({"source": "a", "target": "b", "create_target": true}),
    );
    wait_until("the order is carried out", || {
        state(&one, "copy") == "completed"
    });
    let doc = one.get("/_replicator/copy").value();
    assert_eq!(doc["_replication_state"], "completed", "{doc}");
    assert_eq!(doc["_replication_stats"]["docs_written"], 10, "{doc}");
    assert_eq!(count(&one, "b"), 10);
    // A target that is not there is waited for, longer after each fault.
    put(
        &one,
        "/_replicator/early",
        &json!({"source": "a", "target": "later"}),
    );
    let fault = json!("db_not_found: could not open later");
    wait_until("the order fails", || {
        let early = one.get("/_scheduler/docs/_replicator/early").value();
        early["state"] == "crashing" && early["info"]["error"] == fault
    });
    assert!(
        one.get("/_replicator/early")
            .value()
            .get("_replication_state")
            .is_none()
    );
    make(&one, "later");
    wait_until("the order succeeds", || state(&one, "early") == "completed");
    assert_eq!(count(&one, "later"), 10);
    let all = one.get("/_scheduler/docs?states=completed").value();
    assert_eq!(
        (&all["total_rows"], &all["docs"][0]["doc_id"]),
        (&json!(2), &json!("copy"))
    );
    // What is no order is refused at once.
    let refused = one
        .json("PUT", "/_replicator/wrong", r#"{"source":"a"}"#)
        .error();
    assert_eq!(
        refused,
        (
            403,
            "forbidden".into(),
            "Missing replicator database".into()
        )
    );
}

#[test]
fn a_continuous_order_survives_its_server_and_ends_with_its_document() {
    let directory = tempfile::tempdir().unwrap();
    let other = server();
    make(&other, "b");
    let order = json!({"source": "a", "target": format!("{}/b", other.url()), "continuous": true});
    {
        let one = Running::start_in(directory.path(), |_| ());
        make(&one, "a");
        put(&one, "/_replicator/on", &order);
        load(&one, "a", 0..10);
        wait_until("changes arrive", || count(&other, "b") == 10);
    }
    let one = Running::start_in(directory.path(), |_| ());
    load(&one, "a", 10..20);
    wait_until("changes arrive after a restart", || {
        count(&other, "b") == 20
    });
    assert_eq!(state(&one, "on"), "running");
    let revision = one.get("/_replicator/on").value()["_rev"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        one.json("DELETE", &format!("/_replicator/on?rev={revision}"), "")
            .status,
        200
    );
    wait_until("the job ends", || {
        one.get("/_scheduler/jobs").value()["total_rows"] == 0
    });
}

#[test]
fn what_a_target_refuses_is_counted_and_the_rest_arrives() {
    let one = server();
    make(&one, "a");
    make(&one, "b");
    load(&one, "a", 0..10);
    let rule = "function (doc) { if (doc.n === 3) { throw {forbidden: 'three'}; } }";
    put(
        &one,
        "/b/_design/rule",
        &json!({"validate_doc_update": rule}),
    );
    let done = replicate(&one, &json!({"source": "a", "target": "b"})).value();
    let session = &done["history"][0];
    assert_eq!(
        (&session["docs_written"], &session["doc_write_failures"]),
        (&json!(9), &json!(1)),
        "{done}"
    );
    assert_eq!(count(&one, "b"), 10);
}

/// Answers every request with `answer`, until the test ends.
fn liar(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let length = answer.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{answer}"
            );
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
    format!("http://{address}/x")
}

#[test]
fn sides_that_are_dead_closed_or_lying_are_named() {
    let one = server();
    make(&one, "a");
    let dead = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = |source: Value| {
        let order = json!({"source": source, "target": "a", "retries_per_request": 1, "connection_timeout": 2000});
        replicate(&one, &order).error()
    };
    let (status, word, _) = error(json!(format!("http://{dead}/x")));
    assert_eq!((status, word.as_str()), (500, "http_request_failed"));
    let (status, word, reason) = error(json!("nothing"));
    assert_eq!(
        (status, word.as_str(), reason.as_str()),
        (404, "db_not_found", "could not open nothing")
    );
    let cases = [
        ("{", "invalid JSON"),
        ("{}", "it has no results"),
        (
            r#"{"results":[{"id":"x","changes":[]}],"last_seq":1}"#,
            "a change has no revisions",
        ),
        (
            r#"{"results":[{"id":"x","changes":[{"rev":"1-a"}]}],"last_seq":"0"}"#,
            "its changes lead nowhere",
        ),
        (r#"{"results":[],"last_seq":null}"#, "it has no last_seq"),
    ];
    for (answer, reason) in cases {
        let (status, word, found) = error(json!(liar(answer)));
        assert_eq!(
            (status, word.as_str()),
            (500, "invalid_response"),
            "{found}"
        );
        assert!(found.contains(reason), "{answer}: {found}");
    }
    // The answer never comes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_, word, reason) = error(json!(format!("http://{}/x", silent.local_addr().unwrap())));
    assert_eq!(word, "http_request_failed");
    assert!(reason.contains("no answer came in time"), "{reason}");
    let closed = Running::start(|settings| {
        settings.admins = vec![waystation_server::Admin {
            name: "admin".into(),
            password: "secret".into(),
        }];
    });
    let admin = "Authorization: Basic YWRtaW46c2VjcmV0";
    assert_eq!(closed.ask("PUT", "/x", &[admin], b"").status, 201);
    let (status, word, _) = error(json!(format!("{}/x", closed.url())));
    assert_eq!((status, word.as_str()), (401, "unauthorized"));
    let source = json!({"url": format!("{}/x", closed.url()), "auth": {"basic": {"username": "admin", "password": "secret"}}});
    let done = replicate(&one, &json!({"source": source, "target": "a"}));
    assert_eq!(done.status, 200, "{}", done.text());
    // Callers without a name order nothing, and see no orders.
    let order = json!({"source": one.url() + "/a", "target": "x"});
    assert_eq!(replicate(&closed, &order).status, 401);
    assert_eq!(closed.get("/_scheduler/jobs").status, 401);
    assert_eq!(closed.get("/_replicator/_all_docs").status, 401);
}
