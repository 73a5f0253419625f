//! Messages through a real Mosquitto: what they mean, in both versions of the protocol.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is not as it should be"
)]

mod support;

use rumqttc::{AsyncClient, LastWill, QoS};
use std::process::Command;
use support::{Broker, all, next, open, publish, until, watch};
use waystation_mqtt::{Ingest, Settings};
use waystation_readings::{Part, Readings};

const TOPICS: &str = r#"
[[readings]]
topic = "raw/{device}/{sensor}"
payload = "raw"
[[readings]]
topic = "json/{device}/{sensor}"
value = "$.v"
time = "$.t"
time_unit = "us"
[[readings]]
topic = "flat"
device = "$.id"
value = "$.data.*"
time = "$.t"
time_unit = "us"
[[depart]]
topic = "status/{device}"
payload = "offline"
"#;

async fn ingest(settings: &Settings, readings: &Readings) -> Ingest {
    let ingest = Ingest::start(settings, readings.clone()).unwrap();
    let figures = ingest.figures().clone();
    until("the broker is there", || figures.is_connected()).await;
    ingest
}

fn pairs(messages: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(topic, payload): &(&str, &str)| ((*topic).to_owned(), (*payload).to_owned());
    messages.iter().map(pair).collect()
}

async fn every_message_becomes_what_the_settings_say(version: &str) {
    let (broker_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let broker = Broker::start(broker_dir.path(), "");
    let readings = open(dir.path());
    let settings = broker.settings(&format!("version = '{version}'\n{TOPICS}"));
    let (_watcher, mut letters) = watch(broker.options("watcher"), "waystation/dead-letter").await;
    let ingest = ingest(&settings, &readings).await;
    let messages = pairs(&[
        ("raw/car1/speed", "50"),
        ("json/car2/speed", r#"{"v":1.5,"t":20}"#),
        ("json/car2/speed", r#"{"v":2.5,"t":20}"#),
        ("json/car2/speed", "{"),
        ("flat", r#"{"id":"car3","t":30,"data":{"a":1,"b":"x"}}"#),
        ("json/c:r/speed", r#"{"v":1,"t":1}"#),
        ("json/gone/speed", r#"{"v":1,"t":1}"#),
        ("status/gone", "online"),
        ("status/gone", "offline"),
        ("json/back/speed", r#"{"v":1,"t":1}"#),
        ("status/back", "offline"),
        ("json/back/speed", r#"{"v":2,"t":2}"#),
    ]);
    let count = messages.len() as u64;
    publish(broker.options("publisher"), messages).await;
    let figures = ingest.figures().clone();
    until("all is acknowledged", || figures.acknowledged() == count).await;

    let row = |sensor: &str, time, value: &str| (sensor.to_owned(), time, value.to_owned());
    let raw = all(&readings, "car1");
    assert_eq!(
        (raw.len(), raw[0].0.as_str(), raw[0].2.as_str()),
        (1, "speed", "50")
    );
    assert_eq!(
        all(&readings, "car2"),
        [row("speed", 20, "2.5")],
        "twice overwrites itself"
    );
    assert_eq!(
        all(&readings, "car3"),
        [row("a", 30, "1"), row("b", 30, "\"x\"")]
    );
    assert_eq!(all(&readings, "gone"), []);
    assert_eq!(
        all(&readings, "back"),
        [row("speed", 2, "2")],
        "in the order of the messages"
    );

    let mut kinds = Vec::new();
    for _ in 0..2 {
        let (_, letter) = next(&mut letters).await;
        let letter: serde_json::Value = serde_json::from_slice(&letter).unwrap();
        kinds.push((letter["topic"].to_string(), letter["kind"].to_string()));
    }
    kinds.sort();
    let expected = [
        ("\"json/c:r/speed\"".to_owned(), "\"name\"".to_owned()),
        ("\"json/car2/speed\"".to_owned(), "\"payload\"".to_owned()),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(figures.dead_letters(), 2);
    assert_eq!(figures.fault(), None);
    ingest.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_becomes_what_the_settings_say_in_3_1_1() {
    every_message_becomes_what_the_settings_say("3.1.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_becomes_what_the_settings_say_in_5() {
    every_message_becomes_what_the_settings_say("5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_longer_than_all_the_room_holds_nothing_up() {
    let (broker_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let broker = Broker::start(broker_dir.path(), "");
    let readings = open(dir.path());
    let limits = "payload_bytes_max = 70_000\nwaiting_bytes_max = 70_000";
    let settings = broker.settings(&format!("{limits}\n{TOPICS}"));
    let (_watcher, mut letters) = watch(broker.options("watcher"), "waystation/dead-letter").await;
    let ingest = ingest(&settings, &readings).await;
    // Subscriptions may follow the connection.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let messages = [
        ("json/car/s", "x".repeat(100_000)),
        ("json/car/s", "x".repeat(69_000)),
        ("json/car/s", "x".to_owned()),
        ("json/car/s", r#"{"v":1,"t":1}"#.to_owned()),
    ];
    let messages = messages.map(|(topic, payload)| (topic.to_owned(), payload));
    publish(broker.options("publisher"), messages.to_vec()).await;
    let figures = ingest.figures().clone();
    until("all is acknowledged", || figures.acknowledged() == 4).await;
    assert_eq!(all(&readings, "car").len(), 1);
    for (kind, bytes, quoted) in [
        ("too_large", 100_000, serde_json::Value::Null),
        ("payload", 69_000, serde_json::Value::Null),
        ("payload", 1, "eA==".into()),
    ] {
        let (_, letter) = next(&mut letters).await;
        let letter: serde_json::Value = serde_json::from_slice(&letter).unwrap();
        assert_eq!(letter["kind"], kind);
        assert_eq!(letter["payload_bytes"], bytes);
        assert_eq!(letter["payload_base64"], quoted);
    }
    ingest.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_readings_of_a_batch_are_found_among_the_others() {
    let (broker_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let broker = Broker::start(broker_dir.path(), "");
    let readings = open(dir.path());
    let settings = broker.settings(&format!("batch_delay_ms = 200\n{TOPICS}"));
    let ingest = ingest(&settings, &readings).await;
    // Subscriptions may follow the connection.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let device = |at: usize| if at % 40 == 7 { "c:r" } else { "car" };
    let message = |at: usize| {
        let payload = format!(r#"{{"v":{at},"t":{at}}}"#);
        (format!("json/{}/s", device(at)), payload)
    };
    publish(broker.options("publisher"), (0..200).map(message).collect()).await;
    let figures = ingest.figures().clone();
    until("all is acknowledged", || figures.acknowledged() == 200).await;
    assert_eq!(figures.dead_letters(), 5);
    let there: Vec<i64> = all(&readings, "car").iter().map(|row| row.1).collect();
    let expected: Vec<i64> = (0..200).filter(|at| at % 40 != 7).collect();
    assert_eq!(there, expected);
    ingest.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_will_is_a_departure() {
    let (broker_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let broker = Broker::start(broker_dir.path(), "");
    let readings = open(dir.path());
    let ingest = ingest(&broker.settings(TOPICS), &readings).await;
    let mut options = broker.options("car9");
    options.set_last_will(LastWill::new(
        "status/car9",
        "offline",
        QoS::AtLeastOnce,
        true,
    ));
    let (client, mut events) = AsyncClient::new(options, 10);
    client
        .publish("raw/car9/speed", QoS::AtLeastOnce, false, "50")
        .await
        .unwrap();
    let drive = tokio::spawn(async move { while events.poll().await.is_ok() {} });
    until("the car is here", || !all(&readings, "car9").is_empty()).await;
    // The connection breaks without goodbye.
    drive.abort();
    until("the car is gone", || all(&readings, "car9").is_empty()).await;

    // The broker keeps the will, and sends it to a new session. The car is back by then.
    ingest.stop().await;
    publish(broker.options("car9b"), pairs(&[("raw/car9/speed", "60")])).await;
    let settings = Settings {
        client_id: "another".into(),
        ..broker.settings(TOPICS)
    };
    let other = self::ingest(&settings, &readings).await;
    publish(broker.options("car9b"), pairs(&[("raw/car9/speed", "70")])).await;
    until("the car is here again", || {
        !all(&readings, "car9").is_empty()
    })
    .await;
    other.stop().await;
    assert!(
        !all(&readings, "car9").is_empty(),
        "an old will is no departure"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_group_share_the_messages() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let broker = Broker::start(dirs[0].path(), "");
    let topics = "[[readings]]\ntopic = 'json/{device}/{sensor}'\nvalue = '$.v'\ntime = '$.t'\nshare = 'edge'";
    let mut members = Vec::new();
    for (at, dir) in dirs[1..].iter().enumerate() {
        let readings = open(dir.path());
        let settings = Settings {
            client_id: format!("member{at}"),
            ..broker.settings(topics)
        };
        let ingest = ingest(&settings, &readings).await;
        members.push((ingest, readings));
    }
    // Subscriptions may follow the connection.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let message = |at: usize| ("json/car/s".to_owned(), format!(r#"{{"v":{at},"t":{at}}}"#));
    publish(broker.options("publisher"), (0..200).map(message).collect()).await;
    let counts = || {
        members
            .iter()
            .map(|(_, readings)| all(readings, "car").len())
    };
    until("all is written", || counts().sum::<usize>() == 200).await;
    assert!(
        counts().all(|count| count > 0),
        "{:?}",
        counts().collect::<Vec<_>>()
    );
}

/// A certificate, a user and the user's password, in files of `dir`.
fn make_credentials(dir: &std::path::Path) {
    let path = |name: &str| dir.join(name).display().to_string();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        ])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &path("key.pem"), "-out", &path("cert.pem")])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let made = Command::new("mosquitto_passwd")
        .args(["-b", "-c", &path("users"), "gateway", "secret"])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    std::fs::write(dir.join("password"), "secret\n").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_broker_may_ask_for_tls_and_a_password() {
    let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = |name: &str| dir.path().join(name).display().to_string();
    make_credentials(dir.path());
    let more = format!(
        "certfile {}\nkeyfile {}\npassword_file {}",
        path("cert.pem"),
        path("key.pem"),
        path("users")
    );
    let broker = Broker::start(dir.path(), &more);
    let settings = Settings {
        broker: format!("mqtts://localhost:{}", broker.port),
        user: Some("gateway".into()),
        password_file: Some(dir.path().join("password")),
        ca_file: Some(dir.path().join("cert.pem")),
        ..broker.settings(TOPICS)
    };
    let readings = open(data.path());
    ingest(&settings, &readings).await.stop().await;

    std::fs::write(dir.path().join("password"), "wrong\n").unwrap();
    let refused = Ingest::start(&settings, readings.clone()).unwrap();
    until("it says why", || refused.figures().fault().is_some()).await;
    let fault = refused.figures().fault().unwrap();
    assert!(
        fault.contains("no connection to mqtts://localhost"),
        "{fault}"
    );
    assert!(
        !fault.contains("wrong"),
        "the password stays secret: {fault}"
    );
    refused.stop().await;

    let foreign = Settings {
        ca_file: None,
        ..settings
    };
    let refused = Ingest::start(&foreign, readings.clone()).unwrap();
    until("it does not trust", || refused.figures().fault().is_some()).await;
    assert!(!refused.figures().is_connected());
    refused.stop().await;
}
