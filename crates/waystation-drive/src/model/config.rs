//! What is simulated: a drive, its host and an external card, as TOML; and the load.
//!
//! Times are in nanoseconds, rates in megabytes (a million bytes) per second. Every figure is checked before anything
//! runs: a drive that cannot exist is an error that names the field.

use super::calendar::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A drive, its host and an external card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name, for reports.
    pub name: String,
    /// Whether the figures of the paper belong to this machine, and reports show them.
    pub paper: bool,
    /// Channels, dies, pages.
    pub flash: FlashConfig,
    /// The host's side of the drive: link and firmware.
    pub front: FrontConfig,
    /// The drive's memory.
    pub memory: MemoryConfig,
    /// The compaction engine in the drive, and what loads it.
    pub engine: EngineConfig,
    /// The host's software.
    pub host: HostConfig,
    /// The external card.
    pub card: CardConfig,
}

/// Geometry and times of the flash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashConfig {
    /// Channels.
    pub channels: usize,
    /// Dies on a channel.
    pub dies_per_channel: usize,
    /// Erase blocks of a die.
    pub blocks_per_die: usize,
    /// Pages of a block.
    pub pages_per_block: usize,
    /// Data of a page.
    pub page_bytes: u64,
    /// Bytes of a page beside its data, which the channel carries, too.
    pub page_spare_bytes: u64,
    /// Rate of a channel.
    pub transfer_mb_s: u64,
    /// A command on the channel.
    pub command_ns: Nanos,
    /// Sensing a page.
    pub read_ns: Nanos,
    /// Programming a page.
    pub program_ns: Nanos,
    /// Erasing a block.
    pub erase_ns: Nanos,
    /// Pages that the host does not see, in percent of all.
    pub spare_percent: usize,
}

/// Link and firmware.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontConfig {
    /// Rate of the link, each way.
    pub link_mb_s: u64,
    /// What each transfer on the link takes beside its bytes.
    pub link_setup_ns: Nanos,
    /// The firmware's work for a command of the host.
    pub command_ns: Nanos,
    /// The firmware's work for an operation of the flash.
    pub operation_ns: Nanos,
    /// Bytes of the largest command (MDTS); longer transfers are split.
    pub command_bytes_max: u64,
}

/// The drive's memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryConfig {
    /// Its bytes.
    pub bytes: u64,
    /// Its rate, all accesses together.
    pub mb_s: u64,
}

/// The compaction engine in the drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineConfig {
    /// Its clock.
    pub clock_mhz: u64,
    /// Engines side by side, each on a range of the keys.
    pub units: u64,
    /// Bytes that are loaded ahead for each input.
    pub buffer_bytes: u64,
    /// Pages that may be on their way from flash.
    pub reads_in_flight: usize,
    /// Pages that may be on their way to flash.
    pub writes_in_flight: usize,
    /// Whether inputs of later merges are loaded while tables of level 0 are merged into memory.
    pub load_ahead: bool,
    /// The firmware's work for a job.
    pub job_ns: Nanos,
}

/// The host's software.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// A put, its log record included.
    pub put_ns: Nanos,
    /// Processor time to write a table of level 0, per KiB.
    pub flush_ns_per_kib: Nanos,
    /// Processor time to merge, per KiB of input.
    pub merge_ns_per_kib: Nanos,
    /// Processor time of a command to the drive.
    pub command_ns: Nanos,
    /// Bytes of a read of a compaction on the host.
    pub read_bytes: u64,
    /// Reads of a compaction on the host that may be under way.
    pub reads_in_flight: usize,
    /// Pages that may be on their way to the drive for each file that is written.
    pub writes_in_flight: usize,
    /// Whether memtables are written while an offloaded compaction runs.
    pub flush_during_offload: bool,
}

/// The external card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardConfig {
    /// Clock of its engine.
    pub clock_mhz: u64,
    /// Engines side by side.
    pub units: u64,
    /// Rate of its link to the host, each way.
    pub link_mb_s: u64,
    /// What each transfer takes beside its bytes.
    pub link_setup_ns: Nanos,
    /// Its memory.
    pub memory_bytes: u64,
    /// Bytes that are read from the drive, and copied to the card, at a time.
    pub chunk_bytes: u64,
    /// Chunks that the host's thread has under way from and to the drive: with 1, one step follows the other.
    pub chunks_in_flight: usize,
    /// The part of a copy to or from the card during which the host's thread goes on with other transfers: 0 to 1.
    pub overlap: f64,
}

