//! The live tail: server-sent events of what is written through this process.
//!
//! Each `readings` event has lines of JSON. A client that does not keep up loses batches and gets a `lost` event with
//! their number. A comment every fifteen seconds keeps the connection alive.

use super::readings::selection;
use super::{Right, require};
use crate::failure::Outcome;
use crate::reply::{self, Pages, Reply};
use crate::request::Call;
use std::fmt::Write;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::interval;
use waystation_readings::{Readings, Tail, TailEvent};

/// How often a silent stream says that it lives.
const BEAT: Duration = Duration::from_secs(15);

pub(super) fn tail(call: &Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET")?;
    require(call, Right::Read)?;
    let tail = readings?.tail(selection(&call.query)?);
    let stopping = call.app.stopping.clone();
    let mut reply = reply::pages("text/event-stream", move |pages| async move {
        follow(tail, &pages, stopping).await;
        (pages, Ok(()))
    });
    reply::set(&mut reply, "cache-control", "no-cache");
    Ok(reply)
}

/// Sends events until the client goes or the server stops.
async fn follow(mut tail: Tail, pages: &Pages, mut stopping: watch::Receiver<bool>) {
    let mut beat = interval(BEAT);
    loop {
        let text = tokio::select! {
            event = tail.next() => match event {
                Some(event) => written(&event),
                None => return,
            },
            _ = beat.tick() => ": beat\n\n".to_owned(),
            () = pages.gone() => return,
            _ = stopping.wait_for(|is_told| *is_told) => return,
        };
        if pages.send(text).await.is_err() {
            return;
        }
    }
}

fn written(event: &TailEvent) -> String {
    match event {
        TailEvent::Lost(pieces) => format!("event: lost\ndata: {{\"pieces\":{pieces}}}\n\n"),
        TailEvent::Readings(readings) => {
            let mut text = "event: readings\n".to_owned();
            for reading in readings {
                // Writing into a string cannot fail.
                let _ = writeln!(text, "data: {}", reading.to_json());
            }
            text.push('\n');
            text
        }
    }
}
