//! What can be said on the command line. Help is part of the interface: every command shows examples.

mod backup;
mod serve;
mod worker;

pub(crate) use backup::{
    BackupDirectory, BackupsCommand, MakeBackup, PruneBackups, Restore, VerifyBackups,
};

pub(crate) use serve::{Drive, Serve};
pub(crate) use worker::{CompactWorker, UseWorker};

use crate::output::JsonTarget;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Read, write, inspect, check and export a Waystation (or LevelDB) database.
///
/// Keys and values are text; bytes that do not print are written \xNN, a backslash \\. With --hex they are
/// pairs of hexadecimal digits.
///
/// stats, check, dump and find only read: they work beside a running owner, take no lock and write nothing.
/// They see what is in files, not what the owner still holds in memory.
#[derive(Debug, Parser)]
#[command(name = "waystation", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Print JSON: one object, or one object per line for lists
    #[arg(long, global = true, num_args = 0, default_missing_value = "")]
    pub(crate) json: Option<JsonTarget>,
    /// Show no progress (it is shown on terminals only in any case)
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the key is not there (get, find); the audit found something (city)
  2  the call is wrong: arguments, notation, limits
  3  the database or file cannot be opened: missing, in use, foreign, not permitted
  4  damage was found
  5  reading or writing failed: full disk, failing device";

/// One command.
#[derive(Debug, Subcommand)]
#[allow(
    clippy::large_enum_variant,
    reason = "one value a process: its size costs nothing"
)]
pub(crate) enum Command {
    /// Store a value under a key (creates the database if missing)
    #[command(after_help = "\
Examples:
  waystation put /data/cars car17:speed 50
  waystation put /data/cars 'car17:\\x00raw' - < photo.jpg    the value from standard input, as it is
  waystation put --hex /data/cars 00ff 0102 --sync
  waystation put /data/cars car17:route A4,A9 --ttl 2h         gone in two hours")]
    Put(Put),
    /// Print the value of a key
    #[command(after_help = "\
Examples:
  waystation get /data/cars car17:speed
  waystation get --raw /data/cars car17:photo > photo.jpg
  waystation --json get /data/cars car17:speed")]
    Get(Get),
    /// List keys and values in order
    #[command(after_help = "\
Examples:
  waystation scan /data/cars --prefix car17:
  waystation scan /data/cars --from car17 --to car18 --limit 10 --reverse
  waystation scan /data/cars --keys-only | wc -l")]
    Scan(Scan),
    /// Delete keys
    #[command(after_help = "\
Examples:
  waystation delete /data/cars car17:speed
  waystation delete /data/cars car17:speed car17:fuel --sync")]
    Delete(Delete),
    /// Store many lines `key<TAB>value` (creates the database if missing)
    #[command(after_help = "\
Examples:
  waystation import /data/cars readings.tsv
  waystation scan /data/cars | waystation import /data/copy -
  waystation import /data/cars readings.tsv --compact-worker unix:/run/waystation/worker")]
    Import(Import),
    /// Show what the files hold: levels, bytes, log, sequence numbers (read-only)
    #[command(after_help = "\
Examples:
  waystation stats /data/cars
  waystation --json stats /data/cars | jq .levels")]
    Stats(Database),
    /// Verify every file: checksums, order, bounds, counts (read-only)
    #[command(after_help = "\
Examples:
  waystation check /data/cars && echo sound
  waystation --json check /data/cars | jq '.problems[]'")]
    Check(Database),
    /// Print what is in one file of a database, whatever its kind (read-only)
    #[command(after_help = "\
Examples:
  waystation dump /data/cars/000005.ldb
  waystation dump /data/cars/MANIFEST-000004
  waystation dump --entries 0 /data/cars/000005.ldb           properties and blocks only")]
    Dump(Dump),
    /// Show the history of one key through every file (read-only)
    #[command(after_help = "\
Examples:
  waystation find /data/cars car17:speed")]
    Find(Find),
    /// Rewrite a range (or everything) into its final level
    #[command(after_help = "\
Examples:
  waystation compact /data/cars
  waystation compact /data/cars --from car17 --to car18
  waystation compact /data/cars --compact-worker unix:/run/waystation/worker")]
    Compact(Compact),
    /// Write a plain LevelDB directory with the same content; the source stays as it is
    #[command(after_help = "\
Examples:
  waystation export-leveldb /data/cars /data/cars-leveldb
  waystation export-leveldb --compression none /data/cars /data/cars-leveldb")]
    ExportLeveldb(Export),
    /// Make a copy that can be opened by itself, sharing table files by hard links where possible
    #[command(after_help = "\
Examples:
  waystation checkpoint /data/cars /backup/cars-monday")]
    Checkpoint(Checkpoint),
    /// Add a backup of a database to a directory of backups; what earlier ones hold is not copied again
    #[command(after_help = "\
The command opens the database itself. One that is in use is backed up by its owner, which goes on writing: Db::backup.

Examples:
  waystation backup /data/cars /backup/cars
  waystation --json backup /data/cars /backup/cars | jq .new_bytes")]
    Backup(MakeBackup),
    /// List, verify and prune backups
    #[command(
        subcommand,
        after_help = "\
Examples:
  waystation backups list /backup/cars
  waystation backups verify /backup/cars
  waystation backups prune --keep 7 /backup/cars"
    )]
    Backups(BackupsCommand),
    /// Make a database of a backup; every byte is verified
    #[command(after_help = "\