/// What is written: records in random order, as `db_bench`'s fillrandom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Puts; keys are drawn from as many.
    pub records: u64,
    /// Bytes of a user key.
    pub key_bytes: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Bytes of a table, and of a memtable.
    pub table_bytes: u64,
    /// Bytes of level 1 before it is compacted.
    pub level1_bytes: u64,
    /// How much larger each next level is.
    pub level_factor: u64,
    /// Tables of level 0 that start a compaction, slow writers down, and stop them.
    pub level0: [usize; 3],
}

impl Default for Load {
    /// The paper's: 100 million records, tables of 32 MB, and LevelDB's own settings.
    fn default() -> Self {
        Self {
            records: 100_000_000,
            key_bytes: 16,
            value_bytes: 100,
            table_bytes: 32 << 20,
            level1_bytes: 10 << 20,
            level_factor: 10,
            level0: [4, 8, 12],
        }
    }
}

/// Why something cannot be simulated.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The file is not TOML of this form.
    #[error("the description of the drive cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A figure makes no sense.
    #[error("{field} = {value}: {expected}")]
    Figure {
        /// Which one.
        field: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        expected: String,
    },
    /// The drive is full.
    #[error("the drive is full after {pages} pages: give it more blocks, or write fewer records")]
    Full {
        /// Pages that hold data.
        pages: usize,
    },
    /// Something waits for what never comes.
    #[error(
        "the simulation stands still at {0} ns: please report this with the description of the drive"
    )]
    Stuck(Nanos),
}

fn check(
    field: &'static str,
    value: &impl ToString,
    fits: bool,
    expected: impl Into<String>,
) -> Result<(), ModelError> {
    if fits {
        return Ok(());
    }
    Err(ModelError::Figure {
        field,
        value: value.to_string(),
        expected: expected.into(),
    })
}

