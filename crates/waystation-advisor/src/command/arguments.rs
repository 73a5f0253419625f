//! The arguments of `waystation place`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{export, import};

/// Find out what a little fast storage is worth for an application, and where to put it
#[derive(Debug, Subcommand)]
pub enum PlaceCommand {
    /// Read a block trace of another tool into the native format
    #[command(after_help = "\
Examples:
  waystation place import --format blktrace sda.blktrace.0 -o run.trace --area 8:1=fs --area 8:2=swap
  waystation place import --format csv run.csv.gz -o run.trace
  waystation place import --format csv log.csv --columns issue:ns=1,area=2,op=3,offset=4,length=5 -o run.trace
  waystation place import --format msr hm_1.csv.gz --rules areas.toml -o hm.trace

Malformed rows are listed with file, line, reason and count, and nothing is written unless --skip-malformed is given.")]
    Import(Import),
    /// Write a native trace for another tool
    #[command(after_help = "\
Examples:
  waystation place export run.trace --format blktrace -o run.blktrace.0
  waystation place export run.trace --format oracle-general -o run.oracleGeneral")]
    Export(Export),
    /// Show what a trace holds: traffic, footprint, reuse, latency, by area
    #[command(after_help = "\
Examples:
  waystation place report run.trace
  waystation place report run.trace --html run.html
  waystation --json place report run.trace | jq '.areas[].busy_ns'")]
    Report(ReportArguments),
    /// Simulate every placement of so much fast storage and recommend one
    #[command(after_help = "\
Examples:
  waystation place advise run.trace --fast 20MB,64MB --slow hdd --fast-device optane
  waystation place advise run.trace --fast 20MB --devices machine.toml --html advice.html

Device presets: lab-disk, lab-nvm, hdd, sata-ssd, nvme, pcm, optane, nvdimm, cxl, ramdisk.
Marks: * the advice, + the best that Linux's own tools can do.")]
    Advise(Advise),
    /// Say which area a block or file is in, how hot it is, and why it is (not) worth fast storage
    #[command(after_help = "\
Examples:
  waystation place explain run.trace fs:36859904 --fast 8MB
  waystation place explain run.trace /srv/data/app.db --area fs --fast 8MB")]
    Explain(Explain),
    /// Compare the simulator with measured runs
    #[command(after_help = "\
Examples:
  waystation place validate --data crates/waystation-advisor/testdata
  waystation --json place validate --data crates/waystation-advisor/testdata")]
    Validate(Validate),
}

/// Which device or range is which area.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AreaArguments {
    /// DEVICE=AREA or DEVICE@FROM-TO=AREA; may be repeated, the first that matches wins
    #[arg(long = "area", value_name = "RULE")]
    pub(super) areas: Vec<String>,
    /// A TOML file of such rules, and of ext4 images whose journal is found
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,
}

/// `import`
#[derive(Debug, Args)]
pub struct Import {
    /// The trace files, in order of time ("-" is standard input; gzip and zstd are unpacked)
    #[arg(required = true)]
    pub(super) files: Vec<PathBuf>,
    /// How they are written
    #[arg(long, value_enum)]
    pub(super) format: import::Format,
    /// The native trace to write
    #[arg(short, long)]
    pub(super) output: PathBuf,
    #[command(flatten)]
    pub(super) areas: AreaArguments,
    /// Where each field of a CSV is: field[:unit]=column,...
    #[arg(long, value_name = "MAP")]
    pub(super) columns: Option<String>,
    /// Write what was understood even if rows were not
    #[arg(long)]
    pub(super) skip_malformed: bool,
}

/// `export`
#[derive(Debug, Args)]
pub struct Export {
    /// The native trace
    pub(super) trace: PathBuf,
    /// What to write
    #[arg(long, value_enum)]
    pub(super) format: export::Format,
    /// Where to
    #[arg(short, long)]
    pub(super) output: PathBuf,
}

/// `report`
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The native trace
    pub(super) trace: PathBuf,
    /// Also write one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

/// The devices to simulate.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeviceArguments {
    /// The device that everything is on today: a preset
    #[arg(long, default_value = "hdd", value_name = "PRESET")]
    pub(super) slow: String,
    /// The fast device: a preset
    #[arg(long, default_value = "optane", value_name = "PRESET")]
    pub(super) fast_device: String,
    /// Both devices from a TOML file instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["slow", "fast_device"])]
    pub(super) devices: Option<PathBuf>,
}

/// `advise`
#[derive(Debug, Args)]
pub struct Advise {
    /// The native trace
    pub(super) trace: PathBuf,
    /// How much fast storage there is: sizes separated by commas
    #[arg(long, value_delimiter = ',', required = true, value_name = "SIZES")]
    pub(super) fast: Vec<String>,
    #[command(flatten)]
    pub(super) devices: DeviceArguments,
    /// Also write one self-contained HTML page with the report
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

/// `explain`
#[derive(Debug, Args)]
pub struct Explain {
    /// The native trace
    pub(super) trace: PathBuf,
    /// AREA:OFFSET, or a file that lies in a file-system area
    pub(super) what: String,
    /// The area that the file lies in (default: the first file system)
    #[arg(long)]
    pub(super) area: Option<String>,
    /// How much fast storage its area's hottest blocks would get
    #[arg(long, default_value = "20MB", value_name = "SIZE")]
    pub(super) fast: String,
}

/// `validate`
#[derive(Debug, Args)]
pub struct Validate {
    /// Directory with measured.csv and the traces it names
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) data: PathBuf,
}
