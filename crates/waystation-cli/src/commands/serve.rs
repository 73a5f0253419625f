//! `serve`: the document server, until a signal stops it.

use super::{Context, drive, require_path, worker};
use crate::args::Serve;
use crate::failure::{CANNOT_OPEN, DAMAGED, Failure, USAGE};
use std::collections::HashSet;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use waystation_documents::Error;
use waystation_documents::database::{LOCAL_NODE, Nodes};
use waystation_nodes::{Authorities, DriveSettings, Drives};
use waystation_server::{Admin, Jwt, Server, ServerError, Settings, Stopper, Tls};

/// The exit code of a command that a second signal ended.
const INTERRUPTED: i32 = 130;
/// Threads for blocking work beside those of requests: opening and closing.
const SPARE_THREADS: usize = 4;
/// How long the databases may take to close.
const CLOSING: Duration = Duration::from_secs(10);

/// Prints the warnings of engine, server and agent.
struct Log;

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            // With nobody to read it, the log is lost.
            let _ = writeln!(
                std::io::stderr(),
                "waystation: {}: {}",
                record.level().as_str().to_lowercase(),
                record.args()
            );
        }
    }

    fn flush(&self) {}
}

/// Has warnings printed from now on.
pub(super) fn print_warnings() {
    if log::set_logger(&Log).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}

/// The drives, if there are some.
fn nodes(args: &Serve) -> Result<Option<Arc<dyn Nodes>>, Failure> {
    let Some(file) = &args.drive_token_file else {
        return Ok(None);
    };
    let token = drive::token(file)?;
    let authorities = args.drive_ca.as_deref().map(Authorities::read).transpose();
    let authorities = authorities.map_err(|error| drive::failure(&error))?;
    let drive = |(name, address): &(String, SocketAddr)| DriveSettings {
        name: name.clone(),
        address: *address,
        token: token.clone(),
        authorities: authorities.clone(),
    };
    let names: HashSet<&str> = args.drive.iter().map(|(name, _)| name.as_str()).collect();
    if names.len() < args.drive.len() || names.contains(LOCAL_NODE) {
        let reason = format!("each drive needs a name of its own, other than {LOCAL_NODE}");
        return Err(Failure::new(USAGE, reason));
    }
    let drives = Drives::new(args.drive.iter().map(drive).collect());
    Ok(Some(Arc::new(drives)))
}

pub(super) fn serve(context: &mut Context, args: Serve) -> Result<(), Failure> {
    require_path(&args.directory)?;
    print_warnings();
    let settings = Settings {
        nodes: nodes(&args)?,
        copy_bytes_per_second: u64::from(args.copy_rate) << 20,
        offload: worker::offload(&args.worker)?,
        listen: args.listen,
        admins: admins(&args)?,
        tls: tls(&args),
        jwt: jwt(&args)?,
        replication_trust: args.replication_ca,
        shards: usize::from(args.q),
        sync: args.sync,
        cors_origins: args.cors_origin,
        ..Settings::new(args.directory)
    };
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(settings.workers + SPARE_THREADS)
        .build()
        .map_err(|error| {
            Failure::new(CANNOT_OPEN, format!("no threads can be started: {error}"))
        })?;
    let served = run(context, &runtime, settings);
    runtime.shutdown_timeout(CLOSING);
    served
}

fn run(context: &mut Context, runtime: &Runtime, settings: Settings) -> Result<(), Failure> {
    let scheme = if settings.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let server = runtime.block_on(Server::bind(settings)).map_err(failure)?;
    {
        // Signals are heard by the runtime's driver.
        let _entered = runtime.enter();
        stop_at_signals(server.stopper())?;
    }
    let url = format!("{scheme}://{}/", server.address());
    context
        .output
        .line(format!("Waystation listens at {url}"))?;
    context.output.flush()?;
    runtime.block_on(server.run());
    Ok(())
}

/// Has the first signal stop the server, and the second one end the process.
fn stop_at_signals(stopper: Stopper) -> Result<(), Failure> {
    let refused = |error| Failure::new(CANNOT_OPEN, format!("signals cannot be heard: {error}"));
    let mut interrupts = signal(SignalKind::interrupt()).map_err(refused)?;
    let mut terminations = signal(SignalKind::terminate()).map_err(refused)?;
    tokio::spawn(async move {
        for is_second in [false, true] {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terminations.recv() => {}
            }
            if is_second {
                std::process::exit(INTERRUPTED);
            }
            stopper.stop();
        }
    });
    Ok(())
}

fn admins(args: &Serve) -> Result<Vec<Admin>, Failure> {
    let mut lines = args.admin.clone();
    lines.extend(std::env::var("WAYSTATION_ADMIN").ok());
    if let Some(path) = &args.admin_file {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| Failure::file("read", path, error))?;
        lines.extend(
            text.lines()
                .filter(|line| !line.trim().is_empty())
                .map(ToOwned::to_owned),
        );
    }
    let admin = |line: String| match line.split_once(':') {
        Some((name, password)) if !name.is_empty() && !password.is_empty() => Ok(Admin {
            name: name.to_owned(),
            password: password.to_owned(),
        }),
        _ => Err(Failure::new(
            USAGE,
            "an administrator is written NAME:PASSWORD, neither of them empty",
        )),
    };
    lines.into_iter().map(admin).collect()
}

fn tls(args: &Serve) -> Option<Tls> {
    Some(Tls {
        certificate: args.tls_cert.clone()?,
        key: args.tls_key.clone()?,
    })
}

fn jwt(args: &Serve) -> Result<Option<Jwt>, Failure> {
    let Some(path) = &args.jwt_file else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::file("read", path, error))?;
    let wrong = |reason| Failure::new(USAGE, format!("{}: {reason}", path.display()));
    Jwt::parse(&text).map(Some).map_err(wrong)
}

fn failure(error: ServerError) -> Failure {
    match error {
        ServerError::Documents(Error::Engine(error)) => error.into(),
        ServerError::Documents(Error::Damaged { .. }) => Failure::new(DAMAGED, error.to_string()),
        ServerError::NoAdmin(_) | ServerError::Tls { .. } => Failure::new(USAGE, error.to_string()),
        _ => Failure::new(CANNOT_OPEN, error.to_string()),
    }
}
