//! `serve`: the daemon, until a signal stops it.
//!
//! ```text
//!   config   the file and the environment
//!   plan     from the file, or from the command line, to settings of all parts
//!   users    who may do what
//!   gateway  readings: HTTP and MQTT
//!   daemon   opens databases, starts the parts, and ends them in order
//!   notify   what the service manager is told
//! ```

mod config;
mod daemon;
mod gateway;
mod notify;
mod plan;
mod users;

use super::{Context, drive, worker};
use crate::args::Serve;
use crate::failure::{CANNOT_OPEN, DAMAGED, Failure, USAGE};
use std::collections::HashSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use waystation_documents::Error;
use waystation_documents::database::{LOCAL_NODE, Nodes};
use waystation_nodes::{Authorities, DriveSettings, Drives};
use waystation_server::{Admin, Jwt, ServerError, Settings, Tls};

/// Prints the warnings of engine, server and agent.
struct Log;

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = match record.level() {
                log::Level::Error => "error",
                _ => "warn",
            };
            let message = record.args().to_string();
            gateway::events().add(level, &message);
            // With nobody to read it, the log is lost.
            let _ = writeln!(std::io::stderr(), "waystation: {level}: {message}");
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
    print_warnings();
    let plan = match args.config.clone() {
        Some(file) => plan::of_file(&file, args.directory, args.check_config)?,
        None => plan::of_arguments(args)?,
    };
    daemon::run(context, plan)
}

/// The document server that the command line asks for.
fn documents(args: Serve, directory: &Path) -> Result<Settings, Failure> {
    Ok(Settings {
        nodes: nodes(&args)?,
        copy_bytes_per_second: u64::from(args.copy_rate) << 20,
        offload: worker::offload(&args.worker)?,
        listen: args.listen,
        admins: admins(args.admin.clone(), args.admin_file.as_deref())?,
        tls: tls(args.tls_cert.as_deref(), args.tls_key.as_deref(), None)?,
        jwt: jwt(args.jwt_file.as_deref())?,
        replication_trust: args.replication_ca,
        shards: usize::from(args.q),
        sync: args.sync,
        cors_origins: args.cors_origin,
        ..Settings::new(directory)
    })
}

fn admins(mut lines: Vec<String>, file: Option<&Path>) -> Result<Vec<Admin>, Failure> {
    lines.extend(std::env::var("WAYSTATION_ADMIN").ok());
    if let Some(path) = file {
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

/// Certificate and key of a listener, or none of them.
/// What a listener shows, and whose clients it takes.
fn tls(
    certificate: Option<&Path>,
    key: Option<&Path>,
    clients: Option<&Path>,
) -> Result<Option<Tls>, Failure> {
    match (certificate, key) {
        (None, None) if clients.is_some() => {
            let reason = "`tls_client_ca` asks clients for certificates, which needs `tls_cert` and `tls_key`";
            Err(Failure::new(USAGE, reason))
        }
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(Tls {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            clients: clients.map(Path::to_owned),
        })),
        _ => {
            let reason = "only one of certificate and key was named: TLS needs both";
            Err(Failure::new(USAGE, reason))
        }
    }
}

fn jwt(file: Option<&Path>) -> Result<Option<Jwt>, Failure> {
    let Some(path) = file else {
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
