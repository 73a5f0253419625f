//! One function per command.

mod backup;
mod devices;
mod drive;
mod dump;
mod handoff;
mod inspect;
mod ip;
mod maintain;
mod model;
mod place;
mod placement;
mod read;
mod serve;
mod worker;
mod write;

use crate::args::{Cli, Command, UseWorker};
use crate::failure::Failure;
use crate::output::{JsonTarget, Output};
use std::path::Path;
use waystation::{Db, DeviceOptions, Error, Options};

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
        output: Output::new(cli.json == Some(JsonTarget::Output)),
        quiet: cli.quiet,
    };
    let result = match cli.command {
        Command::Put(args) => write::put(&args),
        Command::Delete(args) => write::delete(&args),
        Command::Import(args) => write::import(&mut context, &args),
        Command::Get(args) => read::get(&mut context, &args),
        Command::Scan(args) => read::scan(&mut context, args),
        Command::Stats(args) => inspect::stats(&mut context, &args),
        Command::Check(args) => inspect::check(&mut context, &args),
        Command::Find(args) => inspect::find(&mut context, &args),
        Command::Dump(args) => dump::dump(&mut context, &args),
        Command::Devices(command) => devices::devices(&mut context, command),
        Command::Placement(args) => placement::placement(&mut context, &args),
        Command::Place(command) => place::place(&context, command),
        Command::City(args) => crate::city::city(&mut context, &args),
        Command::Serve(args) => serve::serve(&mut context, args),
        Command::Drive(args) => drive::drive(&mut context, &args),
        Command::CompactWorker(args) => worker::compact_worker(&mut context, args),
        Command::Ip(command) => ip::ip(&mut context, &command),
        Command::DriveModel(command) => model::model(&mut context, &command),
        Command::Compact(args) => maintain::compact(&mut context, args),
        Command::ExportLeveldb(args) => maintain::export(&mut context, &args),
        Command::Checkpoint(args) => maintain::checkpoint(&mut context, &args),
        Command::Backup(args) => backup::backup(&mut context, &args),
        Command::Backups(command) => backup::backups(&mut context, &command),
        Command::Restore(args) => backup::restore(&mut context, &args),
        Command::Repair(args) => maintain::repair(&mut context, &args),
    };
    // What was printed before a failure is still worth reading.
    let finished = context.output.finish();
    result?;
    Ok(finished?)
}

/// Opens a database that must exist.
fn open_existing(path: &Path) -> Result<Db, Failure> {
    Ok(try_open_existing(path)??)
}

/// The same, for a command that has something to say of why it cannot be opened.
fn try_open_existing(path: &Path) -> Result<Result<Db, Error>, Failure> {
    require_path(path)?;
    let options = Options {
        create_if_missing: false,
        ..options_of(path)?
    };
    Ok(Db::open(path, options))
}

/// Opens a database, made if missing.
fn open_or_create(path: &Path) -> Result<Db, Failure> {
    require_path(path)?;
    Ok(Db::open(path, options_of(path)?)?)
}

/// Opens a database for a command that may have a worker merge.
fn open_with_worker(
    path: &Path,
    create_if_missing: bool,
    worker: &UseWorker,
) -> Result<Db, Failure> {
    require_path(path)?;
    let options = Options {
        create_if_missing,
        offload: worker::offload(worker)?,
        ..options_of(path)?
    };
    Ok(Db::open(path, options)?)
}

/// The options that a database asks for: its device extractor, if it has one.
fn options_of(path: &Path) -> Result<Options, Failure> {
    Ok(Options {
        devices: Db::stored_extractor(path)?.map(DeviceOptions::new),
        ..Options::default()
    })
}

/// An empty path is a forgotten variable in a script, never the working directory.
fn require_path(path: &Path) -> Result<(), Failure> {
    if path.as_os_str().is_empty() {
        return Err(Error::InvalidArgument(
            "the path is empty; name the database directory".to_owned(),
        )
        .into());
    }
    Ok(())
}