/// Whether all figures lie in their ranges: field, figure, least and most.
fn all_within(figures: &[(&'static str, u64, u64, u64)]) -> Result<(), ModelError> {
    figures.iter().try_for_each(|&(field, value, from, to)| {
        let expected = format!("must be from {from} to {to}");
        check(field, &value, (from..=to).contains(&value), expected)
    })
}

/// The longest time of one step: ten seconds.
const STEP_NS_MAX: Nanos = 10_000_000_000;
/// A terabyte per second is more than anything here reaches.
const MB_S_MAX: u64 = 1_000_000;
/// Pages of a drive: their numbers have 32 bits, and each takes eight bytes of this program's memory.
const PAGES_MAX: u64 = 1 << 28;

impl Machine {
    /// The board of the paper.
    pub const COSMOS_PLUS: &str = include_str!("drives/cosmos-plus.toml");
    /// A drive of today.
    pub const MODERN: &str = include_str!("drives/modern.toml");

    /// Reads and checks a description.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let machine: Self = toml::from_str(text)?;
        machine.check()?;
        Ok(machine)
    }

    /// Whether such a machine can exist.
    pub fn check(&self) -> Result<(), ModelError> {
        self.flash.check()?;
        let (front, memory, engine) = (&self.front, &self.memory, &self.engine);
        let page = self.flash.page_bytes;
        let count = |it: usize| it as u64;
        all_within(&[
            ("front.link_mb_s", front.link_mb_s, 1, MB_S_MAX),
            ("front.link_setup_ns", front.link_setup_ns, 0, STEP_NS_MAX),
            ("front.command_ns", front.command_ns, 0, STEP_NS_MAX),
            ("front.operation_ns", front.operation_ns, 0, STEP_NS_MAX),
            (
                "front.command_bytes_max",
                front.command_bytes_max,
                page,
                1 << 30,
            ),
            ("memory.bytes", memory.bytes, 64 * page, 1 << 44),
            ("memory.mb_s", memory.mb_s, 1, MB_S_MAX),
            ("engine.clock_mhz", engine.clock_mhz, 1, 10_000),
            ("engine.units", engine.units, 1, 1024),
            (
                "engine.buffer_bytes",
                engine.buffer_bytes,
                page,
                memory.bytes / 16,
            ),
            (
                "engine.reads_in_flight",
                count(engine.reads_in_flight),
                1,
                65_536,
            ),
            (
                "engine.writes_in_flight",
                count(engine.writes_in_flight),
                1,
                65_536,
            ),
            ("engine.job_ns", engine.job_ns, 0, STEP_NS_MAX),
        ])?;
        self.check_outside()
    }

    /// The host and the card.
    fn check_outside(&self) -> Result<(), ModelError> {
        let (host, card, page) = (&self.host, &self.card, self.flash.page_bytes);
        let count = |it: usize| it as u64;
        all_within(&[
            ("host.put_ns", host.put_ns, 1, STEP_NS_MAX),
            (
                "host.flush_ns_per_kib",
                host.flush_ns_per_kib,
                1,
                STEP_NS_MAX,
            ),
            (
                "host.merge_ns_per_kib",
                host.merge_ns_per_kib,
                1,
                STEP_NS_MAX,
            ),
            ("host.command_ns", host.command_ns, 0, STEP_NS_MAX),
            ("host.read_bytes", host.read_bytes, page, 1 << 30),
            (
                "host.reads_in_flight",
                count(host.reads_in_flight),
                1,
                65_536,
            ),
            (
                "host.writes_in_flight",
                count(host.writes_in_flight),
                1,
                65_536,
            ),
            ("card.clock_mhz", card.clock_mhz, 1, 10_000),
            ("card.units", card.units, 1, 1024),
            ("card.link_mb_s", card.link_mb_s, 1, MB_S_MAX),
            ("card.link_setup_ns", card.link_setup_ns, 0, STEP_NS_MAX),
            ("card.memory_bytes", card.memory_bytes, 64 * page, 1 << 44),
            (
                "card.chunk_bytes",
                card.chunk_bytes,
                page,
                card.memory_bytes / 16,
            ),
            (
                "card.chunks_in_flight",
                count(card.chunks_in_flight),
                1,
                65_536,
            ),
        ])?;
        let part = (0.0..=1.0).contains(&card.overlap);
        check(
            "card.overlap",
            &card.overlap,
            part,
            "must be a part, from 0 to 1",
        )
    }
}

impl FlashConfig {
    /// Pages of the whole drive.
    pub(super) fn pages(&self) -> usize {
        self.channels * self.dies_per_channel * self.blocks_per_die * self.pages_per_block
    }

    fn check(&self) -> Result<(), ModelError> {
        let count = |it: usize| it as u64;
        all_within(&[
            ("flash.channels", count(self.channels), 1, 256),
            (
                "flash.dies_per_channel",
                count(self.dies_per_channel),
                1,
                256,
            ),
            (
                "flash.blocks_per_die",
                count(self.blocks_per_die),
                8,
                1 << 20,
            ),
            (
                "flash.pages_per_block",
                count(self.pages_per_block),
                1,
                1 << 16,
            ),
            ("flash.page_bytes", self.page_bytes, 512, 1 << 22),
            (
                "flash.page_spare_bytes",
                self.page_spare_bytes,
                0,
                self.page_bytes,
            ),
            ("flash.transfer_mb_s", self.transfer_mb_s, 1, MB_S_MAX),
            ("flash.command_ns", self.command_ns, 0, STEP_NS_MAX),
            ("flash.read_ns", self.read_ns, 1, STEP_NS_MAX),
            ("flash.program_ns", self.program_ns, 1, STEP_NS_MAX),
            ("flash.erase_ns", self.erase_ns, 1, STEP_NS_MAX),
            ("flash.spare_percent", count(self.spare_percent), 1, 90),
        ])?;
        let pages = count(self.pages());
        let expected = format!("the drive must have at most {PAGES_MAX} pages");
        check(
            "channels x dies x blocks x pages",
            &pages,
            pages <= PAGES_MAX,
            expected,
        )
    }
}

impl Load {
    /// Bytes of a record as tables hold it: three lengths, what its key does not share with the one before, sequence and
    /// kind, value.
    pub(super) fn record_bytes(&self) -> u64 {
        3 + self.key_bytes - self.shared_bytes() + 8 + self.value_bytes
    }

    /// Bytes that a key shares with the one before it: `db_bench`'s are decimal numbers, of which the last digits differ.
    pub(super) fn shared_bytes(&self) -> u64 {
        self.key_bytes * 3 / 4
    }

    /// Records of a full table.
    pub(super) fn table_records(&self) -> u64 {
        self.table_bytes / self.record_bytes()
    }

    /// Whether it can be written.
    pub fn check(&self) -> Result<(), ModelError> {
        let least = 16 * self.record_bytes();
        all_within(&[
            ("load.records", self.records, 1, 100_000_000_000),
            ("load.key_bytes", self.key_bytes, 1, 64),
            ("load.value_bytes", self.value_bytes, 0, 1 << 20),
            ("load.table_bytes", self.table_bytes, least, 1 << 30),
            ("load.level1_bytes", self.level1_bytes, 1, 1 << 50),
            ("load.level_factor", self.level_factor, 2, 1000),
        ])?;
        let rises = self.level0[0] > 0 && self.level0.is_sorted();
        let expected = "must be three rising numbers above 0";
        check(
            "load.level0",
            &format!("{:?}", self.level0),
            rises,
            expected,
        )
    }
}
