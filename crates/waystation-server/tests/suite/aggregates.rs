//! What `_find` has beyond CouchDB's interface: aggregates, guards, and what each shard costs.

use crate::support::Running;
use serde_json::{Value, json};

fn server() -> Running {
    let server = Running::start(|_| {});
    assert_eq!(server.json("PUT", "/cars?q=3", "").status, 201);
    let car = |at: u32| json!({"_id": format!("{at:03}"), "n": at, "kind": if at.is_multiple_of(3) { "van" } else { "car" }});
    let docs: Vec<Value> = (0..300).map(car).collect();
    let body = json!({ "docs": docs }).to_string();
    assert_eq!(server.json("POST", "/cars/_bulk_docs", &body).status, 201);
    server
}

fn find(server: &Running, query: &Value) -> Value {
    let reply = server.json("POST", "/cars/_find", &query.to_string());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.value()
}

fn refused(server: &Running, query: &Value) -> (u16, String, String) {
    server
        .json("POST", "/cars/_find", &query.to_string())
        .error()
}

#[test]
fn aggregates_are_of_all_documents_that_match() {
    let server = server();
    let query = json!({
        "selector": {"n": {"$lt": 100}},
        "aggregate": {"group": ["kind"], "count": true, "sum": ["n"], "min": ["n"], "max": ["n"]},
    });
    let answer = find(&server, &query);
    assert_eq!(answer["docs"], json!([]));
    let expected = json!([
        {"group": {"kind": "car"}, "count": 66, "sum": {"n": 3267}, "min": {"n": 1}, "max": {"n": 98}},
        {"group": {"kind": "van"}, "count": 34, "sum": {"n": 1683}, "min": {"n": 0}, "max": {"n": 99}},
    ]);
    assert_eq!(answer["aggregates"], expected);
    let none =
        json!({"selector": {"n": -1}, "aggregate": {"count": true, "sum": ["n"], "max": ["n"]}});
    let expected = json!([{"count": 0, "sum": {"n": 0}, "max": {"n": null}}]);
    assert_eq!(find(&server, &none)["aggregates"], expected);
    let wrong = json!({"selector": {}, "aggregate": {"mean": ["n"]}});
    let (status, word, _) = refused(&server, &wrong);
    assert_eq!((status, word.as_str()), (400, "invalid_aggregate"));
}

#[test]
fn guards_refuse_what_costs_too_much() {
    let server = server();
    for guard in [
        json!({"docs": 299}),
        json!({"bytes": 1000}),
        json!({"scan": false}),
    ] {
        let query = json!({"selector": {"n": -1}, "guard": guard});
        let (status, word, reason) = refused(&server, &query);
        assert_eq!((status, word.as_str()), (400, "guard_exceeded"), "{reason}");
    }
    let enough = json!({"selector": {"n": 7}, "guard": {"docs": 300, "bytes": 1_000_000}});
    assert_eq!(
        find(&server, &enough)["docs"].as_array().map(Vec::len),
        Some(1)
    );
    let by_id = json!({"selector": {"_id": "007"}, "guard": {"scan": false, "docs": 5}});
    assert_eq!(
        find(&server, &by_id)["docs"].as_array().map(Vec::len),
        Some(1)
    );
    for guard in [json!(1), json!({"docs": -1}), json!({"documents": 1})] {
        let query = json!({"selector": {}, "guard": guard});
        assert_eq!(refused(&server, &query).0, 400);
    }
}

#[test]
fn shards_tell_what_they_cost_when_they_are_asked() {
    let server = server();
    let query = json!({"selector": {"n": -1}, "execution_stats": "shards"});
    let stats = &find(&server, &query)["execution_stats"];
    let shards = stats["shards"].as_array().expect("shards");
    assert_eq!(shards.len(), 3);
    let examined = |shard: &Value| shard["docs_examined"].as_u64().unwrap_or(0);
    assert_eq!(shards.iter().map(examined).sum::<u64>(), 300);
    assert!(shards.iter().all(|shard| shard["node"] == "nonode@nohost"));
    let query = json!({"selector": {"n": -1}, "execution_stats": true});
    assert!(
        find(&server, &query)["execution_stats"]
            .get("shards")
            .is_none()
    );
}
