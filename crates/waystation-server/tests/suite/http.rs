//! Statuses, error words and headers of the interface, as CouchDB's clients expect them.

use crate::support::{self, Running};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};

#[test]
fn databases_come_and_go() {
    let server = Running::plain();
    assert_eq!(server.get("/").value()["couchdb"], "Welcome");
    assert_eq!(server.get("/_up").value()["status"], "ok");
    let created = server.json("PUT", "/cars%2Fred?q=3", "");
    assert_eq!(
        (created.status, created.header("location")),
        (201, "/cars%2Fred")
    );
    let again = server.json("PUT", "/cars%2Fred", "").error();
    assert_eq!((again.0, again.1.as_str()), (412, "file_exists"));
    let info = server.get("/cars%2Fred").value();
    assert_eq!(
        (&info["db_name"], &info["cluster"]["q"]),
        (&json!("cars/red"), &json!(3))
    );
    assert_eq!(info["instance_start_time"], "0");
    let names = server.get("/_all_dbs").value();
    assert_eq!(names, json!(["_replicator", "_users", "cars/red"]));
    assert_eq!(server.json("PUT", "/x?q=0", "").status, 400);
    assert_eq!(
        server.json("PUT", "/Cars", "").error().1,
        "illegal_database_name"
    );
    assert_eq!(server.json("DELETE", "/cars%2Fred?rev=1", "").status, 400);
    for _ in 0..3 {
        assert_eq!(server.json("DELETE", "/cars%2Fred", "").status, 200);
        let gone = server.get("/cars%2Fred").error();
        assert_eq!(
            gone,
            (404, "not_found".into(), "Database does not exist.".into())
        );
        assert_eq!(
            server.get("/cars%2Fred/a").error().2,
            "Database does not exist."
        );
        assert_eq!(server.json("PUT", "/cars%2Fred", "").status, 201);
    }
    let uuids = server.get("/_uuids?count=3").value();
    assert_eq!(uuids["uuids"].as_array().unwrap().len(), 3);
    let shards = server.get("/cars%2Fred/_shards").value();
    assert_eq!(
        shards["shards"]["00000000-7fffffff"],
        json!(["nonode@nohost"])
    );
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one resource from its first request to its last"
)]
fn documents_are_written_read_deleted_and_copied() {
    let server = Running::plain();
    server.json("PUT", "/cars", "");
    let first = server.json(
        "PUT",
        "/cars/a%2Fb",
        r#"{"x":1.0,"big":123456789012345678901234567890}"#,
    );
    assert_eq!(
        (first.status, first.header("location")),
        (201, "/cars/a%2Fb")
    );
    let revision = first.value()["rev"].as_str().unwrap().to_owned();
    assert_eq!(first.header("etag"), format!("\"{revision}\""));
    let read = server.get("/cars/a%2Fb");
    assert!(
        read.text()
            .contains(r#""x":1.0,"big":123456789012345678901234567890"#)
    );
    let tag = format!("If-None-Match: \"{revision}\"");
    assert_eq!(server.ask("GET", "/cars/a%2Fb", &[&tag], b"").status, 304);
    assert_eq!(
        server.ask("HEAD", "/cars/a%2Fb", &[], b"").header("etag"),
        read.header("etag")
    );
    let conflict = (
        409,
        "conflict".to_owned(),
        "Document update conflict.".to_owned(),
    );
    assert_eq!(server.json("PUT", "/cars/a%2Fb", "{}").error(), conflict);
    assert_eq!(server.json("DELETE", "/cars/a%2Fb", "").error(), conflict);
    let second = server.put(&format!("/cars/a%2Fb?rev={revision}"), r#"{"x":2}"#);
    assert!(second.starts_with("2-"));
    let old = server.get(&format!("/cars/a%2Fb?rev={revision}")).value();
    assert_eq!(old["x"], 1.0);
    let full = server
        .get("/cars/a%2Fb?revs=true&revs_info=true&local_seq=true")
        .value();
    assert_eq!(full["_revisions"]["start"], 2);
    assert_eq!(full["_revs_info"][1]["status"], "available");
    let copied = server.ask("COPY", "/cars/a%2Fb", &["Destination: copy"], b"");
    assert_eq!(copied.status, 201);
    assert_eq!(server.get("/cars/copy").value()["x"], 2);
    let matched = format!("If-Match: \"{second}\"");
    let deleted = server.ask("DELETE", "/cars/a%2Fb", &[&matched], b"");
    assert_eq!(deleted.status, 200);
    assert_eq!(server.get("/cars/a%2Fb").error().2, "deleted");
    assert_eq!(server.get("/cars/nothing").error().2, "missing");
    assert!(server.put("/cars/a%2Fb", "{}").starts_with("4-"));
    let wrong = server.json("PUT", "/cars/c", r#"{"_foo":1}"#).error();
    assert_eq!(
        wrong,
        (
            400,
            "doc_validation".into(),
            "Bad special document member: _foo".into()
        )
    );
    assert_eq!(
        server.json("PUT", "/cars/_c", "{}").error().1,
        "illegal_docid"
    );
    assert_eq!(
        server.json("PUT", "/cars/c", "{").error().2,
        "invalid UTF-8 JSON"
    );
    assert_eq!(server.get("/cars/a%2Fb?rev=x").error().0, 400);
    let state = server.put("/cars/r", r#"{"_replication_state":"triggered"}"#);
    assert_eq!(
        server.get(&format!("/cars/r?rev={state}")).value()["_replication_state"],
        "triggered"
    );
    let posted = server.json("POST", "/cars", r#"{"x":3}"#).value();
    assert_eq!(posted["id"].as_str().unwrap().len(), 32);
}

#[test]
fn requests_that_are_wrong_say_how() {
    let server = Running::start(|settings| {
        settings.body_bytes_max = 10_000;
        settings.document_bytes_max = 1000;
    });
    server.json("PUT", "/cars", "");
    let method = server.json("PATCH", "/cars/_find", "{}");
    assert_eq!((method.status, method.header("allow")), (405, "POST"));
    let media = server.ask("POST", "/cars/_bulk_docs", &[], b"{}").error();
    assert_eq!((media.0, media.1.as_str()), (415, "bad_content_type"));
    let list = server.json("POST", "/cars/_bulk_docs", "[]").error();
    assert_eq!(list.2, "Request body must be a JSON object");
    let body = vec![b' '; 10_001];
    assert_eq!(
        server.ask("PUT", "/cars/a", &[], &body).error().1,
        "too_large"
    );
    let long = format!("{{\"x\":\"{}\"}}", "x".repeat(1000));
    let large = server.json("PUT", "/cars/a", &long).error();
    assert_eq!((large.0, large.1.as_str()), (413, "document_too_large"));
    for path in [
        "/cars/_design/d/_show/s",
        "/cars/_design/d/_list/s",
        "/_cluster_setup",
    ] {
        assert_eq!(server.get(path).error().1, "not_implemented", "{path}");
    }
    let since = server.get("/cars/_changes?since=x").error();
    assert_eq!(since.2, "Malformed sequence supplied in 'since' parameter.");
    assert_eq!(
        server.get("/cars/_all_docs?limit=x").error().1,
        "query_parse_error"
    );
    let id = server.ask("GET", "/", &["X-Couch-Request-ID: mine"], b"");
    assert_eq!(id.header("x-couch-request-id"), "mine");
    let long_head = format!("X-Long: {}", "x".repeat(200_000));
    let mut stream = server.send("GET", "/", &[&long_head], b"");
    let mut answer = Vec::new();
    // The server may have closed the connection already.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"));
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn bulk_requests_answer_each_document() {
    let server = Running::plain();
    server.json("PUT", "/cars", "");
    let revision = server.put("/cars/a", "{}");
    let docs = json!({"docs": [{"_id": "a"}, {"_id": "b"}, {"_id": "a", "_rev": revision, "n": 2}, {"_id": "_local/l"}]});
    let reply = server.json("POST", "/cars/_bulk_docs", &docs.to_string());
    assert_eq!(reply.status, 201);
    let rows = reply.value();
    assert_eq!(
        (&rows[0]["error"], &rows[1]["ok"]),
        (&json!("conflict"), &json!(true))
    );
    assert_eq!(
        (&rows[2]["ok"], &rows[3]["rev"]),
        (&json!(true), &json!("0-1"))
    );
    let replicated = json!({"new_edits": false, "docs": [
        {"_id": "a", "_rev": "2-zz", "_revisions": {"start": 2, "ids": ["zz", "yy"]}}
    ]});
    assert_eq!(
        server
            .json("POST", "/cars/_bulk_docs", &replicated.to_string())
            .value(),
        json!([])
    );
    let conflicts = server.get("/cars/a?conflicts=true").value();
    assert_eq!(
        (
            &conflicts["_rev"],
            conflicts["_conflicts"].as_array().unwrap().len()
        ),
        (&json!("2-zz"), 1)
    );
    assert_eq!(
        server.json("POST", "/cars/_bulk_docs", "{}").error().2,
        "POST body must include `docs` parameter."
    );
    let missing = r#"{"docs":[{"_id":"q","_attachments":{"x":{"stub":true}}}]}"#;
    assert_eq!(server.json("POST", "/cars/_bulk_docs", missing).status, 412);
    let wanted = r#"{"docs":[{"id":"a","rev":"2-zz"},{"id":"no"}]}"#;
    let got = server
        .json("POST", "/cars/_bulk_get?revs=true", wanted)
        .value();
    assert_eq!(
        got["results"][0]["docs"][0]["ok"]["_revisions"]["ids"],
        json!(["zz", "yy"])
    );
    assert_eq!(got["results"][1]["docs"][0]["error"]["rev"], "undefined");
    let diff = server
        .json("POST", "/cars/_revs_diff", r#"{"a":["3-q","2-zz"],"b":[]}"#)
        .value();
    assert_eq!(diff["a"]["missing"], json!(["3-q"]));
    assert_eq!(diff["a"]["possible_ancestors"].as_array().unwrap().len(), 2);
    assert_eq!(diff["b"], Value::Null);
    let missing = server
        .json("POST", "/cars/_missing_revs", r#"{"a":["3-q"]}"#)
        .value();
    assert_eq!(missing, json!({"missing_revs": {"a": ["3-q"]}}));
    let nameless = r#"{"new_edits":false,"docs":[{"_id":"q"}]}"#;
    let refused = server.json("POST", "/cars/_bulk_docs", nameless).error();
    assert_eq!((refused.0, refused.1.as_str()), (400, "bad_request"));
    let purged = server.json("POST", "/cars/_purge", r#"{"a":["2-zz"]}"#);
    assert_eq!(
        (purged.status, &purged.value()["purged"]["a"]),
        (201, &json!(["2-zz"]))
    );
    assert_ne!(server.get("/cars/a").value()["_rev"], "2-zz");
}

#[test]
fn listings_take_ranges_keys_and_queries() {
    let server = Running::plain();
    server.json("PUT", "/cars", "");
    for id in ["B", "a", "b", "c"] {
        server.put(&format!("/cars/{id}"), "{\"n\":1}");
    }
    server.put("/cars/_design/d", "{}");
    let ids = |reply: &support::Reply| -> Vec<String> {
        let rows = reply.value()["rows"].as_array().unwrap().clone();
        rows.iter()
            .map(|row| row["id"].as_str().unwrap_or("?").to_owned())
            .collect()
    };
    assert_eq!(
        ids(&server.get("/cars/_all_docs")),
        ["B", "_design/d", "a", "b", "c"]
    );
    assert_eq!(ids(&server.get("/cars/_design_docs")), ["_design/d"]);
    let down = server.get(
        "/cars/_all_docs?descending=true&start_key=%22b%22&end_key=%22B%22&inclusive_end=false",
    );
    assert_eq!(ids(&down), ["b", "a", "_design/d"]);
    assert_eq!(down.value()["offset"], 1);
    assert_eq!(ids(&server.get("/cars/_all_docs?key=%22b%22")), ["b"]);
    assert_eq!(ids(&server.get("/cars/_all_docs?skip=2&limit=1")), ["a"]);
    let keys = server
        .json(
            "POST",
            "/cars/_all_docs?include_docs=true",
            r#"{"keys":["zz","b"]}"#,
        )
        .value();
    assert_eq!(keys["rows"][0], json!({"key": "zz", "error": "not_found"}));
    assert_eq!(
        (&keys["rows"][1]["doc"]["n"], &keys["offset"]),
        (&json!(1), &Value::Null)
    );
    let queries = r#"{"queries":[{"key":"a"},{"limit":1,"descending":true}]}"#;
    let results = server
        .json("POST", "/cars/_all_docs/queries", queries)
        .value();
    assert_eq!(results["results"][1]["rows"][0]["id"], "c");
    assert_eq!(server.put("/cars/_local/l", "{}"), "0-1");
    assert_eq!(ids(&server.get("/cars/_local_docs")), ["_local/l"]);
    assert_eq!(server.get("/cars").value()["doc_count"], 5);
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one resource from its first request to its last"
)]
fn feeds_wait_for_changes_and_end_with_their_database() {
    let server = Running::plain();
    server.json("PUT", "/cars", "");
    server.put("/cars/a", "{}");
    let normal = server.get("/cars/_changes?include_docs=true").value();
    assert_eq!(normal["results"][0]["doc"]["_id"], "a");
    assert_eq!(
        (&normal["pending"], &normal["last_seq"]),
        (&json!(0), &normal["results"][0]["seq"])
    );
    let since = normal["last_seq"].as_str().unwrap();
    let path = format!("/cars/_changes?feed=longpoll&since={since}");
    let mut waiting = server.send("GET", &path, &[], b"");
    server.put("/cars/b", "{}");
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(
        answer.contains("\"id\":\"b\"") && answer.contains("last_seq"),
        "{answer}"
    );
    let stream = server.send(
        "GET",
        "/cars/_changes?feed=continuous&heartbeat=50",
        &[],
        b"",
    );
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut until = |wanted: &str| lines.by_ref().any(|line| line.contains(wanted));
    assert!(until("\"id\":\"b\""));
    server.put("/cars/c", "{}");
    assert!(until("\"id\":\"c\""));
    server.json("DELETE", "/cars", "");
    assert!(until("last_seq"));
    server.json("PUT", "/cars", "");
    server.put("/cars/x", "{}");
    // A sequence of the database before begins from the start.
    let anew = server.get(&format!("/cars/_changes?since={since}")).value();
    assert_eq!(anew["results"].as_array().unwrap().len(), 1);
    let events = server.get("/cars/_changes?feed=eventsource&timeout=50");
    assert_eq!(events.header("content-type"), "text/event-stream");
    assert!(
        events.text().starts_with("data: {\"seq\":"),
        "{}",
        events.text()
    );
    let ids = server
        .json(
            "POST",
            "/cars/_changes?filter=_doc_ids",
            r#"{"doc_ids":["y"]}"#,
        )
        .value();
    assert_eq!(ids["results"], json!([]));
    let selected = server
        .json(
            "POST",
            "/cars/_changes?filter=_selector",
            r#"{"selector":{"_id":"x"}}"#,
        )
        .value();
    assert_eq!(selected["results"].as_array().unwrap().len(), 1);
    server.put("/cars/_design/d", r#"{"filters":{"f":"function"}}"#);
    for (filter, status, reason) in [
        ("e/f", 404, "missing"),
        ("d/g", 404, "missing json key: g"),
        ("_view&view=d/v", 404, "missing json key: views"),
    ] {
        let refused = server
            .get(&format!("/cars/_changes?filter={filter}"))
            .error();
        assert_eq!(
            (refused.0, refused.2.as_str()),
            (status, reason),
            "{filter}"
        );
    }
    server.json("DELETE", "/cars", "");
    server.json("PUT", "/cars", "");
    server.put("/cars/x", "{}");
    let down = server.get("/cars/_changes?descending=true&limit=1").value();
    assert_eq!(down["results"][0]["id"], "x");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one resource from its first request to its last"
)]
fn queries_and_indexes() {
    let server = Running::plain();
    server.json("PUT", "/cars", "");
    let docs: Vec<Value> = (0..50)
        .map(|n| json!({"_id": format!("{n:02}"), "n": n}))
        .collect();
    server.json(
        "POST",
        "/cars/_bulk_docs",
        &json!({"docs": docs}).to_string(),
    );
    let find = |query: Value| server.json("POST", "/cars/_find", &query.to_string());
    let found =
        find(json!({"selector": {"n": {"$gt": 40}}, "limit": 2, "execution_stats": true})).value();
    assert_eq!(
        (
            &found["docs"][0]["n"],
            found["docs"].as_array().unwrap().len()
        ),
        (&json!(41), 2)
    );
    assert_eq!(found["execution_stats"]["results_returned"], 2);
    let next =
        find(json!({"selector": {"n": {"$gt": 40}}, "limit": 2, "bookmark": found["bookmark"]}))
            .value();
    assert_eq!(next["docs"][0]["n"], 43);
    assert!(
        next["warning"]
            .as_str()
            .unwrap()
            .starts_with("No matching index found")
    );
    let unsorted = find(json!({"selector": {"n": 1}, "sort": ["n"]})).error();
    assert_eq!((unsorted.0, unsorted.1.as_str()), (400, "no_usable_index"));
    let index = r#"{"index":{"fields":["n"]},"ddoc":"d","name":"i"}"#;
    let made = server.json("POST", "/cars/_index", index).value();
    assert_eq!(
        made,
        json!({"result": "created", "id": "_design/d", "name": "i"})
    );
    assert_eq!(
        server.json("POST", "/cars/_index", index).value()["result"],
        "exists"
    );
    let sorted =
        find(json!({"selector": {"n": {"$gt": 0}}, "sort": [{"n": "desc"}], "limit": 1})).value();
    assert_eq!(
        (&sorted["docs"][0]["n"], &sorted["warning"]),
        (&json!(49), &Value::Null)
    );
    let explained = server
        .json("POST", "/cars/_explain", r#"{"selector":{"n":1}}"#)
        .value();
    assert_eq!(explained["index"]["name"], "i");
    let refused =
        find(json!({"selector": {"n": 1}, "use_index": "x", "allow_fallback": false})).error();
    assert_eq!(refused.1, "invalid_index");
    assert_eq!(find(json!({})).error().1, "missing_required_key");
    assert_eq!(
        find(json!({"selector": {"n": {"$foo": 1}}})).error().1,
        "invalid_operator"
    );
    assert_eq!(
        server.json("DELETE", "/cars/_index/d/json/i", "").status,
        200
    );
    assert_eq!(
        server.json("DELETE", "/cars/_index/d/json/i", "").status,
        404
    );
    let empty = find(json!({"selector": {"n": 1}, "fields": ["n"], "limit": 0})).value();
    assert_eq!(empty["bookmark"], "nil");
}

#[test]
fn what_is_stored_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let revision = {
        let server = Running::start_in(directory.path(), |_| {});
        server.json("PUT", "/cars", "");
        server.json("PUT", "/cars/_revs_limit", "7");
        server.put("/cars/a", "{}")
    };
    let server = Running::start_in(directory.path(), |settings| settings.sync = true);
    assert_eq!(server.get("/cars/a").value()["_rev"], revision.as_str());
    assert_eq!(server.get("/cars/_revs_limit").text().trim(), "7");
    assert_eq!(
        server
            .json("POST", "/cars/_ensure_full_commit", "{}")
            .status,
        201
    );
    let second = server.put(&format!("/cars/a?rev={revision}"), "{}");
    assert_eq!(server.json("POST", "/cars/_compact", "").status, 202);
    while server.get("/cars").value()["compact_running"] == true {
        std::thread::yield_now();
    }
    assert_eq!(server.get(&format!("/cars/a?rev={revision}")).status, 404);
    assert_eq!(server.get(&format!("/cars/a?rev={second}")).status, 200);
    let both = format!("/cars/a?latest=true&open_revs=[%22{second}%22,%22{revision}%22]");
    assert_eq!(server.get(&both).value().as_array().unwrap().len(), 1);
    server.put(
        "/cars/_local/l",
        r#"{"_revisions":{"start":0,"ids":["1"]}}"#,
    );
}

#[test]
fn browsers_call_from_the_origins_that_are_named() {
    let server = Running::start(|settings| settings.cors_origins = vec!["https://app".to_owned()]);
    let preflight = ["Origin: https://app", "Access-Control-Request-Method: PUT"];
    let reply = server.ask("OPTIONS", "/cars", &preflight, b"");
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (204, "https://app")
    );
    let reply = server.ask("GET", "/", &["Origin: https://app"], b"");
    assert_eq!(reply.header("access-control-allow-credentials"), "true");
    let other = server.ask("GET", "/", &["Origin: https://other"], b"");
    assert_eq!(other.header("access-control-allow-origin"), "");
}

#[test]
fn urls_may_have_quotes_that_are_not_encoded() {
    let server = Running::plain();
    server.json("PUT", "/cars", "");
    for id in ["a", "b"] {
        server.put(&format!("/cars/{id}"), "{}");
    }
    let one = server.get("/cars/_all_docs?key=\"b\"").value();
    assert_eq!(one["rows"][0]["id"], "b");
    let body = r#"{"docs":[{"_id":"c","text":"?key=\"a\""}]}"#;
    assert_eq!(server.json("POST", "/cars/_bulk_docs", body).status, 201);
    assert_eq!(server.get("/cars/c").value()["text"], "?key=\"a\"");
    let some = server
        .get("/cars/_all_docs?keys=[\"a\",\"c\"]&x={<|>}^`")
        .value();
    assert_eq!(some["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn figures_of_databases_are_counted() {
    let server = Running::plain();
    assert_eq!(server.json("PUT", "/stays", "").status, 201);
    server.put("/stays/a", "{}");
    let revision = server.put("/stays/b", "{}");
    let gone = server.ask("DELETE", &format!("/stays/b?rev={revision}"), &[], b"");
    assert_eq!(gone.status, 200);
    let text = server.get("/metrics").text();
    for figure in [
        "waystation_documents{database=\"stays\"} 1\n",
        "waystation_documents_deleted{database=\"stays\"} 1\n",
        "waystation_documents_updates_total{database=\"stays\"} 3\n",
    ] {
        assert!(text.contains(figure), "{figure}{text}");
    }
}
