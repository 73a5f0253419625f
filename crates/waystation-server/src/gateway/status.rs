//! The status: what the console shows, in one answer.

use super::rights::Reach;
use super::{Right, backups, devices, process, require};
use crate::app::App;
use crate::failure::Outcome;
use crate::reply::{self, Reply};
use crate::request::Call;
use serde_json::{Value as Json, json};
use waystation::{DeviceInfo, Stats};
use waystation_readings::{Readings, time};

/// Devices that are told of, those with the most bytes.
const DEVICES_MAX: usize = 500;
/// Lines of the log.
const EVENTS_MAX: usize = 50;

pub(super) async fn status(call: Call) -> Outcome<Reply> {
    call.allow("GET")?;
    require(&call, Right::Monitor)?;
    let rights = json!({ "admin": require(&call, Right::Admin).is_ok() });
    let departs = require(&call, Right::Depart).ok();
    let collect = move |app: &App| {
        let gateway = &app.settings.gateway;
        let databases: Vec<Json> = gateway
            .readings
            .iter()
            .map(|it| database(app, it, departs.as_ref()))
            .collect();
        let parts: serde_json::Map<String, Json> = gateway
            .parts
            .iter()
            .map(|part| (part.name().to_owned(), part.status()))
            .collect();
        let events = gateway
            .events
            .as_ref()
            .map(|events| events.last(EVENTS_MAX));
        let events: Vec<Json> = events.iter().flatten().map(super::Event::to_json).collect();
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "time": time::now(),
            "uptime_seconds": app.stats.uptime_seconds(),
            "resident_bytes": process::resident_bytes(),
            "cpu_seconds": process::cpu_seconds(),
            "faults": faults(app),
            "databases": databases,
            "parts": parts,
            "events": events,
        }))
    };
    let mut status = call.app.run(collect).await?;
    status["rights"] = rights;
    let mut answer = reply::ok(status.to_string());
    reply::set(&mut answer, "cache-control", "no-store");
    Ok(answer)
}

/// Why parts cannot do their work, by name.
pub(super) fn faults(app: &App) -> Vec<Json> {
    let gateway = &app.settings.gateway;
    let fault = |name: &str, fault: String| json!({"part": name, "fault": fault});
    let databases = gateway.readings.iter().filter_map(|readings| {
        let failure = readings.db().stats().failure?;
        Some(fault(readings.name(), failure))
    });
    let parts = gateway
        .parts
        .iter()
        .filter_map(|part| Some(fault(part.name(), part.fault()?)));
    databases.chain(parts).collect()
}

/// Bytes that went to storage for each byte that was written to the log since the server started; `None` before the first.
pub(super) fn write_amplification(app: &App, name: &str, stats: &Stats) -> Option<f64> {
    let begun = app.log_begun.get(name).copied().unwrap_or_default();
    let accepted = stats.log.reserved_lsn.saturating_sub(begun);
    let written: u64 = stats
        .storage
        .iter()
        .map(|area| area.meter.written_bytes)
        .sum();
    (accepted > 0).then(|| written as f64 / accepted as f64)
}

/// A database for a caller who may let the devices depart that `departs` reaches.
fn database(app: &App, readings: &Readings, departs: Option<&Reach>) -> Json {
    let stats = readings.db().stats();
    let counts = readings.counts();
    let mut all = readings.devices().unwrap_or_default();
    let count = all.len();
    all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    all.truncate(DEVICES_MAX);
    let shown = |it: &DeviceInfo| {
        let mut device = devices::to_json(it);
        device["may_depart"] = departs
            .is_some_and(|reach| reach.holds(readings, &it.name))
            .into();
        device
    };
    let all: Vec<Json> = all.iter().map(shown).collect();
    json!({
        "name": readings.name(),
        "readings": counts.readings,
        "reading_bytes": counts.bytes,
        "departures": counts.departures,
        "write_amplification": write_amplification(app, readings.name(), &stats),
        "device_count": count,
        "devices": all,
        "backups": backups::state(app, readings.name()),
        "stats": stats,
    })
}
