//! `waystation ip`: the simulated compaction engine, mounted from its crate.

use waystation_drive::command::{CommandError, IpCommand};
use waystation_drive::ip::IpError;

use super::Context;
use crate::failure::{self, Failure};

/// Runs one of its commands.
pub(super) fn ip(context: &mut Context, command: &IpCommand) -> Result<(), Failure> {
    let mut report = Vec::new();
    let quiet = context.quiet;
    command
        .run(&mut report, quiet)
        .map_err(|error| Failure::new(code(&error), error.to_string()))?;
    for line in String::from_utf8_lossy(&report).lines() {
        context.output.line(line)?;
    }
    Ok(())
}

fn code(error: &CommandError) -> u8 {
    match error {
        CommandError::File { .. } => failure::CANNOT_OPEN,
        CommandError::Table { .. } | CommandError::Ip(IpError::Failed(_) | IpError::Format(_)) => {
            failure::DAMAGED
        }
        CommandError::Ip(IpError::Refused(_) | IpError::NoSuchSize(_) | IpError::NotBuilt) => {
            failure::USAGE
        }
        _ => failure::IO,
    }
}
