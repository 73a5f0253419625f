//! Readings over HTTP: bulk put, range, newest, windows.
//!
//! Answers go out page by page, each read when the client has taken the one before. A page is the only memory an answer
//! takes.

use super::rights::{Right, require};
use super::{failure, require_type};
use crate::failure::{Failure, Outcome};
use crate::query::Query;
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use serde_json::{Value as Json, json};
use std::fmt::Write;
use waystation::Durability;
use waystation_readings::{CSV_HEAD, Reading, Readings, Selection, WINDOW_CSV_HEAD, Windows, time};

/// Readings of one page.
const PAGE_ROWS: usize = 2000;
/// Types of bodies with readings.
const BODIES: [&str; 2] = ["application/json", "application/x-ndjson"];

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    Csv,
}

impl Form {
    fn of(query: &Query) -> Outcome<Self> {
        match query.get("format") {
            None | Some("ndjson") => Ok(Self::Lines),
            Some("csv") => Ok(Self::Csv),
            Some(other) => Err(Failure::query(format!(
                "format={other:?} is neither ndjson nor csv"
            ))),
        }
    }

    fn media(self) -> &'static str {
        match self {
            Self::Lines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }
}

/// The selection of a request's parameters.
pub(super) fn selection(query: &Query) -> Outcome<Selection> {
    let moment = |name: &str, missing: i64| match query.get(name) {
        None => Ok(missing),
        Some(text) => text
            .parse()
            .ok()
            .or_else(|| time::parse(text))
            .ok_or_else(|| {
                Failure::query(format!(
                    "{name}={text:?} is neither microseconds since 1970 nor RFC 3339"
                ))
            }),
    };
    let named = |name: &str| query.get(name).map(ToOwned::to_owned);
    Ok(Selection {
        device: named("device"),
        sensor: named("sensor"),
        from: moment("from", i64::MIN)?,
        to: moment("to", i64::MAX)?,
    })
}

/// What a request reads: the device that it must name, which the caller may read.
fn of_device(call: &Call, readings: Outcome<Readings>) -> Outcome<(Readings, Selection)> {
    let reach = require(call, Right::Read)?;
    let readings = readings?;
    let selection = selection(&call.query)?;
    let missing = || Failure::query("the parameter device is missing");
    reach.check(&readings, selection.device.as_deref().ok_or_else(missing)?)?;
    Ok((readings, selection))
}

pub(super) async fn readings(call: Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET,POST")?;
    if call.method == hyper::Method::POST {
        return put(call, readings).await;
    }
    let (readings, selection) = of_device(&call, readings)?;
    let form = Form::of(&call.query)?;
    let limit = call.query.whole("limit")?.unwrap_or(u64::MAX);
    // What is wrong with the names is said before the answer begins.
    let first = {
        let (readings, selection) = (readings.clone(), selection.clone());
        let rows = PAGE_ROWS.min(usize::try_from(limit).unwrap_or(usize::MAX));
        let page = move |_: &_| readings.page(&selection, None, rows).map_err(failure);
        call.app.run(page).await?
    };
    let app = call.app;
    Ok(reply::pages(form.media(), move |pages| async move {
        let written = async {
            let mut left = limit;
            let mut page = first;
            if form == Form::Csv && pages.send(CSV_HEAD).await.is_err() {
                return Ok(());
            }
            loop {
                let mut text = String::new();
                for row in page.rows {
                    if left == 0 {
                        break;
                    }
                    left -= 1;
                    match form {
                        Form::Csv => text.push_str(&row.to_csv()),
                        // Writing into a string cannot fail.
                        Form::Lines => drop(writeln!(text, "{}", row.to_json())),
                    }
                }
                if pages.send(text).await.is_err() || left == 0 {
                    return Ok(());
                }
                let Some(after) = page.next else {
                    return Ok(());
                };
                let (readings, selection) = (readings.clone(), selection.clone());
                let next = move |_: &_| {
                    let page = readings.page(&selection, Some(&after), PAGE_ROWS);
                    page.map_err(failure)
                };
                // An empty page is not sent, so sending alone does not show that the client has gone.
                page = tokio::select! {
                    () = pages.gone() => return Ok(()),
                    next = app.run(next) => next?,
                };
            }
        };
        let written = written.await;
        (pages, written)
    }))
}

pub(super) async fn latest(call: Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET")?;
    let (readings, selection) = of_device(&call, readings)?;
    let form = Form::of(&call.query)?;
    let newest = move |_: &_| readings.latest(&selection).map_err(failure);
    let rows = call.app.run(newest).await?;
    let mut text = String::new();
    if form == Form::Csv {
        text.push_str(CSV_HEAD);
    }
    for row in &rows {
        match form {
            Form::Csv => text.push_str(&row.to_csv()),
            // Writing into a string cannot fail.
            Form::Lines => drop(writeln!(text, "{}", row.to_json())),
        }
    }
    Ok(reply::bytes(StatusCode::OK, form.media(), text))
}

