//! The worker that listens: it greets engines, and runs their jobs where it may.
//!
//! Each connection has a thread and one job. The thread answers requests, so it answers while the job waits for a device.
//! An engine that says nothing for as long as its lease, or whose connection ends, has its job given up.

use super::address::{Address, Listener, Stream};
use super::queue::{Places, RunningJob, failed};
use crate::connections::Connections;
use crate::error::{AgentError, Result};
use crate::frame;
use crate::greeting::{Refusal, Token, WORKERS};
use std::ffi::OsStr;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use waystation::offload::Worker;
use waystation_format::compaction::{
    Answer, Begin, Call, Failure, JobState, MESSAGE_BYTES_MAX, Request, job_directory_name,
};

/// An engine has so long to greet, and then to send its job.
const GREETING: Duration = Duration::from_secs(10);
/// The shortest and the longest lease that an engine may ask for.
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(600);
/// A request is answered after this time at the latest.
const WATCH_MAX: Duration = Duration::from_secs(1);

/// Jobs at once, on a machine of one processor.
const JOBS_MIN: usize = 2;

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Where to listen. TCP port 0: any that is free.
    pub listen: Address,
    /// What engines have to know. On a Unix socket it may be left out.
    pub token: Option<Token>,
    /// Directories that hold databases: the worker goes nowhere else.
    pub allowed: Vec<PathBuf>,
    /// Jobs that run at once; others wait.
    pub jobs_max: usize,
    /// Connections at once; more are closed.
    pub connections_max: usize,
    /// What runs the jobs. Default: the processor.
    pub worker: Arc<Worker>,
}

impl WorkerSettings {
    /// The defaults: as many jobs as there are processors, and two at least: one of level 0, which writers may wait for, goes
    /// on beside a long one.
    pub fn new(listen: Address, token: Option<Token>, allowed: Vec<PathBuf>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            listen,
            token,
            allowed,
            jobs_max: processors.max(JOBS_MIN),
            connections_max: 256,
            worker: Arc::default(),
        }
    }
}

struct Inner {
    worker: Arc<Worker>,
    places: Arc<Places>,
    token: Token,
    /// As the file system resolves them.
    allowed: Vec<PathBuf>,
    connections: Arc<Connections<Stream>>,
}

/// A worker that listens. See the module.
pub struct CompactionWorker {
    inner: Arc<Inner>,
    listener: Listener,
    address: Address,
}

/// Stops a worker.
#[derive(Clone)]
pub struct WorkerStopper {
    inner: Arc<Inner>,
    address: Address,
}

impl WorkerStopper {
    /// Has the worker take no more connections, and give up the jobs of those it has.
    pub fn stop(&self) {
        self.inner.connections.stop();
        // The listener waits for a connection: this is one.
        let _ = Stream::connect(&self.address);
    }
}

