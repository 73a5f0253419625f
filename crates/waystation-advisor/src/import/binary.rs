//! Formats of fixed binary records, all little-endian.
//!
//! - blktrace: 48 bytes (magic 0x65617407, sequence, time, sector, bytes, action, pid, device, cpu, error, length of
//!   the data that follows); the action's low half says what happened (6 requeued, 7 issued,
//!   8 completed), its high half how.
//! - `CloudPhysics` vscsi: 32 bytes (version 1) or 40 (version 2, with response time); times in microseconds.
//! - `oracleGeneral`: 24 bytes (u32 seconds, u64 object, u32 size, i64 next use); an object is a 4 KiB block here.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use super::csv::sectors;
use super::{Collector, Row, RowError, input};
use crate::error::{Error, Result};
use crate::event::{BLOCK_BYTES, Flags, Op};

/// Reads a whole record; `Ok(false)` at the end, an error text when the file ends inside one.
fn record(reader: &mut dyn BufRead, bytes: &mut [u8], path: &Path) -> Result<Option<bool>> {
    let mut filled = 0;
    while filled < bytes.len() {
        match reader.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Ok(Some(false)),
            Ok(read) => filled += read,
            Err(source) if source.kind() == std::io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::io("read", path, source)),
        }
    }
    Ok(Some(true))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Calls `take` for every record of `N` bytes.
