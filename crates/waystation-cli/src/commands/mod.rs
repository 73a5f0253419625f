//! One function per command.

mod dump;
mod inspect;
mod ip;
mod place;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::output::Output;

/// What every command is told besides its own arguments.
pub(crate) struct Context {
    /// Where results go.
    pub(crate) output: Output,
    /// Whether progress stays hidden.
    pub(crate) quiet: bool,
}

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    let mut context = Context {
        output: Output::new(cli.json),
        quiet: cli.quiet,
    };
    let result = match cli.command {
        Command::Stats(args) => inspect::stats(&mut context, &args),
        Command::Check(args) => inspect::check(&mut context, &args),
        Command::Find(args) => inspect::find(&mut context, &args),
        Command::Dump(args) => dump::dump(&mut context, &args),
        Command::Place(command) => place::place(&context, command),
        Command::Ip(command) => ip::ip(&mut context, &command),
    };
    // What was printed before a failure is still worth reading.
    let finished = context.output.finish();
    result?;
    Ok(finished?)
}
