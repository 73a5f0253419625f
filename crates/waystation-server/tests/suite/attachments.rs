//! Attachments: inline, by their own paths, in ranges, and in bodies of several parts.

use crate::support::Running;
use serde_json::json;

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one resource from its first request to its last"
)]
fn attachments_are_stored_and_read_in_every_way() {
    let server = Running::plain();
    server.json("PUT", "/cars", "");
    let inline =
        r#"{"_attachments":{"a b/c.txt":{"content_type":"text/plain","data":"aGVsbG8gd29ybGQ="}}}"#;
    let first = server.put("/cars/d", inline);
    let stub = &server.get("/cars/d").value()["_attachments"]["a b/c.txt"];
    assert_eq!(
        (&stub["stub"], &stub["length"], &stub["revpos"]),
        (&json!(true), &json!(11), &json!(1))
    );
    assert_eq!(stub["digest"], "md5-XrY7u+Ae7tCTyyK7j1rNww==");
    let path = "/cars/d/a%20b/c.txt";
    let whole = server.get(path);
    assert_eq!(
        (whole.text().as_str(), whole.header("content-type")),
        ("hello world", "text/plain")
    );
    assert_eq!(whole.header("content-security-policy"), "sandbox");
    let tag = format!("If-None-Match: {}", whole.header("etag"));
    assert_eq!(server.ask("GET", path, &[&tag], b"").status, 304);
    let part = server.ask("GET", path, &["Range: bytes=6-"], b"");
    assert_eq!((part.status, part.text().as_str()), (206, "world"));
    assert_eq!(part.header("content-range"), "bytes 6-10/11");
    assert_eq!(
        server.ask("GET", path, &["Range: bytes=11-"], b"").status,
        416
    );
    let added = server.ask(
        "PUT",
        &format!("/cars/d/new?rev={first}"),
        &["Content-Type: a/b"],
        b"\0\xff",
    );
    assert_eq!(added.status, 201, "{}", added.text());
    let second = added.value()["rev"].as_str().unwrap().to_owned();
    assert_eq!(server.get("/cars/d/new").body, b"\0\xff");
    assert_eq!(server.get(path).text(), "hello world");
    assert_eq!(server.ask("PUT", "/cars/d/new", &[], b"x").status, 409);
    let full = server.get("/cars/d?attachments=true").value();
    assert_eq!(full["_attachments"]["new"]["data"], "AP8=");
    let since = format!("/cars/d?atts_since=[%22{first}%22]");
    let newer = server.get(&since).value();
    assert_eq!(newer["_attachments"]["new"]["data"], "AP8=");
    assert_eq!(newer["_attachments"]["a b/c.txt"]["stub"], true);
    let gone = server.json("DELETE", &format!("/cars/d/new?rev={second}"), "");
    assert_eq!(gone.status, 200);
    assert_eq!(
        server.get("/cars/d/new").error().2,
        "Document is missing attachment"
    );
    let revision = server.get("/cars/d").value()["_rev"].clone();
    let again =
        json!({"_rev": revision, "_attachments": {"a b/c.txt": {"revpos": 1, "data": "aGk="}}});
    assert_eq!(
        server.json("PUT", "/cars/d", &again.to_string()).status,
        201
    );
    let stub = &server.get("/cars/d").value()["_attachments"]["a b/c.txt"];
    assert_eq!((&stub["revpos"], &stub["length"]), (&json!(4), &json!(2)));
    let local = server.get("/cars/_local/l/x").error();
    assert_eq!(
        local,
        (
            400,
            "bad_request".into(),
            "_local documents do not accept attachments.".into()
        )
    );
    let unknown = r#"{"_attachments":{"b":{"stub":true,"revpos":1}}}"#;
    let stub = server.json("PUT", "/cars/e", unknown).error();
    assert_eq!(
        stub,
        (
            412,
            "missing_stub".into(),
            "Invalid attachment stub in e for b".into()
        )
    );
    assert_eq!(
        server.ask("PUT", "/cars/fresh/x.bin", &[], b"abc").status,
        201
    );
    assert_eq!(server.get("/cars/fresh/x.bin").text(), "abc");
}

#[test]
fn documents_travel_in_parts() {
    let server = Running::plain();
    server.json("PUT", "/cars", "");
    let body = "--b\r\nContent-Type: application/json\r\n\r\n\
        {\"_id\":\"d\",\"_attachments\":{\"x\":{\"follows\":true,\"length\":3,\"content_type\":\"a/b\"}}}\r\n\
        --b\r\nContent-Disposition: attachment; filename=\"x\"\r\n\r\n\r\n-\r\n--b--";
    let related = ["Content-Type: multipart/related; boundary=b"];
    let put = server.ask("PUT", "/cars/d", &related, body.as_bytes());
    assert_eq!(put.status, 201, "{}", put.text());
    assert_eq!(server.get("/cars/d/x").body, b"\r\n-");
    let accept = ["Accept: multipart/related"];
    let read = server.ask("GET", "/cars/d?attachments=true", &accept, b"");
    let media = read.header("content-type").to_owned();
    assert!(media.starts_with("multipart/related; boundary="), "{media}");
    let revision = server.get("/cars/d").value()["_rev"]
        .as_str()
        .unwrap()
        .to_owned();
    let header = format!("Content-Type: {media}");
    let again = server.ask(
        "PUT",
        &format!("/cars/d?rev={revision}"),
        &[&header],
        &read.body,
    );
    assert_eq!(again.status, 201, "{}", again.text());
    assert_eq!(server.get("/cars/d/x").body, b"\r\n-");
    let leaves = server.ask(
        "GET",
        "/cars/d?open_revs=all&attachments=true",
        &["Accept: multipart/mixed"],
        b"",
    );
    assert!(leaves.header("content-type").starts_with("multipart/mixed"));
    assert!(leaves.text().contains("multipart/related; boundary="));
    let missing = server.ask(
        "GET",
        "/cars/d?open_revs=[%229-x%22]",
        &["Accept: application/json"],
        b"",
    );
    assert_eq!(missing.value(), json!([{"missing": "9-x"}]));
}
