//! `compact-worker`: merges for databases of other processes, until a signal stops it; and the other end of it.

use super::drive::{failure, identity, token};
use super::serve::print_warnings;
use super::{Context, require_path};
use crate::args::{CompactWorker, UseWorker};
use crate::failure::{CANNOT_OPEN, Failure, USAGE};
use std::fmt::Write as _;
use std::sync::Arc;
use waystation::offload::{LocalReason, Offload, OffloadSettings, OffloadStats, Worker};
use waystation_drive::command::engine::EngineArgsError;
use waystation_nodes::Authorities;
use waystation_nodes::compaction::{Address, CompactionWorker, WorkerAddress, WorkerSettings};

pub(super) fn compact_worker(context: &mut Context, args: CompactWorker) -> Result<(), Failure> {
    for directory in &args.allow {
        require_path(directory)?;
    }
    print_warnings();
    let token = args.token_file.as_deref().map(token).transpose()?;
    let mut settings = WorkerSettings::new(args.listen, token, args.allow);
    settings.tls = identity(args.tls_cert.as_deref(), args.tls_key.as_deref())?;
    settings.spool = args.spool;
    if settings.tls.is_some() && matches!(settings.listen, Address::Unix(_)) {
        return Err(no_tls(&settings.listen));
    }
    let refused = |error: EngineArgsError| {
        let code = match error {
            EngineArgsError::Foreign(_) => USAGE,
            _ => CANNOT_OPEN,
        };
        Failure::new(code, error.to_string())
    };
    if let Some(engine) = args.engine.engine().map_err(refused)? {
        settings.worker = Arc::new(Worker::default().with_engine(engine));
    }
    if let Some(jobs) = args.jobs {
        settings.jobs_max = jobs.into();
    }
    let worker = CompactionWorker::bind(&settings).map_err(|error| failure(&error))?;
    let stopper = worker.stopper();
    ctrlc::set_handler(move || stopper.stop())
        .map_err(|error| Failure::new(CANNOT_OPEN, format!("signals cannot be heard: {error}")))?;
    let address = worker.address();
    context.output.line(format!(
        "Waystation's compaction worker listens at {address}"
    ))?;
    context.output.flush()?;
    worker.run();
    Ok(())
}

/// The worker that `args` name.
pub(super) fn offload(args: &UseWorker) -> Result<Option<Offload>, Failure> {
    let Some(address) = args.compact_worker.clone() else {
        return Ok(None);
    };
    print_warnings();
    let file = args.compact_worker_token_file.as_deref();
    let mut worker = WorkerAddress::new(address, file.map(token).transpose()?);
    if let Some(file) = &args.compact_worker_ca {
        if let Address::Unix(_) = worker.address() {
            return Err(no_tls(worker.address()));
        }
        let authorities = Authorities::read(file).map_err(|error| failure(&error))?;
        worker = worker.with_tls(authorities);
    }
    let settings = OffloadSettings {
        shadow_percent: args.compact_worker_shadow,
        ..OffloadSettings::default()
    };
    Ok(Some(Offload::new(worker, settings)))
}

fn no_tls(address: &Address) -> Failure {
    let reason = format!("there is no TLS on {address}: give an IP address, or no certificates");
    Failure::new(USAGE, reason)
}

/// What a worker did, in words.
pub(super) fn offload_text(stats: &OffloadStats) -> String {
    let seconds = |micros: u64| micros as f64 / 1e6;
    let mut text = format!(
        "the worker ran {} merges, {} % of the bytes: waited {:.2} s, ran {:.2} s, verified in {:.2} s, installed in {:.2} s",
        stats.jobs,
        stats.share_percent,
        seconds(stats.wait_us),
        seconds(stats.run_us),
        seconds(stats.verify_us),
        seconds(stats.install_us),
    );
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    if stats.resumed > 0 {
        let _ = write!(
            text,
            "; {} went on after {:.1} MiB that the worker had made before it failed",
            stats.resumed,
            mebibytes(stats.kept_bytes)
        );
    }
    if stats.sent_bytes > 0 {
        let _ = write!(
            text,
            "; {:.1} MiB were sent and {:.1} MiB fetched in {:.2} s",
            mebibytes(stats.sent_bytes),
            mebibytes(stats.fetched_bytes),
            seconds(stats.transfer_us)
        );
    }
    if stats.shadowed > 0 {
        let (shadowed, different) = (stats.shadowed, stats.different);
        let _ = write!(
            text,
            "; {shadowed} ran here as well, {different} of them with another result"
        );
    }
    if stats.local_jobs > 0 {
        let reason = |(reason, jobs): (&LocalReason, &u64)| format!("{reason} {jobs}");
        let reasons: Vec<String> = stats.local.iter().map(reason).collect();
        let reasons = reasons.join(", ");
        let _ = write!(text, "; {} ran here: {reasons}", stats.local_jobs);
    }
    text
}
