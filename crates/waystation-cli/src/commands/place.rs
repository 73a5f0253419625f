//! `waystation place`: the placement tool, mounted from its crate.

use waystation_advisor::{Error, PlaceCommand, Show};

use super::Context;
use crate::failure::{self, Failure};

/// Runs one of its commands.
pub(super) fn place(context: &Context, command: PlaceCommand) -> Result<(), Failure> {
    let show = Show {
        json: context.output.is_json(),
        quiet: context.quiet,
    };
    waystation_advisor::run(command, show).map_err(|error| {
        let code = match &error {
            Error::Usage(_) => failure::USAGE,
            Error::Missing(_) => failure::CANNOT_OPEN,
            Error::Damaged { .. } | Error::Malformed(_) => failure::DAMAGED,
            Error::Io { operation, .. } if *operation == "open" => failure::CANNOT_OPEN,
            _ => failure::IO,
        };
        Failure::new(code, error.to_string())
    })
}
