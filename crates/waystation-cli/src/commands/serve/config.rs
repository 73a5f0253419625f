//! The configuration file: what every section may say, and how the environment overrides it.
//!
//! The file is TOML. A key that is not known is refused with its line and the keys that are. `WAYSTATION_REDIS_LISTEN` in
//! the environment stands for `listen` in the section `[redis]`, and so on for every key of a section.
//! docs/reference/daemon.md describes every key, docs/guides/gateway.md those of `[mqtt]`; a test compares the pages with
//! these structures.

use crate::failure::{Failure, USAGE};
use serde::de::{Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variables of the environment that override the file begin with this.
const PREFIX: &str = "WAYSTATION_";
/// Sections whose keys the environment can override.
const SECTIONS: [&str; 4] = ["HTTP", "REDIS", "MQTT", "MEMORY"];

/// The whole file.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Config {
    pub(super) directory: Option<PathBuf>,
    pub(super) stop_timeout: Span,
    pub(super) memory: Memory,
    pub(super) http: Http,
    pub(super) redis: Option<Redis>,
    pub(super) mqtt: Option<waystation_mqtt::Settings>,
    pub(super) user: Vec<User>,
    pub(super) database: Vec<Database>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            directory: None,
            stop_timeout: Span(Duration::from_secs(10)),
            memory: Memory::default(),
            http: Http::default(),
            redis: None,
            mqtt: None,
            user: Vec::new(),
            database: Vec::new(),
        }
    }
}

/// What all databases and requests share.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Memory {
    pub(super) ceiling: Option<Bytes>,
    pub(super) cache: Option<Bytes>,
}

/// The document server.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Http {
    pub(super) enabled: bool,
    pub(super) listen: SocketAddr,
    pub(super) admin_file: Option<PathBuf>,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) tls_client_ca: Option<PathBuf>,
    pub(super) jwt_file: Option<PathBuf>,
    pub(super) replication_ca: Option<PathBuf>,
    pub(super) shards: u8,
    pub(super) sync: bool,
    pub(super) cors_origins: Vec<String>,
    pub(super) hosts: Vec<String>,
    pub(super) requests_per_second: u32,
    pub(super) backups: Option<PathBuf>,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: SocketAddr::from(([127, 0, 0, 1], 5984)),
            admin_file: None,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            jwt_file: None,
            replication_ca: None,
            shards: 2,
            sync: false,
            cors_origins: Vec::new(),
            hosts: Vec::new(),
            requests_per_second: 0,
            backups: None,
        }
    }
}

/// The server for Redis clients.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Redis {
    pub(super) listen: SocketAddr,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) tls_client_ca: Option<PathBuf>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) durability: Durability,
    pub(super) clients_max: usize,
    pub(super) commands_per_second: u32,
    pub(super) idle_timeout: Span,
    pub(super) stall_timeout: Span,
    pub(super) bulk_bytes_max: Bytes,
    pub(super) answer_bytes_max: Bytes,
    pub(super) buffers_bytes_max: Bytes,
}

impl Default for Redis {
    fn default() -> Self {
        let live = waystation_redis::Live::default();
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 6379)),
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            password_file: None,
            durability: Durability::Process,
            clients_max: live.clients_max,
            commands_per_second: live.commands_per_second,
            idle_timeout: Span(live.idle_timeout),
            stall_timeout: Span(live.stall_timeout),
            bulk_bytes_max: Bytes(live.bulk_bytes_max as u64),
            answer_bytes_max: Bytes(live.answer_bytes_max as u64),
            buffers_bytes_max: Bytes(live.buffers_bytes_max as u64),
        }
    }
}

/// What an acknowledged write of a Redis client survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Durability {
    Process,
    EverySecond,
    Power,
}

