//! `waystation ip`: the simulated compaction engine, mounted from its crate.

use waystation_drive::command::{CommandError, IpCommand};
use waystation_drive::ip::IpError;

use super::Context;
use crate::failure::{self, Failure};

/// Runs one of its commands.
pub(super) fn ip(context: &mut Context, command: &IpCommand) -> Result<(), Failure> {
    let report = command
        .run(context.quiet)
        .map_err(|error| Failure::new(code(&error), error.to_string()))?;
    if context.output.is_json() {
        context.output.json(&report)?;
    } else {
        for line in report.to_string().lines() {
            context.output.line(line)?;
        }
    }
    Ok(())
}

fn code(error: &CommandError) -> u8 {
    match error {
        CommandError::File { .. } => failure::CANNOT_OPEN,
        CommandError::TooMany { .. } => failure::USAGE,
        CommandError::Input { .. } => failure::DAMAGED,
        CommandError::Table { source, .. } | CommandError::Ip(source) => match source {
            IpError::Refused(_) | IpError::NoSuchSize(_) | IpError::NotBuilt => failure::USAGE,
            IpError::Failed(_) | IpError::Format(_) | IpError::Damaged(_) => failure::DAMAGED,
            _ => failure::IO,
        },
        CommandError::Different => failure::IO,
    }
}
