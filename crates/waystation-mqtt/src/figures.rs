//! What an ingest counts, and how it is.

use crate::mapping::POISONS;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use waystation_readings::{Exposition, Histogram, Kind, Part};

/// A counter, its help and its place.
type Counter = (&'static str, &'static str, fn(&Figures) -> &AtomicU64);

const COUNTERS: [Counter; 10] = [
    (
        "waystation_mqtt_connections_total",
        "Connections that the broker accepted.",
        |it| &it.connections,
    ),
    (
        "waystation_mqtt_connection_failures_total",
        "Connections that failed or were lost.",
        |it| &it.failures,
    ),
    (
        "waystation_mqtt_messages_received_total",
        "Messages that came from the broker.",
        |it| &it.received,
    ),
    (
        "waystation_mqtt_messages_acknowledged_total",
        "Messages acknowledged to the broker.",
        |it| &it.acknowledged,
    ),
    (
        "waystation_mqtt_messages_dropped_total",
        "Messages of quality of service 0 without room to wait.",
        |it| &it.dropped,
    ),
    (
        "waystation_mqtt_messages_ignored_total",
        "Messages that say nothing, such as kept ones.",
        |it| &it.ignored,
    ),
    (
        "waystation_mqtt_readings_total",
        "Readings written.",
        |it| &it.readings,
    ),
    (
        "waystation_mqtt_arrivals_total",
        "Announcements of devices.",
        |it| &it.arrivals,
    ),
    (
        "waystation_mqtt_departures_total",
        "Departures, last wills among them.",
        |it| &it.departures,
    ),
    (
        "waystation_mqtt_write_retries_total",
        "Writes that are tried again because the database took none.",
        |it| &it.retries,
    ),
];

/// Figures of an ingest.
#[derive(Debug, Default)]
pub struct Figures {
    pub(crate) is_connected: AtomicBool,
    pub(crate) connections: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) ignored: AtomicU64,
    pub(crate) readings: AtomicU64,
    pub(crate) arrivals: AtomicU64,
    pub(crate) departures: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) latency: Histogram,
    poisons: [AtomicU64; POISONS.len()],
    /// Why nothing is read from the broker, or nothing written.
    connection_fault: Mutex<Option<String>>,
    write_fault: Mutex<Option<String>>,
}

impl Figures {
    /// Messages that came.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Messages that were acknowledged to the broker.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Relaxed)
    }

    /// Messages without a meaning.
    pub fn dead_letters(&self) -> u64 {
        self.poisons.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Whether the broker has accepted the connection.
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Relaxed)
    }

    pub(crate) fn count_poison(&self, kind: &str) {
        if let Some(at) = POISONS.iter().position(|known| *known == kind) {
            self.poisons[at].fetch_add(1, Relaxed);
        }
    }

    /// Notes why there is no connection. Whether that is news.
    pub(crate) fn set_connection_fault(&self, fault: Option<String>) -> bool {
        set(&self.connection_fault, fault)
    }

    /// Notes why nothing is written. Whether that is news.
    pub(crate) fn set_write_fault(&self, fault: Option<String>) -> bool {
        set(&self.write_fault, fault)
    }
}

fn set(place: &Mutex<Option<String>>, fault: Option<String>) -> bool {
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    let is_news = *place != fault;
    *place = fault;
    is_news
}

fn get(place: &Mutex<Option<String>>) -> Option<String> {
    place.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Part for Figures {
    fn name(&self) -> &'static str {
        "mqtt"
    }

    fn measure(&self, out: &mut Exposition) {
        for (name, help, counter) in COUNTERS {
            let value = counter(self).load(Relaxed) as f64;
            out.add((name, Kind::Counter, help), &[], value);
        }
        let (is_connected, waiting) = (self.is_connected(), self.waiting.load(Relaxed));
        let help = "Whether the broker has accepted the connection.";
        let gauge = ("waystation_mqtt_connected", Kind::Gauge, help);
        out.add(gauge, &[], f64::from(u8::from(is_connected)));
        let help = "Messages that wait to be written.";
        let gauge = ("waystation_mqtt_messages_waiting", Kind::Gauge, help);
        out.add(gauge, &[], waiting as f64);
        for (kind, count) in POISONS.iter().zip(&self.poisons) {
            let help = "Messages without a meaning, by what is wrong.";
            let counter = ("waystation_mqtt_dead_letters_total", Kind::Counter, help);
            out.add(counter, &[("reason", kind)], count.load(Relaxed) as f64);
        }
        let help = "From the arrival of a message to its acknowledgement.";
        out.add_histogram("waystation_mqtt_ingest_seconds", help, &[], &self.latency);
    }

    fn status(&self) -> serde_json::Value {
        json!({
            "connected": self.is_connected(),
            "received": self.received(),
            "acknowledged": self.acknowledged(),
            "waiting": self.waiting.load(Relaxed),
            "readings": self.readings.load(Relaxed),
            "departures": self.departures.load(Relaxed),
            "dead_letters": self.dead_letters(),
            "fault": self.fault(),
        })
    }

    fn fault(&self) -> Option<String> {
        get(&self.write_fault).or_else(|| get(&self.connection_fault))
    }
}
