//! What can be said on the command line. Help is part of the interface: every command shows examples.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

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
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show no progress (it is shown on terminals only in any case)
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the key is not there (get, find)
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
    /// Compact tables through the compaction engine in hardware, simulated
    #[command(after_help = "\
Examples:
  waystation ip run -N 4 000005.ldb 000007.ldb 000009.ldb -o 000011.ldb
  waystation ip run -N 2 --bottom 000012.ldb 000013.ldb,000014.ldb")]
    Ip(waystation_drive::command::IpCommand),
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
}
