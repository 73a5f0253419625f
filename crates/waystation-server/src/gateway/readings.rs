//! Readings over HTTP: bulk put, range, newest, windows.
//!
//! Answers go out page by page, each read when the client has taken the one before. A page is the only memory an answer
//! takes.

use super::rights::{Right, require};
use super::{failure, require_type};
use crate::app::App;
use crate::failure::{Failure, Outcome};
use crate::query::Query;
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use serde_json::{Value as Json, json};
use waystation::Durability;
use waystation_readings::{Form, Reading, Readings, Row, RowWriter, Selection, Windows, time};

/// Readings of one page.
const PAGE_ROWS: usize = 2000;
/// Types of bodies with readings.
const BODIES: [&str; 2] = ["application/json", "application/x-ndjson"];

/// The form that a request asks for.
fn form(query: &Query) -> Outcome<Form> {
    let name = query.get("format").unwrap_or("ndjson");
    Form::of(name).ok_or_else(|| {
        Failure::query(format!(
            "format={name:?} is neither ndjson, csv nor parquet"
        ))
    })
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

/// The readings of a range, a page at a time.
struct Scan {
    selection: Selection,
    after: Option<Vec<u8>>,
    left: u64,
    is_over: bool,
}

impl Scan {
    fn next(&mut self, readings: &Readings) -> Outcome<Option<Vec<Reading>>> {
        if self.is_over {
            return Ok(None);
        }
        let rows = usize::try_from(self.left).unwrap_or(usize::MAX);
        let after = self.after.as_deref();
        let page = readings.page(&self.selection, after, rows.min(PAGE_ROWS));
        let mut page = page.map_err(failure)?;
        page.rows.truncate(rows);
        self.left -= page.rows.len() as u64;
        self.is_over = page.next.is_none() || self.left == 0;
        self.after = page.next;
        Ok(Some(page.rows))
    }
}

pub(super) async fn readings(call: Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET,POST")?;
    if call.method == hyper::Method::POST {
        return put(call, readings).await;
    }
    let (readings, selection) = of_device(&call, readings)?;
    let form = form(&call.query)?;
    let mut scan = Scan {
        selection,
        after: None,
        left: call.query.whole("limit")?.unwrap_or(u64::MAX),
        is_over: false,
    };
    answer(call, form, move || scan.next(&readings)).await
}

pub(super) async fn latest(call: Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET")?;
    let (readings, selection) = of_device(&call, readings)?;
    let form = form(&call.query)?;
    let newest = move |_: &_| {
        let rows = readings.latest(&selection).map_err(failure)?;
        let mut writer = RowWriter::new(form);
        let mut bytes = writer.write(&rows).map_err(failure)?;
        bytes.extend(writer.end().map_err(failure)?);
        Ok(bytes)
    };
    let bytes = call.app.run(newest).await?;
    Ok(reply::bytes(StatusCode::OK, form.media(), bytes))
}

pub(super) async fn windows(call: Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET")?;
    let (readings, selection) = of_device(&call, readings)?;
    let form = form(&call.query)?;
    let mut windows = Windows::new(selection, width(&call.query)?);
    answer(call, form, move || windows.next(&readings).map_err(failure)).await
}

/// An answer of the rows that `next` gives page by page, and of `None` at their end. A page is read and written when the
/// client has taken the one before, where blocking is allowed. The first page comes before the answer begins, so wrong
/// names are said in its status.
async fn answer<R, N>(call: Call, form: Form, next: N) -> Outcome<Reply>
where
    R: Row + 'static,
    N: FnMut() -> Outcome<Option<Vec<R>>> + Send + 'static,
    RowWriter<R>: Send,
{
    let app = call.app;
    let first = app.run(step(RowWriter::new(form), next)).await?;
    Ok(reply::pages(form.media(), move |pages| async move {
        let written = async {
            let (mut bytes, mut rest) = first;
            loop {
                if pages.send(bytes).await.is_err() {
                    return Ok(());
                }
                let Some((writer, next)) = rest else {
                    return Ok(());
                };
                // An empty page is not sent, so sending alone does not show that the client has gone.
                (bytes, rest) = tokio::select! {
                    () = pages.gone() => return Ok(()),
                    stepped = app.run(step(writer, next)) => stepped?,
                };
            }
        };
        let written = written.await;
        (pages, written)
    }))
}

/// One page of an answer, and the rest of it unless that was the last one.
#[expect(
    clippy::type_complexity,
    reason = "the writer and the source of its rows"
)]
fn step<R, N>(
    mut writer: RowWriter<R>,
    mut next: N,
) -> impl FnOnce(&App) -> Outcome<(Vec<u8>, Option<(RowWriter<R>, N)>)>
where
    R: Row,
    N: FnMut() -> Outcome<Option<Vec<R>>>,
{
    move |_| match next()? {
        Some(rows) => {
            let bytes = writer.write(&rows).map_err(failure)?;
            Ok((bytes, Some((writer, next))))
        }
        None => Ok((writer.end().map_err(failure)?, None)),
    }
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
