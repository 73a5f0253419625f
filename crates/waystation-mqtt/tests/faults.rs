//! Deaths of the ingest and of the broker, and a database that takes nothing: nothing acknowledged is lost.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is not as it should be"
)]

mod support;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use support::{Broker, all, open, open_with, publish, until};
use waystation::Options;
use waystation_mqtt::{Ingest, Settings};
use waystation_readings::Part;

const TOPICS: &str =
    "[[readings]]\ntopic = 'load/{device}/{sensor}'\nvalue = '$.v'\ntime = '$.t'\ntime_unit = 'us'";
/// The environment of the process that is killed: the port of the broker, the database, the list of what it acknowledged.
const CHILD: [&str; 3] = ["TEST_BROKER_PORT", "TEST_DATABASE", "TEST_ACKNOWLEDGED"];

/// Writes the topics of acknowledged messages to a file, each before the next one.
struct Acknowledged(OnceLock<Mutex<std::fs::File>>);

static ACKNOWLEDGED: Acknowledged = Acknowledged(OnceLock::new());

impl log::Log for Acknowledged {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        let topic = text.strip_prefix("acknowledged ");
        if let (Some(topic), Some(file)) = (topic, self.0.get()) {
            // In one call, so that a kill leaves no line without its end.
            let line = format!("{topic}\n");
            file.lock().unwrap().write_all(line.as_bytes()).unwrap();
        }
    }

    fn flush(&self) {
        // Every line is written at once.
    }
}

fn note_acknowledged(path: &Path) {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    assert!(ACKNOWLEDGED.0.set(Mutex::new(file.unwrap())).is_ok());
    log::set_logger(&ACKNOWLEDGED).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
}

/// Messages of sensors `n0`, `n1`, ... of a car, one each.
fn messages(from: usize, to: usize) -> Vec<(String, String)> {
    let message = |at: usize| {
        (
            format!("load/car/n{at}"),
            format!(r#"{{"v":{at},"t":{at}}}"#),
        )
    };
    (from..to).map(message).collect()
}

#[test]
#[ignore = "the process that another test starts and kills"]
fn process_that_ingests() {
    let [port, database, list] = CHILD.map(|name| std::env::var(name).unwrap());
    note_acknowledged(Path::new(&list));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let settings = Settings {
            broker: format!("mqtt://127.0.0.1:{port}"),
            ..toml::from_str(TOPICS).unwrap()
        };
        let readings = open(Path::new(&database));
        let _ingest = Ingest::start(&settings, readings).unwrap();
        std::future::pending::<()>().await;
    });
}

/// A process that dies with its test.
struct Process(Child);

impl Process {
    /// As `kill -9` does.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_process(broker: &Broker, database: &Path, list: &Path) -> Process {
    let values = [
        PathBuf::from(broker.port.to_string()),
        database.to_owned(),
        list.to_owned(),
    ];
    let process = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "process_that_ingests",
            "--ignored",
            "--nocapture",
        ])
        .envs(CHILD.into_iter().zip(values))
        .stdout(Stdio::null())
        .spawn();
    Process(process.unwrap())
}

fn sensors(readings: &waystation_readings::Readings) -> HashSet<String> {
    all(readings, "car").into_iter().map(|row| row.0).collect()
}

