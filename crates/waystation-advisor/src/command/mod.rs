//! `waystation place`: what can be said on the command line, and what then happens.

mod answer;
mod arguments;
mod recording;
mod traces;

use std::io::Write as _;

pub use arguments::PlaceCommand;

use crate::error::{Error, Result};

/// How results are to be shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Show {
    /// As JSON.
    pub json: bool,
    /// Without progress.
    pub quiet: bool,
}

/// Runs one command; results go to standard output, progress to standard error.
pub fn run(command: PlaceCommand, show: Show) -> Result<()> {
    match command {
        PlaceCommand::Record(arguments) => recording::record(&arguments, show),
        PlaceCommand::Import(arguments) => traces::import(&arguments, show),
        PlaceCommand::Export(arguments) => traces::export(&arguments, show),
        PlaceCommand::Report(arguments) => traces::report(&arguments, show),
        PlaceCommand::Advise(arguments) => answer::advise(&arguments, show),
        PlaceCommand::Explain(arguments) => answer::explain(&arguments, show),
        PlaceCommand::Validate(arguments) => answer::validate(&arguments, show),
        PlaceCommand::Graph(arguments) => answer::graph(&arguments),
    }
}

/// Prints to standard output; that nobody reads on (`| head`) is no failure.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::io(
            "write",
            std::path::Path::new("standard output"),
            error,
        )),
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::io("describe", std::path::Path::new("the result"), error.into()))?;
    print(&format!("{text}\n"))
}

/// A progress bar on standard error, hidden when it is no terminal.
fn progress(show: Show, what: &'static str) -> indicatif::ProgressBar {
    if show.quiet {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(0);
    if let Ok(style) = indicatif::ProgressStyle::with_template("{msg} [{bar:32}] {percent} % {eta}")
    {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}
