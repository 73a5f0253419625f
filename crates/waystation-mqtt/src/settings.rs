//! What an ingest is told: plain data, as a configuration file has it.

use crate::mapping::Mapping;
use crate::tls;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use waystation_tls::TlsError;

/// The port of a broker without TLS, and with it.
const PORTS: (u16, u16) = (1883, 8883);

/// Why an ingest does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A setting has no meaning.
    #[error("mqtt.{setting}: {reason}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What is wrong, and what is right.
        reason: String,
    },
    /// A file cannot be used.
    #[error("mqtt: {path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl From<TlsError> for Error {
    fn from(TlsError { path, reason }: TlsError) -> Self {
        Self::File { path, reason }
    }
}

/// An ingest. Defaults stand for what a file leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The broker: `mqtt://HOST[:PORT]`, with TLS `mqtts://HOST[:PORT]`.
    pub broker: String,
    /// Names the session at the broker: each ingest needs its own.
    pub client_id: String,
    /// The version of the protocol.
    pub version: Version,
    /// The user at the broker.
    pub user: Option<String>,
    /// A file with the user's password.
    pub password_file: Option<PathBuf>,
    /// A PEM file with authorities that are trusted beside the system's.
    pub ca_file: Option<PathBuf>,
    /// A PEM file with a certificate that names this client, and its chain.
    pub certificate_file: Option<PathBuf>,
    /// A PEM file with the key of the certificate.
    pub key_file: Option<PathBuf>,
    /// The database that takes the readings.
    pub database: String,
    /// What a reading survives before its message is acknowledged.
    pub durability: Survives,
    /// The topic that takes messages without a meaning, and why they have none. Empty: they are counted alone.
    pub dead_letter: String,
    /// The longest payload (bytes); longer ones are dead letters, without the payload. With MQTT 5 the broker drops messages
    /// that are more than 64 KiB longer.
    pub payload_bytes_max: usize,
    /// Messages of one batch, at most.
    pub batch_messages: usize,
    /// How long a batch waits for more messages (milliseconds). 0: a batch is what came while the one before was written.
    pub batch_delay_ms: u64,
    /// Messages that wait to be written (bytes). Beyond that none is read from the broker.
    pub waiting_bytes_max: usize,
    /// Unacknowledged messages that the broker sends ahead (MQTT 5; with 3.1.1 the broker decides).
    pub receive_max: u16,
    /// How often the connection is checked when it is silent (seconds): at least 5.
    pub keep_alive_seconds: u16,
    /// How long the broker keeps the session when the connection is gone (MQTT 5; with 3.1.1 the broker decides) (seconds).
    pub session_seconds: u32,
    /// Topics with readings. The first that fits a message counts.
    pub readings: Vec<ReadingTopic>,
    /// Topics that announce a device.
    pub arrive: Vec<DeviceTopic>,
    /// Topics that let a device depart, as a last will does.
    pub depart: Vec<DeviceTopic>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            broker: "mqtt://127.0.0.1:1883".to_owned(),
            client_id: "waystation".to_owned(),
            version: Version::default(),
            user: None,
            password_file: None,
            ca_file: None,
            certificate_file: None,
            key_file: None,
            database: "readings".to_owned(),
            durability: Survives::default(),
            dead_letter: "waystation/dead-letter".to_owned(),
            payload_bytes_max: 1 << 20,
            batch_messages: 4096,
            batch_delay_ms: 0,
            waiting_bytes_max: 16 << 20,
            receive_max: 2000,
            keep_alive_seconds: 30,
            session_seconds: 7 * 86_400,
            readings: Vec::new(),
            arrive: Vec::new(),
            depart: Vec::new(),
        }
    }
}

/// A version of MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub enum Version {
    /// 3.1.1
    #[default]
    #[serde(rename = "3.1.1")]
    V3,
    /// 5
    #[serde(rename = "5")]
    V5,
}

/// What a write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Survives {
    /// The death of the process.
    #[default]
    Process,
    /// A power cut.
    Power,
}

