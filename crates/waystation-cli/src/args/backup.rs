//! The arguments of `backup`, `backups` and `restore`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct MakeBackup {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The directory of backups, made if missing
    pub(crate) backups: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The directory of backups
    pub(crate) backups: PathBuf,
    /// The database directory to make; it must not exist, or be empty
    pub(crate) db: PathBuf,
    /// Which backup; the newest if not named
    #[arg(long, value_name = "N")]
    pub(crate) number: Option<u64>,
}

/// What to do with backups.
#[derive(Debug, Subcommand)]
pub(crate) enum BackupsCommand {
    /// List the backups, the oldest first
    List(BackupDirectory),
    /// Read every file of one backup, or of all, and compare checksums
    Verify(VerifyBackups),
    /// Remove all but the newest backups, and the files that only those needed
    Prune(PruneBackups),
}

#[derive(Debug, Args)]
pub(crate) struct BackupDirectory {
    /// The directory of backups
    pub(crate) backups: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyBackups {
    /// The directory of backups
    pub(crate) backups: PathBuf,
    /// Only this one
    #[arg(long, value_name = "N")]
    pub(crate) number: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct PruneBackups {
    /// The directory of backups
    pub(crate) backups: PathBuf,
    /// How many to keep
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: u32,
}
