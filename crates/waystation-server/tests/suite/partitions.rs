//! Partitioned databases: where documents lie, what their identifiers are, and what is asked of one partition.

use crate::support::Running;
use serde_json::{Value, json};

/// A server with the partitioned database `cars` of four shards: sixty documents of three drivers, each a partition.
fn server() -> Running {
    let server = Running::plain();
    assert_eq!(
        server.json("PUT", "/cars?q=4&partitioned=true", "").status,
        201
    );
    let document = |number: usize| {
        let (driver, kind) = (
            ["ann", "bob", "ann-b"][number % 3],
            ["van", "bus"][number % 2],
        );
        json!({"_id": format!("{driver}:{number:03}"), "speed": number, "kind": kind})
    };
    let documents: Vec<Value> = (0..60).map(document).collect();
    let body = json!({"docs": documents}).to_string();
    assert_eq!(server.json("POST", "/cars/_bulk_docs", &body).status, 201);
    server
}

/// The identifiers in `list` of the answer `value`.
fn ids(value: &Value, list: &str, member: &str) -> Vec<String> {
    let rows = value[list].as_array().unwrap_or_else(|| panic!("{value}"));
    let id = |row: &Value| row[member].as_str().unwrap().to_owned();
    rows.iter().map(id).collect()
}

/// The identifiers of the partition of `driver` from `begin` on, in their order.
fn expected(driver: usize, wanted: impl Fn(usize) -> bool) -> Vec<String> {
    let name = ["ann", "bob", "ann-b"][driver];
    let numbers = (0..60).filter(|number| number % 3 == driver && wanted(*number));
    numbers
        .map(|number| format!("{name}:{number:03}"))
        .collect()
}

#[test]
fn identifiers_name_a_partition_and_lie_in_its_shard() {
    let server = server();
    assert_eq!(
        server.get("/cars").value()["props"],
        json!({"partitioned": true})
    );
    let shard = |id: &str| server.get(&format!("/cars/_shards/{id}")).value()["range"].clone();
    for number in 0..10 {
        assert_eq!(shard(&format!("ann:{number}")), shard("ann:x"));
    }
    let cases = [
        (
            "nobody",
            "illegal_docid",
            "Doc id must be of form partition:id",
        ),
        (":x", "illegal_partition", "Partition must not be empty"),
        ("x:", "illegal_docid", "Document id must not be empty"),
        (
            "_x:y",
            "illegal_docid",
            "Only reserved document ids may start with underscore.",
        ),
    ];
    for (id, word, reason) in cases {
        let refused = (400, word.to_owned(), reason.to_owned());
        assert_eq!(
            server.json("PUT", &format!("/cars/{id}"), "{}").error(),
            refused
        );
        let body = json!({"docs": [{"_id": id}]}).to_string();
        assert_eq!(
            server.json("POST", "/cars/_bulk_docs", &body).error(),
            refused
        );
    }
    server.put("/cars/_local/x", "{}");
    assert_eq!(server.get("/cars/_local/x").status, 200);
    let purge = server.json(
        "POST",
        "/cars/_purge",
        r#"{"nobody":["1-967a00dff5e02add41819138abb3284d"]}"#,
    );
    assert_eq!(purge.error().1, "illegal_docid");
    let wrong = server.json("PUT", "/x?partitioned=tru", "").error();
    assert_eq!(wrong.2, "Invalid `partitioned` parameter");
    let system = server
        .json("PUT", "/_global_changes?partitioned=true", "")
        .error();
    assert_eq!(system.2, "Cannot partition a system database");
}

