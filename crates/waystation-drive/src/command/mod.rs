//! `waystation ip`: real tables through the simulated engine; and `waystation drive-model` ([`model`]).
//!
//! The command line mounts [`IpCommand`] as a subcommand and calls [`IpCommand::run`].

pub mod engine;
pub mod model;
mod report;

pub use report::Report;

use crate::ip::law::Law;
use crate::ip::{Engine, Failure, IpError, Job, Settings, TableImage, image, reference, table};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use waystation_format::key::MAX_SEQUENCE;

/// The longest table that is read, in bytes.
const TABLE_BYTES_MAX: u64 = 1 << 30;

/// The compaction engine in hardware, simulated.
#[derive(Debug, Args)]
pub struct IpCommand {
    /// What to do with it.
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Compact tables through the engine and write one that LevelDB opens
    #[command(after_help = "\
Each table is an input of its own; tables given as A,B,C are chained on one input (they must follow each other in \
key order). Tables must be uncompressed (waystation export-leveldb --compression none writes such), keys at most \
64 bytes.

Examples:
  waystation ip run -N 4 000005.ldb 000007.ldb 000009.ldb -o 000011.ldb
  waystation ip run -N 2 --bottom 000012.ldb 000013.ldb,000014.ldb --verify
  waystation --json ip run 000005.ldb 000007.ldb | jq .cycles_per_byte_in")]
    Run(Run),
}

#[derive(Debug, Args)]
struct Run {
    /// The tables, one input each; several for one input with commas between
    #[arg(required = true, value_name = "TABLES")]
    tables: Vec<String>,
    /// The engine's number of inputs; 1, 2, 4, 9 and 13 are there unless the build chose others
    #[arg(short = 'N', long = "inputs", default_value_t = 4, value_name = "N")]
    inputs: usize,
    /// The table to write, a new file (nothing is written if not given)
    #[arg(short, long, value_name = "TABLE")]
    output: Option<PathBuf>,
    /// The oldest snapshot still read at; older versions are dropped [default: none is read]
    #[arg(long, value_name = "SEQUENCE", default_value_t = MAX_SEQUENCE, hide_default_value = true)]
    snapshot: u64,
    /// Nothing lies deeper: drop deletions too
    #[arg(long)]
    bottom: bool,
    /// Bytes of an output block
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    block_bytes: u32,
    /// Do the job in software too and compare every byte
    #[arg(long)]
    verify: bool,
}

/// Why the command failed.
#[derive(Debug, Error)]
pub enum CommandError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// A table cannot be read.
    #[error("{path}: {source}")]
    Table {
        /// Which file.
        path: String,
        /// What is wrong with it.
        source: IpError,
    },
    /// More inputs than the engine has.
    #[error(
        "{given} inputs for an engine of {inputs}: put tables that follow each other in key order on one input \
         (A,B), or take a larger engine (-N)"
    )]
    TooMany {
        /// How many were given.
        given: usize,
        /// How many there are.
        inputs: usize,
    },
    /// The engine found something wrong with an input.
    #[error("{tables}: {failure}")]
    Input {
        /// The tables of that input.
        tables: String,
        /// What is wrong.
        failure: Failure,
    },
    /// The job was refused or failed.
    #[error(transparent)]
    Ip(#[from] IpError),
    /// The hardware's output is not that of the reference.
    #[error("the hardware's output differs from the reference's; nothing was written")]
    Different,
}

impl IpCommand {
    /// Does what was asked; progress goes to standard error, where that is a terminal, unless `quiet`.
    pub fn run(&self, quiet: bool) -> Result<Report, CommandError> {
        match &self.action {
            Action::Run(run) => run.run(quiet),
        }
    }
}

