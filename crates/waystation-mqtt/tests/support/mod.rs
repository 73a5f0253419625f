//! A real Mosquitto, a publisher that knows what was acknowledged to it, and a database.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test helper stops the test where something is not as it should be, and waits by the clock"
)]

use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, Packet, QoS};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use waystation::{Db, DeviceOptions, Extractor, Options};
use waystation_mqtt::Settings;
use waystation_readings::{Readings, Selection};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Mosquitto, killed when it is dropped.
pub(crate) struct Broker {
    pub(crate) port: u16,
    dir: PathBuf,
    process: Child,
}

impl Broker {
    pub(crate) fn start(dir: &Path, more: &str) -> Self {
        let port = free_port();
        let dir = dir.to_owned();
        let config = format!(
            "listener {port} 127.0.0.1\nuser root\npersistence true\npersistence_location {}/\n\
             max_queued_messages 0\nmax_inflight_messages 100\n{more}\n",
            dir.display()
        );
        let open = if more.contains("password_file") {
            ""
        } else {
            "allow_anonymous true\n"
        };
        std::fs::write(dir.join("mosquitto.conf"), config + open).unwrap();
        let process = spawn(&dir, port);
        Self { port, dir, process }
    }

    /// As `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.process = spawn(&self.dir, self.port);
    }

    /// Settings of an ingest from here.
    pub(crate) fn settings(&self, toml: &str) -> Settings {
        let mut settings: Settings = toml::from_str(toml).unwrap();
        if settings.broker == Settings::default().broker {
            settings.broker = format!("mqtt://127.0.0.1:{}", self.port);
        }
        settings
    }

    pub(crate) fn options(&self, id: &str) -> MqttOptions {
        let mut options = MqttOptions::new(id, "127.0.0.1", self.port);
        options.set_clean_session(false);
        options.set_max_packet_size(4 << 20, 4 << 20);
        options
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn spawn(dir: &Path, port: u16) -> Child {
    let path = [
        "/usr/sbin/mosquitto",
        "/usr/local/sbin/mosquitto",
        "/opt/homebrew/sbin/mosquitto",
    ];
    let program = path.iter().find(|path| Path::new(path).exists());
    let program = program.expect("Mosquitto is not installed: run scripts/setup-test.sh");
    let log = std::fs::File::create(dir.join("mosquitto.log")).unwrap();
    let process = Command::new(program)
        .arg("-c")
        .arg(dir.join("mosquitto.conf"))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    wait_until("Mosquitto listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    process
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it takes too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it takes too long until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Publishes all of `messages` with quality of service 1 and returns when each is acknowledged, however often the broker goes
/// away meanwhile: what is not acknowledged then is published again. Mosquitto acknowledges in order.
pub(crate) async fn publish(options: MqttOptions, messages: Vec<(String, String)>) {
    let mut acknowledged = 0;
    while acknowledged < messages.len() {
        let mut options = options.clone();
        options.set_clean_session(true);
        let (client, mut events) = AsyncClient::new(options, 10);
        let rest = messages[acknowledged..].to_vec();
        let sending = tokio::spawn(async move {
            for (topic, payload) in rest {
                let sent = client
                    .publish(topic, QoS::AtLeastOnce, false, payload)
                    .await;
                if sent.is_err() {
                    return;
                }
            }
            // The client must outlive what it sends.
            std::future::pending::<()>().await;
        });
        while acknowledged < messages.len() {
            match events.poll().await {
                Ok(Event::Incoming(Packet::PubAck(_))) => acknowledged += 1,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        sending.abort();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Subscribes to `topic`; the messages come through the event loop.
pub(crate) async fn watch(options: MqttOptions, topic: &str) -> (AsyncClient, EventLoop) {
    let (client, mut events) = AsyncClient::new(options, 10);
    client.subscribe(topic, QoS::AtLeastOnce).await.unwrap();
    loop {
        if let Event::Incoming(Packet::SubAck(_)) = events.poll().await.unwrap() {
            return (client, events);
        }
    }
}

/// The next message.
pub(crate) async fn next(events: &mut EventLoop) -> (String, Vec<u8>) {
    let message = async {
        loop {
            if let Event::Incoming(Packet::Publish(message)) = events.poll().await.unwrap() {
                return (message.topic.clone(), message.payload.to_vec());
            }
        }
    };
    tokio::time::timeout(PATIENCE, message).await.unwrap()
}

pub(crate) fn open(dir: &Path) -> Readings {
    open_with(dir, Options::default())
}

pub(crate) fn open_with(dir: &Path, options: Options) -> Readings {
    let extractor = Extractor::until(b':');
    let options = Options {
        devices: Some(DeviceOptions::new(extractor)),
        ..options
    };
    let db = Db::open(dir, options).unwrap();
    Readings::new("test", Arc::new(db), extractor)
}

/// Sensor, time and value of all readings of `device`.
pub(crate) fn all(readings: &Readings, device: &str) -> Vec<(String, i64, String)> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = readings.page(&Selection::of(device), after.as_deref(), 1000);
        let page = page.unwrap();
        let rows = page.rows.into_iter();
        found.extend(rows.map(|it| (it.sensor, it.time, it.value.to_json().to_string())));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}
