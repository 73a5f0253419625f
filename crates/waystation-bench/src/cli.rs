//! The command line.

use crate::engines::{EngineKind, check_built};
use crate::error::{Error, Result};
use crate::raw::RawSettings;
use crate::session;
use crate::workload::{Benchmark, check_order};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

mod depart;
mod documents;
mod drives;
mod iot;
mod offload;
mod placement;
mod serve;
mod ycsb;

pub(crate) use depart::DepartArgs;
pub(crate) use documents::{DocumentsArgs, DocumentsMeasure};
pub(crate) use drives::DrivesArgs;
pub(crate) use iot::IotArgs;
pub(crate) use offload::{ExecutorKind, MergerArgs, OffloadArgs};
pub(crate) use placement::PlacementArgs;
pub(crate) use serve::{ServeArgs, ServeFigure};
pub(crate) use ycsb::YcsbArgs;

/// Numbers of keys that leave room in LevelDB's 31-bit random numbers.
const MAX_NUM: i64 = 2_000_000_000;
const MAX_VALUE_BYTES: u64 = 1 << 30;

/// Workloads and rivals side by side.
#[derive(Debug, Parser)]
#[command(
    name = "waystation-bench",
    version,
    about = "Measures Waystation beside LevelDB, RocksDB and fjall, on this machine's storage",
    after_help = "Examples:\n  \
        waystation-bench db --engines waystation,leveldb --num 1000000 --json target/db.json\n  \
        waystation-bench db --benchmarks fillseq,readrandom --value-bytes 100,1000 --threads 1,4\n  \
        waystation-bench compare --engines waystation,leveldb --pairs 5 --value-bytes 100,1000 --threads 1,4\n  \
        waystation-bench compare --engines waystation --pair-with ../before/waystation-bench --pairs 5\n  \
        waystation-bench stalls --engines waystation --seconds 60\n  \
        waystation-bench iot --engines waystation,leveldb,rocksdb --threads 12 --seconds 20 --departing 0.9\n  \
        waystation-bench documents --json target/documents.json\n  \
        waystation-bench drives --docs 20000 --doc-bytes 8192 --json target/drives.json\n  \
        waystation-bench offload --executors local,worker --json target/offload.json\n  \
        waystation-bench serve --json target/serve.json\n  \
        waystation-bench placement --engines waystation,rocksdb --json target/placement.json\n  \
        waystation-bench ycsb --engines waystation,leveldb,rocksdb --workloads a,b,c,d,e,f\n  \
        waystation-bench reopen --engines waystation --log-bytes 2GB\n  \
        waystation-bench plot target/deletions.json --to docs/figures\n\n\
        Rivals are in the program only after `make bench-build`. Data lies under target/bench-data, is removed at\n\
        the end and on Ctrl-C, and is refused in memory (tmpfs)."
)]
pub(crate) struct Cli {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) command: Measure,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Measure {
    /// LevelDB's benchmarks on every engine, the median of several interleaved runs
    Db(DbArgs),
    /// The first engine against each other one: the ratio of interleaved pairs, with its 95 % interval
    Compare(CompareArgs),
    /// The longest put while random puts go on at full speed
    Stalls(StallsArgs),
    /// TPCx-IoT with devices that come, settle or leave
    Iot(IotArgs),
    /// A device with very much data departs while others write at a fixed rate
    Depart(DepartArgs),
    /// The document server: filters without an index, loads, memory
    Documents(DocumentsArgs),
    /// Filters of the document server over a host and three drives
    Drives(DrivesArgs),
    /// Random puts while a worker on another core merges, beside merges in the engine's process
    Offload(OffloadArgs),
    /// The daemon beside Redis, and behind Mosquitto
    Serve(ServeArgs),
    /// A slow device and a little fast storage: what lies on the fast one, and what that gains
    Placement(PlacementArgs),
    /// YCSB's core workloads on every engine
    Ycsb(YcsbArgs),
    /// How long opening takes after kill -9 with much in the log
    Reopen(ReopenArgs),
    /// Pictures of what `db --benchmarks p2,massdelete,churn`, `iot` and `depart` wrote with `--json`
    Plot(PlotArgs),
    /// Runs one engine; started by the program itself
    #[command(name = "worker", hide = true)]
    Worker {
        /// What to open, as JSON.
        settings: String,
    },
    /// The process behind an emulated device; started by the program itself
    #[command(name = "emulate", hide = true)]
    Emulate {
        /// The device, as JSON.
        description: PathBuf,
    },
    /// Merges for an engine; started by the program itself
    #[command(name = "merger", hide = true)]
    Merger(MergerArgs),
}

/// What is drawn, and where to.
#[derive(Debug, Args)]
pub(crate) struct PlotArgs {
    /// Reports as JSON
    #[arg(required = true)]
    pub(crate) reports: Vec<PathBuf>,
    /// The directory for the pictures
    #[arg(long)]
    pub(crate) to: PathBuf,
}

