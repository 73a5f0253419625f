//! One request to a block device, and what is known about the trace it belongs to.
//!
//! Everything else in this crate is written against these two types. A request carries issue *and* completion,
//! because without both there is no latency, no think time and no dependency; flushes are requests of their own,
//! because in a synchronous application they are where the journal's time goes. The *area* (file system, journal,
//! swap, or whatever the user named) is a property of the trace, never guessed from the block address.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The unit in which footprint, reuse and residence are counted, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// `complete_ns` of a request whose completion is not in the trace.
pub const NOT_COMPLETED: u64 = u64::MAX;

/// What a request does. The numbers are stored in files: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Data comes from the device.
    Read = 0,
    /// Data goes to the device.
    Write = 1,
    /// The device is asked to make everything it acknowledged durable.
    Flush = 2,
    /// Blocks are declared unused (discard, trim, write-zeroes without data).
    Discard = 3,
}

impl Op {
    /// The operation stored as `code`.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Read, Self::Write, Self::Flush, Self::Discard]
            .get(usize::from(code))
            .copied()
    }

    /// The kernel's letter.
    pub fn letter(self) -> char {
        match self {
            Self::Read => 'R',
            Self::Write => 'W',
            Self::Flush => 'F',
            Self::Discard => 'D',
        }
    }
}

/// How the kernel marked a request. The bits are stored in files: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// Somebody waits for it.
    pub const SYNC: Self = Self(1);
    /// File-system metadata.
    pub const META: Self = Self(2);
    /// Forced unit access: durable before it completes.
    pub const FUA: Self = Self(4);
    /// A flush is done before the data.
    pub const PREFLUSH: Self = Self(8);
    /// Read before it was asked for.
    pub const READ_AHEAD: Self = Self(16);

    /// Whether every bit of `other` is set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Reads the kernel's `rwbs` string: an optional leading F (pre-flush), R, W, D or F, then F (FUA), S, M, A.
pub fn parse_rwbs(text: &str) -> Option<(Op, Flags)> {
    let bytes = text.as_bytes();
    let mut flags = Flags::default();
    let (op, rest) = match bytes {
        [b'F', b'F' | b'N', ..] => (Op::Flush, &bytes[2..]),
        [b'F', b'W', ..] => {
            flags = flags.with(Flags::PREFLUSH);
            (Op::Write, &bytes[2..])
        }
        [b'F', ..] => (Op::Flush, &bytes[1..]),
        [b'R', ..] => (Op::Read, &bytes[1..]),
        [b'W', ..] => (Op::Write, &bytes[1..]),
        [b'D', ..] => (
            Op::Discard,
            if bytes.get(1) == Some(&b'E') {
                &bytes[2..]
            } else {
                &bytes[1..]
            },
        ),
        _ => return None,
    };
    for letter in rest {
        flags = flags.with(match letter {
            b'F' => Flags::FUA,
            b'S' => Flags::SYNC,
            b'M' => Flags::META,
            b'A' => Flags::READ_AHEAD,
            b'T' | b'P' | b'B' => Flags::default(),
            _ => return None,
        });
    }
    Some((op, flags))
}

/// Writes what [`parse_rwbs`] reads.
pub fn format_rwbs(op: Op, flags: Flags) -> String {
    let mut text = String::with_capacity(6);
    if flags.has(Flags::PREFLUSH) && op == Op::Write {
        text.push('F');
    }
    text.push(op.letter());
    if op == Op::Flush {
        text.push('F');
    }
    for (flag, letter) in [
        (Flags::FUA, 'F'),
        (Flags::READ_AHEAD, 'A'),
        (Flags::SYNC, 'S'),
        (Flags::META, 'M'),
    ] {
        if flags.has(flag) {
            text.push(letter);
        }
    }
    text
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When it was given to the device, from the start of the trace.
    pub issue_ns: u64,
    /// When the device reported it done, or [`NOT_COMPLETED`].
    pub complete_ns: u64,
    /// First byte on its device.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u32,
    /// Process that issued it (0 when unknown).
    pub pid: u32,
    /// Index into [`TraceInfo::comms`].
    pub comm: u32,
    /// Index into [`TraceInfo::areas`].
    pub area: u8,
    /// What it does.
    pub op: Op,
    /// How it was marked.
    pub flags: Flags,
}