impl CompactionWorker {
    /// Listens.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn bind(settings: &WorkerSettings) -> Result<Self> {
        let address = settings.listen.clone();
        let token = match (&settings.token, &address) {
            (Some(token), _) => token.clone(),
            (None, Address::Unix(_)) => Token::none(),
            (None, Address::Tcp(_)) => return Err(AgentError::NoToken(address)),
        };
        if settings.allowed.is_empty() {
            return Err(AgentError::NoDirectory);
        }
        let resolve = |path: &PathBuf| {
            let refused = |source| AgentError::Directory {
                path: path.clone(),
                source,
            };
            std::fs::canonicalize(path).map_err(refused)
        };
        let allowed: Result<Vec<_>> = settings.allowed.iter().map(resolve).collect();
        let allowed = allowed?;
        let refused = |source| AgentError::Listen {
            address: address.clone(),
            source,
        };
        let listener = Listener::bind(&address).map_err(refused)?;
        let address = listener.address().map_err(refused)?;
        Ok(Self {
            inner: Arc::new(Inner {
                worker: Arc::clone(&settings.worker),
                places: Arc::new(Places::new(settings.jobs_max)),
                token,
                allowed,
                connections: Arc::new(Connections::new(settings.connections_max)),
            }),
            listener,
            address,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What stops it.
    pub fn stopper(&self) -> WorkerStopper {
        WorkerStopper {
            inner: Arc::clone(&self.inner),
            address: self.address.clone(),
        }
    }

    /// Runs the jobs of engines until it is told to stop.
    pub fn run(self) {
        let Self {
            inner, listener, ..
        } = self;
        let take = |stream| {
            let thread = std::thread::Builder::new().name("waystation-worker".to_owned());
            let serving = Arc::clone(&inner);
            inner
                .connections
                .take(stream, "an engine", thread, move |stream| {
                    serving.serve(stream)
                });
        };
        inner.connections.run(|| listener.accept(), take);
    }
}

impl Inner {
    fn serve(&self, stream: &Stream) -> Result<(), Refusal> {
        stream.hurry()?;
        stream.set_patience(GREETING)?;
        WORKERS.welcome(&mut &*stream, &self.token)?;
        let mut running: Option<RunningJob> = None;
        loop {
            let patience = running.as_ref().map_or(GREETING, |running| running.lease);
            stream.set_patience(patience)?;
            let Some(message) = frame::read(&mut &*stream, MESSAGE_BYTES_MAX)? else {
                return Ok(());
            };
            let request = Request::decode(&message);
            let request = request.map_err(|error| Refusal::Refused(error.to_string()))?;
            drop(message);
            let (id, attempt) = (request.id, request.attempt);
            let state = self.answer(request, &mut running)?;
            let answer = Answer { id, attempt, state };
            frame::write(&mut &*stream, &answer.encode())?;
            if self.connections.is_stopping() {
                return Ok(());
            }
        }
    }

    fn answer(
        &self,
        request: Request,
        running: &mut Option<RunningJob>,
    ) -> Result<JobState, Refusal> {
        let named = (request.id, request.attempt);
        match (request.call, running.as_mut()) {
            (Call::Begin(begin), None) => {
                let (job, state) = self.begin(*begin)?;
                *running = job;
                Ok(state)
            }
            (Call::Watch(wait_ms), Some(job)) if (job.id, job.attempt) == named => {
                if job.has_died() {
                    return Ok(job.cancel());
                }
                Ok(job.watch(Duration::from_millis(wait_ms).min(WATCH_MAX)))
            }
            (Call::Cancel, Some(job)) if (job.id, job.attempt) == named => Ok(job.cancel()),
            _ => {
                let reason = "it asked about a job that this connection does not have";
                Err(Refusal::Refused(reason.to_owned()))
            }
        }
    }

    /// Begins a job, or says why not.
    fn begin(&self, begin: Begin) -> io::Result<(Option<RunningJob>, JobState)> {
        let named = (begin.job.id, begin.job.attempt);
        let directory = match self.resolve(&begin) {
            Ok(directory) => directory,
            Err(reason) => {
                log::warn!("a compaction job was refused: {reason}");
                let report = failed(named, Failure::Unsupported, reason);
                return Ok((None, JobState::Over(report)));
            }
        };
        let lease = Duration::from_millis(begin.lease_ms).clamp(LEASE_MIN, LEASE_MAX);
        let job = RunningJob::start(&self.worker, &self.places, directory, begin, lease)?;
        let state = job.watch(Duration::ZERO);
        Ok((Some(job), state))
    }

    /// The directory of the database, if the worker may work there, with no link on the way to the job's directory.
    fn resolve(&self, begin: &Begin) -> Result<PathBuf, String> {
        let path = Path::new(OsStr::from_bytes(&begin.directory));
        let resolve = |path: &Path| {
            let resolved = std::fs::canonicalize(path);
            resolved.map_err(|error| {
                format!(
                    "the worker does not see {}: {error}; it has to have the same path here",
                    path.display()
                )
            })
        };
        if !path.is_absolute() {
            return Err(format!("{} is no absolute path", path.display()));
        }
        let directory = resolve(path)?;
        if !self.allowed.iter().any(|it| directory.starts_with(it)) {
            return Err(format!(
                "the worker may not work in {}; allow the directory where it is started",
                directory.display()
            ));
        }
        let room = directory.join(job_directory_name(begin.job.id, begin.job.attempt));
        if resolve(&room)? != room {
            return Err(format!("{} is a link to another place", room.display()));
        }
        Ok(directory)
    }
}

impl std::fmt::Debug for CompactionWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("CompactionWorker");
        shown
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for WorkerStopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("WorkerStopper");
        shown
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
