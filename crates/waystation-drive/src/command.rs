//! `waystation ip`: real tables through the simulated engine.
//!
//! The command line mounts [`IpCommand`] as a subcommand and calls [`IpCommand::run`].

use crate::ip::{
    Counters, Engine, IpError, Job, Settings, Traffic, image, reference, sizes, table,
};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use thiserror::Error;
use waystation_format::key::MAX_SEQUENCE;

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
Each table is an input of its own; tables given as A,B,C are chained on one input (they must follow each other in
key order). Tables must be uncompressed, keys at most 64 bytes.

Examples:
  waystation ip run -N 4 000005.ldb 000007.ldb 000009.ldb -o 000011.ldb
  waystation ip run -N 2 --bottom 000012.ldb 000013.ldb,000014.ldb")]
    Run(Run),
}

#[derive(Debug, Args)]
struct Run {
    /// The tables, one input each; several for one input with commas between
    #[arg(required = true, value_name = "TABLES")]
    tables: Vec<String>,
    /// The engine's number of inputs
    #[arg(short = 'N', long = "inputs", default_value_t = 4, value_name = "N")]
    inputs: usize,
    /// Where the compacted table goes (nowhere if not given)
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
    /// The job was refused or failed.
    #[error(transparent)]
    Ip(#[from] IpError),
    /// The hardware's output is not that of the reference.
    #[error("the hardware's output differs from the reference's")]
    Different,
    /// The report cannot be written.
    #[error("the report cannot be written: {0}")]
    Report(#[source] io::Error),
}

impl IpCommand {
    /// Does what was asked; the report goes to `report`, progress to standard error unless `quiet`.
    pub fn run(&self, report: &mut dyn Write, quiet: bool) -> Result<(), CommandError> {
        match &self.action {
            Action::Run(run) => run.run(report, quiet),
        }
    }
}

impl Run {
    fn run(&self, report: &mut dyn Write, quiet: bool) -> Result<(), CommandError> {
        let job = self.job()?;
        image::survey(&job)?;
        let mut engine = Engine::new(self.inputs)?;
        let bar = bar(job.input_bytes(), quiet);
        let result = engine.run(&job, |progress| bar.set_position(progress.bytes_in));
        bar.finish_and_clear();
        let (output, traffic) = result?;
        if self.verify && reference::run(&job)? != output {
            return Err(CommandError::Different);
        }
        if let Some(path) = &self.output {
            fs::write(path, table::write(&output)?).map_err(|source| CommandError::File {
                path: path.display().to_string(),
                source,
            })?;
        }
        self.report(report, &output.counters, &traffic)
            .map_err(CommandError::Report)
    }

    fn job(&self) -> Result<Job, CommandError> {
        let mut inputs = Vec::new();
        for chain in &self.tables {
            let mut tables = Vec::new();
            for path in chain.split(',') {
                let bytes = fs::read(path).map_err(|source| CommandError::File {
                    path: path.to_owned(),
                    source,
                })?;
                tables.push(table::read(bytes).map_err(|source| CommandError::Table {
                    path: path.to_owned(),
                    source,
                })?);
            }
            inputs.push(tables);
        }
        Ok(Job {
            inputs,
            settings: Settings {
                smallest_snapshot: self.snapshot,
                bottom: self.bottom,
                block_bytes: self.block_bytes,
                ..Settings::default()
            },
        })
    }

    fn report(
        &self,
        out: &mut dyn Write,
        counters: &Counters,
        traffic: &Traffic,
    ) -> io::Result<()> {
        let c = counters;
        writeln!(
            out,
            "engine          {} inputs (built: {:?})",
            self.inputs,
            sizes()
        )?;
        writeln!(
            out,
            "blocks in       {} ({} bytes)",
            c.blocks_in, c.bytes_in
        )?;
        writeln!(
            out,
            "blocks out      {} ({} bytes)",
            c.blocks_out, c.bytes_out
        )?;
        writeln!(
            out,
            "records         {} in = {} out + {} shadowed + {} vanished",
            c.records_in, c.records_out, c.shadowed, c.vanished
        )?;
        let per_byte = |bytes: u64| traffic.cycles as f64 / bytes.max(1) as f64;
        writeln!(
            out,
            "cycles          {} = {:.4} per byte in; {:.2} bytes in and {:.2} bytes out per cycle",
            traffic.cycles,
            per_byte(c.bytes_in),
            1.0 / per_byte(c.bytes_in).max(f64::MIN_POSITIVE),
            c.bytes_out as f64 / traffic.cycles.max(1) as f64,
        )?;
        writeln!(
            out,
            "words           {} read, {} written",
            traffic.words_read, traffic.words_written
        )?;
        writeln!(
            out,
            "cycles waited   memory {}, key {}, filter {}, value {}, record {}, write {}",
            traffic.waits_memory,
            traffic.waits_key,
            traffic.waits_filter,
            traffic.waits_value,
            traffic.waits_record,
            traffic.waits_write
        )?;
        if self.verify {
            writeln!(
                out,
                "verified        the software reference gives the same bytes"
            )?;
        }
        if let Some(path) = &self.output {
            writeln!(out, "written         {}", path.display())?;
        }
        Ok(())
    }
}

fn bar(total: u64, quiet: bool) -> ProgressBar {
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    let style = ProgressStyle::with_template(
        "simulating {wide_bar} {decimal_bytes}/{decimal_total_bytes} ({decimal_bytes_per_sec}, {eta} left)",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
