//! MQTT ingest: a client of a broker that turns messages into readings.
//!
//! ```text
//!   broker --> link --> ingest --> waiting messages --> writer --> engine
//!              ^                                          |
//!              +---- acknowledgements, dead letters <-----+
//! ```
//!
//! - [`settings`]: what is subscribed, and what messages mean; [`pattern`], [`path`] and [`mapping`] apply that
//! - [`link`]: MQTT 3.1.1 and 5 as one; [`tls`]: trust in the broker
//! - [`ingest`]: the connection: it backs off, resumes and tells messages of different connections apart
//! - [`writer`]: batches, and what follows their writes
//! - [`figures`]: what it counts
//!
//! Invariants: a message of quality of service 1 is acknowledged after its readings survive what the settings name, or after
//! its dead letter was sent on the same connection. An acknowledgement goes to the connection that the message came
//! through, or nowhere: packet identifiers of another connection may name other messages.

mod figures;
mod ingest;
mod link;
mod mapping;
mod path;
mod pattern;
mod settings;
mod tls;
mod writer;

pub use figures::Figures;
pub use ingest::Ingest;
pub use mapping::{Content, Mapping, Meaning, Poison};
pub use settings::{
    DeviceTopic, Error, Payload, ReadingTopic, Settings, Survives, TimeUnit, Version,
};
