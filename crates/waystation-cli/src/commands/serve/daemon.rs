//! The daemon: opens the databases, starts the parts that serve them, and ends all in order.
//!
//! ```text
//!   open databases --> bind every part --> ready --> signal --> parts answer what they have --> sync, close databases
//! ```
//!
//! A part is a future that serves, and a way to stop it ([`Parts`]). One that ends by itself ends the daemon with an
//! error, so that the service manager starts it again.

use super::plan::{self, File, Plan, Planned};
use super::{config, failure, gateway, notify::Manager, users};
use crate::commands::Context;
use crate::failure::{CANNOT_OPEN, Failure};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Interval;
use waystation::storage::{OsStorage, Storage};
use waystation::{Db, Extractor};
use waystation_access::LiveUsers;
use waystation_advisor::engine::TracedStorage;
use waystation_readings::Part;
use waystation_redis::Handle;

/// The exit code of a command that a second signal ended.
const INTERRUPTED: i32 = 130;
/// Threads for blocking work beside those of requests: opening, closing, syncs, long commands.
const SPARE_THREADS: usize = 64;
/// How long blocking work may go on when the parts have ended.
const CLOSING: Duration = Duration::from_secs(10);

/// A key-value database that is open.
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) db: Arc<Db>,
    pub(super) extractor: Option<Extractor>,
}

/// What serves, and how it is stopped.
#[derive(Default)]
pub(super) struct Parts {
    serving: JoinSet<()>,
    stops: Vec<Box<dyn Fn() + Send>>,
    /// Where each listens, for people.
    pub(super) lines: Vec<String>,
}

impl Parts {
    /// Adds a part. Call it within the runtime.
    pub(super) fn add(
        &mut self,
        line: String,
        serve: impl Future<Output = ()> + Send + 'static,
        stop: impl Fn() + Send + 'static,
    ) {
        self.lines.push(line);
        self.serving.spawn(serve);
        self.stops.push(Box::new(stop));
    }

    fn stop(&self) {
        self.stops.iter().for_each(|stop| stop());
    }
}

/// What changes when the file is read again.
#[derive(Default)]
struct Living {
    redis: Option<Handle>,
    /// Of the HTTP interface.
    users: LiveUsers,
}

/// Serves until a signal comes.
pub(super) fn run(context: &mut Context, plan: Plan) -> Result<(), Failure> {
    if plan.is_check {
        context.output.line("The configuration is sound.")?;
        return Ok(());
    }
    let runtime = runtime(&plan)?;
    let opened = open(&plan)?;
    let served = serve(context, &runtime, plan, &opened);
    runtime.shutdown_timeout(CLOSING);
    let closed = close(opened);
    served.and(closed)
}

fn runtime(plan: &Plan) -> Result<Runtime, Failure> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = plan.documents.as_ref().map_or(0, |it| it.workers);
    // Threads that share a processor would only take each other's connections: what waits, waits on another thread.
    Builder::new_multi_thread()
        .enable_all()
        .worker_threads(processors)
        .max_blocking_threads(workers + SPARE_THREADS)
        .build()
        .map_err(|error| Failure::new(CANNOT_OPEN, format!("no threads can be started: {error}")))
}

fn open(plan: &Plan) -> Result<Vec<Opened>, Failure> {
    let mut opened = Vec::new();
    for planned in &plan.databases {
        if let Some(parent) = planned.path.parent() {
            let made = std::fs::create_dir_all(parent);
            made.map_err(|error| Failure::file("make", parent, error))?;
        }
        let extractor = planned.options.devices.as_ref().map(|it| it.extractor);
        let db = Db::open_with(storage(planned)?, &planned.path, planned.options.clone())?;
        opened.push(Opened {
            name: planned.name.clone(),
            db: Arc::new(db),
            extractor,
        });
    }
    Ok(opened)
}

