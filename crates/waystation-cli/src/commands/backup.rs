//! backup, restore, backups list | verify | prune.

use super::{Context, require_path};
use crate::args::{
    BackupDirectory, BackupsCommand, MakeBackup, PruneBackups, Restore, VerifyBackups,
};
use crate::failure::{CANNOT_OPEN, DAMAGED, Failure};
use crate::output::{Output, bytes_text, count_text, time_text};
use crate::progress::{Unit, bar};
use indicatif::ProgressBar;
use std::path::Path;
use waystation::Error;
use waystation::backup::{Backup, Backups, Listing, Progress};
use waystation::inspect::Problem;
use waystation::storage::OsStorage;

fn open(path: &Path) -> Result<Backups, Failure> {
    Ok(Backups::open(OsStorage::new(), path)?)
}

fn show(bar: &ProgressBar) -> impl FnMut(Progress) {
    |progress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
    }
}

/// Adds a backup.
pub(super) fn backup(context: &mut Context, args: &MakeBackup) -> Result<(), Failure> {
    require_path(&args.backups)?;
    require_path(&args.db)?;
    let db = match super::try_open_existing(&args.db)? {
        Err(Error::Locked { path }) => {
            let message = format!(
                "{} is in use: stop its owner, or let the owner make the backup (Db::backup, while it goes on writing)",
                path.display()
            );
            return Err(Failure::new(CANNOT_OPEN, message));
        }
        db => db?,
    };
    let progress = bar("backing up", Unit::Bytes, 1, context.quiet);
    let made = db.backup(&args.backups, &mut show(&progress));
    progress.finish_and_clear();
    let closed = db.close();
    let made = made.and_then(|made| closed.map(|()| made))?;
    if context.output.is_json() {
        context.output.json(&made)?;
    } else {
        context.output.line(format_args!(
            "backup {}: {} in {} files, of which {} in {} files are new",
            made.backup.number,
            bytes_text(made.backup.bytes),
            count_text(made.backup.files),
            bytes_text(made.new_bytes),
            count_text(made.new_files)
        ))?;
    }
    Ok(())
}

/// Makes a database of a backup.
pub(super) fn restore(context: &mut Context, args: &Restore) -> Result<(), Failure> {
    require_path(&args.db)?;
    let backups = open(&args.backups)?;
    let progress = bar("restoring", Unit::Bytes, 1, context.quiet);
    let restored = backups.restore(args.number, &args.db, &mut show(&progress));
    progress.finish_and_clear();
    let restored = restored?;
    if context.output.is_json() {
        context.output.json(&restored)?;
    } else {
        context.output.line(format_args!(
            "backup {} of {} restored: {} in {} files, every byte verified",
            restored.number,
            time_text(restored.taken_at),
            bytes_text(restored.bytes),
            count_text(restored.files)
        ))?;
    }
    Ok(())
}

/// Looks after backups.
pub(super) fn backups(context: &mut Context, command: &BackupsCommand) -> Result<(), Failure> {
    match command {
        BackupsCommand::List(args) => list(context, args),
        BackupsCommand::Verify(args) => verify(context, args),
        BackupsCommand::Prune(args) => prune(context, args),
    }
}

fn list(context: &mut Context, args: &BackupDirectory) -> Result<(), Failure> {
    let listing = open(&args.backups)?.list()?;
    let printed = print_listing(&mut context.output, &listing);
    refuse(&mut context.output, &listing.damaged, printed)
}

fn print_listing(output: &mut Output, listing: &Listing) -> Result<(), Failure> {
    if output.is_json() {
        output.json(listing)?;
        return Ok(());
    }
    output.line(format_args!(
        "{:<8}{:<22}{:>7}{:>10}{:>16}  devices",
        "number", "taken at", "files", "bytes", "last write"
    ))?;
    listing
        .backups
        .iter()
        .try_for_each(|backup| print_backup(output, backup))
}

fn print_backup(output: &mut Output, backup: &Backup) -> Result<(), Failure> {
    output.line(format_args!(
        "{:<8}{:<22}{:>7}{:>10}{:>16}  {}",
        backup.number,
        time_text(backup.taken_at),
        count_text(backup.files),
        bytes_text(backup.bytes),
        count_text(backup.last_sequence),
        backup.extractor.as_deref().unwrap_or("none")
    ))?;
    Ok(())
}

/// Tells of damage, and fails if there is any, whether or not what comes before it could be `printed`.
fn refuse(
    output: &mut Output,
    problems: &[Problem],
    printed: Result<(), Failure>,
) -> Result<(), Failure> {
    if problems.is_empty() {
        return printed;
    }
    let is_text = !output.is_json();
    let told = printed.and_then(|()| {
        for problem in problems.iter().filter(|_| is_text) {
            output.line(format_args!(
                "{} at byte {}: {}",
                problem.file, problem.offset, problem.reason
            ))?;
        }
        Ok(())
    });
    Failure::found(DAMAGED, told)
}

fn verify(context: &mut Context, args: &VerifyBackups) -> Result<(), Failure> {
    let backups = open(&args.backups)?;
    let progress = bar("verifying", Unit::Bytes, 1, context.quiet);
    let verified = backups.verify(args.number, &mut show(&progress));
    progress.finish_and_clear();
    let verified = verified?;
    let output = &mut context.output;
    let printed = if output.is_json() {
        output.json(&verified)
    } else {
        output.line(format_args!(
            "{}: {} backups, {} files, {}",
            match verified.problems.len() {
                0 => "sound".to_owned(),
                problems => format!("{problems} problems"),
            },
            count_text(verified.backups),
            count_text(verified.files),
            bytes_text(verified.bytes)
        ))
    };
    refuse(output, &verified.problems, printed.map_err(Failure::from))
}

fn prune(context: &mut Context, args: &PruneBackups) -> Result<(), Failure> {
    let pruned = open(&args.backups)?.prune(args.keep as usize)?;
    if context.output.is_json() {
        context.output.json(&pruned)?;
    } else {
        context.output.line(format_args!(
            "{} backups removed, with {} files: {}",
            count_text(pruned.backups.len() as u64),
            count_text(pruned.files),
            bytes_text(pruned.bytes)
        ))?;
    }
    Ok(())
}