/// Which engines, and where the data lies.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Engines, separated by commas [default: all that are built, as they come]
    #[arg(long, value_enum, value_delimiter = ',')]
    engines: Vec<EngineKind>,
    /// This program of another build: it runs in turns with this one, as the engine `waystation-earlier`
    #[arg(long, value_name = "BINARY")]
    pair_with: Option<PathBuf>,
    /// Where the data lies; removed at the end
    #[arg(long, default_value = "target/bench-data")]
    pub(crate) data_dir: PathBuf,
    /// Write the report as JSON to this file (- for the standard output)
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

impl Common {
    /// Whether engines were named.
    pub(crate) fn names_engines(&self) -> bool {
        !self.engines.is_empty()
    }

    /// The engines asked for, all of them in this build, none twice.
    pub(crate) fn engines(&self) -> Result<Vec<EngineKind>> {
        let mut engines = self.engines.clone();
        if engines.is_empty() {
            let all = EngineKind::value_variants().iter().copied();
            engines = all
                .filter(|engine| engine.is_built() && !engine.is_of_choice())
                .collect();
        }
        let earlier = EngineKind::WaystationEarlier;
        match &self.pair_with {
            Some(program) => {
                if !program.is_file() {
                    let program = program.display();
                    return Err(Error::Refused(format!(
                        "--pair-with {program}: there is no such program"
                    )));
                }
                session::pair_with(program.clone());
                if !engines.contains(&earlier) {
                    engines.push(earlier);
                }
            }
            None if engines.contains(&earlier) => {
                return Err(Error::Refused(format!(
                    "{earlier} is the engine of another build: name its program with --pair-with"
                )));
            }
            None => {}
        }
        check_built(&engines)?;
        check_once("--engines", &engines)?;
        Ok(engines)
    }
}

/// What is run on each engine.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Benchmarks in order, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "fillseq,fillrandom,overwrite,fillsync,readrandom,readmissing,readseq,readreverse,\
                         seekrandom,deleteseq",
        hide_possible_values = false
    )]
    pub(crate) benchmarks: Vec<Benchmark>,
    /// The number of keys, and of operations per thread
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=MAX_NUM))]
    pub(crate) num: u32,
    /// The length of every value; several, separated by commas, are run one after the other
    #[arg(long, value_delimiter = ',', default_value = "100", value_parser = value_bytes)]
    pub(crate) value_bytes: Vec<usize>,
    /// Threads, each doing all the operations; several, separated by commas, are run one after the other
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Vec<u32>,
    /// How the raw device is measured.
    #[command(flatten)]
    raw: RawArgs,
}

impl Load {
    /// Refuses what cannot be run or would not give one figure for each row.
    pub(crate) fn check(&self) -> Result<()> {
        check_order(&self.benchmarks)?;
        check_once("--value-bytes", &self.value_bytes)?;
        check_once("--threads", &self.threads)
    }

    /// How the raw device is measured.
    pub(crate) fn raw(&self) -> Result<RawSettings> {
        self.raw.settings()
    }
}

/// How the raw device is measured.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "the fields' names are those of the flags"
)]
pub(crate) struct RawArgs {
    /// For how long the raw device is measured before and after each benchmark that writes; 0 turns it off
    #[arg(long, default_value_t = 5.0)]
    raw_seconds: f64,
    /// The size of the raw device's direct writes
    #[arg(long, default_value = "256KiB", value_parser = bytes)]
    raw_block_bytes: u64,
    /// How many of them are in flight
    #[arg(long, default_value_t = 4)]
    raw_depth: u32,
}

impl RawArgs {
    /// The flags, checked.
    pub(crate) fn settings(&self) -> Result<RawSettings> {
        let span = Duration::try_from_secs_f64(self.raw_seconds).map_err(|error| {
            Error::Refused(format!("--raw-seconds {}: {error}", self.raw_seconds))
        })?;
        let block_bytes = usize::try_from(self.raw_block_bytes).unwrap_or(usize::MAX);
        Ok(RawSettings {
            block_bytes,
            depth: self.raw_depth,
            span,
        })
    }
}

/// `waystation-bench db`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  waystation-bench db --engines waystation,leveldb,rocksdb,fjall --num 1000000 \
    --value-bytes 100 --threads 1 --runs 3 --json target/db.json"
)]
pub(crate) struct DbArgs {
    /// Engines and place.
    #[command(flatten)]
    pub(crate) common: Common,
    /// What is run.
    #[command(flatten)]
    pub(crate) load: Load,
    /// How often; the median run makes the row
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// `p2` is repeated until each of its rows has so many seconds of measured time, and five times at least; 0 for
    /// five (a row that is read fast has few of them in one build, and builds take long)
    #[arg(long, default_value_t = 1.0)]
    pub(crate) p2_row_seconds: f64,
}

