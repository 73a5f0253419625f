//! Limits: sizes that are refused, and clients that are slow, silent or half open, which hold nothing for long.

use crate::support::Running;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use waystation_server::Admin;

/// How long a client may stall in these tests.
const STALL: Duration = Duration::from_secs(1);

/// Sends the head of a request with more body to come than is sent.
fn half(server: &Running, declared: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "PUT /cars/half HTTP/1.1\r\nHost: localhost\r\nContent-Length: {declared}\r\n\r\n{}",
        " ".repeat(sent)
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Everything that `stream` still says, until it is closed.
fn rest(mut stream: TcpStream) -> String {
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut bytes = Vec::new();
    // A connection that is cut says no more.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn bodies_and_heads_that_are_too_long_are_refused() {
    let server = Running::start(|settings| {
        settings.body_bytes_max = 1 << 20;
        settings.document_bytes_max = 1000;
    });
    server.json("PUT", "/cars", "");
    let document = |bytes: usize| json!({"x": "y".repeat(bytes)}).to_string();
    assert_eq!(server.json("PUT", "/cars/a", &document(900)).status, 201);
    let long = server.json("PUT", "/cars/b", &document(1001)).error();
    assert_eq!((long.0, long.1.as_str()), (413, "document_too_large"));
    let body = json!({"docs": [{"_id": "c", "x": "y".repeat(1001)}]}).to_string();
    assert_eq!(server.json("POST", "/cars/_bulk_docs", &body).status, 413);
    let long = server.json("PUT", "/cars/b", &document(1 << 20)).error();
    assert_eq!((long.0, long.1.as_str()), (413, "too_large"));
    let mut chunked = TcpStream::connect(server.address).unwrap();
    let head = "PUT /cars/d HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    chunked.write_all(head.as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    // The server may refuse before it has read all of it.
    let _ = (0..20).try_for_each(|_| chunked.write_all(chunk.as_bytes()));
    assert!(rest(chunked).starts_with("HTTP/1.1 413"));
    let packed = {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(&vec![b' '; 2 << 20]).unwrap();
        writer.finish().unwrap()
    };
    assert!(packed.len() < 10_000);
    let headers = ["Content-Type: application/json", "Content-Encoding: gzip"];
    assert_eq!(server.ask("PUT", "/cars/e", &headers, &packed).status, 413);
    let header = format!("X-Long: {}", "x".repeat(200_000));
    let mut stream = TcpStream::connect(server.address).unwrap();
    let _ = stream
        .write_all(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n").as_bytes());
    let answer = rest(stream);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    assert_eq!(server.get("/cars").value()["doc_count"], json!(1));
}

#[test]
fn heads_are_counted_to_the_byte() {
    let server = Running::plain();
    let head = |bytes: usize| {
        let begin = "GET /?x= HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: ";
        let long = "x".repeat(bytes - begin.len() - "\r\n\r\n".len());
        format!("{begin}{long}\r\n\r\n")
    };
    let ask = |bytes: usize| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let text = head(bytes);
        assert_eq!(text.len(), bytes);
        stream.write_all(text.as_bytes()).unwrap();
        rest(stream)
    };
    assert!(ask(64 << 10).starts_with("HTTP/1.1 200"));
    for bytes in [(64 << 10) + 1, 100_000] {
        let refused = ask(bytes);
        assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
        assert!(refused.contains("too_large"), "{refused}");
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a server's patience is real time"
)]
fn a_client_that_stops_in_the_middle_of_a_body_gives_its_memory_back() {
    let server = Running::start(|settings| {
        settings.body_bytes_max = 1 << 20;
        settings.bodies_bytes_max = 1 << 20;
        settings.stall_timeout = STALL;
    });
    server.json("PUT", "/cars", "");
    let begun = Instant::now();
    // It takes all of the memory for bodies.
    let silent = half(&server, 1 << 20, 1000);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.json("PUT", "/cars/a", r#"{"x":1}"#).status, 201);
    assert!(begun.elapsed() >= STALL, "{:?}", begun.elapsed());
    assert!(rest(silent).starts_with("HTTP/1.1 408"));
    // One that goes away gives it back at once.
    drop(half(&server, 1 << 20, 1000));
    assert_eq!(server.json("PUT", "/cars/b", r#"{"x":1}"#).status, 201);
}

#[test]
fn idle_connections_make_room() {
    let server = Running::start(|settings| {
        settings.connections_max = 2;
        settings.idle_timeout = STALL;
    });
    let idle: Vec<TcpStream> = (0..2)
        .map(|_| TcpStream::connect(server.address).unwrap())
        .collect();
    let mut begun = TcpStream::connect(server.address).unwrap();
    begun.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
    assert_eq!(server.get("/").status, 200);
    drop(idle);
}

/// The memory of this process, in which the server runs (bytes).
fn memory(server: &Running) -> u64 {
    let system = server.get("/_node/_local/_system").value();
    system["memory"]["processes"].as_u64().unwrap()
}

#[test]
fn clients_that_take_nothing_hold_little_and_are_cut_off() {
    const CLIENTS: usize = 12;
    let server = Running::start(|settings| settings.stall_timeout = 3 * STALL);
    server.json("PUT", "/cars", "");
    // 48 MB of documents: an answer that was whole in memory would be seen.
    let text = "x".repeat(1 << 20);
    for number in 0..48 {
        let body = json!({"number": number, "text": text}).to_string();
        assert_eq!(
            server
                .json("PUT", &format!("/cars/{number:02}"), &body)
                .status,
            201
        );
    }
    let json = ["Content-Type: application/json"];
    let selector = br#"{"selector":{"number":{"$gte":0}},"limit":1000}"#;
    let ask = |number: usize| match number % 3 {
        0 => server.send("POST", "/cars/_find", &json, selector),
        1 => server.send("GET", "/cars/_all_docs?include_docs=true", &[], b""),
        _ => server.send("GET", "/cars/_changes?include_docs=true", &[], b""),
    };
    let whole = server.json(
        "POST",
        "/cars/_find",
        std::str::from_utf8(selector).unwrap(),
    );
    assert_eq!(whole.value()["docs"].as_array().unwrap().len(), 48);
    drop(whole);
    let before = memory(&server);
    let clients: Vec<TcpStream> = (0..CLIENTS).map(ask).collect();
    let mut most = before;
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(100));
        most = most.max(memory(&server));
    }
    // A query may hold 16 MiB ready, and every answer some pages of a document each.
    let grown = most.saturating_sub(before);
    assert!(
        grown < 250 << 20,
        "{grown} of {} bytes",
        CLIENTS * (48 << 20)
    );
    std::thread::sleep(4 * STALL);
    for client in clients {
        let answer = rest(client);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer:.100}");
        assert!(answer.len() < 40 << 20, "it was not cut: {}", answer.len());
    }
}

#[test]
fn attachments_in_answers_are_bounded_together() {
    let server = Running::start(|settings| {
        settings.body_bytes_max = 2 << 20;
        settings.bodies_bytes_max = 4 << 20;
        settings.stall_timeout = STALL;
    });
    server.json("PUT", "/cars", "");
    let bytes = vec![7; 1 << 20];
    let mut revision = server.put("/cars/a", "{}");
    for name in ["one", "two"] {
        let path = format!("/cars/a/{name}?rev={revision}");
        let put = server.ask("PUT", &path, &["Content-Type: a/b"], &bytes);
        revision = put.value()["rev"].as_str().unwrap().to_owned();
    }
    for path in [
        "/cars/a?attachments=true",
        "/cars/a?attachments=true&open_revs=all",
    ] {
        let refused = server
            .ask("GET", path, &["Accept: application/json"], b"")
            .error();
        assert_eq!(
            (refused.0, refused.1.as_str()),
            (413, "too_large"),
            "{path}"
        );
    }
    let since = format!(
        "/cars/a?atts_since=[%22{}%22]",
        server.get("/cars/a?revs_info=true").value()["_revs_info"][1]["rev"]
            .as_str()
            .unwrap()
    );
    let newest = server
        .ask("GET", &since, &["Accept: application/json"], b"")
        .value();
    assert!(
        newest["_attachments"]["two"]["data"].is_string()
            && newest["_attachments"]["one"]["stub"] == json!(true)
    );
    // Clients that take nothing hold up the next ones until they are cut off.
    let silent: Vec<TcpStream> = (0..8)
        .map(|_| server.send("GET", "/cars/a/one", &[], b""))
        .collect();
    let whole = server.get("/cars/a/one");
    assert_eq!((whole.status, whole.body.len()), (200, 1 << 20));
    drop(silent);
    let part = server.ask("GET", "/cars/a/two", &["Range: bytes=1048570-"], b"");
    assert_eq!((part.status, part.body.len()), (206, 6));
}

#[test]
fn attachments_beside_rows_come_one_document_at_a_time() {
    let server = Running::start(|settings| {
        settings.body_bytes_max = 2 << 20;
        settings.bodies_bytes_max = 8 << 20;
    });
    server.json("PUT", "/cars", "");
    let view = json!({"views": {"all": {"map": "function (doc) { emit(doc._id, null); }"}}});
    server.put("/cars/_design/d", &view.to_string());
    let bytes = vec![7; 1 << 20];
    for number in 0..6 {
        let put = server.ask(
            "PUT",
            &format!("/cars/{number}/one"),
            &["Content-Type: a/b"],
            &bytes,
        );
        assert_eq!(put.status, 201);
    }
    // Together they take three times the memory that there is for them.
    let paths = [
        "/cars/_all_docs?include_docs=true&attachments=true&startkey=\"0\"&endkey=\"9\"",
        "/cars/_all_docs?include_docs=true&attachments=true&keys=[\"0\",\"1\",\"x\",\"2\",\"3\",\"4\",\"5\"]",
        "/cars/_changes?include_docs=true&attachments=true&filter=_view&view=d/all",
        "/cars/_design/d/_view/all?include_docs=true&attachments=true",
    ];
    for path in paths {
        let answer = server.get(path);
        let value = answer.value();
        let rows = value["rows"].as_array().or(value["results"].as_array());
        let data = rows.unwrap().iter().filter_map(|row| {
            let one = &row["doc"]["_attachments"]["one"];
            one["data"].as_str().map(str::len)
        });
        assert_eq!(
            data.collect::<Vec<_>>(),
            [(1usize << 20).div_ceil(3) * 4; 6],
            "{path}"
        );
    }
    // One that is too large for that memory cuts the answer.
    let mut revision = server.get("/cars/5").value()["_rev"]
        .as_str()
        .unwrap()
        .to_owned();
    for name in ["two", "three"] {
        let path = format!("/cars/5/{name}?rev={revision}");
        let put = server.ask("PUT", &path, &["Content-Type: a/b"], &bytes);
        revision = put.value()["rev"].as_str().unwrap().to_owned();
    }
    for path in paths {
        let cut = rest(server.send("GET", path, &[], b""));
        assert!(cut.starts_with("HTTP/1.1 200"), "{cut:.100}");
        assert!(!cut.ends_with("0\r\n\r\n"), "{path}");
    }
    // Clients that take nothing hold one document each, and no more than there is memory for.
    let silent: Vec<TcpStream> = (0..8)
        .map(|at| server.send("GET", paths[at % paths.len()], &[], b""))
        .collect();
    drop(silent);
    assert_eq!(server.get("/cars/0/one").status, 200);
}

#[test]
fn a_page_reaches_no_open_server_under_its_own_name() {
    let status = |server: &Running, host: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let head = format!("GET /_all_dbs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        rest(stream).lines().next().unwrap_or_default().to_owned()
    };
    let open = Running::start(|settings| settings.hosts = vec!["gateway".to_owned()]);
    let port = open.address.port();
    for host in [&format!("127.0.0.1:{port}"), "localhost", "gateway:80"] {
        assert_eq!(status(&open, host), "HTTP/1.1 200 OK", "{host}");
    }
    let page = format!("page.example:{port}");
    assert_eq!(status(&open, &page), "HTTP/1.1 403 Forbidden");
    // Where callers name themselves, the name that they call gives them nothing.
    let closed = Running::start(|settings| {
        settings.admins = vec![Admin {
            name: "root".to_owned(),
            password: "secret".to_owned(),
        }];
    });
    assert_eq!(status(&closed, &page), "HTTP/1.1 401 Unauthorized");
}

#[test]
fn an_address_that_asks_too_often_is_told_when_to_ask_again() {
    let server = Running::start(|settings| settings.requests_per_second = 1);
    assert_eq!(server.get("/").status, 200);
    let mut refusals = (0..20)
        .map(|_| server.get("/"))
        .filter(|it| it.status != 200);
    let refused = refusals.next().unwrap();
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.value()["error"], json!("too_many_requests"));
}
