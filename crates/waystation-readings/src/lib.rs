//! Readings: what a sensor of a device measured at a time.
//!
//! ```text
//!   store        a database as readings: write, depart, the live tail
//!   scan         pages of a range, and the newest reading of each sensor
//!   window       minimum, maximum, sum and count over stretches of time, as a scan goes by
//!   rows         readings and windows in the form that a client asks for
//!   json         as lines of JSON and CSV
//!   parquet      as a Parquet file
//!   key, value   the bytes of a reading in the engine
//!   time         microseconds since 1970, and RFC 3339
//!   exposition   figures in the text format of Prometheus
//! ```
//!
//! MQTT ingest and the HTTP interface share this crate, so both write and read the same bytes. The format is in
//! `docs/formats/readings.md`.
//!
//! Invariants: a device, a sensor and a time name one reading, so a reading that comes twice overwrites itself. Scans hold
//! no snapshot between pages.

mod exposition;
mod json;
mod key;
mod parquet;
mod rows;
mod scan;
mod store;
pub mod time;
mod value;
mod window;

pub use exposition::{Exposition, Histogram, Kind, Part};
pub use key::{DEVICE_BYTES_MAX, Layout, SENSOR_BYTES_MAX, Wrong};
pub use rows::{Form, Row, RowWriter};
pub use scan::{Page, SCANNED_MAX, SENSORS_MAX, Selection};
pub use store::{Counts, Error, Readings, Tail, TailEvent};
pub use value::{Unreadable, Value};
pub use window::{Window, Windows};

/// One reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The device.
    pub device: String,
    /// The sensor of the device.
    pub sensor: String,
    /// Microseconds since 1970, UTC.
    pub time: i64,
    /// What was measured.
    pub value: Value,
}