#[test]
fn a_partition_is_described_and_listed() {
    let server = server();
    let revision = server.get("/cars/ann:000").value()["_rev"]
        .as_str()
        .unwrap()
        .to_owned();
    server.json("DELETE", &format!("/cars/ann:000?rev={revision}"), "");
    let info = server.get("/cars/_partition/ann").value();
    assert_eq!(
        (&info["doc_count"], &info["doc_del_count"]),
        (&json!(19), &json!(1))
    );
    assert!(info["sizes"]["active"].as_u64().unwrap() > 19 * 20);
    assert_eq!(
        server.get("/cars/_partition/none").value()["doc_count"],
        json!(0)
    );
    let list = |query: &str| {
        server
            .get(&format!("/cars/_partition/ann/_all_docs{query}"))
            .value()
    };
    let all = list("");
    assert_eq!(all["total_rows"], json!(19));
    assert_eq!(ids(&all, "rows", "id"), expected(0, |it| it > 0));
    let cases = [
        ("?limit=2&skip=1", vec!["ann:006", "ann:009"]),
        ("?descending=true&limit=2", vec!["ann:057", "ann:054"]),
        (
            "?startkey=%22a%22&endkey=%22ann:006%22",
            vec!["ann:003", "ann:006"],
        ),
        (
            "?startkey=%22ann:054%22&endkey=%22z%22",
            vec!["ann:054", "ann:057"],
        ),
        ("?key=%22bob:001%22", vec![]),
    ];
    for (query, expected) in cases {
        assert_eq!(ids(&list(query), "rows", "id"), expected, "{query}");
    }
    let keys = r#"{"keys":["ann:003","bob:001"]}"#;
    let rows = server
        .json("POST", "/cars/_partition/ann/_all_docs", keys)
        .value();
    assert_eq!(
        rows["rows"][1],
        json!({"key": "bob:001", "error": "not_found"})
    );
    let whole = server.get("/cars/_all_docs").value();
    assert_eq!(whole["total_rows"], json!(59));
    for path in [
        "/cars/_partition",
        "/cars/_partition/_x",
        "/cars/_partition/a:b",
        "/cars/_partition/_find",
    ] {
        assert_eq!(server.get(path).status, 400, "{path}");
    }
    assert_eq!(server.get("/cars/_partition/ann/_changes").status, 404);
    server.json("PUT", "/plain", "");
    let refused = server.get("/plain/_partition/ann/_all_docs").error();
    assert_eq!(refused.2, "database is not partitioned");
    assert_eq!(server.get("/plain/_all_docs?partition=ann").status, 400);
}

#[test]
fn queries_find_documents_of_one_partition() {
    let server = server();
    let find = |path: &str, body: Value| server.json("POST", path, &body.to_string());
    let index = |partitioned: Option<bool>, field: &str| {
        let mut body = json!({"index": {"fields": [field]}, "name": field});
        if let Some(partitioned) = partitioned {
            body["partitioned"] = json!(partitioned);
        }
        server
            .json("POST", "/cars/_index", &body.to_string())
            .value()
    };
    let query = json!({"selector": {"speed": {"$gte": 30}}, "limit": 100});
    let late = expected(2, |number| number >= 30);
    for round in 0..2 {
        let found = find("/cars/_partition/ann-b/_find", query.clone()).value();
        assert_eq!(ids(&found, "docs", "_id"), late, "{round}");
        let all = find("/cars/_find", query.clone()).value();
        assert_eq!(all["docs"].as_array().unwrap().len(), 30);
        let plan = find("/cars/_partition/ann-b/_explain", query.clone()).value();
        let name = ["_all_docs", "speed"][round];
        assert_eq!(plan["index"]["name"], json!(name));
        assert_eq!(
            (&plan["partitioned"], &plan["mrargs"]["partition"]),
            (&json!(true), &json!("ann-b"))
        );
        assert_eq!(plan["selector"], json!({"speed": {"$gte": 30}}));
        // A query of the whole database goes through no index of partitions.
        let whole = find("/cars/_explain", query.clone()).value();
        assert_eq!(whole["index"]["name"], json!("_all_docs"));
        assert_eq!(
            index(None, "speed")["result"],
            json!(["created", "exists"][round])
        );
    }
    let listed = server.get("/cars/_index").value();
    assert_eq!(listed["indexes"][1]["partitioned"], json!(true));
    let page = json!({"selector": {"speed": {"$gte": 30}}, "limit": 6, "sort": ["speed"]});
    let first = find("/cars/_partition/ann-b/_find", page.clone()).value();
    assert_eq!(ids(&first, "docs", "_id"), late[..6]);
    let mut next = page;
    next["bookmark"] = first["bookmark"].clone();
    let second = find("/cars/_partition/ann-b/_find", next).value();
    assert_eq!(ids(&second, "docs", "_id"), late[6..]);
    // Only the partition's entries are read.
    let stats = json!({"selector": {"speed": {"$gte": 0}}, "limit": 100, "execution_stats": true});
    let stats = find("/cars/_partition/bob/_find", stats).value();
    assert_eq!(stats["execution_stats"]["total_docs_examined"], json!(20));
    assert_eq!(index(Some(false), "kind")["result"], json!("created"));
    let query = json!({"selector": {"kind": "bus"}, "limit": 100});
    assert_eq!(
        find("/cars/_explain", query.clone()).value()["index"]["name"],
        json!("kind")
    );
    let plan = find("/cars/_partition/bob/_explain", query.clone()).value();
    assert_eq!(plan["index"]["name"], json!("_all_docs"));
    let found = find("/cars/_partition/bob/_find", query).value();
    assert_eq!(
        ids(&found, "docs", "_id"),
        expected(1, |number| number % 2 == 1)
    );
    server.json("PUT", "/plain", "");
    let refused = find("/plain/_find", json!({"selector": {}, "partition": "x"}));
    assert_eq!(refused.error().2, "database is not partitioned");
    let body = json!({"index": {"fields": ["a"]}, "partitioned": true}).to_string();
    assert_eq!(server.json("POST", "/plain/_index", &body).status, 400);
}