fn records<const N: usize>(
    path: &Path,
    out: &mut Collector<'_>,
    mut take: impl FnMut(&[u8; N], &mut dyn BufRead, &mut Collector<'_>) -> Result<(), RowError>,
) -> Result<()> {
    let mut reader = input::open(path)?;
    let mut bytes = [0; N];
    let mut number = 0;
    while let Some(whole) = record(reader.as_mut(), &mut bytes, path)? {
        number += 1;
        out.at_line(number);
        if !whole {
            out.reject(&RowError::new(
                "the file ends in the middle of a record",
                "",
            ));
            break;
        }
        if let Err(error) = take(&bytes, reader.as_mut(), out) {
            out.reject(&error);
            if error.reason == NOT_A_RECORD {
                break;
            }
        }
        out.check()?;
    }
    Ok(())
}

/// After this, where the next record begins is unknown.
const NOT_A_RECORD: &str =
    "the record does not begin with blktrace's magic number (the rest of the file is not read)";

pub(super) fn blktrace(path: &Path, out: &mut Collector<'_>) -> Result<()> {
    let mut comms: HashMap<u32, String> = HashMap::new();
    records::<48>(path, out, |bytes, reader, out| {
        let magic = u32_at(bytes, 0);
        if magic & 0xffff_ff00 != 0x6561_7400 {
            return Err(RowError::new(NOT_A_RECORD, format!("{magic:#010x}")));
        }
        let mut data = vec![0; usize::from(u16_at(bytes, 46))];
        if !data.is_empty() && reader.read_exact(&mut data).is_err() {
            return Err(RowError::new("the file ends in the middle of a record", ""));
        }
        let action = u32_at(bytes, 28);
        let (what, how) = (action & 0xffff, action >> 16);
        let pid = u32_at(bytes, 32);
        if how & how::NOTIFY != 0 {
            if what == 0 {
                let name = data.split(|byte| *byte == 0).next().unwrap_or(&[]);
                comms.insert(pid, String::from_utf8_lossy(name).into_owned());
            }
            out.other_row();
            return Ok(());
        }
        if !matches!(what, 6..=8) {
            out.other_row();
            return Ok(());
        }
        let length = u32_at(bytes, 24);
        let (op, flags) = blktrace_operation(how, length);
        let device = u32_at(bytes, 36);
        let device = format!("{}:{}", device >> 20, device & 0xf_ffff);
        let offset = if op == Op::Flush {
            0
        } else {
            sectors(Some(u64_at(bytes, 16)))?
        };
        let time_ns = u64_at(bytes, 8);
        if what == 8 {
            return out.completed(&device, op, offset, time_ns);
        }
        if what == 6 {
            out.requeued(&device, op, offset);
            return Ok(());
        }
        out.issued(&Row {
            issue_ns: time_ns,
            complete_ns: None,
            device: &device,
            op,
            flags,
            offset,
            length: u64::from(length),
            pid,
            comm: comms.get(&pid).map_or("", String::as_str),
        })
    })
}

/// The high half of an action.
pub(crate) mod how {
    pub(crate) const READ: u32 = 1;
    pub(crate) const WRITE: u32 = 1 << 1;
    pub(crate) const FLUSH: u32 = 1 << 2;
    pub(crate) const SYNC: u32 = 1 << 3;
    pub(crate) const ISSUE: u32 = 1 << 6;
    pub(crate) const COMPLETE: u32 = 1 << 7;
    pub(crate) const NOTIFY: u32 = 1 << 10;
    pub(crate) const AHEAD: u32 = 1 << 11;
    pub(crate) const META: u32 = 1 << 12;
    pub(crate) const DISCARD: u32 = 1 << 13;
    pub(crate) const FUA: u32 = 1 << 15;
}

fn blktrace_operation(how: u32, length: u32) -> (Op, Flags) {
    let mut flags = Flags::default();
    for (bit, flag) in [
        (how::SYNC, Flags::SYNC),
        (how::META, Flags::META),
        (how::FUA, Flags::FUA),
        (how::AHEAD, Flags::READ_AHEAD),
    ] {
        if how & bit != 0 {
            flags = flags.with(flag);
        }
    }
    if how & how::FLUSH != 0 && length == 0 {
        return (Op::Flush, flags);
    }
    if how & how::FLUSH != 0 {
        flags = flags.with(Flags::PREFLUSH);
    }
    if how & how::DISCARD != 0 {
        (Op::Discard, flags)
    } else if how & how::WRITE != 0 {
        (Op::Write, flags)
    } else {
        (Op::Read, flags)
    }
}

pub(super) fn cloudphysics(path: &Path, out: &mut Collector<'_>) -> Result<()> {
    // The version number lies at byte 14 of a version 1 record and at byte 2 of a version 2 record.
    let mut head = [0; 16];
    let mut reader = input::open(path)?;
    let whole = record(reader.as_mut(), &mut head, path)?;
    drop(reader);
    if whole != Some(true) {
        return Err(Error::Malformed(format!(
            "{}: too short for a vscsi trace",
            path.display()
        )));
    }
    let (first, second) = (u16_at(&head, 14) >> 8, u16_at(&head, 2) >> 8);
    match (first, second) {
        (_, 2) => records::<40>(path, out, |bytes, _, out| {
            let issue_ns = u64_at(bytes, 24).saturating_mul(1_000);
            let response_ns = u64_at(bytes, 32).saturating_mul(1_000);
            vscsi(
                u16_at(bytes, 0),
                u32_at(bytes, 8),
                u64_at(bytes, 16),
                issue_ns,
                Some(response_ns),
                out,
            )
        }),
        (1, _) => records::<32>(path, out, |bytes, _, out| {
            let issue_ns = u64_at(bytes, 24).saturating_mul(1_000);
            vscsi(
                u16_at(bytes, 12),
                u32_at(bytes, 4),
                u64_at(bytes, 16),
                issue_ns,
                None,
                out,
            )
        }),
        _ => Err(Error::Malformed(format!(
            "{}: neither version 1 nor version 2 of the vscsi format",
            path.display()
        ))),
    }
}

fn vscsi(
    command: u16,
    length: u32,
    block: u64,
    issue_ns: u64,
    response_ns: Option<u64>,
    out: &mut Collector<'_>,
) -> Result<(), RowError> {
    let op = match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0x8e => Op::Write,
        0x35 | 0x91 => Op::Flush,
        0x42 | 0x41 | 0x93 => Op::Discard,
        _ => {
            return Err(RowError::new(
                "the SCSI command is unknown",
                format!("{command:#x}"),
            ));
        }
    };
    out.push(&Row {
        issue_ns,
        complete_ns: response_ns.map(|response| issue_ns.saturating_add(response)),
        device: "disk",
        op,
        flags: Flags::default(),
        offset: if op == Op::Flush {
            0
        } else {
            sectors(Some(block))?
        },
        length: if op == Op::Flush {
            0
        } else {
            u64::from(length)
        },
        pid: 0,
        comm: "",
    })
}

pub(super) fn oracle_general(path: &Path, out: &mut Collector<'_>) -> Result<()> {
    let mut before_s = 0;
    let mut within_ns = 0;
    records::<24>(path, out, |bytes, _, out| {
        // Whole seconds only: rows of one second follow each other by a microsecond.
        let second = u64::from(u32_at(bytes, 0));
        within_ns = if second == before_s {
            (within_ns + 1_000).min(999_999_000)
        } else {
            0
        };
        before_s = second;
        let object = u64_at(bytes, 4);
        let offset = object
            .checked_mul(BLOCK_BYTES)
            .ok_or_else(|| RowError::new("an object is no block number", object.to_string()))?;
        out.push(&Row {
            issue_ns: second * 1_000_000_000 + within_ns,
            complete_ns: None,
            device: "disk",
            op: Op::Read,
            flags: Flags::default(),
            offset,
            length: u64::from(u32_at(bytes, 12)),
            pid: 0,
            comm: "",
        })
    })
}