/// A topic with readings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReadingTopic {
    /// The pattern: `sensors/{device}/{sensor}`.
    pub topic: String,
    /// The group of subscribers that share the messages.
    #[serde(default)]
    pub share: Option<String>,
    /// The quality of service asked for: 0 or 1.
    #[serde(default = "one")]
    pub qos: u8,
    /// How payloads are written.
    #[serde(default)]
    pub payload: Payload,
    /// Where a payload names the device; without it the topic does.
    #[serde(default)]
    pub device: Option<String>,
    /// Where a payload names the sensor; without it the topic does.
    #[serde(default)]
    pub sensor: Option<String>,
    /// Where the value of a JSON payload stands (`$`: the whole). `$.*`: each member is a sensor.
    #[serde(default)]
    pub value: Option<String>,
    /// Where the time of a JSON payload stands; without it a reading has the time of its arrival.
    #[serde(default)]
    pub time: Option<String>,
    /// What the numbers of times count.
    #[serde(default)]
    pub time_unit: TimeUnit,
}

fn one() -> u8 {
    1
}

/// How payloads are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// JSON.
    #[default]
    Json,
    /// A number, `true`, `false`, text or bytes.
    Raw,
}

/// What the numbers of times count since 1970. Text in RFC 3339 is read with any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub enum TimeUnit {
    /// Seconds, with parts.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[default]
    #[serde(rename = "ms")]
    Millis,
    /// Microseconds.
    #[serde(rename = "us")]
    Micros,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanos,
}

/// A topic that is about a device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceTopic {
    /// The pattern: `devices/{device}/status`.
    pub topic: String,
    /// The payload that says it; without it every payload does.
    #[serde(default)]
    pub payload: Option<String>,
}

/// Where the broker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broker {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
}

impl Settings {
    /// Checks everything that can be checked without a broker.
    ///
    /// # Errors
    /// [`Error`].
    pub fn check(&self) -> Result<(), Error> {
        self.broker()?;
        self.password()?;
        tls::config(self)?;
        Mapping::new(self)?;
        let ranges = [
            ("batch_messages", self.batch_messages as u64, 1, 65_536),
            ("batch_delay_ms", self.batch_delay_ms, 0, 10_000),
            (
                "payload_bytes_max",
                self.payload_bytes_max as u64,
                1,
                64 << 20,
            ),
            (
                "waiting_bytes_max",
                self.waiting_bytes_max as u64,
                1 << 16,
                1 << 30,
            ),
            (
                "keep_alive_seconds",
                u64::from(self.keep_alive_seconds),
                5,
                3600,
            ),
            ("receive_max", u64::from(self.receive_max), 1, 65_535),
        ];
        for (setting, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                let reason = format!("{value} is not from {least} to {most}");
                return Err(Error::Setting { setting, reason });
            }
        }
        if self.waiting_bytes_max < self.payload_bytes_max {
            let reason = "it is less than payload_bytes_max".to_owned();
            return Err(Error::Setting {
                setting: "waiting_bytes_max",
                reason,
            });
        }
        if self.client_id.is_empty() {
            let reason = "a session that is to be resumed needs a name".to_owned();
            return Err(Error::Setting {
                setting: "client_id",
                reason,
            });
        }
        Ok(())
    }

    pub(crate) fn broker(&self) -> Result<Broker, Error> {
        let wrong = || Error::Setting {
            setting: "broker",
            reason: format!(
                "{:?} is no broker; write mqtt://HOST:PORT, or mqtts://HOST:PORT for TLS",
                self.broker
            ),
        };
        let (scheme, rest) = self.broker.split_once("://").ok_or_else(wrong)?;
        let is_tls = match scheme {
            "mqtt" => false,
            "mqtts" => true,
            _ => return Err(wrong()),
        };
        let rest = rest.trim_end_matches('/');
        let default = if is_tls { PORTS.1 } else { PORTS.0 };
        let (host, port) = match rest.rsplit_once(':') {
            // The colons of an address of IPv6 stand in brackets.
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (rest, default),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['/', '@']) {
            return Err(wrong());
        }
        Ok(Broker {
            host: host.to_owned(),
            port,
            is_tls,
        })
    }

    /// The user and the password, if there is a user.
    pub(crate) fn password(&self) -> Result<Option<(String, String)>, Error> {
        let Some(user) = &self.user else {
            return Ok(None);
        };
        let Some(path) = &self.password_file else {
            return Ok(Some((user.clone(), String::new())));
        };
        let read = std::fs::read_to_string(path).map_err(|error| Error::File {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        let password = read.trim_end_matches(['\r', '\n']).to_owned();
        Ok(Some((user.clone(), password)))
    }

    pub(crate) fn batch_delay(&self) -> Duration {
        Duration::from_millis(self.batch_delay_ms)
    }
}