/// `waystation-bench compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  waystation-bench compare --engines waystation,leveldb --pairs 5 --value-bytes 100,1000 \
    --threads 1,4"
)]
pub(crate) struct CompareArgs {
    /// Engines and place.
    #[command(flatten)]
    pub(crate) common: Common,
    /// What is run.
    #[command(flatten)]
    pub(crate) load: Load,
    /// How many interleaved pairs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) pairs: u32,
    /// A row whose whole interval lies below this ratio is below
    #[arg(long, default_value_t = 0.95)]
    pub(crate) floor: f64,
}

/// `waystation-bench stalls`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  waystation-bench stalls --engines waystation,leveldb --seconds 60 --threads 1"
)]
pub(crate) struct StallsArgs {
    /// Engines and place.
    #[command(flatten)]
    pub(crate) common: Common,
    /// For how long
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,
    /// Keys are random numbers below this
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(1..=MAX_NUM))]
    pub(crate) num: u32,
    /// The length of every value
    #[arg(long, default_value = "100", value_parser = value_bytes)]
    pub(crate) value_bytes: usize,
    /// Threads that put
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
}

/// `waystation-bench reopen`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  waystation-bench reopen --engines waystation,leveldb --log-bytes 2GB --runs 3"
)]
pub(crate) struct ReopenArgs {
    /// Engines and place.
    #[command(flatten)]
    pub(crate) common: Common,
    /// How much of keys and values is in the log when the process is killed
    #[arg(long, default_value = "2GB", value_parser = bytes)]
    pub(crate) log_bytes: u64,
    /// The length of every value
    #[arg(long, default_value = "1000", value_parser = value_bytes)]
    pub(crate) value_bytes: usize,
    /// Let the keys be those of so many devices, of which none settles; 0 for keys without devices
    #[arg(long, default_value_t = 0)]
    pub(crate) devices: u32,
    /// Look for at most so many of the entries afterwards, evenly spread
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) look_for: u32,
    /// How often; the median makes the row
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
}

/// Refuses a list that names something twice: there is one row for each.
fn check_once<T: PartialEq + std::fmt::Debug>(flag: &str, list: &[T]) -> Result<()> {
    let twice = list
        .iter()
        .enumerate()
        .find(|(position, item)| list[..*position].contains(item));
    match twice {
        None => Ok(()),
        Some((_, item)) => Err(Error::Refused(format!(
            "{flag} names {item:?} twice; there is one row for each"
        ))),
    }
}

/// A number of bytes: plain, or with kB, MB, GB (powers of 1000) or KiB, MiB, GiB (powers of 1024).
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "k" | "kB" | "KB" => 1000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        other => {
            return Err(format!(
                "`{other}` is no unit: use kB, MB, GB, KiB, MiB or GiB"
            ));
        }
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("`{digits}` is no whole number"))?;
    number
        .checked_mul(unit)
        .ok_or_else(|| format!("{text} is too much"))
}

/// The length of a value.
fn value_bytes(text: &str) -> Result<usize, String> {
    let bytes = bytes(text)?;
    if bytes > MAX_VALUE_BYTES {
        return Err(format!("values have at most {MAX_VALUE_BYTES} bytes here"));
    }
    usize::try_from(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("100"), Ok(100));
        assert_eq!(bytes("2GB"), Ok(2_000_000_000));
        assert_eq!(bytes("256KiB"), Ok(262_144));
        for wrong in ["", "GB", "1.5MB", "12 MB", "7XB", "99999999999GB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert!(value_bytes("2GB").is_err());
    }

    #[test]
    fn the_command_of_the_book_parses() {
        let arguments = "waystation-bench db --benchmarks fillseq,readrandom --engines leveldb,rocksdb-tuned \
                         --num 1000 --value-bytes 100,1000 --threads 1,4 --runs 3 --json out.json";
        let cli = Cli::try_parse_from(arguments.split_whitespace()).expect("it parses");
        let Measure::Db(db) = cli.command else {
            panic!("{:?}", cli.command);
        };
        db.load.check().expect("it can be run");
        assert_eq!(
            db.load.benchmarks,
            [Benchmark::FillSeq, Benchmark::ReadRandom]
        );
        assert_eq!(db.load.value_bytes, [100, 1000]);
        assert_eq!(db.load.raw().expect("a span").block_bytes, 262_144);
    }

    #[test]
    fn a_list_that_names_something_twice_is_refused() {
        for list in [
            "--threads 1,1",
            "--value-bytes 100,100",
            "--benchmarks fillseq,fillseq",
        ] {
            let arguments = format!("waystation-bench db {list}");
            let cli = Cli::try_parse_from(arguments.split_whitespace()).expect("it parses");
            let Measure::Db(db) = cli.command else {
                panic!("{:?}", cli.command);
            };
            let message = db.load.check().expect_err("named twice").to_string();
            assert!(message.contains("twice"), "{message}");
        }
    }
}
