//! The worker that listens: it greets engines, and runs their jobs where it may.
//!
//! Each connection has a thread and one job. The thread answers requests, so it answers while the job waits for a device.
//! An engine that says nothing for as long as its lease, or whose connection ends, has its job given up.

use super::address::{Address, Listener, Stream};
use super::queue::{Places, RunningJob, cancelled, failed};
use super::spool::{SentJob, Spool};
use crate::connections::Connections;
use crate::error::{AgentError, Result};
use crate::frame;
use crate::greeting::{Refusal, Token, WORKERS};
use crate::tls::Identity;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use waystation::offload::Worker;
use waystation_format::compaction::{
    Answer, Begin, Call, Failure, JobId, JobState, MESSAGE_BYTES_MAX, Request, job_directory_name,
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
    /// Connections over TCP speak TLS with this; `None`: none does.
    pub tls: Option<Identity>,
    /// Directories that hold databases: the worker goes nowhere else.
    pub allowed: Vec<PathBuf>,
    /// Where tables lie that engines send whose directories the worker does not see, made if it is missing; `None`: it takes
    /// none. No other worker uses it.
    pub spool: Option<PathBuf>,
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
            tls: None,
            allowed,
            spool: None,
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
    tls: Option<Identity>,
    /// As the file system resolves them.
    allowed: Vec<PathBuf>,
    spool: Option<Spool>,
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
        if settings.allowed.is_empty() && settings.spool.is_none() {
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
        let spool = settings.spool.as_deref().map(Spool::open).transpose()?;
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
                tls: settings.tls.clone(),
                allowed,
                spool,
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

/// What a connection is about.
#[derive(Default)]
struct Held {
    /// Dropped first: it reads the tables that were sent.
    running: Option<RunningJob>,
    sent: Option<SentJob>,
    /// The lease that the engine asked for.
    lease: Option<Duration>,
}

impl Held {
    /// Which attempt at which job it is.
    fn run(&self) -> Option<(JobId, u64)> {
        let running = self.running.as_ref().map(|job| (job.id, job.attempt));
        running.or_else(|| self.sent.as_ref().map(SentJob::run))
    }
}

impl Inner {
    fn serve(&self, stream: &Stream) -> Result<(), Refusal> {
        stream.hurry()?;
        stream.set_patience(GREETING)?;
        match (&self.tls, stream) {
            (Some(identity), Stream::Tcp(_)) => self.converse(stream, identity.accept(stream)?),
            _ => self.converse(stream, stream),
        }
    }

    /// Answers the requests that come through `io`, which is `stream` or what TLS makes of it.
    fn converse(&self, stream: &Stream, mut io: impl Read + Write) -> Result<(), Refusal> {
        WORKERS.welcome(&mut io, &self.token)?;
        let mut held = Held::default();
        loop {
            stream.set_patience(held.lease.unwrap_or(GREETING))?;
            let Some(message) = frame::read(&mut io, MESSAGE_BYTES_MAX)? else {
                return Ok(());
            };
            let request = Request::decode(&message);
            let request = request.map_err(|error| Refusal::Refused(error.to_string()))?;
            drop(message);
            let run = (request.id, request.attempt);
            let known = match &request.call {
                Call::Watch(watch) => Some(watch.known),
                _ => None,
            };
            let state = self.answer(request, &mut held)?;
            // Only an engine whose directory the worker sees can keep them.
            let watched = known.zip(held.running.as_ref());
            let watched = watched.filter(|_| held.sent.is_none());
            let answer = Answer {
                finished: watched.and_then(|(known, job)| job.finished_after(known)),
                ..Answer::new(run, state)
            };
            frame::write(&mut io, &answer.encode())?;
            if self.connections.is_stopping() {
                return Ok(());
            }
        }
    }

    fn answer(&self, request: Request, held: &mut Held) -> Result<JobState, Refusal> {
        let run = (request.id, request.attempt);
        if let Call::Begin(begin) = request.call {
            return match held.run() {
                None => Ok(self.begin(*begin, held)?),
                Some(_) => Err(strange()),
            };
        }
        if held.run() != Some(run) {
            return Err(strange());
        }
        match (request.call, &mut held.running, &mut held.sent) {
            (Call::Watch(_), Some(job), _) if job.has_died() => Ok(job.cancel()),
            (Call::Watch(watch), Some(job), _) => {
                Ok(job.watch(Duration::from_millis(watch.wait_ms).min(WATCH_MAX)))
            }
            (Call::Cancel, Some(job), _) => Ok(job.cancel()),
            (Call::Cancel, None, _) => Ok(JobState::Over(cancelled(run.0, run.1))),
            (Call::Send(chunk), None, Some(sent)) => Ok(sent.take(&chunk)),
            (Call::Start, None, Some(sent)) => match sent.start() {
                Ok((directory, begin)) => Ok(self.start(directory, begin, held)?),
                Err(over) => Ok(over),
            },
            (Call::Fetch(part), Some(job), Some(sent)) => match job.watch(Duration::ZERO) {
                JobState::Over(_) => Ok(sent.give(part)),
                under_way => Ok(under_way),
            },
            _ => Err(strange()),
        }
    }

    /// Begins a job, or says why not.
    fn begin(&self, begin: Begin, held: &mut Held) -> io::Result<JobState> {
        let run = (begin.job.id, begin.job.attempt);
        let lease = Duration::from_millis(begin.lease_ms).clamp(LEASE_MIN, LEASE_MAX);
        held.lease = Some(lease);
        let refused = |(failure, reason): (Failure, String)| {
            log::warn!("a compaction job was refused: {reason}");
            Ok(JobState::Over(failed(run, failure, reason)))
        };
        if begin.directory.is_empty() {
            let Some(spool) = &self.spool else {
                return refused((Failure::Unsupported, NO_SPOOL.to_owned()));
            };
            return match spool.receive(begin) {
                Ok(sent) => {
                    held.sent = Some(sent);
                    Ok(JobState::Receiving)
                }
                Err(failure) => refused(failure),
            };
        }
        match self.resolve(&begin) {
            Ok(directory) => self.start(directory, begin, held),
            Err(reason) if self.spool.is_some() => {
                Ok(JobState::Over(failed(run, Failure::Unseen, reason)))
            }
            Err(reason) => refused((Failure::Unsupported, reason)),
        }
    }

    /// Has the job of `begin` run in `directory`.
    fn start(&self, directory: PathBuf, begin: Begin, held: &mut Held) -> io::Result<JobState> {
        let job = RunningJob::start(&self.worker, &self.places, directory, begin)?;
        let state = job.watch(Duration::ZERO);
        held.running = Some(job);
        Ok(state)
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

/// What an engine is told that sends tables where none are taken.
const NO_SPOOL: &str = "the worker takes no tables: start it with a spool directory for them";

fn strange() -> Refusal {
    let reason = "it asked about a job that this connection does not have";
    Refusal::Refused(reason.to_owned())
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
