//! The node: settings that change while the server runs, and its figures.

use crate::support::Running;
use serde_json::json;

const CONFIG: &str = "/_node/_local/_config";

#[test]
fn settings_are_read_changed_and_taken_back() {
    let server = Running::plain();
    let path = format!("{CONFIG}/couchdb/max_document_size");
    assert_eq!(server.get(&path).value(), json!("8000000"));
    assert_eq!(
        server.get(CONFIG).value()["couchdb"]["max_document_size"],
        json!("8000000")
    );
    assert_eq!(
        server.json("PUT", &path, "\"60\"").value(),
        json!("8000000")
    );
    assert_eq!(
        server.get(&format!("{CONFIG}/couchdb")).value()["max_document_size"],
        json!("60")
    );
    server.json("PUT", "/cars", "");
    server.put("/cars/a", r#"{"x":1}"#);
    let large = format!(r#"{{"x":"{}"}}"#, "y".repeat(60));
    assert_eq!(
        server.json("PUT", "/cars/b", &large).error().1,
        "document_too_large"
    );
    assert_eq!(server.json("DELETE", &path, "").value(), json!("60"));
    server.put("/cars/b", &large);
    let unknown = server.get(&format!("{CONFIG}/couchdb/x")).error();
    assert_eq!(
        unknown,
        (404, "not_found".into(), "unknown_config_value".into())
    );
    for (name, value, status) in [
        ("couchdb/max_document_size", "\"0\"", 400),
        ("couchdb/max_document_size", "60", 400),
        ("cors/credentials", "\"perhaps\"", 400),
        ("chttpd/port", "\"1\"", 400),
        ("log/level", "\"debug\"", 400),
    ] {
        let refused = server.json("PUT", &format!("{CONFIG}/{name}"), value);
        assert_eq!(refused.status, status, "{name}: {}", refused.text());
    }
    assert_eq!(
        server
            .json("DELETE", &format!("{CONFIG}/log/level"), "")
            .status,
        404
    );
    assert_eq!(
        server.json("POST", &format!("{CONFIG}/_reload"), "").status,
        200
    );
    assert_eq!(server.get("/_node/other/_config").status, 404);
    assert_eq!(
        server.get("/_node/nonode@nohost/_config/cluster/q").value(),
        json!("2")
    );
}

#[test]
fn browsers_are_let_in_while_the_server_runs() {
    let directory = tempfile::tempdir().unwrap();
    let origin = ["Origin: https://app"];
    let allowed = |server: &Running| {
        let reply = server.ask("GET", "/", &origin, b"");
        reply.header("access-control-allow-origin").to_owned()
    };
    {
        let server = Running::start_in(directory.path(), |_| {});
        assert_eq!(allowed(&server), "");
        for (name, value) in [
            ("httpd/enable_cors", "true"),
            ("cors/origins", "https://app, https://other"),
            ("cors/credentials", "true"),
            ("cors/methods", "GET, PUT"),
            ("cors/headers", "accept, x-own"),
        ] {
            let put = server.json(
                "PUT",
                &format!("{CONFIG}/{name}"),
                &json!(value).to_string(),
            );
            assert_eq!(put.status, 200, "{name}: {}", put.text());
        }
        assert_eq!(allowed(&server), "https://app");
    }
    let server = Running::start_in(directory.path(), |_| {});
    assert_eq!(allowed(&server), "https://app");
    let ask = |method: &str| {
        let headers = [
            "Origin: https://app",
            &format!("Access-Control-Request-Method: {method}"),
        ];
        server.ask("OPTIONS", "/", &headers, b"")
    };
    let preflight = ask("PUT");
    assert_eq!(
        (
            preflight.status,
            preflight.header("access-control-allow-headers")
        ),
        (204, "accept, x-own")
    );
    assert_ne!(ask("DELETE").status, 204);
}

#[test]
fn administrators_are_named_while_the_server_runs() {
    let directory = tempfile::tempdir().unwrap();
    let basic = ["Authorization: Basic YW5uOnNlY3JldA=="];
    {
        let server = Running::start_in(directory.path(), |_| {});
        let made = server.json("PUT", &format!("{CONFIG}/admins/ann"), "\"secret\"");
        assert_eq!(made.value(), json!(""));
        assert_eq!(server.get("/_all_dbs").status, 401);
        assert_eq!(server.ask("GET", "/_all_dbs", &basic, b"").status, 200);
    }
    let server = Running::start_in(directory.path(), |_| {});
    assert_eq!(server.get(CONFIG).status, 401);
    let shown = server
        .ask("GET", &format!("{CONFIG}/admins/ann"), &basic, b"")
        .text();
    assert!(
        shown.contains("pbkdf2") && !shown.contains("secret"),
        "{shown}"
    );
    let valid = format!("{CONFIG}/chttpd/require_valid_user");
    let headers = [basic[0], "Content-Type: application/json"];
    assert_eq!(server.ask("PUT", &valid, &headers, b"\"true\"").status, 200);
    let challenge = format!("{CONFIG}/httpd/WWW-Authenticate");
    server.ask("PUT", &challenge, &headers, br#""Basic realm=\"cars\"""#);
    let refused = server.get("/");
    assert_eq!(
        (refused.status, refused.header("www-authenticate")),
        (401, "Basic realm=\"cars\"")
    );
    assert_eq!(server.get("/_up").status, 200);
    assert_eq!(server.ask("GET", "/", &basic, b"").status, 200);
    assert_eq!(server.ask("DELETE", &valid, &basic, b"").status, 200);
    assert_eq!(server.get("/").status, 200);
    assert_eq!(
        server
            .ask("DELETE", &format!("{CONFIG}/admins/ann"), &basic, b"")
            .status,
        200
    );
    assert_eq!(server.get("/_all_dbs").status, 200);
}

#[test]
fn requests_are_counted() {
    let server = Running::plain();
    for path in ["/", "/_up", "/none"] {
        server.get(path);
    }
    let stats = server.get("/_node/_local/_stats").value();
    assert_eq!(
        stats["couchdb"]["httpd_status_codes"]["404"]["value"],
        json!(1)
    );
    assert_eq!(stats["couchdb"]["httpd"]["requests"]["value"], json!(3));
    let one = server
        .get("/_node/_local/_stats/couchdb/httpd_request_methods/GET")
        .value();
    assert_eq!(one["value"], json!(4));
    assert_eq!(server.get("/_node/_local/_stats/none").status, 404);
    assert!(server.get("/_node/_local/_system").value()["uptime"].is_u64());
    let text = server.get("/_node/_local/_prometheus").text();
    assert!(
        text.contains("couchdb_httpd_status_codes{code=\"404\"} 2"),
        "{text}"
    );
    assert_eq!(
        server.json("POST", "/_node/_local/_restart", "").status,
        501
    );
    assert_eq!(server.get("/_node").status, 400);
}
