//! `waystation drive-model`: the model of the drive, mounted from its crate.

use waystation_drive::command::model::{ModelCommand, ModelCommandError, Shown};

use super::Context;
use crate::failure::{self, Failure};

/// Runs it.
pub(super) fn model(context: &mut Context, command: &ModelCommand) -> Result<(), Failure> {
    let quiet = context.quiet;
    let progress = |run: &str| {
        if !quiet {
            eprintln!("simulating: {run}");
        }
    };
    let shown = command
        .run(progress)
        .map_err(|error| Failure::new(code(&error), error.to_string()))?;
    match shown {
        Shown::Description(text) => context.output.raw(text.as_bytes())?,
        Shown::Report(report) if context.output.is_json() => context.output.json(&report)?,
        Shown::Report(report) => context.output.raw(report.to_string().as_bytes())?,
    }
    Ok(())
}

fn code(error: &ModelCommandError) -> u8 {
    match error {
        ModelCommandError::File { .. } => failure::CANNOT_OPEN,
        ModelCommandError::Model { .. } => failure::USAGE,
    }
}
