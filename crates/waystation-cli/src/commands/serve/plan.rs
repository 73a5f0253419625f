//! From the file, or from the command line, to what every part of the daemon is told.

use super::config::{self, Bytes, Config, Database, Durability, Memory, Redis, Span};
use super::users::{secret, users};
use super::{admins, documents, failure, jwt, tls};
use crate::args::Serve;
use crate::commands::require_path;
use crate::failure::{Failure, USAGE};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use waystation::{Db, DeviceOptions, Extractor, FastTier, Options, Resources};
use waystation_access::{LiveUsers, User, Users};
use waystation_redis::Live;

/// A daemon has much of its machine for itself: its key-value databases together cache so many times what an embedded one
/// does by default, a 16th of the memory and 1 GiB at most.
const CACHE_FACTOR: usize = 4;

/// The directory of key-value databases, beside those of documents.
const KEYS: &str = "keys";
/// The database of the short form without a file, and the Redis user who gives a password alone.
const DEFAULT: &str = "default";

/// What the daemon is to do.
pub(super) struct Plan {
    /// The document server; `None`: there is none.
    pub(super) documents: Option<waystation_server::Settings>,
    /// The server for Redis clients.
    pub(super) redis: Option<waystation_redis::Settings>,
    /// MQTT ingest.
    pub(super) mqtt: Option<waystation_mqtt::Settings>,
    /// Key-value databases, by their numbers.
    pub(super) databases: Vec<Planned>,
    /// The file, to be read again at SIGHUP.
    pub(super) file: Option<File>,
    /// Only says whether all of it is sound.
    pub(super) is_check: bool,
}

/// The file that the plan is of.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) config: Config,
}

/// A key-value database that is to be opened.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) options: Options,
    /// The file for a trace of what it reads and writes.
    pub(super) io_trace: Option<PathBuf>,
}

/// What the command line says.
pub(super) fn of_arguments(args: Serve) -> Result<Plan, Failure> {
    let directory = args.directory.clone().unwrap_or_default();
    require_path(&directory)?;
    let mut databases = Vec::new();
    let mut redis = None;
    if let Some(address) = args.redis {
        let database = Database {
            extractor: args.extractor.clone(),
            ..Database::named(DEFAULT)
        };
        let cache_bytes = cache_bytes_of_each(1);
        databases.push(planned(&database, &directory, None, cache_bytes)?);
        redis = Some(waystation_redis::Settings::new(address));
    }
    Ok(Plan {
        documents: Some(documents(args, &directory)?),
        redis,
        mqtt: None,
        databases,
        file: None,
        is_check: false,
    })
}

/// Refuses names of databases that are no names of directories, and names and traces that are given twice.
fn check_names(databases: &[Database]) -> Result<(), String> {
    let mut names = HashSet::new();
    let mut traces = HashSet::new();
    for database in databases {
        if let Some(trace) = &database.io_trace
            && !traces.insert(trace)
        {
            return Err(format!(
                "two databases have the `io_trace` {}: name a file for each",
                trace.display()
            ));
        }
        let is_name = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        let is_fit = !database.name.is_empty() && database.name.chars().all(is_name);
        if !is_fit || database.name.starts_with('.') || !names.insert(&database.name) {
            return Err(format!(
                "the database name {:?} is given twice, or has other characters than letters, digits, -, _ and .",
                database.name
            ));
        }
    }
    Ok(())
}