/// The operating system's, with a trace of what is asked of it if the file says so.
fn storage(planned: &Planned) -> Result<Arc<dyn Storage>, Failure> {
    let storage = OsStorage::new();
    let Some(trace) = &planned.io_trace else {
        return Ok(storage);
    };
    TracedStorage::create(storage, trace)
        .map(|traced| Arc::new(traced) as Arc<dyn Storage>)
        .map_err(|error| Failure::new(CANNOT_OPEN, error.to_string()))
}

/// Closes the databases. One that a part still holds is closed when that lets go of it.
fn close(opened: Vec<Opened>) -> Result<(), Failure> {
    let mut closed = Ok(());
    for database in opened {
        match Arc::try_unwrap(database.db) {
            Ok(db) => closed = closed.and(db.close()),
            Err(_) => log::warn!(
                "database {} is still in use, and not closed in order",
                database.name
            ),
        }
    }
    Ok(closed?)
}

fn serve(
    context: &mut Context,
    runtime: &Runtime,
    mut plan: Plan,
    opened: &[Opened],
) -> Result<(), Failure> {
    // Signals are heard, and parts spawned, by the runtime.
    let _entered = runtime.enter();
    let mut parts = Parts::default();
    let readings = gateway::readings(opened);
    let mut figures: Vec<Arc<dyn Part>> = Vec::new();
    if let Some(settings) = &plan.mqtt {
        let named = readings.iter().find(|it| it.name() == settings.database);
        let target = named.expect("the plan has looked for it");
        figures.push(gateway::add_mqtt(&mut parts, settings, target)?);
    }
    let mut live = Living::default();
    if let Some(settings) = plan.redis.take() {
        let handle = add_redis(runtime, &mut parts, settings, opened)?;
        figures.push(Arc::new(gateway::RedisFigures(handle.clone())));
        live.redis = Some(handle);
    }
    if let Some(mut settings) = plan.documents.take() {
        live.users = settings.users.clone();
        settings.gateway.readings = readings;
        settings.gateway.parts = figures;
        settings.gateway.events = Some(Arc::clone(gateway::events()));
        add_documents(runtime, &mut parts, settings)?;
    }
    let signals = signals()?;
    for line in &parts.lines {
        context.output.line(line)?;
    }
    context.output.flush()?;
    let manager = Manager::from_environment();
    manager.tell("READY=1");
    runtime.block_on(watch(&mut parts, signals, &manager, plan.file, live))
}

fn add_documents(
    runtime: &Runtime,
    parts: &mut Parts,
    settings: waystation_server::Settings,
) -> Result<(), Failure> {
    let scheme = if settings.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let server = runtime
        .block_on(waystation_server::Server::bind(settings))
        .map_err(failure)?;
    let line = format!("Waystation listens at {scheme}://{}/", server.address());
    let stopper = server.stopper();
    parts.add(line, server.run(), move || stopper.stop());
    Ok(())
}

fn add_redis(
    runtime: &Runtime,
    parts: &mut Parts,
    settings: waystation_redis::Settings,
    opened: &[Opened],
) -> Result<Handle, Failure> {
    let scheme = if settings.tls.is_some() {
        "rediss"
    } else {
        "redis"
    };
    let databases = opened.iter().map(|it| waystation_redis::Database {
        name: it.name.clone(),
        db: Arc::clone(&it.db),
        extractor: it.extractor,
    });
    let bound = waystation_redis::Server::bind(settings, databases.collect());
    let server = runtime.block_on(bound);
    let server = server.map_err(|error| Failure::new(CANNOT_OPEN, error.to_string()))?;
    let line = format!("Waystation listens at {scheme}://{}/", server.address());
    let (handle, stopper) = (server.handle(), server.handle());
    parts.add(line, server.run(), move || stopper.stop());
    Ok(handle)
}

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Stop,
    Reload,
}

