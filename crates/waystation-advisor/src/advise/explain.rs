//! One block or file: which area, how hot, and why (not) on the fast device.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::heat::{BlockCost, BlockCosts};
use crate::error::{Error, Result};
use crate::event::BLOCK_BYTES;
use crate::native::Trace;
use crate::units::{format_bytes, format_ns, parse_bytes};

/// Bytes of one area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// As the user named it.
    pub name: String,
    /// The area's number.
    pub area: usize,
    /// The blocks.
    pub blocks: Vec<u64>,
}

/// Understands `AREA:OFFSET`, or a file of the mounted file system that `area` (by default the first file system) is.
pub fn target(trace: &Trace, text: &str, area: Option<&str>) -> Result<Target> {
    let number = |name: &str| {
        trace
            .info
            .areas
            .iter()
            .position(|area| area.name == name)
            .ok_or_else(|| {
                let names: Vec<&str> = trace
                    .info
                    .areas
                    .iter()
                    .map(|area| area.name.as_str())
                    .collect();
                Error::Usage(format!(
                    "the trace has no area \"{name}\"; its areas are {}",
                    names.join(", ")
                ))
            })
    };
    if Path::new(text).exists() {
        let area = match area {
            Some(name) => number(name)?,
            None => trace
                .info
                .areas
                .iter()
                .position(|area| area.role == crate::event::Role::FileSystem)
                .ok_or_else(|| {
                    Error::Usage(
                        "the trace has no file-system area; name one with --area".to_owned(),
                    )
                })?,
        };
        return Ok(Target {
            name: text.to_owned(),
            area,
            blocks: file_blocks(Path::new(text))?,
        });
    }
    let (name, offset) = text.rsplit_once(':').ok_or_else(|| {
        Error::Usage(format!(
            "\"{text}\" is neither a file nor AREA:OFFSET (for instance fs:36835328)"
        ))
    })?;
    Ok(Target {
        name: text.to_owned(),
        area: number(name)?,
        blocks: vec![parse_bytes(offset)? / BLOCK_BYTES],
    })
}

/// The blocks of a file on its device, from `filefrag` (e2fsprogs).
fn file_blocks(path: &Path) -> Result<Vec<u64>> {
    let output = Command::new("filefrag")
        .args(["-b4096", "-v"])
        .arg(path)
        .env("PATH", crate::SYSTEM_PATH)
        .output()
        .map_err(|error| {
            Error::Refused(format!(
                "filefrag (package e2fsprogs) is needed to find a file's blocks: {error}"
            ))
        })?;
    if !output.status.success() {
        return Err(Error::Refused(format!(
            "filefrag does not tell where {} lies: {}",
            path.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    Ok(parse_filefrag(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines of the form `  0:        0..      11:     9032..      9043:     12: ...`.
fn parse_filefrag(text: &str) -> Vec<u64> {
    let mut blocks = Vec::new();
    for line in text.lines() {
        let parts: Vec<&str> = line.split(':').collect();
        let [_, _, physical, ..] = parts[..] else {
            continue;
        };
        let Some((first, last)) = physical.split_once("..") else {
            continue;
        };
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
            blocks.extend(first..=last);
        }
    }
    blocks
}

/// The explanation as text, for a fast device of `capacity` bytes given to the area's hottest blocks.
pub fn explain(trace: &Trace, target: &Target, capacity: u64) -> String {
    let latency = |request: usize| trace.requests[request].latency_ns().unwrap_or(0);
    let costs = BlockCosts::of(trace.info.areas.len(), &trace.requests, latency);
    let area = &trace.info.areas[target.area];
    let all = &costs.areas[target.area];
    let mut sum = BlockCost::default();
    let mut touched = 0_u64;
    for block in &target.blocks {
        if let Some(cost) = all.get(block) {
            touched += 1;
            sum.reads += cost.reads;
            sum.writes += cost.writes;
            sum.waited_ns += cost.waited_ns;
            sum.flushed_ns += cost.flushed_ns;
        }
    }
    let mut text = format!(
        "{} lies in area {} ({}); {} of its {} blocks were touched.\n",
        target.name,
        area.name,
        area.role,
        touched,
        target.blocks.len()
    );
    if touched == 0 {
        text.push_str(
            "Nothing in the trace touches it, so fast storage would gain nothing from it.\n",
        );
        return text;
    }
    let _ = writeln!(
        text,
        "Read {} times, written {} times; {} of waiting for it directly, {} in flushes after its writes.",
        sum.reads,
        sum.writes,
        format_ns(sum.waited_ns),
        format_ns(sum.flushed_ns)
    );
    let mut heats = costs.heat(target.area, 0);
    heats.sort_unstable_by(|one, other| {
        other
            .saved
            .cmp(&one.saved)
            .then(one.block.cmp(&other.block))
    });
    let room = (capacity / BLOCK_BYTES) as usize;
    let wanted: std::collections::HashSet<u64> = target.blocks.iter().copied().collect();
    let inside = heats
        .iter()
        .take(room)
        .filter(|heat| wanted.contains(&heat.block))
        .count() as u64;
    let best_rank = heats
        .iter()
        .position(|heat| wanted.contains(&heat.block))
        .map_or(heats.len(), |rank| rank + 1);
    let _ = writeln!(
        text,
        "Its hottest block is number {best_rank} of {} by time that could be saved.",
        heats.len()
    );
    let last = heats
        .get(room.saturating_sub(1))
        .or(heats.last())
        .map_or(0, |heat| heat.saved);
    let verdict = if inside == touched {
        format!(
            "With {} for {}'s hottest blocks it is on the fast device",
            format_bytes(capacity),
            area.name
        )
    } else if inside > 0 {
        format!(
            "With {} for {}'s hottest blocks, {inside} of {touched} blocks are on the fast device",
            format_bytes(capacity),
            area.name
        )
    } else {
        format!(
            "With {} for {}'s hottest blocks it is not on the fast device: {} others save more",
            format_bytes(capacity),
            area.name,
            room.min(heats.len())
        )
    };
    let _ = writeln!(
        text,
        "{verdict}; the last block that has room saves {}.",
        format_ns(last)
    );
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn filefrag_is_understood() {
        let text = "Filesystem type is: ef53\nFile size of x is 53248 (13 blocks of 4096 bytes)\n ext:     logical_offset:        physical_offset: length:   expected: flags:\n   0:        0..      11:     9032..      9043:     12:\n   1:       12..      12:     7000..      7000:      1:       9044: last,eof\nx: 2 extents found\n";
        let blocks = super::parse_filefrag(text);
        assert_eq!(blocks.len(), 13);
        assert_eq!((blocks[0], blocks[12]), (9032, 7000));
    }
}