/// A user of the HTTP interface and of the Redis protocol.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password_file: Option<PathBuf>,
    pub(super) password_sha256: Option<String>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) token_sha256: Option<String>,
    pub(super) certificate_sha256: Option<String>,
    #[serde(default)]
    pub(super) monitor: bool,
    #[serde(default)]
    pub(super) admin: bool,
    #[serde(default)]
    pub(super) right: Vec<Right>,
}

/// What a user may do with keys, and devices, that begin with `prefix`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Right {
    #[serde(default)]
    pub(super) prefix: String,
    pub(super) allow: Vec<Allowed>,
}

/// One thing that a right allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Allowed {
    Read,
    Write,
    Depart,
}

/// A key-value database.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Database {
    pub(super) name: String,
    pub(super) path: Option<PathBuf>,
    pub(super) extractor: Option<String>,
    pub(super) residency: Option<Span>,
    pub(super) idle_departure: Option<Span>,
    pub(super) upper_bytes: Option<Bytes>,
    pub(super) index_bytes: Option<Bytes>,
    pub(super) disk_bytes_max: Option<Bytes>,
    pub(super) memtable_bytes: Option<Bytes>,
    pub(super) cache_bytes: Option<Bytes>,
    pub(super) ring_bytes: Option<Bytes>,
    pub(super) deletion_deadline: Option<Span>,
    pub(super) fast_directory: Option<PathBuf>,
    pub(super) fast_bytes: Option<Bytes>,
    #[serde(default)]
    pub(super) fast_durable: bool,
    pub(super) io_trace: Option<PathBuf>,
}

impl Database {
    /// A database that says no more than its name.
    pub(super) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            path: None,
            extractor: None,
            residency: None,
            idle_departure: None,
            upper_bytes: None,
            index_bytes: None,
            disk_bytes_max: None,
            memtable_bytes: None,
            cache_bytes: None,
            ring_bytes: None,
            deletion_deadline: None,
            fast_directory: None,
            fast_bytes: None,
            fast_durable: false,
            io_trace: None,
        }
    }
}

/// A number of bytes: `4096`, `"64 MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Bytes(pub(super) u64);

/// A time: seconds, or `"500ms"`, `"5m"`, `"2h"`, `"7d"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Span(pub(super) Duration);

/// A number with a unit behind it.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|it: char| !it.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    Some((number.parse().ok()?, unit.trim()))
}

impl Bytes {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = number_and_unit(text)?;
        let factor: u64 = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            _ => return None,
        };
        number.checked_mul(factor).map(Self)
    }

    pub(super) fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Span {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = number_and_unit(text)?;
        let millis: u64 = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let millis = number.checked_mul(millis)?;
        Some(Self(Duration::from_millis(millis)))
    }
}

/// Reads a whole number, or text with a unit.
struct Quantity<T> {
    parse: fn(&str) -> Option<T>,
    expected: &'static str,
}

impl<T> Visitor<'_> for Quantity<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        let parsed = (self.parse)(&number.to_string());
        parsed.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self.expected))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        let parsed = (self.parse)(text);
        parsed.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self.expected))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            parse: Self::parse,
            expected: "a number of bytes, such as 4096 or \"64 MiB\"",
        })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            parse: Self::parse,
            expected: "a time, such as 30 (seconds), \"500ms\", \"5m\", \"2h\" or \"7d\"",
        })
    }
}

/// Reads the file, with what the environment says.
pub(super) fn read(path: &Path) -> Result<Config, Failure> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::file("read", path, error))?;
    parse(path, &text, std::env::vars())
}

