//! Views, validations and filters of design documents over HTTP.

use crate::support::Running;
use serde_json::{Value, json};

/// A view of speeds, one of the cars of drivers, and one whose reduce function joins.
const DESIGN: &str = r#"{"views": {
    "speeds": {"map": "function(doc) { if (doc.speed) emit(doc.speed, doc.driver); }"},
    "drivers": {"map": "doc => { if (doc.driver) emit([doc.driver, doc.speed], {_id: doc.of}); }", "reduce": "_count"},
    "totals": {"map": "doc => { if (doc.driver) emit(doc.driver, doc.speed); }",
               "reduce": "function(keys, values, again) { return sum(values); }"}}}"#;

fn put(server: &Running, path: &str, body: &Value) -> String {
    let made = server.json("PUT", path, &body.to_string());
    assert_eq!(made.status, 201, "{path}: {}", made.text());
    made.value()["rev"].as_str().unwrap().to_owned()
}

/// A server with a database of four shards and eight cars.
fn server() -> Running {
    let server = Running::start(|_| {});
    assert_eq!(server.json("PUT", "/cars?q=4", "").status, 201);
    for number in 1..=8 {
        let driver = ["ann", "bob"][number % 2];
        let car = json!({"speed": 10 * number, "driver": driver, "of": "car-1"});
        put(&server, &format!("/cars/car-{number}"), &car);
    }
    let design: Value = serde_json::from_str(&DESIGN.replace('\n', " ")).unwrap();
    put(&server, "/cars/_design/d", &design);
    server
}

