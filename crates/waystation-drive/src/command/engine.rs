//! What merges for `waystation compact-worker`, from the command line.

use crate::ip::IpError;
use crate::model::{Machine, ModelError};
use crate::offload::{Hardware, Modelled};
use clap::{Args, ValueEnum};
use std::fs;
use std::io;
use std::path::PathBuf;
use thiserror::Error;
use waystation::offload::MergeEngine;

/// Inputs of the modelled drive's engine, unless it is told otherwise: the paper's largest.
const DECODERS: u8 = 9;

/// What merges records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum EngineKind {
    /// The processor
    #[default]
    Processor,
    /// The compaction engine in hardware, simulated: slow, and exact to the cycle
    Hardware,
    /// A modelled drive: it takes as long as such a drive would
    Drive,
}

/// What merges, and how it is made.
#[derive(Debug, Clone, Default, Args)]
pub struct EngineArgs {
    /// What merges records
    #[arg(long, value_enum, value_name = "ENGINE", default_value = "processor")]
    pub engine: EngineKind,
    /// The engine's inputs. Default: 9 in the drive, as many as there are in hardware
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=13))]
    decoders: Option<u8>,
    /// With the hardware: merge jobs that have more inputs in stages; without this they are refused
    #[arg(long)]
    stages: bool,
    /// The drive, described in this file. Default: the paper's board (`waystation drive-model --print cosmos`)
    #[arg(long, value_name = "TOML")]
    drive_file: Option<PathBuf>,
}

/// Why there is no such engine.
#[derive(Debug, Error)]
pub enum EngineArgsError {
    /// The hardware is not in this build, or not in this size.
    #[error(transparent)]
    Hardware(#[from] IpError),
    /// The description makes no sense.
    #[error("{path}: {source}")]
    Model {
        /// The file, or the name of the machine.
        path: String,
        /// The mistake.
        source: ModelError,
    },
    /// The description cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// A flag is about another engine.
    #[error("{0} is not for this --engine")]
    Foreign(&'static str),
}

impl EngineArgs {
    /// What merges in place of the processor; nothing if that merges.
    pub fn engine(&self) -> Result<Option<Box<dyn MergeEngine>>, EngineArgsError> {
        let is_hardware = self.engine == EngineKind::Hardware;
        let is_drive = self.engine == EngineKind::Drive;
        let foreign = [
            (
                "--decoders",
                self.decoders.is_some() && !is_hardware && !is_drive,
            ),
            ("--stages", self.stages && !is_hardware),
            ("--drive-file", self.drive_file.is_some() && !is_drive),
        ];
        if let Some((flag, _)) = foreign.iter().find(|(_, is_foreign)| *is_foreign) {
            return Err(EngineArgsError::Foreign(flag));
        }
        match self.engine {
            EngineKind::Processor => Ok(None),
            EngineKind::Hardware => {
                let hardware = match self.decoders {
                    Some(inputs) => Hardware::new(inputs.into(), self.stages)?,
                    None => Hardware::largest(self.stages)?,
                };
                Ok(Some(Box::new(hardware)))
            }
            EngineKind::Drive => Ok(Some(Box::new(self.drive()?))),
        }
    }

    fn drive(&self) -> Result<Modelled, EngineArgsError> {
        let (text, path) = match &self.drive_file {
            None => (Machine::COSMOS_PLUS.to_owned(), "the machine".to_owned()),
            Some(file) => {
                let path = file.display().to_string();
                match fs::read_to_string(file) {
                    Ok(text) => (text, path),
                    Err(source) => return Err(EngineArgsError::File { path, source }),
                }
            }
        };
        let decoders = usize::from(self.decoders.unwrap_or(DECODERS));
        let drive = Machine::parse(&text).and_then(|machine| Modelled::new(machine, decoders));
        drive.map_err(|source| EngineArgsError::Model { path, source })
    }
}
