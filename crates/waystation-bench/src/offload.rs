//! The process that merges for the engine under test: a compaction worker as `waystation compact-worker` runs it on a machine
//! of one core.

use crate::cli::MergerArgs;
use crate::cores::on_core;
use crate::drives::cpu_seconds;
use crate::error::{Error, Result};
use crate::interrupt::{self, lock};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use waystation::offload::Worker;
use waystation_nodes::compaction::{Address, CompactionWorker, WorkerSettings};

/// The hidden subcommand that the program starts itself with.
const MERGER_COMMAND: &str = "merger";
/// Jobs at once: as many as a database has threads for.
const JOBS: usize = 2;

/// Merges until the parent is gone.
pub(crate) fn merge_for(args: &MergerArgs) -> Result<()> {
    let address = Address::Unix(args.socket.clone());
    let mut settings = WorkerSettings::new(address, None, vec![args.allowed.clone()]);
    let engine = args.engine.engine();
    if let Some(engine) = engine.map_err(|error| Error::Refused(error.to_string()))? {
        settings.worker = Arc::new(Worker::default().with_engine(engine));
    }
    settings.jobs_max = JOBS;
    let worker = CompactionWorker::bind(&settings)
        .map_err(|error| Error::Refused(format!("the worker cannot listen: {error}")))?;
    let stopper = worker.stopper();
    let until_parent_ends = move || {
        // The parent writes nothing: the read returns when the parent ends.
        let _ = io::stdin().lock().read(&mut [0]);
        stopper.stop();
    };
    let thread = thread::Builder::new().name("listener".to_owned());
    thread
        .spawn(until_parent_ends)
        .map_err(|source| Error::io("start a thread of", "the worker", source))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", worker.address())
        .and_then(|()| out.flush())
        .map_err(|source| Error::io("write to", "the parent", source))?;
    drop(out);
    worker.run();
    Ok(())
}

/// A worker process. Dropping it ends it.
pub(crate) struct Merger {
    child: Arc<Mutex<Child>>,
    process: u32,
    /// Where it listens.
    pub(crate) address: String,
}

impl Merger {
    /// Starts one on `core` that listens on `socket`, for databases in `allowed`, and has `engine` merge.
    pub(crate) fn start(socket: &Path, allowed: &Path, engine: &str, core: usize) -> Result<Self> {
        let failed = |source| Error::io("start a worker of", allowed, source);
        let program = std::env::current_exe().map_err(failed)?;
        let spawn = || {
            Command::new(program)
                .arg(MERGER_COMMAND)
                .args([socket, allowed])
                .args(["--engine", engine])
                // Hardware has few inputs, and level 0 many tables.
                .args((engine == "hardware").then_some("--stages"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        };
        let mut child = on_core(core, spawn)?.map_err(failed)?;
        let output = child.stdout.take();
        let process = child.id();
        let child = Arc::new(Mutex::new(child));
        interrupt::register_child(&child);
        let mut merger = Self {
            child,
            process,
            address: String::new(),
        };
        if let Some(output) = output {
            let mut output = BufReader::new(output);
            output.read_line(&mut merger.address).map_err(failed)?;
        }
        let length = merger.address.trim_end().len();
        merger.address.truncate(length);
        if merger.address.is_empty() {
            return Err(Error::Worker {
                engine: "merges".to_owned(),
                what: "ended before it listened; its messages stand above".to_owned(),
            });
        }
        Ok(merger)
    }

    /// Seconds of processor time that it has taken.
    pub(crate) fn cpu_s(&self) -> f64 {
        cpu_seconds(self.process)
    }
}

impl Drop for Merger {
    fn drop(&mut self) {
        {
            let mut child = lock(&self.child);
            // It has nothing to lose.
            let _ = child.kill();
            let _ = child.wait();
        }
        interrupt::forget_child(&self.child);
    }
}