/// Hears signals. The second one that asks to stop ends the process at once.
fn signals() -> Result<mpsc::UnboundedReceiver<Asked>, Failure> {
    let refused = |error| Failure::new(CANNOT_OPEN, format!("signals cannot be heard: {error}"));
    let mut interrupts = signal(SignalKind::interrupt()).map_err(refused)?;
    let mut terminations = signal(SignalKind::terminate()).map_err(refused)?;
    let mut reloads = signal(SignalKind::hangup()).map_err(refused)?;
    let (heard, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut is_second = false;
        loop {
            let what = tokio::select! {
                _ = interrupts.recv() => Asked::Stop,
                _ = terminations.recv() => Asked::Stop,
                _ = reloads.recv() => Asked::Reload,
            };
            if what == Asked::Stop && std::mem::replace(&mut is_second, true) {
                std::process::exit(INTERRUPTED);
            }
            // The daemon is ending already.
            let _ = heard.send(what);
        }
    });
    Ok(asked)
}

/// Waits for what ends the daemon, and ends its parts. Fails if it was no signal.
async fn watch(
    parts: &mut Parts,
    mut signals: mpsc::UnboundedReceiver<Asked>,
    manager: &Manager,
    mut file: Option<File>,
    live: Living,
) -> Result<(), Failure> {
    // Twice as often as the manager wants to hear of it.
    let mut beats = manager.watchdog.map(|it| tokio::time::interval(it / 2));
    let ended = loop {
        tokio::select! {
            asked = signals.recv() => match asked {
                Some(Asked::Reload) => {
                    manager.tell("RELOADING=1");
                    reload(file.as_mut(), &live);
                    manager.tell("READY=1");
                }
                _ => break Ok(()),
            },
            _ = parts.serving.join_next() => {
                break Err(Failure::new(CANNOT_OPEN, "a part of the daemon ended by itself"));
            }
            () = next_beat(&mut beats) => manager.tell("WATCHDOG=1"),
        }
    };
    manager.tell("STOPPING=1");
    parts.stop();
    while parts.serving.join_next().await.is_some() {}
    ended
}

/// Waits for the next time at which the manager is to hear of the daemon; for ever if it does not want to.
async fn next_beat(beats: &mut Option<Interval>) {
    match beats {
        Some(beats) => {
            beats.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// Reads the file again, and changes what can change. A file that is not sound changes nothing.
fn reload(file: Option<&mut File>, live: &Living) {
    let Some(file) = file else {
        log::warn!("there is no configuration file to be read again");
        return;
    };
    match reread(file, live) {
        Ok(config) => {
            for name in fixed_changes(&file.config, &config) {
                log::warn!(
                    "{name} has changed in {}, and counts after a restart",
                    file.path.display()
                );
            }
            file.config = config;
        }
        Err(failure) => {
            let reason = failure.message().unwrap_or_default();
            log::error!("the configuration was not read again: {reason}");
        }
    }
}

fn reread(file: &File, live: &Living) -> Result<config::Config, Failure> {
    let config = config::read(&file.path)?;
    let users = users::users(&config)?;
    if let (Some(handle), Some(settings)) = (&live.redis, &config.redis) {
        // Memory is shared out once.
        handle.set_live(plan::live(settings, &users, &file.config.memory)?);
    }
    live.users.set(users);
    Ok(config)
}

/// What differs between two files and cannot change while the daemon runs.
fn fixed_changes(before: &config::Config, after: &config::Config) -> Vec<&'static str> {
    let listener = |it: &config::Config| {
        let redis = it.redis.as_ref();
        redis.map(|it| {
            let files = [&it.tls_cert, &it.tls_key, &it.tls_client_ca].map(Clone::clone);
            (it.listen, files)
        })
    };
    let changes = [
        ("`directory`", before.directory != after.directory),
        ("`stop_timeout`", before.stop_timeout != after.stop_timeout),
        ("[memory]", before.memory != after.memory),
        ("[http]", before.http != after.http),
        ("[mqtt]", before.mqtt != after.mqtt),
        (
            "the listener of [redis]",
            listener(before) != listener(after),
        ),
        ("[[database]]", before.database != after.database),
    ];
    changes
        .into_iter()
        .filter(|it| it.1)
        .map(|it| it.0)
        .collect()
}