impl Run {
    fn run(&self, quiet: bool) -> Result<Report, CommandError> {
        let chains = self.tables.iter();
        let paths: Vec<Vec<String>> = chains
            .map(|chain| chain.split(',').map(str::to_owned).collect())
            .collect();
        if paths.len() > self.inputs {
            return Err(CommandError::TooMany {
                given: paths.len(),
                inputs: self.inputs,
            });
        }
        // Before tables are read: there may be no such engine, or no room for its output.
        let mut engine = Engine::new(self.inputs)?;
        let mut target = self.output.as_deref().map(Target::new).transpose()?;
        let job = self.job(&paths)?;
        let bar = bar(quiet);
        let result = engine.run(&job, |progress| {
            bar.set_length(progress.bytes_total);
            bar.set_position(progress.bytes_in);
            let per_byte = progress.cycles as f64 / progress.bytes_in.max(1) as f64;
            bar.set_message(format!("{per_byte:.4} cycles per byte"));
        });
        bar.finish_and_clear();
        let (output, traffic) = result.map_err(|error| match error {
            IpError::Failed(failure) => blame(&self.tables, failure),
            other => CommandError::Ip(other),
        })?;
        let law = Law::default().predict(&job, &output)?;
        let mut report = Report::new(self.inputs, paths, output.counters, traffic, law.cycles);
        if self.verify {
            if reference::run(&job)? != output {
                return Err(CommandError::Different);
            }
            report.verified = true;
        }
        if let Some(target) = &mut target {
            target.fill(&table::write(&output)?)?;
            report.output.clone_from(&self.output);
        }
        Ok(report)
    }

    fn job(&self, paths: &[Vec<String>]) -> Result<Job, CommandError> {
        let chain = |chain: &Vec<String>| chain.iter().map(|path| read(path)).collect();
        Ok(Job {
            inputs: paths.iter().map(chain).collect::<Result<_, _>>()?,
            settings: Settings {
                smallest_snapshot: self.snapshot,
                bottom: self.bottom,
                block_bytes: self.block_bytes,
                ..Settings::default()
            },
        })
    }
}

/// Reads a table, and looks whether the engine takes it.
fn read(path: &str) -> Result<TableImage, CommandError> {
    let bytes = read_whole(Path::new(path)).map_err(|source| in_file(Path::new(path), source))?;
    let in_table = |source| CommandError::Table {
        path: path.to_owned(),
        source,
    };
    let table = table::read(bytes).map_err(in_table)?;
    image::survey_table(&table).map_err(in_table)?;
    Ok(table)
}

/// Reads a regular file of no more than [`TABLE_BYTES_MAX`]: a device file in its place must not fill the memory.
fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > TABLE_BYTES_MAX {
        let reason =
            format!("not a regular file of at most {TABLE_BYTES_MAX} bytes, as a table is");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let mut bytes = Vec::new();
    file.take(TABLE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A failure, with the tables of the input at fault.
fn blame(tables: &[String], failure: Failure) -> CommandError {
    match failure.input.and_then(|input| tables.get(input as usize)) {
        Some(tables) => CommandError::Input {
            tables: tables.clone(),
            failure,
        },
        None => CommandError::Ip(IpError::Failed(failure)),
    }
}

fn in_file(path: &Path, source: io::Error) -> CommandError {
    CommandError::File {
        path: path.display().to_string(),
        source,
    }
}

/// The table to be written: a new file, which does not outlive a failure.
struct Target<'a> {
    path: &'a Path,
    file: fs::File,
    done: bool,
}

impl<'a> Target<'a> {
    /// Fails if the file exists: it may be an input.
    fn new(path: &'a Path) -> Result<Self, CommandError> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        Ok(Self {
            path,
            file: file.map_err(|source| in_file(path, source))?,
            done: false,
        })
    }

    fn fill(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        let written = self.file.write_all(bytes);
        let synced = written.and_then(|()| self.file.sync_all());
        synced.map_err(|source| in_file(self.path, source))?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if !self.done {
            // Nothing of ours should be left; that it cannot be removed changes nothing about the failure told.
            let _ = fs::remove_file(self.path);
        }
    }
}

fn bar(quiet: bool) -> ProgressBar {
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let style = ProgressStyle::with_template(
        "simulating {wide_bar} {decimal_bytes}/{decimal_total_bytes} ({decimal_bytes_per_sec}, {eta} left) {msg}",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