/// What the file says.
pub(super) fn of_file(
    path: &Path,
    directory: Option<PathBuf>,
    is_check: bool,
) -> Result<Plan, Failure> {
    let config = config::read(path)?;
    let wrong = |reason: String| Failure::new(USAGE, format!("{}: {reason}", path.display()));
    let directory = directory
        .or_else(|| config.directory.clone())
        .ok_or_else(|| {
            wrong("`directory` is missing: name it in the file or on the command line".to_owned())
        })?;
    require_path(&directory)?;
    check_names(&config.database).map_err(wrong)?;
    let users = users(&config)?;
    let documents = config.http.enabled;
    let documents = documents.then(|| http(&config, &users, &directory));
    let mut documents = documents.transpose()?;
    let redis = config.redis.as_ref();
    let redis = redis.map(|it| redis_of(it, &users, &config.memory, config.stop_timeout));
    let redis = redis.transpose()?;
    let mqtt = config.mqtt.as_ref().map(|it| mqtt_of(it, &config.memory));
    let buffers = [
        documents.as_ref().map_or(0, |it| it.bodies_bytes_max),
        redis.as_ref().map_or(0, |it| it.live.buffers_bytes_max),
        mqtt.as_ref().map_or(0, |it| it.waiting_bytes_max),
    ];
    let resources = resources(&config.memory, buffers.iter().sum()).map_err(Failure::from)?;
    if let Some(documents) = &mut documents {
        documents.resources.clone_from(&resources);
    }
    let cache_bytes = cache_bytes_of_each(config.database.len());
    let planned = |it| planned(it, &directory, resources.as_ref(), cache_bytes);
    let mut databases = config
        .database
        .iter()
        .map(planned)
        .collect::<Result<Vec<_>, _>>()?;
    if databases.is_empty() && config.redis.is_some() {
        databases.push(planned(&Database::named(DEFAULT))?);
    }
    if let Some(mqtt) = &mqtt {
        mqtt.check().map_err(|error| wrong(error.to_string()))?;
        let is_named = |it: &Planned| it.name == mqtt.database && it.options.devices.is_some();
        if !databases.iter().any(is_named) {
            return Err(wrong(format!(
                "mqtt.database: there is no [[database]] named {:?} with an `extractor`",
                mqtt.database
            )));
        }
    }
    if !config.http.enabled && config.redis.is_none() && config.mqtt.is_none() {
        let reason = "there is nothing to serve: enable [http], or add [redis] or [mqtt]";
        return Err(wrong(reason.to_owned()));
    }
    Ok(Plan {
        documents,
        redis,
        mqtt,
        databases,
        file: Some(File {
            path: path.to_owned(),
            config,
        }),
        is_check,
    })
}

/// What requests of one protocol may take of the ceiling together: so much of it.
const BUFFERS_PART: u64 = 8;

/// What requests of a protocol may take together, which is `wanted` without a ceiling.
fn buffers(memory: &Memory, wanted: usize) -> usize {
    let most = memory.ceiling.map(|it| Bytes(it.0 / BUFFERS_PART).size());
    most.map_or(wanted, |most| wanted.min(most))
}

/// The memory that all databases share, if a ceiling was set: what `buffers` of requests leave of it.
fn resources(memory: &Memory, buffers: usize) -> waystation::Result<Option<Resources>> {
    /// The cache has this part of the databases' memory, if nothing else was said.
    const CACHE_PART: u64 = 4;
    let Some(ceiling) = memory.ceiling else {
        return Ok(None);
    };
    let databases = ceiling.0.saturating_sub(buffers as u64);
    let cache = memory.cache.map_or(databases / CACHE_PART, |it| it.0);
    Resources::new(databases, cache).map(Some)
}

fn mqtt_of(mqtt: &waystation_mqtt::Settings, memory: &Memory) -> waystation_mqtt::Settings {
    let waiting = buffers(memory, mqtt.waiting_bytes_max);
    waystation_mqtt::Settings {
        // A message that is taken at all has to fit.
        waiting_bytes_max: waiting.max(mqtt.payload_bytes_max.min(mqtt.waiting_bytes_max)),
        ..mqtt.clone()
    }
}

fn http(
    config: &Config,
    users: &Users,
    directory: &Path,
) -> Result<waystation_server::Settings, Failure> {
    let (http, memory) = (&config.http, &config.memory);
    let plain = waystation_server::Settings::new(directory);
    let bodies_bytes_max = buffers(memory, plain.bodies_bytes_max);
    Ok(waystation_server::Settings {
        listen: http.listen,
        admins: admins(Vec::new(), http.admin_file.as_deref())?,
        tls: tls(
            http.tls_cert.as_deref(),
            http.tls_key.as_deref(),
            http.tls_client_ca.as_deref(),
        )?,
        jwt: jwt(http.jwt_file.as_deref())?,
        replication_trust: http.replication_ca.clone(),
        shards: usize::from(http.shards.max(1)),
        sync: http.sync,
        cors_origins: http.cors_origins.clone(),
        hosts: http.hosts.clone(),
        requests_per_second: http.requests_per_second,
        stop_timeout: config.stop_timeout.0,
        users: LiveUsers::new(users.clone()),
        gateway: waystation_server::Gateway {
            backups: http.backups.clone(),
            ..waystation_server::Gateway::default()
        },
        bodies_bytes_max,
        body_bytes_max: plain.body_bytes_max.min(bodies_bytes_max),
        ..plain
    })
}

fn redis_of(
    redis: &Redis,
    users: &Users,
    memory: &Memory,
    stop_timeout: Span,
) -> Result<waystation_redis::Settings, Failure> {
    let acceptor = tls(
        redis.tls_cert.as_deref(),
        redis.tls_key.as_deref(),
        redis.tls_client_ca.as_deref(),
    )?;
    let acceptor = acceptor.map(|it| it.acceptor(&[]));
    Ok(waystation_redis::Settings {
        tls: acceptor.transpose().map_err(failure)?,
        stop_timeout: stop_timeout.0,
        live: live(redis, users, memory)?,
        ..waystation_redis::Settings::new(redis.listen)
    })
}

