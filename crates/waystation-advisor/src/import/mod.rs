//! Foreign traces into ours.
//!
//! Each format has a small parser that turns one line (or binary record) into a [`Row`]; everything that is the
//! same for all of them happens here once: areas are assigned ([`areas`]), issues meet their completions
//! ([`pairs`]), small disorder is sorted ([`collect`]), and whatever cannot be understood is kept with file, line
//! and reason ([`reject`]), never dropped in silence.

pub mod areas;
mod binary;
mod biosnoop;
mod blkparse;
mod collect;
mod csv;
mod ext4;
mod fio;
mod input;
mod kernel_text;
mod nbdkit;
mod pairs;
mod public;
mod reject;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::ValueEnum;

pub use areas::AreaRules;
pub use collect::Sink;
pub use csv::ColumnMap;
pub use reject::Rejections;

pub(crate) use binary::how as blktrace;
pub(crate) use collect::Collector;
pub(crate) use kernel_text::KernelText;

use crate::error::{Error, Result};
use crate::event::{Flags, Op};
use crate::native::Reader;
use input::Lines;

/// The trace formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Our own columnar format.
    Native,
    /// Comma-separated values with a header, or with --columns.
    Csv,
    /// blktrace's binary records.
    Blktrace,
    /// blkparse's default text.
    Blkparse,
    /// Kernel text of block events: `trace_pipe`, or `perf script`.
    #[value(alias = "perf-script", alias = "ftrace")]
    KernelText,
    /// biosnoop of bcc (also libbpf-tools).
    Biosnoop,
    /// The log of nbdkit's log filter.
    Nbdkit,
    /// fio's I/O log, version 2 or 3.
    Fio,
    /// MSR Cambridge (SNIA).
    Msr,
    /// Alibaba block traces.
    Alibaba,
    /// Tencent CBS block traces.
    Tencent,
    /// `CloudPhysics` vscsi, version 1 or 2.
    Cloudphysics,
    /// libCacheSim's `oracleGeneral`.
    OracleGeneral,
}

/// What to read, and how.
#[derive(Debug, Clone)]
pub struct ImportSettings {
    /// The files, in order of time.
    pub files: Vec<PathBuf>,
    /// How they are written.
    pub format: Format,
    /// Which device and range is which area.
    pub rules: AreaRules,
    /// For CSV: where each field is.
    pub columns: Option<ColumnMap>,
}

/// One request as a parser found it; times are absolute in the trace's own clock.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// When it was issued, in nanoseconds of any clock.
    pub issue_ns: u64,
    /// When it completed, if the trace says.
    pub complete_ns: Option<u64>,
    /// The device as the trace names it.
    pub device: &'a str,
    /// What it does.
    pub op: Op,
    /// How it was marked.
    pub flags: Flags,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Process, or 0.
    pub pid: u32,
    /// Command name, or "".
    pub comm: &'a str,
}

/// Why a row was not understood: a fixed reason (counted), and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowError {
    /// The kind of mistake.
    pub reason: &'static str,
    /// The offending text.
    pub found: String,
}

impl RowError {
    pub(crate) fn new(reason: &'static str, found: impl Into<String>) -> Self {
        Self {
            reason,
            found: found.into(),
        }
    }
}

/// A parser of lines.
trait LineParser {
    /// Takes one line (without its end).
    fn line(&mut self, line: &str, out: &mut Collector<'_>) -> Result<(), RowError>;

    /// Hands on what still waits for a line that did not come.
    fn finish(&mut self, _out: &mut Collector<'_>) -> Result<(), RowError> {
        Ok(())
    }
}

/// Reads every file of `settings` into `sink`. Rows that were not understood are in the answer.
pub fn import(settings: &ImportSettings, sink: &mut dyn Sink) -> Result<Rejections> {
    if settings.files.is_empty() {
        return Err(Error::Usage(
            "name at least one trace file to import".to_owned(),
        ));
    }
    let mut collector = Collector::new(sink, settings.rules.clone())?;
    for file in &settings.files {
        collector.begin_file(file);
        match settings.format {
            Format::Native => import_native(file, &mut collector)?,
            Format::Blktrace => binary::blktrace(file, &mut collector)?,
            Format::Cloudphysics => binary::cloudphysics(file, &mut collector)?,
            Format::OracleGeneral => binary::oracle_general(file, &mut collector)?,
            Format::Csv => lines(
                file,
                &mut csv::Csv::new(settings.columns.clone()),
                &mut collector,
            )?,
            Format::Blkparse => lines(file, &mut blkparse::Blkparse::default(), &mut collector)?,
            Format::KernelText => lines(file, &mut KernelText::default(), &mut collector)?,
            Format::Biosnoop => lines(file, &mut biosnoop::Biosnoop::default(), &mut collector)?,
            Format::Nbdkit => lines(file, &mut nbdkit::Nbdkit::default(), &mut collector)?,
            Format::Fio => lines(file, &mut fio::Fio::default(), &mut collector)?,
            Format::Msr => lines(file, &mut public::Msr, &mut collector)?,
            Format::Alibaba => lines(file, &mut public::Alibaba, &mut collector)?,
            Format::Tencent => lines(file, &mut public::Tencent, &mut collector)?,
        }
    }
    collector.finish()
}

fn lines(
    file: &std::path::Path,
    parser: &mut dyn LineParser,
    collector: &mut Collector<'_>,
) -> Result<()> {
    let mut input = Lines::open(file)?;
    while let Some(line) = input.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        collector.at_line(input.number());
        if let Err(error) = parser.line(input.text(), collector) {
            collector.reject(&error);
        }
        collector.check()?;
    }
    if let Err(error) = parser.finish(collector) {
        collector.reject(&error);
    }
    Ok(())
}

fn import_native(file: &std::path::Path, collector: &mut Collector<'_>) -> Result<()> {
    let mut reader = Reader::open(file)?;
    let mut rows = Vec::new();
    let mut number = 0;
    while reader.next_block(&mut rows)? {
        for row in &rows {
            number += 1;
            collector.at_line(number);
            let info = reader.info();
            let (area, comm) = (
                &info.areas[usize::from(row.area)],
                &info.comms[row.comm as usize],
            );
            let result = collector.push(&Row {
                issue_ns: row.issue_ns,
                complete_ns: row.latency_ns().map(|latency| row.issue_ns + latency),
                device: &area.name,
                op: row.op,
                flags: row.flags,
                offset: row.offset,
                length: u64::from(row.length),
                pid: row.pid,
                comm,
            });
            if let Err(error) = result {
                collector.reject(&error);
            }
        }
        collector.check()?;
    }
    Ok(())
}
