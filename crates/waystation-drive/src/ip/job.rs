//! What a compaction job is and what it gives, whoever does it.

use serde::Serialize;
use thiserror::Error;
use waystation_format::FormatError;
use waystation_format::table::BlockHandle;

/// What the hardware takes: everything else is refused.
#[derive(Debug, Clone, Copy)]
pub struct Limits;

impl Limits {
    /// The longest user key, in bytes.
    pub const USER_KEY_BYTES: usize = 64;
    /// The longest value, in bytes.
    pub const VALUE_BYTES: usize = (1 << 21) - 1;
    /// The longest block, in bytes.
    pub const BLOCK_BYTES: usize = (1 << 24) - 1;
    /// Restart points per block; a full block is cut before it needs one more.
    pub const RESTARTS: usize = 64;
    /// All of a job, inputs, descriptors and room for the output, must fit in so many bytes of memory.
    pub const MEMORY_BYTES: usize = 1 << 30;
}

/// A table in memory and where its data blocks lie, in order.
#[derive(Debug, Clone)]
pub struct TableImage {
    /// The bytes of the file, or of its data blocks.
    pub bytes: Vec<u8>,
    /// The data blocks.
    pub blocks: Vec<BlockHandle>,
}

/// How records are dropped and blocks are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The oldest snapshot anybody may read at: versions it does not need are dropped.
    pub smallest_snapshot: u64,
    /// Whether no deeper level can hold the keys, so that deletions may be dropped.
    pub bottom: bool,
    /// A block ends once it has this many bytes.
    pub block_bytes: u32,
    /// Entries per restart point, 1 to 127.
    pub restart_interval: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            smallest_snapshot: waystation_format::key::MAX_SEQUENCE,
            bottom: false,
            block_bytes: 4096,
            restart_interval: 16,
        }
    }
}

/// A job: inputs, each a chain of tables in key order, and settings.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// The inputs. Of equal internal keys the one of the lower input comes first.
    pub inputs: Vec<Vec<TableImage>>,
    /// The settings.
    pub settings: Settings,
}

impl Job {
    /// The bytes of all tables.
    pub fn input_bytes(&self) -> u64 {
        self.tables().map(|table| table.bytes.len() as u64).sum()
    }

    /// All tables, input by input.
    pub fn tables(&self) -> impl Iterator<Item = &TableImage> {
        self.inputs.iter().flatten()
    }
}

/// A block of the output and what the index says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Where it lies in [`Output::bytes`]; the trailer of five bytes follows.
    pub handle: BlockHandle,
    /// How many records it has.
    pub entries: u32,
    /// The internal key of its last record.
    pub last_key: Vec<u8>,
}

/// What was counted. Records in = shadowed + vanished + records out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Bytes of blocks read, with their trailers.
    pub bytes_in: u64,
    /// Blocks read.
    pub blocks_in: u64,
    /// Records decoded.
    pub records_in: u64,
    /// Records dropped because a newer version hides them from every snapshot.
    pub shadowed: u64,
    /// Deletions dropped because there is nothing left to delete.
    pub vanished: u64,
    /// Records written.
    pub records_out: u64,
    /// Bytes of blocks written, with their trailers.
    pub bytes_out: u64,
    /// Blocks written.
    pub blocks_out: u64,
}

impl Counters {
    /// Whether every record that came in went out or was dropped by a rule.
    pub fn balance(&self) -> bool {
        self.records_in == self.shadowed + self.vanished + self.records_out
    }
}

/// The result of a job: blocks that follow each other without gaps, ready to be the beginning of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The bytes of all blocks, with their trailers.
    pub bytes: Vec<u8>,
    /// Where they lie and how they end.
    pub blocks: Vec<Block>,
    /// What was counted.
    pub counters: Counters,
}

/// What the hardware found wrong. The numbers are its error codes and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FailureKind {
    /// Memory answered with an error: an address outside.
    Bus = 1,
    /// The checksum of a descriptor.
    DescriptorChecksum = 2,
    /// A descriptor in the wrong place, or whose numbers make no sense.
    DescriptorField = 3,
    /// A block that is compressed.
    BlockType = 4,
    /// The checksum of a block.
    BlockChecksum = 5,
    /// The restart points of a block.
    Restarts = 6,
    /// A key that is too long, too short, or shares more than there is.
    Key = 7,
    /// An entry that does not end within its block, or whose value is too long.
    Entry = 8,
    /// A record that comes before its predecessor.
    Order = 9,
    /// A record that is neither a value nor a deletion.
    Kind = 10,
    /// The room for the output is used up.
    Space = 11,
    /// Nothing moved for too long.
    Watchdog = 12,
}

impl FailureKind {
    /// The kind with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        use FailureKind as K;
        [
            K::Bus,
            K::DescriptorChecksum,
            K::DescriptorField,
            K::BlockType,
            K::BlockChecksum,
            K::Restarts,
            K::Key,
            K::Entry,
            K::Order,
            K::Kind,
            K::Space,
            K::Watchdog,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == code)
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Bus => "memory answered with an error",
            Self::DescriptorChecksum => "the checksum of a descriptor does not match",
            Self::DescriptorField => "a descriptor is not the one that belongs here",
            Self::BlockType => "a block is compressed",
            Self::BlockChecksum => "the checksum of a block does not match",
            Self::Restarts => "the restart points of a block make no sense",
            Self::Key => "a key is longer than 64 bytes or damaged",
            Self::Entry => "an entry is longer than allowed or does not end within its block",
            Self::Order => "records are not in order",
            Self::Kind => "a record is of an unknown kind",
            Self::Space => "the room for the output is used up",
            Self::Watchdog => "nothing moved for too long",
        }
    }
}

/// A job that the hardware gave up, and the input at fault where one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub kind: FailureKind,
    /// With which input.
    pub input: Option<u8>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.input {
            Some(input) => write!(f, "input {input}: {}", self.kind.sentence()),
            None => f.write_str(self.kind.sentence()),
        }
    }
}

/// Why a job was not done.
#[derive(Debug, Error)]
pub enum IpError {
    /// The crate was built without Verilator.
    #[error(
        "this build has no simulated engine, because verilator was not installed when it was made: install it and build again"
    )]
    NotBuilt,
    /// There is no engine of this size.
    #[error("this build has no engine with {0} inputs, only with {sizes:?}", sizes = super::sizes())]
    NoSuchSize(usize),
    /// The job does not fit the engine.
    #[error("{0}")]
    Refused(String),
    /// The engine found something wrong.
    #[error("the engine stopped: {0}")]
    Failed(Failure),
    /// The job was given up, as its owner wished.
    #[error("the job was given up")]
    Stopped,
    /// The engine did not come to an end.
    #[error("the engine did not finish within {0} cycles")]
    Hanging(u64),
    /// What the engine left behind makes no sense; a bug of ours.
    #[error("the engine's result is not consistent: {0}")]
    Inconsistent(String),
    /// A table cannot be read.
    #[error("a table cannot be read: {0}")]
    Format(#[from] FormatError),
    /// A part of a table that only software reads is damaged.
    #[error("a table cannot be read: {0}")]
    Damaged(String),
}
