//! `waystation drive-model`: the model of the drive, from the command line.

use crate::model::report::ModelReport;
use crate::model::study::{Study, sensitivity};
use crate::model::{Load, Machine, ModelError};
use clap::{Args, ValueEnum};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The machines that are described already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Known {
    /// The paper's board: Cosmos+, 4 x 4, SLC
    Cosmos,
    /// A drive of today: 8 x 8, 1600 MT/s, `PCIe` 4 x4
    Modern,
}

/// Simulates a load with compactions on the host, on an external card and in the drive.
#[derive(Debug, Args)]
#[command(after_help = "\
The report has the paper's figures beside the model's, fitted and predicted ones apart, and says how busy each part was.

Examples:
  waystation drive-model --records 10000000
  waystation drive-model --drive modern --html model.html
  waystation drive-model --print cosmos > mine.toml; waystation drive-model --file mine.toml --sensitivity")]
pub struct ModelCommand {
    /// A machine that is described already
    #[arg(long, value_enum, default_value_t = Known::Cosmos)]
    drive: Known,
    /// A machine described in this file
    #[arg(long, value_name = "TOML", conflicts_with = "drive")]
    file: Option<PathBuf>,
    /// Print the description of a machine, and do nothing else
    #[arg(long, value_enum, value_name = "DRIVE")]
    print: Option<Known>,
    /// Puts of the load
    #[arg(long, value_name = "COUNT", default_value_t = Load::default().records)]
    records: u64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = Load::default().value_bytes)]
    value_bytes: u64,
    /// Change each figure of the machine in turn, and show what that does (takes a hundred runs)
    #[arg(long)]
    sensitivity: bool,
    /// Write the report as a page with pictures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Why the command failed.
#[derive(Debug, Error)]
pub enum ModelCommandError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// The machine or the load makes no sense, or the drive is full.
    #[error("{origin}: {source}")]
    Model {
        /// The file, or the name of the machine.
        origin: String,
        /// What is wrong.
        source: ModelError,
    },
}

/// What the command has to show.
pub enum Shown {
    /// The description of a machine.
    Description(&'static str),
    /// A report.
    Report(Box<ModelReport>),
}

impl ModelCommand {
    /// Does what was asked; `progress` hears of every run before it begins.
    pub fn run(&self, mut progress: impl FnMut(&str)) -> Result<Shown, ModelCommandError> {
        if let Some(known) = self.print {
            return Ok(Shown::Description(text_of(known)));
        }
        let (text, origin) = match &self.file {
            Some(path) => {
                let text = fs::read_to_string(path).map_err(|source| in_file(path, source))?;
                (text, path.display().to_string())
            }
            None => (text_of(self.drive).to_owned(), "the machine".to_owned()),
        };
        let wrong = |source| ModelCommandError::Model {
            origin: origin.clone(),
            source,
        };
        let machine = Machine::parse(&text).map_err(wrong)?;
        let load = Load {
            records: self.records,
            value_bytes: self.value_bytes,
            ..Load::default()
        };
        let study = Study::run(&machine, &load, &mut progress).map_err(wrong)?;
        let effects = if self.sensitivity {
            sensitivity(&machine, &load, &mut progress).map_err(wrong)?
        } else {
            Vec::new()
        };
        let report = ModelReport::new(study, effects);
        if let Some(path) = &self.html {
            fs::write(path, report.html()).map_err(|source| in_file(path, source))?;
        }
        Ok(Shown::Report(Box::new(report)))
    }
}

fn text_of(known: Known) -> &'static str {
    match known {
        Known::Cosmos => Machine::COSMOS_PLUS,
        Known::Modern => Machine::MODERN,
    }
}

fn in_file(path: &Path, source: io::Error) -> ModelCommandError {
    ModelCommandError::File {
        path: path.display().to_string(),
        source,
    }
}
