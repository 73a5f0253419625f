//! Who may do what: administrators, users, sessions, and the security of databases.

use crate::support::Running;
use serde_json::json;
use waystation_server::{Admin, Server, Settings};

/// `admin:secret`
const ADMIN: &str = "Authorization: Basic YWRtaW46c2VjcmV0";
/// `ann:pw`
const ANN: &str = "Authorization: Basic YW5uOnB3";
const JSON: &str = "Content-Type: application/json";

fn server() -> Running {
    Running::start(|settings| {
        settings.admins = vec![Admin {
            name: "admin".to_owned(),
            password: "secret".to_owned(),
        }];
    })
}

fn make_ann(server: &Running) {
    let ann = r#"{"type":"user","name":"ann","roles":["driver"],"password":"pw"}"#;
    let made = server.ask(
        "PUT",
        "/_users/org.couchdb.user:ann",
        &[ADMIN],
        ann.as_bytes(),
    );
    assert_eq!(made.status, 201, "{}", made.text());
}

#[test]
fn without_an_administrator_the_server_listens_on_loopback_only() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(directory.path());
    settings.listen = "0.0.0.0:0".parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let refused = runtime
        .block_on(Server::bind(settings))
        .expect_err("it is open to all");
    assert!(
        refused.to_string().contains("no administrator"),
        "{refused}"
    );
}

#[test]
fn callers_without_a_name_may_look_and_do_nothing() {
    let server = server();
    assert_eq!(server.get("/").status, 200);
    let refused = server.json("PUT", "/cars", "").error();
    assert_eq!(
        refused,
        (
            401,
            "unauthorized".into(),
            "You are not a server admin.".into()
        )
    );
    assert_eq!(server.get("/_all_dbs").status, 401);
    assert_eq!(server.ask("PUT", "/cars", &[ADMIN], b"").status, 201);
    let member = server.get("/cars").error();
    assert_eq!(
        (member.0, member.2.as_str()),
        (401, "You are not authorized to access this db.")
    );
    let wrong = server
        .ask("GET", "/", &["Authorization: Basic YWRtaW46eA=="], b"")
        .error();
    assert_eq!(
        (wrong.0, wrong.2.as_str()),
        (401, "Name or password is incorrect.")
    );
}