The restored database takes the place of one that is lost. One with devices is the same engine towards others: never use
it beside the original; `waystation checkpoint` makes a copy for that.

Examples:
  waystation restore /backup/cars /data/cars
  waystation restore --number 3 /backup/cars /data/cars-of-tuesday")]
    Restore(Restore),
    /// Save what can still be read of a database, whichever files are lost or damaged, and say what is lost
    #[command(after_help = "\
The database is only read; the new one is there once all of it is written and checked. Nothing that was deleted or
overwritten comes back: a key whose newest version may be in a damaged block is lost, and named. Where deletions are lost
themselves (in GRAVES, DEVICES, a part of the log), or the MANIFEST, which tells replaced tables from others, the
repair is refused and says why; --accept-resurrection goes on.

Examples:
  waystation repair /data/cars /data/cars-repaired
  waystation repair --accept-resurrection /data/cars /data/cars-repaired
  waystation --json repair /data/cars /data/cars-repaired > lost.json")]
    Repair(Repair),
    /// Keep the data of devices apart: create a database that does, list its devices, let them depart
    #[command(
        subcommand,
        after_help = "\
Examples:
  waystation devices create /data/cars until/3a
  waystation devices list /data/cars
  waystation devices depart /data/cars car-7 car-9"
    )]
    Devices(DevicesCommand),
    /// Find out what a little fast storage is worth for an application, and where to put it
    #[command(
        subcommand,
        after_help = "\
Examples:
  waystation place import --format csv run.csv.gz -o run.trace
  waystation place report run.trace --html run.html
  waystation place advise run.trace --fast 20MB,64MB"
    )]
    Place(waystation_advisor::PlaceCommand),
    /// Show what lies in a database's fast directory, what that gains, and what other capacities would (read-only)
    #[command(after_help = "\
The database writes the report every ten seconds while it is read, and when it is closed.

Examples:
  waystation placement /data/cars
  waystation --json placement /data/cars | jq '.predictions[]'")]
    Placement(Database),
    /// Drive an hour of a real city through edge engines, one for each radio cell; audit every reading
    #[command(after_help = "\
Exit code 1: the audit found something.

Examples:
  waystation city
  waystation city --html city.html --json city.json
  waystation city grid.csv.gz --readings-per-second 2 --value-bytes 1000 --until 600")]
    City(crate::city::args::City),
    /// Serve databases of documents over HTTP, as CouchDB does, and key-value databases to Redis clients
    #[command(after_help = serve::EXAMPLES)]
    Serve(Serve),
    /// Hold shards of a server's databases on a drive, and evaluate queries beside them
    #[command(after_help = serve::DRIVE_EXAMPLES)]
    Drive(Drive),
    /// Merge tables for databases that other processes have open
    #[command(after_help = worker::EXAMPLES)]
    CompactWorker(CompactWorker),
    /// Compact tables through the compaction engine in hardware, simulated
    #[command(after_help = "\
Examples:
  waystation ip run -N 4 000005.ldb 000007.ldb 000009.ldb -o 000011.ldb
  waystation ip run -N 2 --bottom 000012.ldb 000013.ldb,000014.ldb --verify
  waystation --json ip run 000005.ldb 000007.ldb | jq .cycles_per_byte_in")]
    Ip(waystation_drive::command::IpCommand),
    /// Simulate compaction on the host, on an external card and in the drive, and compare them
    DriveModel(waystation_drive::command::model::ModelCommand),
}

/// How keys and values are written.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Notation {
    /// Keys and values are pairs of hexadecimal digits, on the command line and in the output
    #[arg(long)]
    pub(crate) hex: bool,
}

