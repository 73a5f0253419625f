//! What a broker sends, and the settings that give it a meaning.

use std::sync::LazyLock;
use waystation_mqtt::{Content, Mapping, Meaning, Settings};
use waystation_readings::{Reading, Value};

/// Rules of every kind.
const RULES: &str = r#"
broker = "localhost"
[[readings]]
topic = "raw/{device}/{sensor}"
payload = "raw"
share = "gateways"
[[readings]]
topic = "json/{device}/{sensor}"
value = "$.v"
time = "$.t"
time_unit = "s"
[[readings]]
topic = "all/+/#"
device = "$.id"
value = "$.values.*"
time = "$.values.t"
time_unit = "ns"
[[arrive]]
topic = "here/{device}"
[[depart]]
topic = "here/{device}"
payload = "gone"
"#;

static MAPPING: LazyLock<Mapping> = LazyLock::new(|| {
    let settings: Settings = toml::from_str(RULES).expect("the rules are settings");
    Mapping::new(&settings).expect("the rules fit")
});

/// A message: a line with its topic, then its payload. Its readings come back from storage and from JSON.
pub(super) fn message(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let topic = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let payload = parts.next().unwrap_or_default();
    for is_retained in [false, true] {
        let content = Content {
            topic: &topic,
            payload,
            is_retained,
            arrival: 7,
        };
        match MAPPING.read(content) {
            Ok(Meaning::Readings(readings)) => readings.iter().for_each(comes_back),
            Ok(Meaning::Depart(device)) => assert!(!is_retained && topic.ends_with(&device)),
            Ok(Meaning::Arrive(device)) => assert!(topic.ends_with(&device)),
            Ok(Meaning::Nothing) => {}
            Err(poison) => assert!(!poison.kind.is_empty() && !poison.reason.is_empty()),
        }
    }
}

fn comes_back(reading: &Reading) {
    let stored = reading.value.encode();
    let value = Value::decode(&stored).expect("a value is read back");
    assert_eq!(value.encode(), stored);
    let is_finite = !matches!(value, Value::Float(number) if !number.is_finite());
    if is_finite {
        let json = reading.to_json();
        assert_eq!(Reading::of_json(&json, None, None, 0).as_ref(), Ok(reading));
    }
}

pub(super) fn message_seeds() -> Vec<Vec<u8>> {
    [
        "raw/car17/speed\n50.5",
        "raw/car17/door\nopen",
        "json/car17/speed\n{\"v\":1e3,\"t\":1683000000.25}",
        "json/car17/at\n{\"v\":[1,{}],\"t\":\"2023-05-02T04:00:00Z\"}",
        "all/x/y\n{\"id\":\"car17\",\"values\":{\"a\":1,\"b\":{\"base64\":\"AP8=\"},\"c\":null,\"t\":5}}",
        "here/car17\n",
        "here/car17\ngone",
    ]
    .map(|message| message.as_bytes().to_vec())
    .into()
}

/// The section `[mqtt]` of a configuration file: refused with a reason, or rules that read messages. Files that it names
/// are not looked at.
pub(super) fn settings(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(settings) = toml::from_str::<Settings>(&text) else {
        return;
    };
    match Mapping::new(&settings) {
        Ok(mapping) => {
            let content = Content {
                topic: "raw/car17/speed",
                payload: b"{}",
                is_retained: false,
                arrival: 7,
            };
            let _ = mapping.read(content);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(super) fn settings_seeds() -> Vec<Vec<u8>> {
    let more = "client_id = \"edge\"\ndead_letter = \"dead\"\npayload_bytes_max = 5\n";
    vec![RULES.into(), [more, RULES].concat().into()]
}