/// The identifiers of the rows at `path`.
fn ids(server: &Running, path: &str) -> Vec<String> {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    let value = answer.value();
    let rows = value["rows"].as_array().unwrap().iter();
    rows.map(|row| row["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn rows_of_all_shards_come_in_the_order_of_their_keys() {
    let server = server();
    let view = "/cars/_design/d/_view/speeds";
    let all = server.get(view).value();
    assert_eq!((&all["total_rows"], &all["offset"]), (&json!(8), &json!(0)));
    let first = json!({"id": "car-1", "key": 10, "value": "bob"});
    assert_eq!(all["rows"][0], first);
    let cases: [(&str, &[&str]); 6] = [
        ("startkey=30&limit=2", &["car-3", "car-4"]),
        ("startkey=30&descending=true", &["car-3", "car-2", "car-1"]),
        (
            "startkey=20&endkey=40&inclusive_end=false",
            &["car-2", "car-3"],
        ),
        ("key=70", &["car-7"]),
        ("keys=[80,10,5]", &["car-8", "car-1"]),
        ("skip=6", &["car-7", "car-8"]),
    ];
    for (parameters, expected) in cases {
        let path = format!("{view}?{parameters}");
        assert_eq!(ids(&server, &path), expected, "{parameters}");
    }
    let later = server.get(&format!("{view}?startkey=30&skip=1")).value();
    assert_eq!(later["offset"], json!(3));
    let posted = server.json("POST", view, r#"{"keys": [20, 10]}"#).value();
    assert_eq!(posted["rows"][1]["id"], json!("car-1"));
    assert_eq!(server.ask("HEAD", view, &[], b"").status, 200);
}

#[test]
fn answers_of_several_pages_are_whole() {
    let server = Running::start(|_| {});
    server.json("PUT", "/cars?q=2", "");
    let text = "x".repeat(1000);
    let docs: Vec<Value> = (0..3000).map(|n| json!({"n": n, "text": text})).collect();
    let made = server.json(
        "POST",
        "/cars/_bulk_docs",
        &json!({"docs": docs}).to_string(),
    );
    assert_eq!(made.status, 201);
    let map = "doc => emit(doc.n, doc.text)";
    put(
        &server,
        "/cars/_design/d",
        &json!({"views": {"n": {"map": map}}}),
    );
    let answer = server.get("/cars/_design/d/_view/n").value();
    let rows = answer["rows"].as_array().unwrap();
    let keys: Vec<u64> = rows
        .iter()
        .map(|row| row["key"].as_u64().unwrap())
        .collect();
    assert_eq!(keys, (0..3000).collect::<Vec<u64>>());
}

#[test]
fn documents_stand_beside_rows() {
    let server = server();
    let answer = server.get("/cars/_design/d/_view/speeds?key=30&include_docs=true");
    assert_eq!(answer.value()["rows"][0]["doc"]["_id"], json!("car-3"));
    let linked = "/cars/_design/d/_view/drivers?reduce=false&include_docs=true&limit=1";
    let row = server.get(linked).value()["rows"][0].clone();
    assert_eq!(
        (&row["id"], &row["doc"]["_id"]),
        (&json!("car-2"), &json!("car-1"))
    );
    let gone = server.get("/cars/car-1").value()["_rev"]
        .as_str()
        .unwrap()
        .to_owned();
    server.ask("DELETE", &format!("/cars/car-1?rev={gone}"), &[], b"");
    assert_eq!(server.get(linked).value()["rows"][0]["doc"], Value::Null);
}

#[test]
fn groups_are_reduced_over_all_shards() {
    let server = server();
    let rows = |path: &str| server.get(path).value()["rows"].clone();
    let drivers = "/cars/_design/d/_view/drivers";
    assert_eq!(rows(drivers), json!([{"key": null, "value": 8}]));
    let by_driver = json!([{"key": ["ann"], "value": 4}, {"key": ["bob"], "value": 4}]);
    assert_eq!(rows(&format!("{drivers}?group_level=1")), by_driver);
    let totals = json!([{"key": "ann", "value": 200}, {"key": "bob", "value": 160}]);
    assert_eq!(rows("/cars/_design/d/_view/totals?group=true"), totals);
}

#[test]
fn several_queries_have_their_answers_in_one() {
    let server = server();
    let body =
        r#"{"queries": [{"key": 20}, {"keys": [30, 40], "include_docs": true}, {"limit": 0}]}"#;
    for path in ["speeds", "speeds/queries"] {
        let answer = server.json("POST", &format!("/cars/_design/d/_view/{path}"), body);
        let results = answer.value()["results"].clone();
        assert_eq!(results[0]["rows"][0]["id"], json!("car-2"));
        assert_eq!(results[1]["rows"][1]["doc"]["_id"], json!("car-4"));
        assert_eq!(results[2]["rows"], json!([]));
    }
    let none = server.json(
        "POST",
        "/cars/_design/d/_view/speeds/queries",
        r#"{"queries": []}"#,
    );
    assert_eq!(none.value(), json!({"results": []}));
    let wrong = server.json("POST", "/cars/_design/d/_view/speeds", r#"{"queries": 1}"#);
    assert_eq!(wrong.error().2, "`queries` member must be an array.");
}

#[test]
fn a_view_is_as_fresh_as_it_is_asked_to_be() {
    let server = server();
    let view = "/cars/_design/d/_view/speeds";
    assert!(ids(&server, &format!("{view}?update=false")).is_empty());
    let info = || server.get("/cars/_design/d/_info").value()["view_index"].clone();
    assert_eq!(info()["updates_pending"]["total"], json!(9));
    assert!(ids(&server, &format!("{view}?update=lazy")).is_empty());
    let built = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        info()["updates_pending"]["total"] == json!(0)
    });
    assert!(built, "the view was not built after the answer");
    assert_eq!(ids(&server, &format!("{view}?update=false")).len(), 8);
    assert_eq!(info()["language"], json!("javascript"));
    put(&server, "/cars/car-9", &json!({"speed": 5}));
    assert_eq!(ids(&server, &format!("{view}?stale=ok")).len(), 8);
    assert_eq!(ids(&server, view)[0], "car-9");
}

#[test]
fn rows_of_views_that_are_gone_are_cleaned_up() {
    let server = server();
    let view = "/cars/_design/d/_view/speeds?update=false";
    server.get("/cars/_design/d/_view/speeds");
    let mut design = server.get("/cars/_design/d").value();
    let clean = || server.json("POST", "/cars/_view_cleanup", "{}").status;
    assert_eq!(clean(), 202);
    assert_eq!(ids(&server, view).len(), 8, "a design document has them");
    let deleted = format!("/cars/_design/d?rev={}", design["_rev"].as_str().unwrap());
    assert_eq!(server.ask("DELETE", &deleted, &[], b"").status, 200);
    assert_eq!(server.get(view).error().2, "deleted");
    assert_eq!(clean(), 202);
    design.as_object_mut().unwrap().remove("_rev");
    put(&server, "/cars/_design/d", &design);
    assert!(ids(&server, view).is_empty(), "the rows were removed");
}

#[test]
fn errors_have_couchdbs_words() {
    let server = server();
    let cases = [
        ("/cars/_design/none/_view/v", 404, "not_found", "missing"),
        (
            "/cars/_design/d/_view/v",
            404,
            "not_found",
            "missing_named_view",
        ),
        (
            "/cars/_design/d/_view/speeds?limit=x",
            400,
            "query_parse_error",
            "Invalid value for integer: \"x\"",
        ),
        (
            "/cars/_design/d/_view/speeds?group=true",
            400,
            "query_parse_error",
            "Invalid use of grouping on a map view.",
        ),
        ("/cars/_design/none/_info", 404, "not_found", "missing"),
        ("/cars/_design/d/_none", 404, "not_found", "missing"),
    ];
    for (path, status, word, reason) in cases {
        let got = server.get(path).error();
        assert_eq!(got, (status, word.to_owned(), reason.to_owned()), "{path}");
    }
    let wrong = json!({"views": {"v": {"map": "function(doc) {"}}});
    let refused = server
        .json("PUT", "/cars/_design/wrong", &wrong.to_string())
        .error();
    assert_eq!((refused.0, refused.1.as_str()), (400, "compilation_error"));
    let reason = "Compilation of the map function in the 'v' view failed: ";
    assert!(refused.2.starts_with(reason), "{}", refused.2);
    let mut wrong = wrong;
    wrong["_id"] = json!("_design/wrong");
    let bulk = json!({"docs": [wrong, {"_id": "right"}]}).to_string();
    let bulk = server.json("POST", "/cars/_bulk_docs", &bulk).value();
    assert_eq!(
        (&bulk[0]["error"], &bulk[1]["ok"]),
        (&json!("compilation_error"), &json!(true))
    );
}

/// A design document that lets ann's or the administrator's cars in, if they do not slow down.
fn rules() -> Value {
    let rule = "function(now, before, user, security) {
        if (user.name === null) throw({unauthorized: 'log in'});
        if (now.speed === undefined && !now._deleted) throw({forbidden: 'no speed for ' + user.db});
        if (before && before._id === now._id && before.speed > now.speed) throw({forbidden: 'slower than ' + before._rev});
        if (now.speed === 0) throw({forbidden: security.admins.roles[0]});
        if (now.speed === -1) now.none.there;
    }";
    json!({"validate_doc_update": rule.replace('\n', " ")})
}

/// `admin:secret`
const ADMIN: &str = "Authorization: Basic YWRtaW46c2VjcmV0";
const JSON: &str = "Content-Type: application/json";

/// A server whose database `cars` anyone may write and has the rules.
fn ruled() -> Running {
    let server = Running::start(|settings| {
        settings.admins = vec![waystation_server::Admin {
            name: "admin".to_owned(),
            password: "secret".to_owned(),
        }];
    });
    let ask = |path: &str, body: &str| {
        let reply = server.ask("PUT", path, &[ADMIN, JSON], body.as_bytes());
        assert!(reply.status < 300, "{path}: {}", reply.text());
    };
    ask("/cars?q=2", "");
    let security = r#"{"admins":{"roles":["_admin"]},"members":{"roles":[]}}"#;
    ask("/cars/_security", security);
    ask("/cars/before", "{}");
    ask("/cars/_design/rules", &rules().to_string());
    server
}

#[test]
fn updates_are_validated() {
    let server = ruled();
    let put = |path: &str, body: &str| server.ask("PUT", path, &[ADMIN, JSON], body.as_bytes());
    let error =
        |status: u16, word: &str, reason: &str| (status, word.to_owned(), reason.to_owned());
    let nobody = server.json("PUT", "/cars/a", r#"{"speed":1}"#);
    assert_eq!(nobody.error(), error(401, "unauthorized", "log in"));
    assert_eq!(
        put("/cars/a", "{}").error(),
        error(403, "forbidden", "no speed for cars")
    );
    assert_eq!(
        put("/cars/a", r#"{"speed":0}"#).error(),
        error(403, "forbidden", "_admin")
    );
    let fault = put("/cars/a", r#"{"speed":-1}"#).error();
    assert_eq!((fault.0, fault.1.as_str()), (500, "TypeError"));
    let revision = put("/cars/a", r#"{"speed":5}"#).value()["rev"]
        .as_str()
        .unwrap()
        .to_owned();
    let slower = format!(r#"{{"_rev":"{revision}","speed":4}}"#);
    let refused = error(403, "forbidden", &format!("slower than {revision}"));
    assert_eq!(put("/cars/a", &slower).error(), refused);
    assert_eq!(put("/cars/a", r#"{"speed":4}"#).error().1, "conflict");
    assert_eq!(
        put("/cars/a", r#"{"_rev":"1-00","speed":9}"#).error().1,
        "conflict"
    );
    let attachment = server.ask("PUT", "/cars/b/note", &[ADMIN], b"text");
    assert_eq!(attachment.error().0, 403);
    let posted = server.ask("POST", "/cars", &[ADMIN, JSON], b"{}");
    assert_eq!(posted.error().0, 403);
    assert_eq!(
        put("/cars/_local/l", "{}").status,
        201,
        "local documents are not validated"
    );
    assert_eq!(server.json("PUT", "/cars/_local/m", "{}").status, 201);
    let deleted = server.ask("DELETE", &format!("/cars/a?rev={revision}"), &[ADMIN], b"");
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(server.ask("GET", "/cars/before", &[ADMIN], b"").status, 200);
}

#[test]
fn each_document_of_a_bulk_is_validated() {
    let server = ruled();
    let bulk = |body: Value| {
        let text = body.to_string();
        let reply = server.ask("POST", "/cars/_bulk_docs", &[ADMIN, JSON], text.as_bytes());
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.value()
    };
    let rows = bulk(json!({"docs": [{"_id": "a", "speed": 5}, {"_id": "b"}, {"_id": "_local/c"}]}));
    assert_eq!(
        (&rows[0]["ok"], &rows[2]["ok"]),
        (&json!(true), &json!(true))
    );
    let refused = json!({"id": "b", "error": "forbidden", "reason": "no speed for cars"});
    assert_eq!(rows[1], refused);
    let known = rows[0]["rev"].as_str().unwrap();
    let parent = known.strip_prefix("1-").unwrap();
    let replicated = |speed: u32, name: &str| {
        let revisions = json!({"start": 2, "ids": [name, parent]});
        json!({"_id": "a", "_rev": format!("2-{name}"), "speed": speed, "_revisions": revisions})
    };
    let (slower, faster) = ("a".repeat(32), "b".repeat(32));
    let again = json!({"_id": "a", "_rev": known, "speed": 5});
    let docs = json!([replicated(4, &slower), replicated(6, &faster), again]);
    let rows = bulk(json!({"new_edits": false, "docs": docs}));
    let reason = json!(format!("slower than {known}"));
    assert_eq!(
        (rows.as_array().unwrap().len(), &rows[0]["reason"]),
        (1, &reason)
    );
    let winner = server.ask("GET", "/cars/a", &[ADMIN], b"").value();
    assert_eq!(winner["_rev"], json!(format!("2-{faster}")));
}

#[test]
fn rules_hold_as_soon_as_they_are_written() {
    let server = ruled();
    let put = |path: &str, body: &Value| {
        let reply = server.ask("PUT", path, &[ADMIN, JSON], body.to_string().as_bytes());
        (
            reply.status,
            reply.value()["rev"].as_str().unwrap_or_default().to_owned(),
        )
    };
    assert_eq!(put("/cars/a", &json!({})).0, 403);
    let rev = server
        .ask("GET", "/cars/_design/rules", &[ADMIN], b"")
        .value()["_rev"]
        .clone();
    let revision = put("/cars/_design/rules", &json!({"_rev": rev})).1;
    assert_eq!(put("/cars/a", &json!({})).0, 201, "the rules are gone");
    let mut rules = rules();
    rules["_rev"] = json!(revision);
    let revision = put("/cars/_design/rules", &rules).1;
    assert_eq!(put("/cars/b", &json!({})).0, 403, "the rules are back");
    let purge = json!({"_design/rules": [revision]}).to_string();
    let purged = server.ask("POST", "/cars/_purge", &[ADMIN, JSON], purge.as_bytes());
    assert_eq!(purged.status, 201);
    assert_eq!(put("/cars/b", &json!({})).0, 201, "the rules are purged");
}

#[test]
fn functions_choose_changes() {
    let server = server();
    let design = json!({
        "filters": {"fast": "function(doc, req) { return doc.speed >= Number(req.query.speed) && req.userCtx.db === 'cars'; }",
                    "wrong": "doc => doc.none.there"},
        "views": {"slow": {"map": "doc => { if (doc.speed < 30) emit(null); }"}}});
    put(&server, "/cars/_design/f", &design);
    let ids = |parameters: &str| {
        let answer = server.get(&format!("/cars/_changes?{parameters}")).value();
        let rows = answer["results"].as_array().unwrap().iter();
        rows.map(|row| row["id"].as_str().unwrap().to_owned())
            .collect::<Vec<String>>()
    };
    assert_eq!(ids("filter=f/fast&speed=70"), ["car-7", "car-8"]);
    assert_eq!(ids("filter=f/fast&speed=40&limit=1"), ["car-4"]);
    assert_eq!(
        ids("filter=_view&view=f/slow&include_docs=true"),
        ["car-1", "car-2"]
    );
    let posted = server
        .json("POST", "/cars/_changes?filter=f/fast&speed=80", "{}")
        .value();
    assert_eq!(posted["results"].as_array().unwrap().len(), 1);
    let cases = [
        ("filter=f/none", 404, "missing json key: none"),
        ("filter=none/f", 404, "missing"),
        (
            "filter=f",
            400,
            "`filter` parameter must be of the form `designname/filtername`",
        ),
        (
            "filter=_view",
            400,
            "`view` filter parameter is not provided.",
        ),
        ("filter=_view&view=f/none", 404, "missing json key: none"),
    ];
    for (parameters, status, reason) in cases {
        let got = server.get(&format!("/cars/_changes?{parameters}")).error();
        assert_eq!((got.0, got.2.as_str()), (status, reason), "{parameters}");
    }
    let mut cut = Vec::new();
    let mut stream = server.send("GET", "/cars/_changes?filter=f/wrong", &[], b"");
    // The connection may end with a reset.
    let _ = std::io::Read::read_to_end(&mut stream, &mut cut);
    let cut = String::from_utf8_lossy(&cut);
    assert!(
        !cut.contains("last_seq") && !cut.contains("\r\n0\r\n"),
        "{cut}"
    );
}

#[test]
fn filters_judge_each_leaf_that_a_feed_tells_of() {
    let server = server();
    let design = json!({"filters": {"fast": "doc => doc.speed >= 60"}});
    put(&server, "/cars/_design/f", &design);
    let leaf = |revision: &str, speed: u64| json!({"_id": "two", "_rev": revision, "speed": speed});
    let docs = json!({"new_edits": false, "docs": [leaf("1-b", 5), leaf("1-a", 99)]});
    server.json("POST", "/cars/_bulk_docs", &docs.to_string());
    let told = |parameters: &str| {
        let body = r#"{"selector":{"speed":{"$gte":60}}}"#;
        let answer = server.json("POST", &format!("/cars/_changes?{parameters}"), body);
        let value = answer.value();
        let rows = value["results"].as_array().unwrap().iter();
        let two = rows.filter(|row| row["id"] == json!("two"));
        two.map(|row| row["changes"].clone())
            .collect::<Vec<Value>>()
    };
    for filter in ["filter=f/fast", "filter=_selector"] {
        assert_eq!(told(filter), [] as [Value; 0], "{filter}");
        let leaves = told(&format!("{filter}&style=all_docs"));
        assert_eq!(leaves, [json!([{"rev": "1-a"}])], "{filter}");
        let with_document = told(&format!("{filter}&style=all_docs&include_docs=true"));
        assert_eq!(with_document, leaves, "{filter}");
    }
    assert_eq!(
        told("style=all_docs"),
        [json!([{"rev": "1-b"}, {"rev": "1-a"}])]
    );
    let wrong = server.json(
        "POST",
        "/cars/_changes?filter=_selector",
        r#"{"selector":"x"}"#,
    );
    assert_eq!(wrong.error().2, "Selector error: expected a JSON object");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "that a deletion does not wait for a build is measured in real time"
)]
fn a_database_is_deleted_while_its_views_are_built() {
    let server = Running::plain();
    // All documents together take seconds.
    let map = "function (doc) { var n = 0; for (var i = 0; i < 2000; i++) { n += i % 7; } emit(doc._id, n); }";
    let design = json!({"views": {"slow": {"map": map}}}).to_string();
    let fill = |count: usize| {
        assert_eq!(server.json("PUT", "/cars?q=1", "").status, 201);
        let docs: Vec<Value> = (0..count)
            .map(|at| json!({"_id": format!("{at:05}")}))
            .collect();
        let body = json!({"docs": docs}).to_string();
        assert_eq!(server.json("POST", "/cars/_bulk_docs", &body).status, 201);
        server.put("/cars/_design/d", &design);
    };
    fill(20_000);
    let view = server.send("GET", "/cars/_design/d/_view/slow", &[], b"");
    let is_building = || {
        let info = server.get("/cars/_design/d/_info").value();
        let pending = &info["view_index"]["updates_pending"]["total"];
        pending.as_u64().unwrap() < 20_000
    };
    while !is_building() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let begun = std::time::Instant::now();
    assert_eq!(server.json("DELETE", "/cars", "").status, 200);
    let waited = begun.elapsed();
    assert!(waited < std::time::Duration::from_secs(10), "{waited:?}");
    let mut view = std::io::BufReader::new(view);
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut view, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    // The next one of the name has nothing of it.
    fill(3);
    let rows = server.get("/cars/_design/d/_view/slow").value();
    assert_eq!(rows["total_rows"], 3);
}
