//! What was measured, and the traces that belong to it.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::import::{AreaRules, Format, ImportSettings, import};
use crate::native::Trace;

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

/// Reads everything below `directory`, in the order of its table.
pub(super) fn read_runs(directory: &Path) -> Result<Vec<Runs>> {
    let mut all: Vec<Runs> = Vec::new();
    for row in read_measured(&directory.join("measured.csv"))? {
        let known = all.iter_mut().find(|runs| {
            runs.rows
                .iter()
                .any(|other| other.application == row.application && other.mode == row.mode)
        });
        if let Some(runs) = known {
            runs.rows.push(row);
            continue;
        }
        let name = format!("{}.{}.allHDD.csv.gz", row.application, row.mode);
        all.push(Runs {
            trace: read_trace(directory.join(name))?,
            rows: vec![row],
        });
    }
    Ok(all)
}

fn read_measured(path: &Path) -> Result<Vec<Measured>> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::io("read", path, source))?;
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let wrong = || {
            Error::Malformed(format!(
                "{}, line {}: not a measured run: {line}",
                path.display(),
                number + 1
            ))
        };
        let [application, mode, fast, mib, min_s, max_s, ..] =
            line.split(',').collect::<Vec<_>>()[..]
        else {
            return Err(wrong());
        };
        rows.push(Measured {
            application: application.to_owned(),
            mode: mode.to_owned(),
            fast: fast.to_owned(),
            mib: mib.parse().ok().filter(|mib| *mib > 0),
            min_s: min_s.parse().map_err(|_| wrong())?,
            max_s: max_s.parse().map_err(|_| wrong())?,
        });
    }
    Ok(rows)
}

fn read_trace(path: PathBuf) -> Result<Trace> {
    let mut trace = Trace::default();
    let settings = ImportSettings {
        files: vec![path],
        format: Format::Csv,
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
