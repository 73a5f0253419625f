//! The arguments of `waystation place`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{export, import};

/// Find out what a little fast storage is worth for an application, and where to put it
#[derive(Debug, Subcommand)]
pub enum PlaceCommand {
    /// Record the block requests of devices, around a command or for a time
    #[command(after_help = "\
Examples:
  waystation place record --device /dev/sda2=fs --device /dev/sda3=swap -o run.trace -- make -j8
  waystation place record --device /dev/nvme0n1=fs --time 60 -o minute.trace
  waystation place record --rig --memory 44MiB -o run.trace -- ./pagerank graph.sg
  waystation place record --rig --emulate hdd -o run.trace -- make -C src
  waystation place record --rig-down            undo what a killed laboratory left

Needs root. --rig builds three areas of its own (loop devices, ext4 with an external journal, swap, a memory-limited
group), runs the command in its file system, and always takes everything down again.")]
    Record(Record),
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
  waystation place advise now.trace --live /dev/sda2=fs --live /dev/sda3=swap --time 60 --fast 1GB

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
    /// The graph computation of `validate --live`
    #[command(hide = true)]
    Graph(Graph),
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

/// `record`
#[derive(Debug, Args)]
pub struct Record {
    /// DEVICE=AREA, for instance /dev/sda2=fs; may be repeated
    #[arg(long = "device", value_name = "DEVICE=AREA")]
    pub(super) devices: Vec<String>,
    /// The native trace to write
    #[arg(short, long, required_unless_present_any = ["rig_down", "rig_keeper", "rig_emulate"])]
    pub(super) output: Option<PathBuf>,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(super) time: Option<f64>,
    /// Build a laboratory with areas fs, journal and swap for the command
    #[arg(long, conflicts_with = "devices", requires = "command")]
    pub(super) rig: bool,
    /// Take down laboratories that were left, and do nothing else
    #[arg(long)]
    pub(super) rig_down: bool,
    /// The keeper of a laboratory (started by the laboratory itself)
    #[arg(long, hide = true, value_name = "STATE")]
    pub(super) rig_keeper: Option<PathBuf>,
    /// The process behind an emulated device (started by the laboratory itself)
    #[arg(long, hide = true, value_name = "DESCRIPTION")]
    pub(super) rig_emulate: Option<PathBuf>,
    /// Where the laboratory's images lie
    #[arg(long, default_value = "/var/tmp", value_name = "DIRECTORY")]
    pub(super) rig_directory: PathBuf,
    /// Emulate a device that this machine does not have for the areas not in memory: a preset (hdd, sata-ssd, ...) or
    /// a TOML file whose [slow] device it is
    #[arg(long, value_name = "DEVICE")]
    pub(super) emulate: Option<String>,
    /// Size of the laboratory's file system
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    pub(super) fs: String,
    /// Size of its journal
    #[arg(long, default_value = "128MiB", value_name = "SIZE")]
    pub(super) journal: String,
    /// Size of its swap
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    pub(super) swap: String,
    /// Memory that the command may use
    #[arg(long, default_value = "256MiB", value_name = "SIZE")]
    pub(super) memory: String,
    /// ext4's data mode: ordered, journal or writeback
    #[arg(long, default_value = "ordered", value_name = "MODE")]
    pub(super) data: String,
    /// Areas of the laboratory that lie in memory instead of on the disk
    #[arg(long, value_delimiter = ',', value_name = "AREAS")]
    pub(super) in_memory: Vec<String>,
    /// A shell command that prepares the file system, not recorded
    #[arg(long, value_name = "SHELL")]
    pub(super) prepare: Option<String>,
    /// The command to record
    #[arg(last = true)]
    pub(super) command: Vec<String>,
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
    /// The native trace (with --live: where to keep the recording)
    pub(super) trace: PathBuf,
    /// Record the running system first: DEVICE=AREA, may be repeated
    #[arg(long, value_name = "DEVICE=AREA")]
    pub(super) live: Vec<String>,
    /// How long to record with --live, in seconds
    #[arg(
        long,
        default_value_t = 60.0,
        requires = "live",
        value_name = "SECONDS"
    )]
    pub(super) time: f64,
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
    /// Also run real programs in the laboratory on this machine (root; some minutes)
    #[arg(long)]
    pub(super) live: bool,
    /// Where the laboratory's images lie
    #[arg(long, default_value = "/var/tmp", value_name = "DIRECTORY")]
    pub(super) rig_directory: PathBuf,
}

/// `graph`
#[derive(Debug, Args)]
pub struct Graph {
    /// The graph's file
    pub(super) file: PathBuf,
    /// Make a graph of so many edges
    #[arg(long, value_name = "EDGES")]
    pub(super) make: Option<u32>,
    /// Rank its vertices in so many passes
    #[arg(long, default_value_t = 3)]
    pub(super) passes: u32,
}