#[test]
fn views_are_of_partitions_unless_their_design_document_says_otherwise() {
    let server = server();
    let map = "doc => emit(doc.speed, doc.kind)";
    let views = json!({"speeds": {"map": map}, "kinds": {"map": "doc => emit(doc.kind, 1)", "reduce": "_sum"}});
    server.put("/cars/_design/d", &json!({"views": views}).to_string());
    let whole = json!({"views": views, "options": {"partitioned": false}});
    server.put("/cars/_design/whole", &whole.to_string());
    let view = |query: &str| server.get(&format!("/cars/_partition/ann/_design/d/_view/{query}"));
    let rows = view("speeds").value();
    assert_eq!(ids(&rows, "rows", "id"), expected(0, |_| true));
    let cases = [
        (
            "speeds?startkey=3&endkey=9",
            vec!["ann:003", "ann:006", "ann:009"],
        ),
        ("speeds?descending=true&limit=2", vec!["ann:057", "ann:054"]),
        ("speeds?key=6", vec!["ann:006"]),
        ("speeds?key=7", vec![]),
        ("speeds?keys=[9,7,3]", vec!["ann:009", "ann:003"]),
        ("speeds?startkey=6&skip=1&limit=1", vec!["ann:009"]),
    ];
    for (query, expected) in cases {
        assert_eq!(ids(&view(query).value(), "rows", "id"), expected, "{query}");
    }
    let groups = view("kinds?group=true").value();
    assert_eq!(
        groups["rows"],
        json!([{"key": "bus", "value": 10}, {"key": "van", "value": 10}])
    );
    server.put("/cars/ann:999", r#"{"speed": 1, "kind": "bus"}"#);
    assert_eq!(
        view("kinds").value()["rows"],
        json!([{"key": null, "value": 21}])
    );
    let mandatory = server.get("/cars/_design/d/_view/speeds").error();
    assert_eq!(
        mandatory.2,
        "`partition` parameter is mandatory for queries to this view."
    );
    let of_whole = server
        .get("/cars/_partition/ann/_design/whole/_view/speeds")
        .error();
    assert_eq!(
        of_whole.2,
        "`partition` parameter is not supported in this design doc"
    );
    let all = server.get("/cars/_design/whole/_view/speeds").value();
    assert_eq!(all["rows"].as_array().unwrap().len(), 61);
    let twice = server
        .get("/cars/_partition/ann/_design/d/_view/speeds?partition=bob")
        .error();
    assert_eq!(twice.2, "Conflicting value for `partition` in query string");
    server.json("PUT", "/plain", "");
    let wrong = json!({"views": views, "options": {"partitioned": true}}).to_string();
    assert_eq!(server.json("PUT", "/plain/_design/d", &wrong).status, 400);
}

#[test]
fn a_partitioned_database_is_one_after_a_restart_and_a_change_of_its_security() {
    let directory = tempfile::tempdir().unwrap();
    {
        let server = Running::start_in(directory.path(), |_| {});
        server.json("PUT", "/cars?partitioned=true", "");
        server.put("/cars/ann:1", "{}");
        assert_eq!(server.json("PUT", "/cars/_security", "{}").status, 200);
    }
    let server = Running::start_in(directory.path(), |_| {});
    assert_eq!(
        server.get("/cars").value()["props"],
        json!({"partitioned": true})
    );
    assert_eq!(server.get("/cars/ann:1").status, 200);
    assert_eq!(server.json("PUT", "/cars/x", "{}").status, 400);
}
