//! The gateway: readings over HTTP, figures for Prometheus, and the console.
//!
//! ```text
//!   /metrics /health /ready                       figures, and whether the daemon lives and works
//!   /_waystation/console                          one page, and the files beside it
//!   /_waystation/status                           what the page shows: JSON
//!   /_waystation/databases/NAME/readings ...      readings, devices and backups of a database
//! ```
//!
//! These paths are no names of CouchDB's databases but for the three of the first line, which are taken from it.
//!
//! A caller needs a [right](rights) for each thing. Writes need a body that says its type: a page of another origin cannot send one unasked.

mod backups;
mod console;
mod devices;
mod events;
mod metrics;
mod process;
mod readings;
mod rights;
mod status;
mod tail;

pub(crate) use backups::BackupJobs;
pub use events::{Event, Events};

use crate::app::App;
use crate::failure::{Failure, Outcome};
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use rights::{Right, require};
use std::path::PathBuf;
use std::sync::Arc;
use waystation::DeviceError;
use waystation_readings::{Error, Part, Readings};

/// How long a client waits that was told to come again (seconds).
const RETRY_SECONDS: &str = "2";

/// What a server serves beside documents.
#[derive(Clone, Default)]
pub struct Gateway {
    /// Databases of readings, by their names.
    pub readings: Vec<Readings>,
    /// Other parts of the daemon with figures, such as MQTT.
    pub parts: Vec<Arc<dyn Part>>,
    /// Where backups go, in a directory for each database; `None`: none are made from here.
    pub backups: Option<PathBuf>,
    /// What the daemon logged, for the console.
    pub events: Option<Arc<Events>>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Gateway");
        shown
            .field("readings", &self.readings)
            .field("backups", &self.backups)
            .finish_non_exhaustive()
    }
}

/// Refuses bodies that a form or a page of another origin could send unasked.
fn require_type(call: &Call, allowed: &[&str]) -> Outcome<()> {
    let media = call.header("content-type");
    let media = media.split(';').next().unwrap_or_default().trim();
    if allowed.contains(&media) {
        return Ok(());
    }
    Err(Failure::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "bad_content_type",
        format!("Content-Type must be {}", allowed.join(" or ")),
    ))
}

/// The database of readings that a path names.
fn readings_of(app: &App, name: &str) -> Outcome<Readings> {
    let mut all = app.settings.gateway.readings.iter();
    let found = all.find(|readings| readings.name() == name);
    let missing = || Failure::not_found(format!("there is no database of readings named {name:?}"));
    found.cloned().ok_or_else(missing)
}

/// Why readings were not written or read, in HTTP.
fn failure(error: Error) -> Failure {
    let engine = match error {
        Error::Wrong(wrong) => return Failure::bad_request(wrong.to_string()),
        Error::Unreadable(_) | Error::Parquet(_) => return Failure::internal(error.to_string()),
        Error::Engine(engine) => engine,
    };
    let reason = engine.to_string();
    let later = |status, word| Failure {
        header: Some(("retry-after", RETRY_SECONDS.to_owned())),
        ..Failure::new(status, word, reason.clone())
    };
    match &engine {
        waystation::Error::InvalidArgument(_) => Failure::bad_request(reason),
        waystation::Error::Device(DeviceError::Unknown { .. }) => Failure::not_found(reason),
        waystation::Error::Device(_) => Failure::new(StatusCode::CONFLICT, "conflict", reason),
        waystation::Error::Suspended { .. } => later(StatusCode::SERVICE_UNAVAILABLE, "suspended"),
        full if full.is_out_of_space() => {
            later(StatusCode::INSUFFICIENT_STORAGE, "insufficient_storage")
        }
        _ => {
            log::error!("a request failed: {reason}");
            Failure::internal(reason)
        }
    }
}

/// Whether the path of `call` is one of these.
pub(crate) fn is_for(call: &Call) -> bool {
    match call.segments.as_slice() {
        [name] if ["health", "ready", "metrics"].contains(&name.as_str()) => true,
        [name, ..] => name == "_waystation",
        [] => false,
    }
}

/// Answers what the path of `call` names.
pub(crate) async fn answer(call: Call) -> Outcome<Reply> {
    match call.segments[0].as_str() {
        "health" => return health(&call),
        "ready" => return ready(call).await,
        "metrics" => return figures(call).await,
        _ => {}
    }
    let names: Vec<String> = call.segments[1..].to_vec();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match names.as_slice() {
        [] | [""] => Ok(console::redirect()),
        ["console"] => console::file(&call, console::PAGE),
        ["console.css"] => console::file(&call, console::STYLE),
        ["console.js"] => console::file(&call, console::SCRIPT),
        ["status"] => status::status(call).await,
        ["databases", name, rest @ ..] => {
            let readings = readings_of(&call.app, name);
            match rest {
                ["readings"] => readings::readings(call, readings).await,
                ["latest"] => readings::latest(call, readings).await,
                ["windows"] => readings::windows(call, readings).await,
                ["tail"] => tail::tail(&call, readings),
                ["devices"] => devices::list(call, readings).await,
                ["devices", device] => devices::device(call, readings, device).await,
                ["devices", device, "export"] => devices::export(call, readings, device).await,
                ["hand-offs"] => devices::hand_offs(call, readings).await,
                ["backups"] => backups::backups(call, readings).await,
                _ => Err(Failure::not_found("missing")),
            }
        }
        _ => Err(Failure::not_found("missing")),
    }
}

/// `/health`: the process answers.
fn health(call: &Call) -> Outcome<Reply> {
    call.allow("GET")?;
    Ok(reply::ok(r#"{"status":"ok"}"#))
}

/// `/ready`: every part can do its work.
async fn ready(call: Call) -> Outcome<Reply> {
    call.allow("GET")?;
    let faults = call.app.run(|app| Ok(status::faults(app))).await?;
    if faults.is_empty() {
        return Ok(reply::ok(r#"{"status":"ok"}"#));
    }
    // Callers without a name are told that, and not what.
    let named = require(&call, Right::Monitor).is_ok();
    let faults = serde_json::json!({
        "status": "not ready",
        "faults": if named { serde_json::json!(faults) } else { serde_json::json!(faults.len()) },
    });
    let mut answer = reply::json(StatusCode::SERVICE_UNAVAILABLE, faults.to_string());
    reply::set(&mut answer, "retry-after", RETRY_SECONDS);
    Ok(answer)
}

/// `/metrics`.
async fn figures(call: Call) -> Outcome<Reply> {
    call.allow("GET")?;
    require(&call, Right::Monitor)?;
    let text = call.app.run(|app| Ok(metrics::text(app))).await?;
    let media = "text/plain; version=0.0.4; charset=utf-8";
    Ok(reply::bytes(StatusCode::OK, media, text))
}