fn listed(list: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(list).unwrap_or_default();
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("load/car/"));
    names.map(ToOwned::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_ingest_is_killed() {
    let (broker_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let broker = Broker::start(broker_dir.path(), "");
    let (database, list) = (dir.path().join("db"), dir.path().join("list"));
    let mut process = start_process(&broker, &database, &list);
    // The session is there before the first message.
    until("the ingest subscribes", || {
        let log = std::fs::read_to_string(broker_dir.path().join("mosquitto.log"));
        log.is_ok_and(|log| log.contains("as waystation"))
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let count = 20_000;
    let publisher = tokio::spawn(publish(broker.options("publisher"), messages(0, count)));
    for part in 1..4 {
        let wanted = part * count / 5;
        until("a part is acknowledged", || listed(&list).len() >= wanted).await;
        process.kill();
        // What it acknowledged before it died is there.
        let readings = open(&database);
        let there = sensors(&readings);
        let lost: Vec<_> = listed(&list)
            .into_iter()
            .filter(|it| !there.contains(it))
            .collect();
        assert_eq!(lost, Vec::<String>::new());
        drop(readings);
        process = start_process(&broker, &database, &list);
    }
    publisher.await.unwrap();
    until("everything is acknowledged", || {
        listed(&list).into_iter().collect::<HashSet<_>>().len() == count
    })
    .await;
    process.kill();
    assert_eq!(
        sensors(&open(&database)).len(),
        count,
        "all that the publisher saw acknowledged"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_broker_is_killed() {
    let (broker_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let list = dir.path().join("list");
    note_acknowledged(&list);
    let mut broker = Broker::start(
        broker_dir.path(),
        "autosave_interval 100\nautosave_on_changes true",
    );
    let readings = open(&dir.path().join("db"));
    let ingest = Ingest::start(&broker.settings(TOPICS), readings.clone()).unwrap();
    let figures = ingest.figures().clone();
    until("the broker is there", || figures.is_connected()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;

    let options = broker.options("publisher");
    let publisher = tokio::spawn(publish(options, messages(0, 10_000)));
    for wanted in [1_000, 3_000] {
        until("a part is acknowledged", || listed(&list).len() >= wanted).await;
        broker.kill();
        until("the loss is noticed", || !figures.is_connected()).await;
        assert!(
            figures
                .fault()
                .is_some_and(|fault| fault.contains("no connection"))
        );
        broker.start_again();
        until("the broker is back", || figures.is_connected()).await;
    }
    publisher.await.unwrap();
    // From here on the broker lives: every message arrives.
    publish(broker.options("publisher2"), messages(10_000, 11_000)).await;
    let wanted: HashSet<String> = (10_000..11_000).map(|at| format!("n{at}")).collect();
    until("the rest is written", || {
        wanted.is_subset(&sensors(&readings))
    })
    .await;
    let there = sensors(&readings);
    let lost: Vec<_> = listed(&list)
        .into_iter()
        .filter(|it| !there.contains(it))
        .collect();
    assert_eq!(lost, Vec::<String>::new());
    assert_eq!(figures.fault(), None);
    ingest.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_acknowledgements_until_there_is_room() {
    let (broker_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let broker = Broker::start(broker_dir.path(), "");
    let options = Options {
        disk_bytes_max: Some(256 << 20),
        ..Options::default()
    };
    let readings = open_with(dir.path(), options);
    let topics = "[[readings]]\ntopic = 'load/{device}/{sensor}'\npayload = 'raw'";
    let ingest = Ingest::start(&broker.settings(topics), readings.clone()).unwrap();
    let figures = ingest.figures().clone();
    until("the broker is there", || figures.is_connected()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let large = |at: usize| (format!("load/car{}/n{at}", at % 4), "x".repeat(1 << 20));
    let count = 400;
    let publisher = tokio::spawn(publish(
        broker.options("publisher"),
        (0..count).map(large).collect(),
    ));
    until("the disk is full", || figures.fault().is_some()).await;
    let fault = figures.fault().unwrap();
    assert!(fault.contains("disk is full"), "{fault}");
    let before = figures.acknowledged();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(figures.acknowledged(), before, "nothing is acknowledged");
    assert!(figures.is_connected(), "and the broker is not left");
    // Devices depart as long as it takes.
    let mut departures = 0;
    while figures.acknowledged() < count as u64 {
        if figures.fault().is_some() {
            for car in 0..4 {
                readings
                    .depart(&format!("car{car}"), waystation::Durability::ProcessCrash)
                    .unwrap();
            }
            departures += 1;
        }
        assert!(departures < 200, "room does not come back");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    publisher.await.unwrap();
    assert_eq!(figures.dead_letters(), 0);
    ingest.stop().await;
}

/// A broker that accepts connections and ends them at once is asked less and less often.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_ends_every_connection_is_not_asked_in_a_loop() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let directory = tempfile::tempdir().unwrap();
    let mut settings: Settings = toml::from_str(TOPICS).unwrap();
    settings.broker = format!("mqtt://127.0.0.1:{port}");
    let ingest = Ingest::start(&settings, open(directory.path())).unwrap();
    let accepting = tokio::task::spawn_blocking(move || {
        let mut times = Vec::new();
        while times.len() < 6 {
            let (mut stream, _) = listener.accept().unwrap();
            times.push(tokio::time::Instant::now());
            let mut packet = [0; 1024];
            let _ = stream.read(&mut packet);
            stream.write_all(&[0x20, 2, 0, 0]).unwrap();
            // The client takes itself for connected, as it subscribes.
            assert!(stream.read(&mut packet).unwrap() > 0);
        }
        *times.last().unwrap() - times[0]
    });
    let took = accepting.await.unwrap();
    // Half of 0.1, 0.2, 0.4, 0.8 and 1.6 seconds at least.
    assert!(took >= Duration::from_millis(1500), "{took:?}");
    ingest.stop().await;
}