pub(super) async fn windows(call: Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET")?;
    let (readings, selection) = of_device(&call, readings)?;
    let form = Form::of(&call.query)?;
    let mut windows = Windows::new(selection, width(&call.query)?);
    let app = call.app;
    let step = |mut windows: Windows, readings: Readings| {
        move |_: &crate::app::App| {
            let rows = windows.next(&readings).map_err(failure)?;
            Ok((windows, rows))
        }
    };
    let (rest, first) = app.run(step(windows, readings.clone())).await?;
    windows = rest;
    Ok(reply::pages(form.media(), move |pages| async move {
        let written = async {
            if form == Form::Csv && pages.send(WINDOW_CSV_HEAD).await.is_err() {
                return Ok(());
            }
            let mut rows = first;
            while let Some(page) = rows {
                let lines = page.iter().map(|window| match form {
                    Form::Csv => window.to_csv(),
                    Form::Lines => format!("{}\n", window.to_json()),
                });
                if pages.send(lines.collect::<String>()).await.is_err() {
                    return Ok(());
                }
                // Windows may take many steps, and a client that has gone ends them.
                (windows, rows) = tokio::select! {
                    () = pages.gone() => return Ok(()),
                    stepped = app.run(step(windows, readings.clone())) => stepped?,
                };
            }
            Ok(())
        };
        let written = written.await;
        (pages, written)
    }))
}

/// The width of windows: `250ms`, `5s`, `10m`, `1h`, `1d`, in microseconds.
fn width(query: &Query) -> Outcome<i64> {
    let text = query.get("width").unwrap_or("1m");
    let digits = text.find(|it: char| !it.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit: Option<i64> = match unit {
        "us" => Some(1),
        "ms" => Some(1000),
        "s" => Some(1_000_000),
        "m" => Some(60_000_000),
        "h" => Some(3_600_000_000),
        "d" => Some(86_400_000_000),
        _ => None,
    };
    let width = number.parse::<i64>().ok().zip(unit);
    let width = width.and_then(|(number, unit)| number.checked_mul(unit));
    width.filter(|width| *width > 0).ok_or_else(|| {
        let reason =
            format!("width={text:?} is no duration; write a number and us, ms, s, m, h or d");
        Failure::query(reason)
    })
}

/// What a write is to survive.
pub(super) fn durability(call: &Call) -> Outcome<Durability> {
    match call.query.get("durability") {
        None => Ok(call.app.durability()),
        Some("process") => Ok(Durability::ProcessCrash),
        Some("power") => Ok(Durability::PowerLoss),
        Some(other) => Err(Failure::query(format!(
            "durability={other:?} is neither process nor power"
        ))),
    }
}

async fn put(mut call: Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    let reach = require(&call, Right::Write)?;
    let readings = readings?;
    require_type(&call, &BODIES)?;
    let durability = durability(&call)?;
    let named = |name: &str| call.query.get(name).map(ToOwned::to_owned);
    let (device, sensor) = (named("device"), named("sensor"));
    let is_lines = call.header("content-type").contains("ndjson");
    let body = call.take_body().await?;
    let write = move |_: &_| {
        let names = (device.as_deref(), sensor.as_deref());
        let batch = parse(&body.bytes, is_lines, names)?;
        for reading in &batch {
            reach.check(&readings, &reading.device)?;
        }
        let count = batch.len();
        readings.write(batch, durability).map_err(failure)?;
        Ok(count)
    };
    let count = call.app.run(write).await?;
    let answer = json!({"ok": true, "written": count});
    Ok(reply::json(StatusCode::CREATED, answer.to_string()))
}

/// The readings of a body: lines of JSON, or an object or an array of them.
fn parse(
    bytes: &[u8],
    is_lines: bool,
    (device, sensor): (Option<&str>, Option<&str>),
) -> Outcome<Vec<Reading>> {
    let arrival = time::now();
    let read = |json: &Json, place: &str| {
        let reading = Reading::of_json(json, device, sensor, arrival);
        reading.map_err(|reason| Failure::bad_request(format!("{place}: {reason}")))
    };
    if !is_lines {
        let json: Json = serde_json::from_slice(bytes)
            .map_err(|error| Failure::bad_request(format!("the body is no JSON: {error}")))?;
        let one = std::slice::from_ref(&json);
        let all = json.as_array().map_or(one, Vec::as_slice);
        let all = all.iter().enumerate();
        return all
            .map(|(at, json)| read(json, &format!("reading {at}")))
            .collect();
    }
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    lines
        .map(|(at, line)| {
            let place = format!("line {}", at + 1);
            let json = serde_json::from_slice(line);
            let json =
                json.map_err(|error| Failure::bad_request(format!("{place} is no JSON: {error}")))?;
            read(&json, &place)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_durations() -> Outcome<()> {
        let of = |text: &str| width(&Query::parse(&format!("width={text}"))?);
        assert_eq!(of("250ms")?, 250_000);
        assert_eq!(of("1d")?, 86_400_000_000);
        for wrong in ["", "5", "s", "0s", "-1s", "1.5s", "5w", "9999999999999999d"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }

    #[test]
    fn the_place_of_a_fault_is_said() {
        let reason = |bytes: &[u8], is_lines| {
            let parsed = parse(bytes, is_lines, (Some("d"), None));
            parsed
                .err()
                .map(|failure| failure.reason)
                .unwrap_or_default()
        };
        let lines = b"{\"sensor\":\"s\",\"value\":1}\n\n{\"sensor\":\"s\"}\n";
        assert!(reason(lines, true).starts_with("line 3: "));
        assert!(reason(b"{\n", true).starts_with("line 1 is no JSON"));
        assert!(reason(b"[{\"sensor\":\"s\",\"value\":1},5]", false).starts_with("reading 1: "));
        assert!(reason(b"", false).starts_with("the body is no JSON"));
    }
}