/// What can change while the server for Redis clients runs.
pub(super) fn live(redis: &Redis, users: &Users, memory: &Memory) -> Result<Live, Failure> {
    let buffers_bytes_max = buffers(memory, redis.buffers_bytes_max.size());
    let mut users = users.clone();
    if let Some(file) = &redis.password_file {
        if users.named(DEFAULT.as_bytes()).is_some() {
            let reason =
                "[redis]: `password_file` is of the user `default`, which is a [[user]] too";
            return Err(Failure::new(USAGE, reason));
        }
        users = users.and(User {
            name: DEFAULT.to_owned(),
            password: Some(secret(file)?),
            is_admin: true,
            ..User::default()
        });
    }
    let live = Live {
        users,
        durability: match redis.durability {
            Durability::Process => waystation_redis::Durability::Process,
            Durability::EverySecond => waystation_redis::Durability::EverySecond,
            Durability::Power => waystation_redis::Durability::Power,
        },
        clients_max: redis.clients_max.max(1),
        commands_per_second: redis.commands_per_second,
        idle_timeout: redis.idle_timeout.0,
        stall_timeout: redis.stall_timeout.0,
        bulk_bytes_max: redis.bulk_bytes_max.size().min(buffers_bytes_max),
        answer_bytes_max: redis.answer_bytes_max.size().min(buffers_bytes_max),
        buffers_bytes_max,
    };
    let checked = live.check(redis.listen);
    checked.map_err(|error| Failure::new(USAGE, format!("[redis]: {error}")))?;
    Ok(live)
}

/// The cache of each of so many key-value databases.
fn cache_bytes_of_each(databases: usize) -> usize {
    Options::default().cache_bytes * CACHE_FACTOR / databases.max(1)
}

/// The fast directory of a database, which has a directory of its own below it.
fn fast_tier(database: &Database) -> Result<Option<FastTier>, Failure> {
    match (&database.fast_directory, database.fast_bytes) {
        (None, None) if !database.fast_durable => Ok(None),
        (Some(directory), Some(bytes)) => Ok(Some(FastTier {
            durable: database.fast_durable,
            ..FastTier::new(directory.join(&database.name), bytes.0)
        })),
        _ => {
            let name = &database.name;
            let reason = format!(
                "database {name}: `fast_directory` and `fast_bytes` go together: say where, and how much"
            );
            Err(Failure::new(USAGE, reason))
        }
    }
}

/// How a database is to be opened; `cache_bytes` is for one that says nothing of its cache. One that exists keeps the
/// extractor that it was made with, if no other is named.
fn planned(
    database: &Database,
    directory: &Path,
    resources: Option<&Resources>,
    cache_bytes: usize,
) -> Result<Planned, Failure> {
    let path = database.path.clone();
    let path = path.unwrap_or_else(|| directory.join(KEYS).join(&database.name));
    let extractor: Option<Extractor> = match &database.extractor {
        Some(name) => {
            let parsed = name.parse().map_err(|error| {
                let name = &database.name;
                Failure::new(USAGE, format!("database {name}: `extractor`: {error}"))
            })?;
            Some(parsed)
        }
        None => Db::stored_extractor(&path)?,
    };
    let plain = Options::default();
    let devices = extractor.map(|extractor| {
        let plain = DeviceOptions::new(extractor);
        DeviceOptions {
            residency: database.residency.map_or(plain.residency, |it| it.0),
            idle_departure: database.idle_departure.map(|it| it.0),
            upper_bytes: database.upper_bytes.map(|it| it.0),
            index_bytes: database.index_bytes.map_or(plain.index_bytes, |it| it.0),
            ..plain
        }
    });
    let options = Options {
        devices,
        disk_bytes_max: database.disk_bytes_max.map(|it| it.0),
        memtable_bytes: database
            .memtable_bytes
            .map_or(plain.memtable_bytes, Bytes::size),
        cache_bytes: database.cache_bytes.map_or(cache_bytes, Bytes::size),
        ring_bytes: database.ring_bytes.map_or(plain.ring_bytes, Bytes::size),
        deletion_deadline: database.deletion_deadline.map(|it| it.0),
        fast: fast_tier(database)?,
        resources: resources.cloned(),
        ..plain
    };
    options.validate()?;
    Ok(Planned {
        name: database.name.clone(),
        path,
        options,
        io_trace: database.io_trace.clone(),
    })
}
