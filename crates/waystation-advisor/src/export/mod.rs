//! Our traces for the tools of others: CSV, blktrace's binary records, libCacheSim's `oracleGeneral`.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use clap::ValueEnum;

use crate::error::{Error, Result};
use crate::event::{BLOCK_BYTES, Flags, NOT_COMPLETED, Op, Request, TraceInfo, format_rwbs};
use crate::import::blktrace as how;
use crate::native::Reader;

/// What can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values that `import` reads back.
    Csv,
    /// blktrace's binary records, for blkparse, btt and fio.
    Blktrace,
    /// libCacheSim's `oracleGeneral`, split into blocks of 4 KiB.
    OracleGeneral,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Rows or records.
    pub records: u64,
    /// Requests that the format cannot express.
    pub left_out: u64,
}

/// Writes the native trace `from` as `format` to `to`.
pub fn export(from: &Path, format: Format, to: &Path) -> Result<Written> {
    let mut reader = Reader::open(from)?;
    refuse_overwriting(from, to)?;
    let file = File::create(to).map_err(|source| Error::io("create", to, source))?;
    let mut out = BufWriter::with_capacity(1 << 18, file);
    let written = match format {
        Format::Csv => csv(&mut reader, &mut out),
        Format::Blktrace => blktrace(&mut reader, &mut out),
        Format::OracleGeneral => oracle_general(&mut reader, &mut out),
    }
    .and_then(|written| {
        out.flush().map_err(Failure::Write)?;
        Ok(written)
    });
    written.map_err(|failure| match failure {
        Failure::Read(error) => error,
        Failure::Write(source) => Error::io("write", to, source),
    })
}

/// Refuses to write over the trace that is being read.
pub(crate) fn refuse_overwriting(trace: &Path, to: &Path) -> Result<()> {
    let (Ok(one), Ok(other)) = (std::fs::metadata(trace), std::fs::metadata(to)) else {
        return Ok(());
    };
    if (one.dev(), one.ino()) == (other.dev(), other.ino()) {
        return Err(Error::Usage(format!(
            "{} is the trace itself; name another file to write",
            to.display()
        )));
    }
    Ok(())
}

enum Failure {
    Read(Error),
    Write(std::io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Write(error)
    }
}

/// Calls `take` for every request.
fn each(
    reader: &mut Reader,
    mut take: impl FnMut(&TraceInfo, &Request) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let info = reader.info().clone();
    let mut rows = Vec::new();
    while reader.next_block(&mut rows)? {
        for row in &rows {
            take(&info, row)?;
        }
    }
    Ok(())
}

fn csv(reader: &mut Reader, out: &mut impl Write) -> Result<Written, Failure> {
    let mut written = Written::default();
    writeln!(
        out,
        "t_issue_ns,t_complete_ns,area,rwbs,offset_bytes,length_bytes,pid,comm"
    )?;
    each(reader, |info, request| {
        let complete = if request.complete_ns == NOT_COMPLETED {
            String::new()
        } else {
            request.complete_ns.to_string()
        };
        // A comma in a name would be a column.
        let comm = info.comms[request.comm as usize].replace(',', ";");
        writeln!(
            out,
            "{},{complete},{},{},{},{},{},{comm}",
            request.issue_ns,
            info.areas[usize::from(request.area)].name.replace(',', ";"),
            format_rwbs(request.op, request.flags),
            request.offset,
            request.length,
            request.pid
        )?;
        written.records += 1;
        Ok(())
    })?;
    Ok(written)
}

/// `major:minor` as the kernel packs it, or a number of our own for other names.
fn device_number(device: &str, area: usize) -> u32 {
    let parsed = device.split_once(':').and_then(|(major, minor)| {
        Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
    });
    parsed.unwrap_or(259 << 20 | area as u32)
}