fn parse(
    path: &Path,
    text: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Config, Failure> {
    // First alone, so that an error has its line.
    let config: Config = toml::from_str(text).map_err(|error| at_line(path, text, &error))?;
    let mut overrides: Vec<(String, String, String)> = environment.filter_map(overridden).collect();
    if overrides.is_empty() {
        return Ok(config);
    }
    overrides.sort();
    let mut table: toml::Table =
        toml::from_str(text).map_err(|error| at_line(path, text, &error))?;
    for (section, key, value) in overrides {
        let variable = format!("{PREFIX}{}_{}", section.to_uppercase(), key.to_uppercase());
        let wrong = |error: toml::de::Error| {
            let reason = error.message();
            Failure::new(USAGE, format!("{variable} in the environment: {reason}"))
        };
        let value = toml::from_str::<toml::Table>(&format!("value = {value}"))
            .ok()
            .and_then(|mut it| it.remove("value"))
            .unwrap_or(toml::Value::String(value));
        let entry = table
            .entry(section)
            .or_insert_with(|| toml::Table::new().into());
        if let toml::Value::Table(entry) = entry {
            entry.insert(key, value);
        }
        Config::deserialize(table.clone()).map_err(wrong)?;
    }
    Config::deserialize(table).map_err(|error| Failure::new(USAGE, error.to_string()))
}

/// Section, key and value that a variable of the environment overrides.
fn overridden((variable, value): (String, String)) -> Option<(String, String, String)> {
    let rest = variable.strip_prefix(PREFIX)?;
    let (section, key) = rest.split_once('_')?;
    let is_section = SECTIONS.contains(&section);
    is_section.then(|| (section.to_lowercase(), key.to_lowercase(), value))
}

/// Says what is wrong, and where.
fn at_line(path: &Path, text: &str, error: &toml::de::Error) -> Failure {
    let end = error.span().map_or(0, |span| span.start);
    let before = text.get(..end).unwrap_or(text);
    let line = 1 + before.matches('\n').count();
    let reason = error.message();
    Failure::new(USAGE, format!("{}:{line}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
        let environment = environment
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        parse(Path::new("daemon.toml"), text, environment).map_err(|it| format!("{it:?}"))
    }

    #[test]
    fn sections_are_read_with_units() {
        let text = "directory = '/data'\n[redis]\nlisten = '127.0.0.1:7000'\nbuffers_bytes_max = '1 GiB'\n\
                    [[database]]\nname = 'fleet'\nextractor = 'until/3a'\nresidency = '5m'\ndisk_bytes_max = 5000\n";
        let config = parsed(text, &[]).unwrap();
        assert_eq!(config.redis.unwrap().buffers_bytes_max, Bytes(1 << 30));
        assert_eq!(
            config.database[0].residency,
            Some(Span(Duration::from_secs(300)))
        );
        assert_eq!(config.database[0].disk_bytes_max, Some(Bytes(5000)));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_what_is_allowed() {
        let unknown = parsed("[redis]\n\nlisten = '127.0.0.1:1'\nport = 5\n", &[]).unwrap_err();
        assert!(
            unknown.contains("daemon.toml:4: unknown field `port`"),
            "{unknown}"
        );
        assert!(unknown.contains("`listen`"), "{unknown}");
        let unit = parsed("[redis]\nbulk_bytes_max = '5 parsecs'\n", &[]).unwrap_err();
        assert!(
            unit.contains("daemon.toml:2") && unit.contains("64 MiB"),
            "{unit}"
        );
        let level = parsed("[redis]\ndurability = 'fast'\n", &[]).unwrap_err();
        assert!(
            level.contains("`process`") && level.contains("`power`"),
            "{level}"
        );
    }

    #[test]
    fn the_environment_overrides_the_file() {
        let environment = [
            ("WAYSTATION_REDIS_LISTEN", "127.0.0.1:7001"),
            ("WAYSTATION_REDIS_CLIENTS_MAX", "5"),
            ("WAYSTATION_HTTP_ENABLED", "false"),
            ("WAYSTATION_ADMIN", "not a setting"),
            ("PATH", "/bin"),
        ];
        let config = parsed("[redis]\nclients_max = 9\n", &environment).unwrap();
        let redis = config.redis.unwrap();
        assert_eq!((redis.listen.port(), redis.clients_max), (7001, 5));
        assert!(!config.http.enabled);
        let wrong = parsed("", &[("WAYSTATION_REDIS_PORT", "5")]).unwrap_err();
        assert!(
            wrong.contains("WAYSTATION_REDIS_PORT") && wrong.contains("`listen`"),
            "{wrong}"
        );
    }

    /// The keys of the section that ends with an unknown one, as its refusal names them.
    fn keys_of(section: &str) -> Vec<String> {
        let refusal = parsed(&format!("{section}\n'no such key' = 1\n"), &[]).unwrap_err();
        let named = refusal.split_once("expected").unwrap().1;
        let named = named.split('`').skip(1).step_by(2);
        named.map(str::to_owned).collect()
    }

    #[test]
    fn the_pages_describe_every_key() {
        let daemon = include_str!("../../../../../docs/reference/daemon.md");
        let gateway = include_str!("../../../../../docs/guides/gateway.md");
        let sections = ["[memory]", "[http]", "[redis]", "[[user]]", "[[database]]"];
        let described = sections.map(|section| {
            let heading = format!("# `{section}`");
            let rest = daemon.split_once(&heading).unwrap().1;
            let rows = rest.split("\n#").next().unwrap();
            (section.to_owned(), rows)
        });
        let all = [("[mqtt]".to_owned(), gateway), (String::new(), daemon)];
        for (section, text) in described.into_iter().chain(all) {
            let keys = keys_of(&section);
            assert!(keys.len() > 1, "{section}: {keys:?}");
            for key in keys {
                let is_named = [format!("`{key}`"), format!("[{key}]"), format!("{key} = ")]
                    .iter()
                    .any(|it| text.contains(it));
                assert!(is_named, "{section}: no word of `{key}`");
            }
        }
    }

    /// A file of every section.
    const WHOLE: &str = "directory = '/data'\nstop_timeout = '10s'\n[memory]\nceiling = '256 MiB'\n\
        [http]\nlisten = '127.0.0.1:5984'\nrequests_per_second = 5\nhosts = ['edge.local']\n\
        [redis]\nlisten = '127.0.0.1:7000'\ndurability = 'everysecond'\nbulk_bytes_max = '1 MiB'\n\
        [mqtt]\nbroker = 'localhost'\ndatabase = 'fleet'\nbatch_delay_ms = 5\n\
        [[mqtt.readings]]\ntopic = 'sensors/{device}/{sensor}'\npayload = 'raw'\n\
        [[user]]\nname = 'ann'\npassword_file = '/p'\nright = [{ prefix = 'car', allow = ['read'] }]\n\
        [[database]]\nname = 'fleet'\nextractor = 'until/3a'\nresidency = '5m'\n";

    proptest::proptest! {
        /// A file with strange parts is read, or refused with its name and a line that it has.
        #[test]
        fn hostile_files_are_read_or_refused_with_a_line(
            cuts in proptest::collection::vec((0..WHOLE.len(), 0..60_usize), 1..4),
            parts in proptest::collection::vec(
                proptest::prop_oneof![
                    "\\PC{0,12}",
                    "[a-z_]{1,9} = ([0-9.eE+-]{1,20}|'[0-9]{1,20} ?[a-zA-Z]{0,3}'|\\[\\]|\\{\\}|true)\n",
                    "\\[\\[?(http|redis|mqtt|memory|user|database|mqtt.readings)\\]?\\]\n",
                    "[#\\[\\]={}'\"\n\u{0}\u{feff}]{1,4}",
                ],
                4,
            ),
        ) {
            parsed(WHOLE, &[]).unwrap();
            let mut text = WHOLE.to_owned();
            for ((at, length), part) in cuts.iter().zip(&parts) {
                let place = |at: usize| {
                    let at = at.min(text.len());
                    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
                };
                let (begin, end) = (place(*at), place(at + length));
                text.replace_range(begin..end, part);
            }
            if let Err(reason) = parsed(&text, &[]) {
                let lines = text.matches('\n').count() + 1;
                let line = reason.split("daemon.toml:").nth(1);
                let line = line.and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
                assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "{reason}");
            }
        }
    }
}
