//! Readings, devices, backups and figures over HTTP.

#![allow(clippy::disallowed_methods, reason = "a test waits by the clock")]

use crate::support::{self, Running};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use waystation_mqtt::Figures;
use waystation_readings::Part;
use waystation_server::{Admin, Events, Gateway};

const BASE: &str = "/_waystation/databases/cars";
const LINES: &str = "Content-Type: application/x-ndjson";

/// A server with the database of readings `cars`.
fn start(change: impl FnOnce(&mut waystation_server::Settings)) -> (tempfile::TempDir, Running) {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway {
        readings: vec![support::readings(dir.path())],
        parts: vec![Arc::new(Figures::default()) as Arc<dyn Part>],
        backups: Some(dir.path().join("backups")),
        events: Some(Arc::new(Events::default())),
    };
    let server = Running::start(|settings| {
        settings.gateway = gateway;
        change(settings);
    });
    (dir, server)
}

fn put(server: &Running, lines: &[Value]) {
    let lines_of_json: Vec<String> = lines.iter().map(Value::to_string).collect();
    let body = lines_of_json.join("\n");
    let path = format!("{BASE}/readings");
    let reply = server.ask("POST", &path, &[LINES], body.as_bytes());
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_eq!(reply.value()["written"], lines.len());
}

fn rows(server: &Running, path: &str) -> Vec<Value> {
    let reply = server.get(&format!("{BASE}/{path}"));
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    let text = reply.text();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn readings_are_put_and_asked_for() {
    let (_dir, server) = start(|_| {});
    let speed =
        |time: i64| json!({"device": "car17", "sensor": "speed", "time": time, "value": time % 10});
    let all: Vec<Value> = (0..5000).map(|at| speed(at * 1_000_000)).collect();
    put(&server, &all);
    put(
        &server,
        &[
            json!({"device": "car17", "sensor": "door", "time": "1970-01-01T00:00:07Z", "value": true}),
        ],
    );

    assert_eq!(
        rows(&server, "readings?device=car17&sensor=speed"),
        all,
        "through several pages"
    );
    assert_eq!(rows(&server, "readings?device=car17&limit=3").len(), 3);
    assert_eq!(rows(&server, "readings?device=car17&limit=0").len(), 0);
    let range = "readings?device=car17&sensor=speed&from=1000000&to=1970-01-01T00:00:03Z";
    assert_eq!(rows(&server, range), all[1..3]);
    assert_eq!(rows(&server, "readings?device=nobody").len(), 0);
    let newest = rows(&server, "latest?device=car17");
    assert_eq!(newest.len(), 2);
    assert_eq!(
        (&newest[0]["sensor"], &newest[0]["value"]),
        (&json!("door"), &json!(true))
    );
    assert_eq!(newest[1], all[4999]);

    let windows = rows(&server, "windows?device=car17&width=1000s");
    assert_eq!(windows.len(), 5);
    let expected = json!({
        "sensor": "speed", "start": 1_000_000_000, "count": 1000, "min": 0.0, "max": 0.0, "avg": 0.0, "sum": 0.0
    });
    assert_eq!(windows[1], expected);
    let csv = server.get(&format!(
        "{BASE}/readings?device=car17&sensor=door&format=csv"
    ));
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(
        csv.text(),
        "device,sensor,time,value\r\ncar17,door,7000000,true\r\n"
    );
    let csv = server.get(&format!(
        "{BASE}/windows?device=car17&width=5000s&format=csv"
    ));
    assert_eq!(csv.text().lines().count(), 2);

    let body = r#"[{"sensor":"s","value":1,"time":1},{"sensor":"s","value":2,"time":2}]"#;
    let path = format!("{BASE}/readings?device=bus&durability=power");
    assert_eq!(server.json("POST", &path, body).status, 201);
    assert_eq!(rows(&server, "readings?device=bus").len(), 2);
}

#[test]
fn bad_requests_are_answered_and_write_nothing() {
    let (_dir, server) = start(|settings| {
        settings.body_bytes_max = 1000;
        settings.bodies_bytes_max = 1000;
    });
    let path = format!("{BASE}/readings");
    let refused = |headers: &[&str], body: &str| {
        let reply = server.ask("POST", &path, headers, body.as_bytes());
        reply.error()
    };
    let form = ["Content-Type: text/plain"];
    assert_eq!(refused(&form, "{}").0, 415, "a form cannot write");
    let good = r#"{"device":"a","sensor":"s","value":1}"#;
    for (body, reason) in [
        (format!("{good}\n{{"), "line 2"),
        (
            format!("{good}\n{{\"device\":\"a:b\",\"sensor\":\"s\",\"value\":1}}"),
            "extractor until/3a",
        ),
        (
            "{\"device\":\"a\",\"sensor\":\"\",\"value\":1}".to_owned(),
            "sensor name",
        ),
        (
            "{\"device\":\"a\",\"sensor\":\"s\",\"value\":1,\"time\":\"soon\"}".to_owned(),
            "RFC 3339",
        ),
    ] {
        let (status, _, said) = refused(&[LINES], &body);
        assert!(status == 400 && said.contains(reason), "{status} {said}");
    }
    assert_eq!(refused(&[LINES], &"x".repeat(2000)).0, 413);
    assert!(rows(&server, "devices").is_empty());
    for (path, status) in [
        ("readings", 400),
        ("readings?device=a&from=x", 400),
        ("readings?device=a&format=xml", 400),
        ("readings?device=a:b", 400),
        ("windows?device=a&width=5", 400),
        ("devices/nobody", 404),
        ("nothing", 404),
    ] {
        assert_eq!(
            server.get(&format!("{BASE}/{path}")).status,
            status,
            "{path}"
        );
    }
    assert_eq!(
        server.get("/_waystation/databases/none/devices").status,
        404
    );
    assert_eq!(server.ask("PUT", &path, &[], b"").status, 405);
}

#[test]
fn devices_are_listed_depart_and_are_handed_on() {
    let (_dir, server) = start(|_| {});
    let reading = |device: &str| json!({"device": device, "sensor": "s", "time": 1, "value": 1});
    put(&server, &[reading("a"), reading("b"), reading("c/d")]);
    let listed = rows(&server, "devices");
    let names: Vec<&str> = listed
        .iter()
        .map(|it| it["device"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a", "b", "c/d"]);
    let found = server.get(&format!("{BASE}/devices/c%2Fd")).value();
    assert_eq!(
        (&found["device"], &found["records"]),
        (&json!("c/d"), &json!(1))
    );
    assert_eq!(
        server
            .ask("DELETE", &format!("{BASE}/devices/a"), &[], b"")
            .status,
        200
    );
    assert_eq!(
        server
            .ask("DELETE", &format!("{BASE}/devices/a"), &[], b"")
            .status,
        404
    );
    assert!(rows(&server, "readings?device=a").is_empty());

    let export = format!("{BASE}/devices/b/export?destination=south");
    let stream = server.json("POST", &export, "{}");
    assert_eq!(stream.status, 200);
    let refused = server.ask(
        "POST",
        &format!("{BASE}/readings"),
        &[LINES],
        reading("b").to_string().as_bytes(),
    );
    assert_eq!(refused.error().0, 409, "the device is frozen");
    let pending = server.get(&format!("{BASE}/hand-offs")).value();
    assert_eq!(pending, json!([{"device": "b", "destination": "south"}]));

    let south = tempfile::tempdir().unwrap();
    let other = support::readings(south.path());
    let receipt = other.db().devices().admit(stream.body.as_slice()).unwrap();
    let digits: Vec<String> = receipt
        .to_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let hex = digits.concat();
    let end = |body: Value| server.json("POST", &format!("{BASE}/hand-offs"), &body.to_string());
    assert_eq!(end(json!({"receipt": "00"})).status, 400);
    assert_eq!(end(json!({"receipt": hex})).status, 200);
    assert!(rows(&server, "readings?device=b").is_empty());
}

#[test]
fn the_tail_shows_what_is_written() {
    let (_dir, server) = start(|_| {});
    let path = format!("{BASE}/tail?device=car17");
    let stream = server.send("GET", &path, &[], b"");
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    // The first beat: it follows now.
    assert!(lines.any(|line| line == ": beat"));
    let of = |device: &str| json!({"device": device, "sensor": "s", "time": 1, "value": 1});
    put(&server, &[of("bus"), of("car17")]);
    assert!(lines.any(|line| line == "event: readings"));
    let data = lines.find_map(|line| line.strip_prefix("data: ").map(ToOwned::to_owned));
    assert_eq!(
        serde_json::from_str::<Value>(&data.unwrap()).unwrap(),
        of("car17")
    );
}

#[test]
fn rights_are_roles() {
    let (_dir, server) = start(|settings| {
        settings.admins = vec![root()];
    });
    let root = basic("root:secret");
    add_ann(&server, &["waystation:read", "waystation:write"]);
    let ann = basic("ann:pw");
    let status = |method: &str, path: &str, headers: &[&str]| {
        let body = r#"{"device":"a","sensor":"s","value":1}"#;
        server.ask(method, path, headers, body.as_bytes()).status
    };
    let (readings, device) = (format!("{BASE}/readings"), format!("{BASE}/devices/a"));
    assert_eq!(status("POST", &readings, &[LINES]), 401);
    assert_eq!(status("POST", &readings, &[LINES, &ann]), 201);
    assert_eq!(status("GET", &device, &[&ann]), 200);
    assert_eq!(status("DELETE", &device, &[&ann]), 403);
    assert_eq!(status("DELETE", &device, &[&root]), 200);
    for path in ["/metrics", "/_waystation/status"] {
        let answers = [
            status("GET", path, &[]),
            status("GET", path, &[&ann]),
            status("GET", path, &[&root]),
        ];
        assert_eq!(answers, [401, 403, 200], "{path}");
    }
    for path in ["/health", "/_waystation/console", "/_waystation/console.js"] {
        assert_eq!(status("GET", path, &[]), 200, "{path}");
    }
    let ready = server.get("/ready");
    assert_eq!(ready.status, 200, "{}", ready.text());
}

fn basic(text: &str) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(text);
    format!("Authorization: Basic {text}")
}

/// The administrator of these tests.
fn root() -> Admin {
    Admin {
        name: "root".into(),
        password: "secret".into(),
    }
}

/// Adds the user `ann`, whose password is `pw`, to the database of users.
fn add_ann(server: &Running, roles: &[&str]) {
    let root = basic("root:secret");
    let user = json!({"name": "ann", "password": "pw", "type": "user", "roles": roles});
    let made = server.ask(
        "PUT",
        "/_users/org.couchdb.user:ann",
        &[&root, "Content-Type: application/json"],
        user.to_string().as_bytes(),
    );
    assert_eq!(made.status, 201, "{}", made.text());
}

/// `fleet` may read and write cars and let them depart, `probe` may watch, `guard` may watch and let cars depart; all have
/// tokens, `fleet` a password as well.
fn users() -> waystation_access::Users {
    use waystation_access::{Right, Secret, User, Users};
    let fleet = User {
        name: "fleet".into(),
        password: Some(Secret::of(b"pw")),
        token: Some(Secret::of(b"token of the fleet")),
        rights: vec![Right {
            prefix: "car".into(),
            read: true,
            write: true,
            depart: true,
        }],
        ..User::default()
    };
    let probe = User {
        name: "probe".into(),
        token: Some(Secret::of(b"token of the probe")),
        is_monitor: true,
        ..User::default()
    };
    let guard = User {
        name: "guard".into(),
        token: Some(Secret::of(b"token of the guard")),
        is_monitor: true,
        rights: vec![Right {
            prefix: "car".into(),
            read: false,
            write: false,
            depart: true,
        }],
        ..User::default()
    };
    Users::new([fleet, probe, guard])
}

#[test]
fn a_user_of_the_settings_reaches_the_devices_of_a_prefix() {
    let (_dir, server) = start(|settings| {
        settings.admins = vec![root()];
        settings.users = waystation_access::LiveUsers::new(users());
    });
    let root = basic("root:secret");
    let token = "Authorization: Bearer token of the fleet".to_owned();
    let readings = format!("{BASE}/readings");
    let write = |devices: &[&str], user: &str| {
        let line = |device: &&str| format!(r#"{{"device":"{device}","sensor":"s","value":1}}"#);
        let lines: Vec<String> = devices.iter().map(line).collect();
        let body = lines.join("\n");
        server
            .ask("POST", &readings, &[LINES, user], body.as_bytes())
            .status
    };
    let get = |path: &str, user: &str| server.ask("GET", &format!("{BASE}{path}"), &[user], b"");
    assert_eq!(write(&["bus1", "car1"], &root), 201);
    for fleet in [&basic("fleet:pw"), &token] {
        assert_eq!(write(&["car1", "car2"], fleet), 201);
        // All of it or none.
        assert_eq!(write(&["car3", "bus1"], fleet), 403);
        let devices = get("/devices", fleet).text();
        assert!(devices.contains("car2") && !devices.contains("bus1") && !devices.contains("car3"));
        for path in ["/readings", "/latest", "/windows"] {
            let of = |device: &str| format!("{path}?device={device}&width=1s&sensor=s");
            assert_eq!(get(&of("car1"), fleet).status, 200, "{path}");
            assert_eq!(get(&of("bus1"), fleet).status, 403, "{path}");
        }
        for (device, expected) in [("car1", 200), ("bus1", 403)] {
            assert_eq!(get(&format!("/devices/{device}"), fleet).status, expected);
            assert_eq!(get("/tail?device=bus1", fleet).status, 403);
        }
        let depart = |device: &str| {
            let path = format!("{BASE}/devices/{device}");
            server.ask("DELETE", &path, &[fleet], b"").status
        };
        assert_eq!((depart("bus1"), depart("car2")), (403, 200));
        for path in ["/backups", "/hand-offs"] {
            assert_eq!(get(path, fleet).status, 403, "{path}");
        }
        assert_eq!(server.ask("GET", "/metrics", &[fleet], b"").status, 403);
    }
    let probe = "Authorization: Bearer token of the probe";
    assert_eq!(server.ask("GET", "/metrics", &[probe], b"").status, 200);
    assert_eq!(get("/devices", probe).status, 403);
    // The console has buttons for what its user may do.
    for (token, of_cars) in [("probe", false), ("guard", true)] {
        let header = format!("Authorization: Bearer token of the {token}");
        let status = server.ask("GET", "/_waystation/status", &[&header], b"");
        let devices = status.value()["databases"][0]["devices"].clone();
        for device in devices.as_array().unwrap() {
            let expected = of_cars && device["device"].to_string().contains("car");
            assert_eq!(device["may_depart"], expected, "{token}: {device}");
        }
    }
    let wrong = [
        "Authorization: Bearer token of a stranger",
        &basic("fleet:wp"),
        &basic("probe:"),
    ];
    for wrong in wrong {
        assert_eq!(get("/devices", wrong).status, 401, "{wrong}");
    }
    assert_eq!(server.get(&format!("{BASE}/devices")).status, 401);
}

#[test]
fn a_tail_shows_the_devices_that_the_user_reaches() {
    let (_dir, server) = start(|settings| {
        settings.users = waystation_access::LiveUsers::new(users());
    });
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    let request = format!(
        "GET {BASE}/tail HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token of the fleet\r\n\r\n"
    );
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut lines = BufReader::new(stream).lines();
    // The head has come, so the tail follows.
    assert!(lines.next().unwrap().unwrap().contains("200"));
    let readings = format!("{BASE}/readings");
    let write = |device: &str| {
        let body = format!(r#"{{"device":"{device}","sensor":"s","value":1}}"#);
        let fleet = "Authorization: Bearer token of the fleet";
        let headers = [LINES, fleet];
        server.ask("POST", &readings, &headers, body.as_bytes())
    };
    assert_eq!(write("car1").status, 201);
    let seen = lines.map(Result::unwrap).find(|it| it.starts_with("data:"));
    assert!(seen.unwrap().contains("car1"));
}

#[test]
fn a_server_whose_last_user_goes_is_closed() {
    let live = waystation_access::LiveUsers::new(users());
    let (_dir, server) = start(|settings| settings.users = live.clone());
    let devices = format!("{BASE}/devices");
    let fleet = basic("fleet:pw");
    let status = |headers: &[&str]| server.ask("GET", &devices, headers, b"").status;
    assert_eq!((status(&[&fleet]), status(&[])), (200, 401));
    live.set(waystation_access::Users::default());
    assert_eq!((status(&[&fleet]), status(&[])), (401, 401));
}

#[test]
fn roles_with_prefixes_hold_for_users_of_the_database() {
    let (_dir, server) = start(|settings| {
        settings.admins = vec![root()];
    });
    let root = basic("root:secret");
    add_ann(&server, &["waystation:read:car"]);
    let lines = "{\"device\":\"car1\",\"sensor\":\"s\",\"value\":1}\n{\"device\":\"bus1\",\"sensor\":\"s\",\"value\":1}";
    let readings = format!("{BASE}/readings");
    let put = |user: &str| server.ask("POST", &readings, &[LINES, user], lines.as_bytes());
    assert_eq!(put(&root).status, 201);
    let ann = basic("ann:pw");
    assert_eq!(put(&ann).status, 403);
    let status = |device: &str| {
        let path = format!("{BASE}/latest?device={device}");
        server.ask("GET", &path, &[&ann], b"").status
    };
    assert_eq!((status("car1"), status("bus1")), (200, 403));
}

#[test]
fn a_backup_is_made_in_the_background_and_opens() {
    let (dir, server) = start(|_| {});
    put(
        &server,
        &[json!({"device": "a", "sensor": "s", "time": 1, "value": 5})],
    );
    let path = format!("{BASE}/backups");
    assert_eq!(server.get(&path).value()["backups"], json!([]));
    assert_eq!(server.ask("POST", &path, &[], b"{}").status, 415);
    assert_eq!(server.json("POST", &path, "{}").status, 202);
    let begun = Instant::now();
    let state = loop {
        let state = server.get(&path).value();
        if state["running"] == false {
            break state;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{state}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(
        (&state["fault"], &state["backups"][0]["number"]),
        (&Value::Null, &json!(1))
    );
    let storage = waystation::storage::OsStorage::new();
    let backups =
        waystation::backup::Backups::open(storage, dir.path().join("backups/cars")).unwrap();
    assert!(
        backups
            .verify(None, &mut |_| {})
            .unwrap()
            .problems
            .is_empty()
    );
}

/// The names of figures that text mentions in backquotes or as metrics of an expression.
fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
    let known = |word: &&str| word.starts_with("waystation_") || word.starts_with("process_");
    words.filter(known).map(ToOwned::to_owned).collect()
}

#[test]
fn figures_are_those_of_the_reference_and_of_the_dashboard() {
    let (_dir, server) = start(|_| {});
    put(
        &server,
        &[json!({"device": "a", "sensor": "s", "time": 1, "value": 5})],
    );
    assert_eq!(server.json("PUT", "/stays", "").status, 201);
    let reply = server.get("/metrics");
    assert_eq!(
        reply.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = reply.text();
    let types: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert!(
        text.contains("waystation_readings_written_total{database=\"cars\"} 1\n"),
        "{text}"
    );
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let mut reference = names_in(&read("docs/reference/metrics.md"));
    // The daemon adds those, and a test of the daemon looks for them.
    reference.retain(|name| !name.starts_with("waystation_redis_"));
    assert_eq!(
        reference, types,
        "docs/reference/metrics.md lists the figures"
    );
    let dashboard = read("data/grafana/waystation.json");
    assert!(serde_json::from_str::<Value>(&dashboard).unwrap()["panels"].is_array());
    for name in names_in(&dashboard) {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|it| name.strip_suffix(it));
        let is_known = types.contains(&name) || family.is_some_and(|it| types.contains(it));
        assert!(is_known, "the dashboard asks for {name}");
    }
}

#[test]
fn the_status_has_what_the_console_shows() {
    let (_dir, server) = start(|_| {});
    put(
        &server,
        &[json!({"device": "a", "sensor": "s", "time": 1, "value": 5})],
    );
    let status = server.get("/_waystation/status").value();
    let database = &status["databases"][0];
    assert_eq!(
        (&database["name"], &database["device_count"]),
        (&json!("cars"), &json!(1))
    );
    assert_eq!(database["devices"][0]["level"], "upper");
    assert!(database["write_amplification"].is_number(), "{database}");
    assert_eq!(status["parts"]["mqtt"]["connected"], false);
    assert_eq!(status["faults"], json!([]));
    let page = server.get("/_waystation/console");
    assert!(
        page.header("content-security-policy")
            .contains("default-src 'none'")
    );
    assert_eq!(
        server.get("/_waystation").header("location"),
        "/_waystation/console"
    );
}