impl Request {
    /// Nanoseconds between issue and completion, when both are known.
    pub fn latency_ns(&self) -> Option<u64> {
        (self.complete_ns != NOT_COMPLETED).then(|| self.complete_ns.saturating_sub(self.issue_ns))
    }

    /// The blocks of [`BLOCK_BYTES`] that it touches.
    pub fn blocks(&self) -> std::ops::Range<u64> {
        let end = self.offset.saturating_add(u64::from(self.length));
        self.offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)
    }

    /// Whether it reads or writes data.
    pub fn moves_data(&self) -> bool {
        matches!(self.op, Op::Read | Op::Write) && self.length > 0
    }
}

/// What an area is for; decides which remedies exist for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Files and their metadata.
    FileSystem,
    /// A file system's or database's write-ahead log.
    Journal,
    /// Paged-out memory.
    Swap,
    /// Anything else.
    Other,
}

impl Role {
    /// The role that an area's name suggests.
    pub fn of_name(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        if name.contains("swap") {
            Self::Swap
        } else if name.contains("journal") || name == "wal" || name.contains("jbd") {
            Self::Journal
        } else if name == "fs" || name.contains("file") || name == "root" || name == "data" {
            Self::FileSystem
        } else {
            Self::Other
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::FileSystem => "file system",
            Self::Journal => "journal",
            Self::Swap => "swap",
            Self::Other => "other",
        })
    }
}

/// One storage area of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// As the user calls it ("fs").
    pub name: String,
    /// The device it was seen on ("7:1"), or its name again.
    pub device: String,
    /// What it is for.
    pub role: Role,
    /// End of the highest byte touched.
    pub extent_bytes: u64,
}

/// What is known about a whole trace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TraceInfo {
    /// Where it came from ("csv: run.csv.gz").
    pub source: String,
    /// The areas; a request names one by index.
    pub areas: Vec<Area>,
    /// Command names; a request names one by index.
    pub comms: Vec<String>,
    /// Requests in the trace.
    pub requests: u64,
    /// Requests whose completion is in the trace.
    pub completed: u64,
    /// Flush requests in the trace.
    pub flushes: u64,
    /// Latest issue or completion.
    pub end_ns: u64,
    /// Events that the recorder reports as lost.
    pub lost_events: u64,
}

impl TraceInfo {
    /// Counts one request in.
    pub(crate) fn note(&mut self, request: &Request) {
        self.requests += 1;
        self.flushes += u64::from(request.op == Op::Flush || request.flags.has(Flags::PREFLUSH));
        self.end_ns = self.end_ns.max(request.issue_ns);
        if request.complete_ns != NOT_COMPLETED {
            self.completed += 1;
            self.end_ns = self.end_ns.max(request.complete_ns);
        }
        if let Some(area) = self.areas.get_mut(usize::from(request.area)) {
            area.extent_bytes = area
                .extent_bytes
                .max(request.offset.saturating_add(u64::from(request.length)));
        }
    }

    /// What the trace cannot support, as sentences; empty when nothing is missing.
    pub fn shortcomings(&self) -> Vec<String> {
        let mut list = Vec::new();
        if self.completed == 0 {
            list.push(
                "The trace has no completions: latency, think time and dependencies are unknown, so no run time can be advised from it (only traffic, footprint and reuse)."
                    .to_owned(),
            );
        } else if self.completed < self.requests {
            list.push(format!(
                "{} of {} requests have no completion in the trace; they are simulated, but constrain nothing.",
                self.requests - self.completed,
                self.requests
            ));
        }
        if self.flushes == 0 {
            list.push(
                "The trace has no flushes: what a journal or write-ahead log costs is not in it, so no advice about a journal can be given from it."
                    .to_owned(),
            );
        }
        if self.lost_events > 0 {
            list.push(format!(
                "The recorder lost {} events; figures are lower bounds.",
                self.lost_events
            ));
        }
        list
    }
}
