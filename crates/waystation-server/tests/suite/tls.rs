//! TLS of the listener and of replications: a server that is trusted, one that is not, and files that cannot be used.

use crate::support::Running;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waystation_access::{LiveUsers, Secret, User, Users};
use waystation_server::{Server, Settings, Tls};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tls")
        .join(name)
}

fn secure() -> Tls {
    Tls {
        certificate: file("server.pem"),
        key: file("server.key"),
        clients: None,
    }
}

#[test]
fn replications_over_tls_reach_servers_that_they_trust() {
    let trusting = Running::start(|settings| {
        settings.replication_trust = Some(file("authority.pem"));
    });
    let distrusting = Running::start(|_| ());
    let other = Running::start(|settings| settings.tls = Some(secure()));
    let remote = format!("https://localhost:{}/cars", other.address.port());
    for server in [&trusting, &distrusting] {
        assert_eq!(server.json("PUT", "/cars", "").status, 201);
        let put = server.json(
            "PUT",
            "/cars/a",
            r#"{"_attachments":{"x":{"data":"aGVsbG8="}}}"#,
        );
        assert_eq!(put.status, 201, "{}", put.text());
    }
    let order = json!({"source": "cars", "target": remote, "create_target": true, "retries_per_request": 0});
    let pushed = trusting.json("POST", "/_replicate", &order.to_string());
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    let back = json!({"source": remote, "target": "copy", "create_target": true});
    let pulled = trusting.json("POST", "/_replicate", &back.to_string());
    assert_eq!(
        pulled.value()["history"][0]["docs_written"],
        1,
        "{}",
        pulled.text()
    );
    assert_eq!(trusting.get("/copy/a/x").body, b"hello");
    let (status, word, reason) = distrusting
        .json("POST", "/_replicate", &order.to_string())
        .error();
    assert_eq!((status, word.as_str()), (500, "http_request_failed"));
    assert!(reason.contains("TLS: invalid peer certificate"), "{reason}");
}

/// The status line of an answer over TLS to a client that shows this certificate.
fn asked(server: &Running, certificate: Option<(&str, &str)>) -> std::io::Result<String> {
    let answer = asked_for(server, "/", certificate)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

/// The whole answer to `GET PATH`.
fn asked_for(
    server: &Running,
    path: &str,
    certificate: Option<(&str, &str)>,
) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    waystation_tls::add_authorities(&mut roots, &file("authority.pem")).unwrap();
    let config = match certificate {
        None => waystation_tls::client(roots),
        Some((shown, key)) => {
            waystation_tls::named_client(roots, &file(shown), &file(key)).unwrap()
        }
    };
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(server.address)?);
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn clients_show_a_certificate_where_the_server_asks_for_one() {
    let server = Running::start(|settings| {
        settings.tls = Some(Tls {
            clients: Some(file("clients-authority.pem")),
            ..secure()
        });
    });
    let sound = asked(&server, Some(("client.pem", "client.key")));
    assert_eq!(sound.unwrap(), "HTTP/1.1 200 OK");
    let refused = [
        (None, "CertificateRequired"),
        (
            Some(("client-expired.pem", "client.key")),
            "CertificateExpired",
        ),
        // Of another authority.
        (Some(("server.pem", "server.key")), "UnknownCA"),
    ];
    for (certificate, alert) in refused {
        let error = asked(&server, certificate).unwrap_err().to_string();
        assert!(error.contains(alert), "{certificate:?}: {error}");
    }
    // They have held up no other client.
    assert!(asked(&server, Some(("client.pem", "client.key"))).is_ok());
}

#[test]
fn a_certificate_names_a_user() {
    let pem = CertificateDer::from_pem_file(file("client.pem")).unwrap();
    let user = |certificate: &[u8]| User {
        name: "car17".to_owned(),
        certificate: Some(Secret::of(certificate)),
        is_monitor: true,
        ..User::default()
    };
    let users = LiveUsers::new(Users::new([user(&pem)]));
    let live = users.clone();
    let server = Running::start(|settings| {
        settings.tls = Some(Tls {
            clients: Some(file("clients-authority.pem")),
            ..secure()
        });
        settings.users = live;
    });
    let shown = Some(("client.pem", "client.key"));
    let session = asked_for(&server, "/_session", shown).unwrap();
    assert!(session.contains(r#""name":"car17""#), "{session}");
    assert!(
        session.contains(r#""authenticated":"certificate""#),
        "{session}"
    );
    assert!(
        asked_for(&server, "/metrics", shown)
            .unwrap()
            .contains("200 OK")
    );
    // The certificate of somebody else.
    users.set(Users::new([user(b"another")]));
    let session = asked_for(&server, "/_session", shown).unwrap();
    assert!(session.contains(r#""name":null"#), "{session}");
    assert!(
        asked_for(&server, "/metrics", shown)
            .unwrap()
            .contains("401")
    );
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let refused = |change: &dyn Fn(&mut Settings), reason: &str| {
        let mut settings = Settings::new(directory.path());
        settings.listen = "127.0.0.1:0".parse().unwrap();
        change(&mut settings);
        let error = runtime
            .block_on(Server::bind(settings))
            .expect_err(reason)
            .to_string();
        assert!(error.contains(reason), "{error}");
    };
    let with = |certificate: &str, key: &str| Tls {
        certificate: file(certificate),
        key: file(key),
        clients: None,
    };
    refused(
        &|it| it.tls = Some(with("nothing.pem", "server.key")),
        "nothing.pem",
    );
    refused(
        &|it| it.tls = Some(with("server.pem", "authority.pem")),
        "authority.pem",
    );
    refused(
        &|it| it.tls = Some(with("server.key", "server.key")),
        "it holds no certificate",
    );
    refused(
        &|it| it.tls = Some(with("authority.pem", "server.key")),
        "authority.pem",
    );
    refused(
        &|it| {
            it.tls = Some(Tls {
                clients: Some(file("server.key")),
                ..secure()
            });
        },
        "it holds no certificate",
    );
    refused(
        &|it| it.replication_trust = Some(file("server.key")),
        "it holds no certificate",
    );
}
