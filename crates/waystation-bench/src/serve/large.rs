//! A data set of many times the memory that the server may use.
//!
//! The daemon goes on with data on storage. Redis, which keeps everything in memory, refuses to be filled. The rate
//! of the daemon is held against its own with data that fits.

use super::daemon::Config;
use super::instance::{Durability, Instance, Rig};
use super::keys::measure;
use super::load::{Filling, fill};
use super::redis::Load;
use super::rows::ServeRow;
use super::whole;
use crate::error::{Error, Result};

/// The ceiling of all memory of the database, and of Redis (MiB).
const CEILING_MIB: u64 = 64;
/// The data set is so many times as large.
const TIMES: u64 = 20;
/// What fits into that memory several times (bytes).
const SMALL_BYTES: u64 = 16 << 20;
const VALUE_BYTES: u32 = 1_000;
const PIPELINE: u32 = 16;

/// The programs that are compared.
const SETTINGS: [(&str, bool); 2] = [("data fits into memory", false), ("data 20 x memory", true)];

/// All runs; `share` of the data set is used.
pub(crate) fn large_rows(
    rig: &Rig<'_>,
    runs: u32,
    share: f64,
    step: &mut dyn FnMut(&str),
) -> Result<Vec<ServeRow>> {
    let large = TIMES * (CEILING_MIB << 20);
    let large = whole(large as f64 * share) / u64::from(VALUE_BYTES);
    let mut rows = Vec::new();
    for round in 1..=runs {
        for (setting, is_large) in SETTINGS {
            let keys = if is_large {
                large
            } else {
                SMALL_BYTES / u64::from(VALUE_BYTES)
            };
            let instance = start(rig)?;
            step(&format!("waystation, {setting}: filling"));
            fill(instance.port, rig.cores.load, &filling(keys))?;
            rig.place.settle()?;
            for command in ["set", "get"] {
                step(&format!("waystation, {setting}: {command}"));
                let load = Load {
                    command,
                    pipeline: PIPELINE,
                    value_bytes: VALUE_BYTES,
                    keys: u32::try_from(keys).unwrap_or(u32::MAX),
                    clients: rig.clients,
                    seconds: rig.seconds,
                };
                let command = command.to_ascii_uppercase();
                rows.push(ServeRow {
                    setting: setting.to_owned(),
                    durability: Durability::EverySecond.name().to_owned(),
                    ..measure(rig, &instance, &load)?.named("waystation", "big", &command, round)
                });
            }
        }
    }
    step("redis: filling");
    rows.push(refused_by_redis(rig, large)?);
    rig.clear()?;
    Ok(rows)
}

fn filling(keys: u64) -> Filling {
    Filling {
        keys,
        value_bytes: VALUE_BYTES,
        devices: 0,
    }
}

fn start(rig: &Rig<'_>) -> Result<Instance> {
    let more = format!("\n[memory]\nceiling = \"{CEILING_MIB} MiB\"\n");
    let daemon = rig.daemon(&Config {
        durability: Durability::EverySecond.of_daemon(),
        database: "memtable_bytes = \"16 MiB\"\nring_bytes = \"8 MiB\"\n",
        more: &more,
    })?;
    Ok(Instance {
        process: daemon.process,
        port: daemon.redis_port,
    })
}

fn refused_by_redis(rig: &Rig<'_>, keys: u64) -> Result<ServeRow> {
    let memory = format!("{CEILING_MIB}mb");
    let more = ["--save", "", "--maxmemory", &memory];
    let instance = rig.redis(Durability::EverySecond, &more)?;
    let refusal = match fill(instance.port, rig.cores.load, &filling(keys)) {
        Err(Error::Refused(refusal)) => Some(refusal),
        filled => {
            filled?;
            None
        }
    };
    Ok(ServeRow {
        protocol: Some("redis".to_owned()),
        pipeline: PIPELINE,
        value_bytes: VALUE_BYTES,
        clients: 1,
        durability: Durability::EverySecond.name().to_owned(),
        setting: SETTINGS[1].0.to_owned(),
        rss_mb: Some(instance.process.rss_mb()),
        refusal,
        ..ServeRow::new("redis", "big", "SET", 1)
    })
}
