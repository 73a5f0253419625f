//! The live tail: server-sent events of what is written through this process.
//!
//! A caller whose right reaches some devices follows those. Each `readings` event has lines of JSON. A client that does not
//! keep up misses parts of batches and gets a `lost` event with their number. A comment every fifteen seconds keeps the
//! connection alive.

use super::readings::selection;
use super::rights::{Right, require};
use crate::failure::Outcome;
use crate::reply::{self, Pages, Reply};
use crate::request::Call;
use std::fmt::Write;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::interval;
use waystation_readings::{Reading, Readings, Tail, TailEvent};

/// How often a silent stream says that it lives.
const BEAT: Duration = Duration::from_secs(15);

pub(super) fn tail(call: &Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET")?;
    let reach = require(call, Right::Read)?;
    let readings = readings?;
    let selection = selection(&call.query)?;
    if let Some(device) = &selection.device {
        reach.check(&readings, device)?;
    }
    let tail = readings.tail(selection);
    let stopping = call.app.stopping.clone();
    let mut reply = reply::pages("text/event-stream", move |pages| async move {
        let chooses = |reading: &Reading| reach.holds(&readings, reading.device.as_bytes());
        follow(tail, chooses, &pages, stopping).await;
        (pages, Ok(()))
    });
    reply::set(&mut reply, "cache-control", "no-cache");
    Ok(reply)
}

/// Sends events of what `chooses` takes until the client goes or the server stops.
async fn follow(
    mut tail: Tail,
    chooses: impl Fn(&Reading) -> bool,
    pages: &Pages,
    mut stopping: watch::Receiver<bool>,
) {
    let mut beat = interval(BEAT);
    loop {
        let text = tokio::select! {
            event = tail.next() => match event {
                Some(event) => written(event, &chooses),
                None => return,
            },
            _ = beat.tick() => ": beat\n\n".to_owned(),
            () = pages.gone() => return,
            _ = stopping.wait_for(|is_told| *is_told) => return,
        };
        // Nothing of the event was chosen.
        if text.is_empty() {
            continue;
        }
        if pages.send(text).await.is_err() {
            return;
        }
    }
}

/// The text of an event; empty if nothing of it is chosen.
fn written(event: TailEvent, chooses: &impl Fn(&Reading) -> bool) -> String {
    let mut readings = match event {
        TailEvent::Lost(pieces) => {
            return format!("event: lost\ndata: {{\"pieces\":{pieces}}}\n\n");
        }
        TailEvent::Readings(readings) => readings,
    };
    readings.retain(chooses);
    if readings.is_empty() {
        return String::new();
    }
    let mut text = "event: readings\n".to_owned();
    for reading in readings {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "data: {}", reading.to_json());
    }
    text.push('\n');
    text
}
