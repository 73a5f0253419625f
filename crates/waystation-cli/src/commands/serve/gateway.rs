//! Readings in the daemon: the HTTP server serves the databases with devices, and MQTT ingest writes into one of them.

use super::daemon::{Opened, Parts};
use crate::failure::{Failure, USAGE};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;
use waystation_mqtt::{Ingest, Settings};
use waystation_readings::{Part, Readings};
use waystation_server::Events;

/// What was logged last, for the console.
static EVENTS: OnceLock<Arc<Events>> = OnceLock::new();

/// The last lines of the log. The logger of the process adds them.
pub(super) fn events() -> &'static Arc<Events> {
    EVENTS.get_or_init(Arc::default)
}

/// The databases with devices, as readings.
pub(super) fn readings(opened: &[Opened]) -> Vec<Readings> {
    let of = |it: &Opened| Some(Readings::new(&it.name, Arc::clone(&it.db), it.extractor?));
    opened.iter().filter_map(of).collect()
}

/// Starts MQTT ingest; its figures. Call it within the runtime.
pub(super) fn add_mqtt(
    parts: &mut Parts,
    settings: &Settings,
    readings: &[Readings],
) -> Result<Arc<dyn Part>, Failure> {
    let wrong = |reason: String| Failure::new(USAGE, reason);
    let name = &settings.database;
    let found = readings.iter().find(|it| it.name() == name);
    let found = found.ok_or_else(|| {
        wrong(format!(
            "mqtt.database: there is no [[database]] named {name:?} with an `extractor`"
        ))
    })?;
    let ingest = Ingest::start(settings, found.clone());
    let ingest = ingest.map_err(|error| wrong(error.to_string()))?;
    let figures = Arc::clone(ingest.figures());
    let told = Arc::new(Notify::new());
    let heard = Arc::clone(&told);
    let serve = async move {
        heard.notified().await;
        ingest.stop().await;
    };
    let line = format!("Waystation takes readings from {}", settings.broker);
    parts.add(line, serve, move || told.notify_one());
    Ok(figures)
}