#[test]
fn users_reach_what_the_security_of_a_database_gives_them() {
    let server = server();
    make_ann(&server);
    server.ask("PUT", "/cars", &[ADMIN], b"");
    let refused = server.ask("GET", "/cars", &[ANN], b"").error();
    assert_eq!(
        (refused.0, refused.2.as_str()),
        (403, "You are not allowed to access this db.")
    );
    let set = |security: &str| {
        let reply = server.ask(
            "PUT",
            "/cars/_security",
            &[ADMIN, JSON],
            security.as_bytes(),
        );
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    set(r#"{"members":{"roles":["driver"]}}"#);
    assert_eq!(server.ask("PUT", "/cars/a", &[ANN], b"{}").status, 201);
    let design = server.ask("PUT", "/cars/_design/d", &[ANN], b"{}").error();
    assert_eq!(design.2, "You are not a db or server admin.");
    let docs = br#"{"docs":[{"_id":"b"},{"_id":"_design/d"}]}"#;
    let bulk = server
        .ask("POST", "/cars/_bulk_docs", &[ANN, JSON], docs)
        .value();
    assert_eq!(
        (&bulk[0]["ok"], &bulk[1]["error"]),
        (&json!(true), &json!("unauthorized"))
    );
    assert_eq!(
        server
            .ask("PUT", "/cars/_security", &[ANN, JSON], b"{}")
            .status,
        401
    );
    set(r#"{"admins":{"names":["ann"]},"members":{"names":["ann"]}}"#);
    assert_eq!(
        server.ask("PUT", "/cars/_design/d", &[ANN], b"{}").status,
        201
    );
    assert_eq!(server.get("/cars").status, 401);
    set("{}");
    assert_eq!(server.get("/cars/a").status, 200);
    let bad = server.ask(
        "PUT",
        "/cars/_security",
        &[ADMIN, JSON],
        br#"{"members":{"names":[1]}}"#,
    );
    assert_eq!(bad.status, 400);
}

#[test]
fn users_see_and_change_their_own_document_alone() {
    let server = server();
    make_ann(&server);
    let own = server.ask("GET", "/_users/org.couchdb.user:ann", &[ANN], b"");
    assert_eq!(own.status, 200);
    let own = own.value();
    assert_eq!(
        (&own["password"], &own["pbkdf2_prf"]),
        (&json!(null), &json!("sha256"))
    );
    let bob = br#"{"type":"user","name":"bob","roles":[]}"#;
    server.ask("PUT", "/_users/org.couchdb.user:bob", &[ADMIN], bob);
    assert_eq!(
        server
            .ask("GET", "/_users/org.couchdb.user:bob", &[ANN], b"")
            .status,
        404
    );
    for path in ["_all_docs", "_changes", "_local_docs"] {
        assert_eq!(
            server
                .ask("GET", &format!("/_users/{path}"), &[ANN], b"")
                .status,
            401,
            "{path}"
        );
    }
    let find = br#"{"selector":{}}"#;
    assert_eq!(
        server
            .ask("POST", "/_users/_find", &[ANN, JSON], find)
            .status,
        401
    );
    let grab = format!(
        r#"{{"_rev":{},"type":"user","name":"ann","roles":["_admin"]}}"#,
        own["_rev"]
    );
    let refused = server
        .ask(
            "PUT",
            "/_users/org.couchdb.user:ann",
            &[ANN],
            grab.as_bytes(),
        )
        .error();
    assert_eq!((refused.0, refused.1.as_str()), (403, "forbidden"));
    let changed = format!(
        r#"{{"_rev":{},"type":"user","name":"ann","roles":["driver"],"password":"new"}}"#,
        own["_rev"]
    );
    let path = "/_users/org.couchdb.user:ann";
    let changed = server.ask("PUT", path, &[ANN], changed.as_bytes());
    assert_eq!(changed.status, 201, "{}", changed.text());
    assert_eq!(server.ask("GET", path, &[ANN], b"").status, 401);
    assert_eq!(server.get("/_users/org.couchdb.user:ann").status, 401);
}

#[test]
fn a_session_names_its_user_until_it_ends() {
    let server = server();
    make_ann(&server);
    let login = |body: &str| server.json("POST", "/_session", body);
    let wrong = login(r#"{"name":"ann","password":"x"}"#);
    assert_eq!(wrong.error().0, 401);
    let right = login(r#"{"name":"ann","password":"pw"}"#);
    assert_eq!(
        right.value(),
        json!({"ok": true, "name": "ann", "roles": ["driver"]})
    );
    let cookie = right
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    assert!(right.header("set-cookie").contains("HttpOnly"));
    let header = format!("Cookie: {cookie}");
    let session = server.ask("GET", "/_session", &[&header], b"").value();
    assert_eq!(
        session["userCtx"],
        json!({"name": "ann", "roles": ["driver"]})
    );
    assert_eq!(session["info"]["authenticated"], "cookie");
    let mut forged = cookie.clone();
    let last = if forged.ends_with('A') { 'B' } else { 'A' };
    forged.pop();
    forged.pop();
    forged.push(last);
    forged.push(last);
    let header = format!("Cookie: {forged}");
    let session = server.ask("GET", "/_session", &[&header], b"").value();
    assert_eq!(session["userCtx"]["name"], json!(null));
    let form = ["Content-Type: application/x-www-form-urlencoded"];
    let admin = server.ask("POST", "/_session", &form, b"name=admin&password=secret");
    assert_eq!(admin.value()["roles"], json!(["_admin"]));
    // A new password ends the sessions of the old one.
    let revision = server
        .ask("GET", "/_users/org.couchdb.user:ann", &[ADMIN], b"")
        .value()["_rev"]
        .clone();
    let body = format!(
        r#"{{"_rev":{revision},"type":"user","name":"ann","roles":["driver"],"password":"new"}}"#
    );
    let changed = server.ask(
        "PUT",
        "/_users/org.couchdb.user:ann",
        &[ADMIN],
        body.as_bytes(),
    );
    assert_eq!(changed.status, 201);
    let header = format!("Cookie: {cookie}");
    let session = server.ask("GET", "/_session", &[&header], b"").value();
    assert_eq!(session["userCtx"]["name"], json!(null));
    assert_eq!(server.ask("GET", "/", &[ANN], b"").status, 401);
}
