//! `compact-worker`: merges for databases of other processes, until a signal stops it; and the other end of it.

use super::drive::{failure, token};
use super::serve::print_warnings;
use super::{Context, require_path};
use crate::args::{CompactWorker, UseWorker};
use crate::failure::{CANNOT_OPEN, Failure, USAGE};
use std::fmt::Write as _;
use std::sync::Arc;
use waystation::offload::{LocalReason, Offload, OffloadSettings, OffloadStats, Worker};
use waystation_drive::command::engine::EngineArgsError;
use waystation_nodes::compaction::{CompactionWorker, WorkerAddress, WorkerSettings};

pub(super) fn compact_worker(context: &mut Context, args: CompactWorker) -> Result<(), Failure> {
    for directory in &args.allow {
        require_path(directory)?;
    }
    print_warnings();
    let token = args.token_file.as_deref().map(token).transpose()?;
    let mut settings = WorkerSettings::new(args.listen, token, args.allow);
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
    let worker = WorkerAddress::new(address, file.map(token).transpose()?);
    let settings = OffloadSettings {
        shadow_percent: args.compact_worker_shadow,
        ..OffloadSettings::default()
    };
    Ok(Some(Offload::new(worker, settings)))
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
