//! Readings and figures in the daemon: the HTTP server serves the databases with devices, MQTT ingest writes into one of
//! them, and every part tells what it does.

use super::daemon::{Opened, Parts};
use crate::failure::{Failure, USAGE};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;
use waystation_mqtt::{Ingest, Settings};
use waystation_readings::{Exposition, Kind, Part, Readings};
use waystation_redis::Handle;
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

/// Starts MQTT ingest into `target`; its figures. Call it within the runtime.
pub(super) fn add_mqtt(
    parts: &mut Parts,
    settings: &Settings,
    target: &Readings,
) -> Result<Arc<dyn Part>, Failure> {
    let ingest = Ingest::start(settings, target.clone());
    let ingest = ingest.map_err(|error| Failure::new(USAGE, error.to_string()))?;
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

/// What the server for Redis clients does, for Prometheus and the console.
pub(super) struct RedisFigures(pub(super) Handle);

impl Part for RedisFigures {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn measure(&self, out: &mut Exposition) {
        let figures = self.0.figures();
        let gauges = [
            (
                "waystation_redis_clients",
                "Clients that are connected.",
                figures.clients,
            ),
            (
                "waystation_redis_buffers_bytes",
                "Commands and answers of all clients in memory.",
                figures.buffers_bytes,
            ),
        ];
        for (name, help, value) in gauges {
            out.add((name, Kind::Gauge, help), &[], value as f64);
        }
        let counters = [
            (
                "waystation_redis_connections_total",
                "Connections that were taken.",
                figures.connections,
            ),
            (
                "waystation_redis_refused_total",
                "Connections that were refused because there were too many.",
                figures.refused,
            ),
            (
                "waystation_redis_commands_total",
                "Commands that were carried out.",
                figures.commands,
            ),
            (
                "waystation_redis_batches_total",
                "Batches that were committed.",
                figures.batches,
            ),
            (
                "waystation_redis_delays_total",
                "Times that a client sent more commands than it may, and was read from later.",
                figures.delays,
            ),
        ];
        for (name, help, value) in counters {
            out.add((name, Kind::Counter, help), &[], value as f64);
        }
    }

    fn status(&self) -> serde_json::Value {
        let figures = self.0.figures();
        serde_json::json!({
            "clients": figures.clients,
            "commands": figures.commands,
            "batches": figures.batches,
            "buffers_bytes": figures.buffers_bytes,
        })
    }

    fn fault(&self) -> Option<String> {
        None
    }
}
