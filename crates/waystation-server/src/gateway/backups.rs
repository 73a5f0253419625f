//! Backups of databases of readings: started here, made in the background, listed with those before.

use super::{Right, failure, require, require_type};
use crate::app::App;
use crate::failure::{Failure, Outcome};
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::{Method, StatusCode};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use waystation::backup::Backups;
use waystation::storage::OsStorage;
use waystation_readings::Readings;

/// The backup of a database that was begun last.
#[derive(Debug, Clone, Default)]
struct Job {
    is_running: bool,
    done_bytes: u64,
    total_bytes: u64,
    fault: Option<String>,
}

/// Backups that were begun, by database.
#[derive(Default)]
pub(crate) struct BackupJobs(Mutex<HashMap<String, Job>>);

impl BackupJobs {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Job)) {
        change(self.lock().entry(name.to_owned()).or_default());
    }
}

/// Where the backups of `name` go.
fn directory(app: &App, name: &str) -> Option<PathBuf> {
    let directory = app.settings.gateway.backups.as_ref()?;
    Some(directory.join(name))
}

/// What there is of backups of `name`: JSON.
pub(super) fn state(app: &App, name: &str) -> Json {
    let Some(directory) = directory(app, name) else {
        return Json::Null;
    };
    let listing = Backups::open(OsStorage::new(), directory).and_then(|backups| backups.list());
    let (made, damaged) = match listing {
        Ok(listing) => (listing.backups, listing.damaged.len()),
        // None was made yet.
        Err(_) => (Vec::new(), 0),
    };
    let job = app.backups.lock().get(name).cloned().unwrap_or_default();
    json!({
        "running": job.is_running,
        "done_bytes": job.done_bytes,
        "total_bytes": job.total_bytes,
        "fault": job.fault,
        "damaged": damaged,
        "backups": made,
    })
}

pub(super) async fn backups(call: Call, readings: Outcome<Readings>) -> Outcome<Reply> {
    call.allow("GET,POST")?;
    require(&call, Right::Admin)?;
    let readings = readings?;
    let name = readings.name().to_owned();
    let Some(target) = directory(&call.app, &name) else {
        let reason = "no directory for backups is set";
        return Err(Failure::new(
            StatusCode::NOT_IMPLEMENTED,
            "not_implemented",
            reason,
        ));
    };
    if call.method == Method::POST {
        require_type(&call, &["application/json"])?;
        start(&call.app, &readings, target)?;
        let answer = json!({"ok": true, "started": true});
        return Ok(reply::json(StatusCode::ACCEPTED, answer.to_string()));
    }
    let state = call.app.run(move |app| Ok(state(app, &name))).await?;
    Ok(reply::ok(state.to_string()))
}

fn start(app: &Arc<App>, readings: &Readings, target: PathBuf) -> Outcome<()> {
    let mut jobs = app.backups.lock();
    let job = jobs.entry(readings.name().to_owned()).or_default();
    if job.is_running {
        let reason = "a backup of this database is being made";
        return Err(Failure::new(StatusCode::CONFLICT, "conflict", reason));
    }
    *job = Job {
        is_running: true,
        ..Job::default()
    };
    let (app, readings) = (Arc::clone(app), readings.clone());
    tokio::task::spawn_blocking(move || {
        let name = readings.name();
        let mut progress = |so_far: waystation::backup::Progress| {
            app.backups.change(name, |job| {
                job.done_bytes = so_far.done_bytes;
                job.total_bytes = so_far.total_bytes;
            });
        };
        let parent = target.parent().map(std::fs::create_dir_all).transpose();
        let made = parent
            .map_err(|error| waystation::Error::io("create", &target, error))
            .and_then(|_| readings.db().backup(&target, &mut progress));
        let fault = made.err().map(|error| {
            log::error!("a backup of {name} failed: {error}");
            failure(error.into()).reason
        });
        app.backups.change(name, |job| {
            job.is_running = false;
            job.fault = fault;
        });
    });
    Ok(())
}
