//! Devices over HTTP: list, info, depart, and handing them on.

use super::readings::durability;
use super::rights::{Right, require};
use super::{failure, require_type};
use crate::failure::{Failure, Outcome};
use crate::reply::{self, Pages, Reply};
use crate::request::Call;
use hyper::Method;
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::io::Read;
use tokio::runtime::Handle;
use waystation::{DeviceInfo, Durability, Receipt, Refusal};
use waystation_readings::{Error, Readings};

/// A piece of a device's stream (bytes).
const PIECE_BYTES: usize = 256 << 10;

/// A device as JSON.
pub(super) fn to_json(device: &DeviceInfo) -> Json {
    json!({
        "device": String::from_utf8_lossy(&device.name),
        "level": device.level,
        "records": device.records,
        "bytes": device.bytes,
        "age_seconds": device.age.map(|age| age.as_secs_f64()),
        "moving_to": device.moving_to,
        "held_stays": device.held_stays,
        "departures": device.departures,
    })
}

pub(super) async fn list(call: Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET")?;
    let reach = require(&call, Right::Read)?;
    let readings = readings?;
    let list = move |_: &_| {
        let mut devices = readings.devices().map_err(failure)?;
        devices.retain(|it| reach.holds(&readings, &it.name));
        Ok(devices)
    };
    let devices = call.app.run(list).await?;
    let mut lines = String::new();
    for device in &devices {
        // Writing into a string cannot fail.
        let _ = writeln!(lines, "{}", to_json(device));
    }
    let media = "application/x-ndjson";
    Ok(reply::bytes(hyper::StatusCode::OK, media, lines))
}

pub(super) async fn device(
    call: Call,
    readings: Outcome<Readings>,
    device: &str,
) -> Outcome<Reply> {
    call.allow("GET,DELETE")?;
    let name = device.to_owned();
    if call.method == Method::DELETE {
        let reach = require(&call, Right::Depart)?;
        let (readings, durability) = (readings?, durability(&call)?);
        reach.check(&readings, &name)?;
        let depart = move |_: &_| {
            let had_data = readings.depart(&name, durability).map_err(failure)?;
            let missing = || Failure::not_found(format!("there is no device {name} here"));
            had_data.then_some(()).ok_or_else(missing)
        };
        call.app.run(depart).await?;
        return Ok(reply::ok(r#"{"ok":true}"#));
    }
    let reach = require(&call, Right::Read)?;
    let readings = readings?;
    reach.check(&readings, &name)?;
    let find = move |_: &_| {
        let devices = readings.devices().map_err(failure)?;
        let found = devices.iter().find(|it| it.name == name.as_bytes());
        let missing = || Failure::not_found(format!("there is no device {name} here"));
        found.map(to_json).ok_or_else(missing)
    };
    let found = call.app.run(find).await?;
    Ok(reply::ok(found.to_string()))
}

/// Freezes a device and answers with its stream, for `waystation devices admit` elsewhere.
pub(super) async fn export(
    call: Call,
    readings: Outcome<Readings>,
    device: &str,
) -> Outcome<Reply> {
    call.allow("POST")?;
    require(&call, Right::Admin)?;
    let readings = readings?;
    require_type(&call, &["application/json"])?;
    let destination = call.query.get("destination").filter(|it| !it.is_empty());
    let missing = || Failure::query("the parameter destination is missing");
    let destination = destination.ok_or_else(missing)?.to_owned();
    let device = device.to_owned();
    // Freezes the device, so that refusals are answers. The stream below has the same ticket.
    let (first, name, target) = (readings.clone(), device.clone(), destination.clone());
    let freeze = move |_: &_| {
        let devices = first.db().devices();
        let begun = devices.export(name.as_bytes(), &target, Durability::PowerLoss);
        begun.map(drop).map_err(|error| failure(error.into()))
    };
    call.app.run(freeze).await?;
    let media = "application/octet-stream";
    Ok(reply::pages(media, move |pages| async move {
        let sent = tokio::task::spawn_blocking(move || {
            let sent = stream(&readings, &device, &destination, &pages);
            (pages, sent)
        });
        match sent.await {
            Ok(sent) => sent,
            // The task ended by a panic, and took the way to the client along.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }))
}

fn stream(readings: &Readings, device: &str, destination: &str, pages: &Pages) -> Outcome<()> {
    let devices = readings.db().devices();
    let stream = devices.export(device.as_bytes(), destination, Durability::PowerLoss);
    let mut stream = stream.map_err(|error| failure(error.into()))?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = stream.read(&mut piece);
        let length = length.map_err(|error| Failure::internal(error.to_string()))?;
        if length == 0 {
            return Ok(());
        }
        let page = piece[..length].to_vec();
        if Handle::current().block_on(pages.send(page)).is_err() {
            return Ok(());
        }
    }
}

/// Hand-offs that have not ended; a POST ends one by its receipt or its refusal, as hexadecimal digits.
pub(super) async fn hand_offs(mut call: Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET,POST")?;
    require(&call, Right::Admin)?;
    let readings = readings?;
    if call.method == Method::GET {
        let list = move |_: &_| {
            let tickets = readings.db().devices().exports();
            tickets.map_err(|error| failure(error.into()))
        };
        let tickets = call.app.run(list).await?;
        let tickets: Vec<Json> = tickets
            .iter()
            .map(|ticket| {
                json!({
                    "device": String::from_utf8_lossy(&ticket.device),
                    "destination": ticket.destination,
                })
            })
            .collect();
        return Ok(reply::ok(Json::from(tickets).to_string()));
    }
    require_type(&call, &["application/json"])?;
    let text = call.take_object().await?;
    let body: Json = serde_json::from_str(&text)
        .map_err(|error| Failure::bad_request(format!("the body is no JSON: {error}")))?;
    let answer = |name: &str| body[name].as_str().and_then(bytes_of_hex);
    let (receipt, refusal) = (answer("receipt"), answer("refusal"));
    let end = move |_: &_| {
        let devices = readings.db().devices();
        let wrong = || {
            Failure::bad_request(
                "the body has a \"receipt\" or a \"refusal\" in hexadecimal digits",
            )
        };
        let ended = match (receipt, refusal) {
            (Some(bytes), None) => {
                devices.complete(&Receipt::from_bytes(&bytes).map_err(|_| wrong())?)
            }
            (None, Some(bytes)) => {
                devices.abort(&Refusal::from_bytes(&bytes).map_err(|_| wrong())?)
            }
            _ => return Err(wrong()),
        };
        ended.map_err(|error| failure(Error::Engine(error)))
    };
    call.app.run(end).await?;
    Ok(reply::ok(r#"{"ok":true}"#))
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pairs = (0..text.len()).step_by(2);
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    is_hex.then(|| pairs.map(byte).collect()).flatten()
}
