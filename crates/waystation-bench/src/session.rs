//! The parent's end of a worker process.

use crate::engines::OpenSettings;
use crate::error::{Error, Result};
use crate::interrupt::{self, lock};
use crate::protocol::{Command, Figures, Reply, RunCommand};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

/// The hidden subcommand that the program starts itself with.
pub(crate) const WORKER_COMMAND: &str = "worker";

/// The program of another build, which runs the engine that `--pair-with` adds.
static PAIR: OnceLock<PathBuf> = OnceLock::new();

/// Takes `program`, this program of another build, for the engine of that build.
pub(crate) fn pair_with(program: PathBuf) {
    let _ = PAIR.set(program);
}

/// A process that has one database open. Dropping it kills it.
pub(crate) struct Worker {
    engine: String,
    child: Arc<Mutex<Child>>,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
    open_s: f64,
}

impl Worker {
    /// Starts a process and waits until its database is open.
    pub(crate) fn start(settings: &OpenSettings) -> Result<Self> {
        let engine = settings.engine.to_string();
        let failed = |what: String| Error::Worker {
            engine: engine.clone(),
            what,
        };
        let program = std::env::current_exe()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let (program, settings) = match PAIR.get() {
            Some(other) if settings.engine != settings.engine.in_its_build() => {
                let engine = settings.engine.in_its_build();
                let settings = settings.clone();
                (other.clone(), OpenSettings { engine, ..settings })
            }
            _ => (program, settings.clone()),
        };
        let json = serde_json::to_string(&settings)
            .map_err(|error| failed(format!("cannot be told what to open: {error}")))?;
        let mut child = std::process::Command::new(program)
            .arg(WORKER_COMMAND)
            .arg(json)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (commands, replies) = pipes.ok_or_else(|| failed("has no pipes".to_owned()))?;
        let child = Arc::new(Mutex::new(child));
        interrupt::register_child(&child);
        let replies = BufReader::new(replies);
        let mut worker = Self {
            engine,
            child,
            commands,
            replies,
            open_s: 0.0,
        };
        match worker.reply()? {
            Reply::Ready { open_s } => {
                worker.open_s = open_s;
                Ok(worker)
            }
            other => Err(worker.nonsense(&other)),
        }
    }

    /// How long opening the database took.
    pub(crate) fn open_s(&self) -> f64 {
        self.open_s
    }

    /// The number of the process.
    pub(crate) fn process(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Runs a benchmark, telling `on_progress` the share that is done.
    pub(crate) fn run(
        &mut self,
        command: RunCommand,
        mut on_progress: impl FnMut(f64),
    ) -> Result<Figures> {
        match self.ask_long(&Command::Run(command), &mut on_progress)? {
            Reply::Ran(figures) => Ok(*figures),
            other => Err(self.nonsense(&other)),
        }
    }

    /// A command that tells the share that is done before its one reply.
    pub(crate) fn ask_long(
        &mut self,
        command: &Command,
        on_progress: &mut dyn FnMut(f64),
    ) -> Result<Reply> {
        self.send(command)?;
        loop {
            match self.reply()? {
                Reply::Progress { done, total } => on_progress(done as f64 / total.max(1) as f64),
                other => return Ok(other),
            }
        }
    }

    /// Any other command, and its one reply.
    pub(crate) fn ask(&mut self, command: &Command) -> Result<Reply> {
        self.send(command)?;
        self.reply()
    }

    /// Closes the database and ends the process.
    pub(crate) fn quit(mut self) -> Result<()> {
        self.send(&Command::Quit)?;
        // Its end of the pipe closes when the database is closed; what it still has to say is a failure.
        let last = self.read_line()?;
        let status = lock(&self.child)
            .wait()
            .map_err(|error| self.failed(format!("cannot be waited for: {error}")))?;
        match last {
            Some(Reply::Failed { message }) => Err(Error::Refused(message)),
            _ if status.success() => Ok(()),
            _ => Err(self.failed(format!("ended badly while closing ({status})"))),
        }
    }

    /// Ends the process at once, as a crash would.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// The error for a reply that does not answer the command.
    pub(crate) fn nonsense(&self, reply: &Reply) -> Error {
        self.failed(format!("answered something else: {reply:?}"))
    }

    fn failed(&self, what: String) -> Error {
        Error::Worker {
            engine: self.engine.clone(),
            what,
        }
    }

    fn send(&mut self, command: &Command) -> Result<()> {
        let mut line = serde_json::to_string(command).unwrap_or_default();
        line.push('\n');
        let sent = self
            .commands
            .write_all(line.as_bytes())
            .and_then(|()| self.commands.flush());
        sent.map_err(|_| self.ended())
    }

    fn reply(&mut self) -> Result<Reply> {
        match self.read_line()? {
            None => Err(self.ended()),
            Some(Reply::Failed { message }) => Err(Error::Refused(message)),
            Some(reply) => Ok(reply),
        }
    }

    /// The next reply; nothing at the end of the process.
    fn read_line(&mut self) -> Result<Option<Reply>> {
        let mut line = String::new();
        match self.replies.read_line(&mut line) {
            Ok(0) | Err(_) => Ok(None),
            Ok(_) => match serde_json::from_str(&line) {
                Ok(reply) => Ok(Some(reply)),
                Err(_) => {
                    Err(self.failed(format!("does not speak the protocol: {}", line.trim_end())))
                }
            },
        }
    }

    /// The process is not there any more, which it was not told.
    fn ended(&self) -> Error {
        interrupt::park_if_interrupted();
        match lock(&self.child).wait() {
            Ok(status) => self.failed(format!("ended unasked ({status})")),
            Err(error) => self.failed(format!("is out of reach: {error}")),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        {
            let mut child = lock(&self.child);
            let _ = child.kill();
            let _ = child.wait();
        }
        interrupt::forget_child(&self.child);
    }
}
