//! The daemon as a gateway: a real Mosquitto, a publisher, and readings over HTTP.

use crate::support::{Process, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

fn start_broker(dir: &Path) -> (Process, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let config = dir.join("mosquitto.conf");
    let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\n");
    std::fs::write(&config, text).unwrap();
    let broker = Command::new("/usr/sbin/mosquitto")
        .arg("-c")
        .arg(config)
        .stderr(Stdio::null())
        .spawn()
        .expect("Mosquitto is not installed: run scripts/setup-test.sh");
    let broker = Process(broker);
    wait_until("Mosquitto listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    (broker, port)
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn publish(port: u16, topic: &str, payload: &str) {
    let status = Command::new("mosquitto_pub")
        .args([
            "-q",
            "1",
            "-p",
            &port.to_string(),
            "-t",
            topic,
            "-m",
            payload,
        ])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn messages_become_readings_until_the_device_departs() {
    let dir = tempfile::tempdir().unwrap();
    let (_broker, port) = start_broker(dir.path());
    let file = dir.path().join("gateway.toml");
    let text = format!(
        "directory = '{}'\n[http]\nlisten = '127.0.0.1:0'\n[redis]\nlisten = '127.0.0.1:0'\n[[database]]\nname = 'fleet'\nextractor = 'until/3a'\n\
         [mqtt]\nbroker = 'mqtt://127.0.0.1:{port}'\ndatabase = 'fleet'\n\
         [[mqtt.readings]]\ntopic = 'sensors/{{device}}/{{sensor}}'\npayload = 'raw'\n\
         [[mqtt.depart]]\ntopic = 'gone/{{device}}'\n",
        dir.path().join("data").display()
    );
    std::fs::write(&file, &text).unwrap();
    let serve = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystation"));
        command
            .args(["serve", "--config"])
            .arg(&file)
            .args(arguments);
        command
    };
    assert!(serve(&["--check-config"]).status().unwrap().success());
    let daemon = serve(&[]).stdout(Stdio::piped()).spawn();
    let mut daemon = Process(daemon.unwrap());
    let mut lines = BufReader::new(daemon.0.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, rest) = line.split_once("http://")?;
        Some(rest.trim_end_matches('/').to_owned())
    });
    let address = address.unwrap();
    wait_until("the broker is there", || {
        get(&address, "/metrics").contains("waystation_mqtt_connected 1\n")
    });
    let latest = "/_waystation/databases/fleet/latest?device=car17";
    // The first messages may come before the subscription.
    wait_until("a reading is there", || {
        publish(port, "sensors/car17/speed", "50");
        get(&address, latest).contains("\"value\":50")
    });
    assert!(get(&address, "/ready").starts_with("HTTP/1.1 200"));
    let metrics = get(&address, "/metrics");
    let reference = include_str!("../../../../docs/reference/metrics.md");
    let described = reference
        .lines()
        .filter(|it| it.contains("`waystation_redis_"));
    let described: Vec<&str> = described.map(|it| it.split('`').nth(1).unwrap()).collect();
    assert_eq!(
        metrics.matches("# TYPE waystation_redis_").count(),
        described.len()
    );
    for name in described {
        assert!(metrics.contains(&format!("# TYPE {name} ")), "{name}");
    }
    publish(port, "gone/car17", "");
    wait_until("the car is gone", || {
        !get(&address, latest).contains("car17")
    });

    daemon.signal("-TERM");
    assert!(daemon.succeeds());

    std::fs::write(
        &file,
        text.replace("database = 'fleet'", "database = 'none'"),
    )
    .unwrap();
    let refused = serve(&["--check-config"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("mqtt.database"),
        "{said}"
    );
}
