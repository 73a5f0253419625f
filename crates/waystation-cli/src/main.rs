//! The `waystation` command.
//!
//! Parsing ([`args`]), one function per command ([`commands`]; [`city`] has a module of its own), and what all share: how keys and values are
//! written ([`notation`]), what is printed ([`output`], [`progress`]) and how a command fails ([`failure`]).
//! Results go to standard output, everything else to standard error; a failure is one sentence there and an
//! exit code. No input panics.

mod args;
mod city;
mod commands;
mod failure;
mod lifetime;
mod notation;
mod output;
mod progress;

use clap::Parser;
use std::process::ExitCode;

/// Memory that a burst of requests took goes back to the system within seconds. glibc keeps it, as its heaps return
/// only memory at their ends: a query over large documents then holds twice the memory.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version arrive here too. That nobody reads them is no failure.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() {
                failure::USAGE
            } else {
                0
            });
        }
    };
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
