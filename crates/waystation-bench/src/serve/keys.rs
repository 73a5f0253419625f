//! Redis clients: commands, pipelines and lengths of values, on each engine in turn.

use super::instance::{Durability, Engine, Instance, Rig};
use super::load::{Filling, fill};
use super::mix::{self, Mix};
use super::redis::{self, Load};
use super::rows::ServeRow;
use crate::cores::on_core;
use crate::error::Result;
use std::thread;
use std::time::Duration;

/// What the server may do by itself after it was filled, before anything counts.
const CALM: Duration = Duration::from_secs(1);

/// The load of every engine.
#[derive(Debug, Clone)]
pub(crate) struct Suite {
    /// The name of the figure.
    pub(crate) figure: &'static str,
    pub(crate) durability: Durability,
    /// `set`, `get` or `mix`, each with its pipeline, in order.
    pub(crate) loads: Vec<(&'static str, u32)>,
    pub(crate) value_bytes: Vec<u32>,
    /// Keys that the server is filled with, and that commands draw from.
    pub(crate) keys: u32,
    pub(crate) engines: Vec<Engine>,
    pub(crate) runs: u32,
}

impl Suite {
    /// How many measurements it has.
    pub(crate) fn len(&self) -> u64 {
        let of_engine = self.loads.len() * self.value_bytes.len() * self.engines.len();
        of_engine as u64 * u64::from(self.runs)
    }

    fn reads(&self) -> bool {
        self.loads.iter().any(|(command, _)| *command != "set")
    }
}

/// All runs of `suite`; `step` is told of each measurement before it begins.
pub(crate) fn suite_rows(
    rig: &Rig<'_>,
    suite: &Suite,
    step: &mut dyn FnMut(&str),
) -> Result<Vec<ServeRow>> {
    let mut rows = Vec::new();
    for round in 1..=suite.runs {
        for value_bytes in &suite.value_bytes {
            for engine in &suite.engines {
                let instance = rig.instance(*engine, suite.durability)?;
                let filling = Filling {
                    keys: u64::from(suite.keys),
                    value_bytes: *value_bytes,
                    devices: 0,
                };
                fill(instance.port, rig.cores.load, &filling)?;
                rig.place.settle()?;
                thread::sleep(CALM);
                if suite.reads() {
                    // Caches then have what they can keep.
                    redis::read_all(instance.port, rig.cores, suite.keys)?;
                }
                for (command, pipeline) in &suite.loads {
                    let name = engine.name();
                    step(&format!(
                        "{name} {command} {value_bytes} B, pipeline {pipeline}"
                    ));
                    let load = Load {
                        command,
                        pipeline: *pipeline,
                        value_bytes: *value_bytes,
                        keys: suite.keys,
                        clients: rig.clients,
                        seconds: rig.seconds,
                    };
                    let row = measure(rig, &instance, &load)?;
                    let command = command.to_ascii_uppercase();
                    rows.push(ServeRow {
                        durability: suite.durability.name().to_owned(),
                        ..row.named(name, suite.figure, &command, round)
                    });
                }
            }
        }
    }
    rig.clear()?;
    Ok(rows)
}

/// Runs `load` against `instance`: a row without names.
pub(crate) fn measure(rig: &Rig<'_>, instance: &Instance, load: &Load) -> Result<ServeRow> {
    let process = &instance.process;
    let mut cpu = process.cpu_seconds();
    let (ops, ops_per_s, p99_us);
    if load.command == "mix" {
        let mix = Mix {
            filling: Filling {
                keys: u64::from(load.keys),
                value_bytes: load.value_bytes,
                devices: 0,
            },
            clients: load.clients,
            pipeline: load.pipeline,
            seconds: load.seconds,
        };
        let mixed = match rig.cores.load {
            Some(core) => on_core(core, || mix::run(instance.port, &mix))??,
            None => mix::run(instance.port, &mix)?,
        };
        ops = mixed.ops;
        ops_per_s = mixed.ops as f64 / mixed.seconds;
        p99_us = mixed.latencies.quantile_us(0.99);
    } else {
        let seen = redis::benchmark(instance.port, rig.cores, load, || {
            cpu = process.cpu_seconds();
        })?;
        (ops, ops_per_s, p99_us) = (seen.requests, seen.ops_per_s, seen.p99_us);
    }
    Ok(ServeRow {
        protocol: Some("redis".to_owned()),
        pipeline: load.pipeline,
        value_bytes: load.value_bytes,
        clients: load.clients,
        ops_per_s: Some(ops_per_s),
        p99_us: Some(p99_us),
        rss_mb: Some(process.rss_mb()),
        cpu_us_per_op: Some((process.cpu_seconds() - cpu) * 1e6 / ops as f64),
        ..ServeRow::default()
    })
}