fn blktrace(reader: &mut Reader, out: &mut impl Write) -> Result<Written, Failure> {
    let mut written = Written::default();
    // Events in order of time: a request's completion waits in the heap until its time has come.
    let mut waiting = std::collections::BinaryHeap::new();
    let mut sequence = 0_u32;
    let mut emit =
        |out: &mut dyn Write, time_ns: u64, request: &Request, action: u32, device: u32| {
            sequence = sequence.wrapping_add(1);
            let mut record = Vec::with_capacity(48);
            record.extend_from_slice(&0x6561_7407_u32.to_le_bytes());
            record.extend_from_slice(&sequence.to_le_bytes());
            record.extend_from_slice(&time_ns.to_le_bytes());
            record.extend_from_slice(&(request.offset / 512).to_le_bytes());
            record.extend_from_slice(&request.length.to_le_bytes());
            record.extend_from_slice(&action.to_le_bytes());
            record.extend_from_slice(&request.pid.to_le_bytes());
            record.extend_from_slice(&device.to_le_bytes());
            record.extend_from_slice(&[0; 8]);
            out.write_all(&record)
        };
    let mut number = 0_u64;
    let mut kept: HashMap<u64, (Request, u32)> = HashMap::new();
    each(reader, |info, request| {
        let device = device_number(
            &info.areas[usize::from(request.area)].device,
            usize::from(request.area),
        );
        while let Some(std::cmp::Reverse((time_ns, which))) = waiting.peek().copied() {
            if time_ns > request.issue_ns {
                break;
            }
            waiting.pop();
            if let Some((request, device)) = kept.remove(&which) {
                emit(out, time_ns, &request, action(&request, true), device)?;
                written.records += 1;
            }
        }
        emit(
            out,
            request.issue_ns,
            request,
            action(request, false),
            device,
        )?;
        written.records += 1;
        if request.complete_ns != NOT_COMPLETED {
            waiting.push(std::cmp::Reverse((request.complete_ns, number)));
            kept.insert(number, (*request, device));
        }
        number += 1;
        Ok(())
    })?;
    while let Some(std::cmp::Reverse((time_ns, which))) = waiting.pop() {
        if let Some((request, device)) = kept.remove(&which) {
            emit(out, time_ns, &request, action(&request, true), device)?;
            written.records += 1;
        }
    }
    Ok(written)
}

/// The action word: what happened (7 issued, 8 completed) and how.
fn action(request: &Request, complete: bool) -> u32 {
    let mut bits = match request.op {
        Op::Read => how::READ,
        Op::Write => how::WRITE,
        Op::Flush => how::WRITE | how::FLUSH,
        Op::Discard => how::WRITE | how::DISCARD,
    };
    for (flag, bit) in [
        (Flags::SYNC, how::SYNC),
        (Flags::META, how::META),
        (Flags::FUA, how::FUA),
        (Flags::READ_AHEAD, how::AHEAD),
        (Flags::PREFLUSH, how::FLUSH),
    ] {
        if request.flags.has(flag) {
            bits |= bit;
        }
    }
    let (what, kind) = if complete {
        (8, how::COMPLETE)
    } else {
        (7, how::ISSUE)
    };
    what | (bits | kind) << 16
}

/// Objects are blocks, areas one behind the other. The next use of each access is found by reading backwards, so this
/// one holds the accesses in memory.
fn oracle_general(reader: &mut Reader, out: &mut impl Write) -> Result<Written, Failure> {
    let mut written = Written::default();
    let mut bases = Vec::new();
    let mut next_base = 0_u64;
    for area in &reader.info().areas {
        bases.push(next_base);
        next_base += area.extent_bytes.div_ceil(BLOCK_BYTES);
    }
    let mut accesses: Vec<(u32, u64)> = Vec::new();
    each(reader, |_, request| {
        if request.moves_data() {
            let second = (request.issue_ns / 1_000_000_000) as u32;
            accesses.extend(
                request
                    .blocks()
                    .map(|block| (second, bases[usize::from(request.area)] + block)),
            );
        } else {
            written.left_out += 1;
        }
        Ok(())
    })?;
    let mut next_use = vec![-1_i64; accesses.len()];
    let mut seen: HashMap<u64, i64> = HashMap::new();
    for (index, (_, object)) in accesses.iter().enumerate().rev() {
        if let Some(next) = seen.insert(*object, (index as u64).cast_signed()) {
            next_use[index] = next;
        }
    }
    for ((second, object), next) in accesses.iter().zip(&next_use) {
        out.write_all(&second.to_le_bytes())?;
        out.write_all(&object.to_le_bytes())?;
        out.write_all(&(BLOCK_BYTES as u32).to_le_bytes())?;
        out.write_all(&next.to_le_bytes())?;
        written.records += 1;
    }
    Ok(written)
}