/// Which database.
#[derive(Debug, Args)]
pub(crate) struct Database {
    /// The database directory
    pub(crate) db: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The key
    pub(crate) key: String,
    /// The value; `-` reads it from standard input, byte by byte as it is
    pub(crate) value: String,
    /// Let the key be gone after this time: a number with ms, s, m, h or d, as in 90s
    #[arg(long, value_parser = crate::lifetime::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Return only when the write survives a power cut
    #[arg(long)]
    pub(crate) sync: bool,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The key
    pub(crate) key: String,
    /// Print the value's bytes as they are, without a newline
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// The database directory
    pub(crate) db: PathBuf,
    /// Only keys that begin so
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<String>,
    /// Only keys from here on
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<String>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<String>,
    /// Stop after so many
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Print no values
    #[arg(long)]
    pub(crate) keys_only: bool,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The keys, deleted together with what the options name: all or none
    #[arg(required_unless_present_any = ["range", "prefix"])]
    pub(crate) keys: Vec<String>,
    /// Delete all keys from the first (included) to the second (excluded; `-`: to the last key), however many
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"])]
    pub(crate) range: Vec<String>,
    /// Delete all keys that begin with this, however many
    #[arg(long)]
    pub(crate) prefix: Vec<String>,
    /// Return only when the deletion survives a power cut
    #[arg(long)]
    pub(crate) sync: bool,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The file to read; `-` is standard input
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Lines written together as one atomic batch
    #[arg(long, value_name = "LINES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) batch: u32,
    #[command(flatten)]
    pub(crate) worker: UseWorker,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// The file: table, MANIFEST, log segment, ring, side file, LevelDB log, CURRENT
    pub(crate) file: PathBuf,
    /// Print so many entries at most
    #[arg(long, value_name = "N")]
    pub(crate) entries: Option<u64>,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[derive(Debug, Args)]
pub(crate) struct Find {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The key
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// The database directory
    pub(crate) db: PathBuf,
    /// Only keys from here on
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<String>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) worker: UseWorker,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The directory to write; it must not exist, or be empty
    pub(crate) target: PathBuf,
    /// How blocks are compressed (LevelDB 1.23 knows no other)
    #[arg(long, value_enum, default_value_t = ExportCompression::Snappy)]
    pub(crate) compression: ExportCompression,
}

/// What LevelDB 1.23 can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportCompression {
    /// Snappy
    Snappy,
    /// None
    None,
}

#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The directory to make; it must not exist
    pub(crate) target: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The directory to make; it must not exist
    pub(crate) target: PathBuf,
    /// Go on where what was deleted or overwritten may come back
    #[arg(long)]
    pub(crate) accept_resurrection: bool,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

/// What to do with devices.
#[derive(Debug, Subcommand)]
pub(crate) enum DevicesCommand {
    /// Make a database that keeps devices apart
    Create(CreateDevices),
    /// List all devices that have data
    List(ListDevices),
    /// Let devices depart, with all they wrote
    Depart(DepartDevices),
    /// Hand a device on to another database: freeze it here and write its stream to standard output
    ///
    /// Then admit the stream there, and end the hand-off here with the answer. Until then the device can be read here,
    /// and not written. To get the stream again, repeat the command
    Export(ExportDevice),
    /// Take a device over from another database: read its stream from standard input and print a receipt
    Admit(AnswerHandOff),
    /// Refuse a device for good: read its stream from standard input and print a refusal
    Refuse(AnswerHandOff),
    /// End a hand-off from here: with a receipt the device departs, with a refusal it stays
    End(EndHandOff),
    /// Let a device that was handed on arrive here anew when it writes
    Lift(DepartDevices),
}

#[derive(Debug, Args)]
pub(crate) struct ExportDevice {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The device's name
    pub(crate) device: String,
    /// A name for the other database: always the same for the same one
    pub(crate) destination: String,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerHandOff {
    /// The database directory
    pub(crate) db: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct EndHandOff {
    /// The database directory
    pub(crate) db: PathBuf,
    /// The receipt or the refusal, as it was printed
    pub(crate) answer: String,
}

#[derive(Debug, Args)]
pub(crate) struct CreateDevices {
    /// The database directory
    pub(crate) db: PathBuf,
    /// What names a key's device: `fixed/N`, its first N bytes, or `until/HH`, all before the byte with
    /// hexadecimal code HH
    pub(crate) extractor: String,
}

#[derive(Debug, Args)]
pub(crate) struct ListDevices {
    /// The database directory
    pub(crate) db: PathBuf,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[derive(Debug, Args)]
pub(crate) struct DepartDevices {
    /// The database directory
    pub(crate) db: PathBuf,
    /// Their names
    #[arg(required = true)]
    pub(crate) devices: Vec<String>,
    #[command(flatten)]
    pub(crate) notation: Notation,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent_and_every_command_shows_an_example() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        for subcommand in command
            .get_subcommands()
            .filter(|subcommand| subcommand.get_name() != "help")
        {
            let help = subcommand
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                help.contains(&format!("waystation {}", subcommand.get_name()))
                    || help.contains("waystation --json"),
                "`{}` shows no example",
                subcommand.get_name()
            );
        }
    }

    #[test]
    fn a_prefix_and_bounds_exclude_each_other() {
        assert!(
            Cli::try_parse_from(["waystation", "scan", "db", "--prefix", "a", "--from", "b"])
                .is_err()
        );
        assert!(
            Cli::try_parse_from(["waystation", "scan", "db", "--from", "a", "--to", "b"]).is_ok()
        );
    }
}
