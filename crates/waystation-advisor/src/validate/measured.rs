//! What was measured, and the traces that belong to it.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::import::{AreaRules, Format, ImportSettings, import};
use crate::native::Trace;
use crate::text::read_text;

/// One row of `measured.csv`: the runs of one arrangement.
pub(super) struct Measured {
    pub(super) application: String,
    /// ext4's data mode.
    pub(super) mode: String,
    /// What was fast.
    pub(super) fast: String,
    /// How much of it; nothing for the whole.
    pub(super) mib: Option<u64>,
    /// The fastest run.
    pub(super) min_s: f64,
    /// The slowest run.
    pub(super) max_s: f64,
}

/// One application in one data mode: its all-slow trace and what was measured of it.
pub(super) struct Runs {
    pub(super) trace: Trace,
    pub(super) rows: Vec<Measured>,
}

/// The table of a directory.
const TABLE: &str = "measured.csv";
/// The columns that it begins with.
const HEADER: [&str; 6] = [
    "application",
    "ext4_data_mode",
    "fast_area",
    "fast_mb",
    "seconds_min",
    "seconds_max",
];
/// How the all-slow trace of an application and mode may be called, and is then written.
const TRACES: [(&str, Format); 3] = [
    ("allHDD.csv.gz", Format::Csv),
    ("allHDD.csv", Format::Csv),
    ("allHDD.trace", Format::Native),
];

/// Reads everything below `directory`, in the order of its table.
pub(super) fn read_runs(directory: &Path) -> Result<Vec<Runs>> {
    let mut all: Vec<Runs> = Vec::new();
    for row in read_measured(&directory.join(TABLE))? {
        let known = all.iter_mut().find(|runs| {
            runs.rows
                .iter()
                .any(|other| other.application == row.application && other.mode == row.mode)
        });
        if let Some(runs) = known {
            runs.rows.push(row);
            continue;
        }
        all.push(Runs {
            trace: find_trace(directory, &row)?,
            rows: vec![row],
        });
    }
    if all.is_empty() {
        return Err(Error::Unanswerable(format!(
            "{} holds no measured run: there is nothing to compare the simulator with",
            directory.join(TABLE).display()
        )));
    }
    Ok(all)
}

/// The trace of an application's all-slow run.
fn find_trace(directory: &Path, row: &Measured) -> Result<Trace> {
    let stem = format!("{}.{}", row.application, row.mode);
    for (ending, format) in TRACES {
        let path = directory.join(format!("{stem}.{ending}"));
        if path.exists() {
            return read_trace(path, format);
        }
    }
    Err(Error::Missing(format!(
        "{} has runs of \"{}\" with data={}, and there is no trace {}: record that run with everything slow (`waystation place record`) and put it there (also .csv, or as recorded: .trace)",
        directory.join(TABLE).display(),
        row.application,
        row.mode,
        directory.join(format!("{stem}.{}", TRACES[0].0)).display()
    )))
}

fn read_measured(path: &Path) -> Result<Vec<Measured>> {
    let text = read_text(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::Missing(format!(
            "there is no {}: `place validate` compares the simulator with runs that were measured; --data names a directory with their table and traces (ours: crates/waystation-advisor/testdata)",
            path.display()
        )),
        _ => Error::io("read", path, source),
    })?;
    let text = text.trim_start_matches('\u{feff}');
    let header = text.lines().next().unwrap_or("");
    if !header
        .split(',')
        .map(str::trim)
        .take(HEADER.len())
        .eq(HEADER)
    {
        return Err(Error::Malformed(format!(
            "{}, line 1: the columns must be {}, found: {header}",
            path.display(),
            HEADER.join(",")
        )));
    }
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |reason: &str| {
            Error::Malformed(format!(
                "{}, line {}: not a measured run, {reason}: {line}",
                path.display(),
                number + 1
            ))
        };
        let [application, mode, fast, mib, min_s, max_s, ..] =
            line.split(',').map(str::trim).collect::<Vec<_>>()[..]
        else {
            return Err(wrong("as it has too few columns"));
        };
        let mib = match mib {
            "all" | "0" => None,
            other => Some(
                other
                    .parse()
                    .map_err(|_| wrong("as fast_mb is neither \"all\" nor a number"))?,
            ),
        };
        let seconds = |text: &str| {
            let seconds = text.parse::<f64>().ok();
            seconds
                .filter(|seconds| seconds.is_finite() && *seconds > 0.0)
                .ok_or_else(|| wrong("as its seconds are no number above 0"))
        };
        rows.push(Measured {
            application: application.to_owned(),
            mode: mode.to_owned(),
            fast: fast.to_owned(),
            mib,
            min_s: seconds(min_s)?,
            max_s: seconds(max_s)?,
        });
    }
    Ok(rows)
}

fn read_trace(path: PathBuf, format: Format) -> Result<Trace> {
    let mut trace = Trace::default();
    let settings = ImportSettings {
        files: vec![path],
        format,
        rules: AreaRules::default(),
        columns: None,
    };
    let rejections = import(&settings, &mut trace)?;
    if rejections.is_empty() {
        Ok(trace)
    } else {
        Err(Error::Malformed(rejections.to_string()))
    }
}
