//! One block or file: which area, how hot, and why (not) on the fast device.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde::Serialize;
use waystation_planner::Heat;

use super::heat::BlockCosts;
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

/// How hot a target is, and whether it would be on the fast device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// As the user named it.
    pub name: String,
    /// The area that it lies in.
    pub area: String,
    /// What the area is for.
    pub role: String,
    /// Its blocks.
    pub blocks: usize,
    /// Those of them that the trace touches.
    pub touched: u64,
    /// Requests that read one of its blocks.
    pub reads: u64,
    /// The same for writes.
    pub writes: u64,
    /// Time spent waiting for its requests.
    pub waited_ns: u64,
    /// Time spent in flushes after its writes.
    pub flushed_ns: u64,
    /// The place of its hottest block among the area's by time that could be saved, from 1; 0 when none was touched.
    pub best_rank: usize,
    /// The area's touched blocks.
    pub ranks: usize,
    /// Fast bytes for the area's hottest blocks.
    pub capacity: u64,
    /// Its blocks among those that have room.
    pub inside: u64,
    /// What the last block that has room saves.
    pub last_saved_ns: u64,
    /// What the trace cannot tell.
    pub shortcomings: Vec<String>,
}

/// Explains a target, for a fast device of `capacity` bytes given to the area's hottest blocks.
pub fn explain(trace: &Trace, target: &Target, capacity: u64) -> Result<Explanation> {
    if capacity < BLOCK_BYTES {
        return Err(Error::Usage(format!(
            "{capacity} bytes of fast storage hold no block of {BLOCK_BYTES}; there is nothing to place"
        )));
    }
    let latency = |request: usize| trace.requests[request].latency_ns().unwrap_or(0);
    let costs = BlockCosts::of(trace.info.areas.len(), &trace.requests, latency);
    let area = &trace.info.areas[target.area];
    let all = &costs.areas[target.area];
    let mut explanation = Explanation {
        name: target.name.clone(),
        area: area.name.clone(),
        role: area.role.to_string(),
        blocks: target.blocks.len(),
        capacity,
        shortcomings: trace.info.shortcomings(),
        ..Explanation::default()
    };
    for cost in target.blocks.iter().filter_map(|block| all.get(block)) {
        explanation.touched += 1;
        explanation.reads += u64::from(cost.reads);
        explanation.writes += u64::from(cost.writes);
        explanation.waited_ns += cost.waited_ns;
        explanation.flushed_ns += cost.flushed_ns;
    }
    let mut heats = costs.heat(target.area, 0);
    heats.sort_unstable_by(|one, other| {
        other
            .saved
            .cmp(&one.saved)
            .then(one.block.cmp(&other.block))
    });
    let room = (capacity / BLOCK_BYTES) as usize;
    let wanted: HashSet<u64> = target.blocks.iter().copied().collect();
    let is_wanted = |heat: &Heat| wanted.contains(&heat.block);
    explanation.ranks = heats.len();
    explanation.inside = heats
        .iter()
        .take(room)
        .filter(|heat| is_wanted(heat))
        .count() as u64;
    explanation.best_rank = heats.iter().position(is_wanted).map_or(0, |rank| rank + 1);
    explanation.last_saved_ns = heats
        .get(room - 1)
        .or(heats.last())
        .map_or(0, |heat| heat.saved);
    Ok(explanation)
}

impl Explanation {
    /// A few sentences for a terminal.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{} lies in area {} ({}); {} of its {} blocks were touched.\n",
            self.name, self.area, self.role, self.touched, self.blocks
        );
        if self.touched == 0 {
            text.push_str(
                "Nothing in the trace touches it, so fast storage would gain nothing from it.\n",
            );
        } else {
            self.write_heat(&mut text);
        }
        for sentence in &self.shortcomings {
            let _ = writeln!(text, "Note: {sentence}");
        }
        text
    }

    fn write_heat(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "Read {} times, written {} times; {} of waiting for it directly, {} in flushes after its writes.",
            self.reads,
            self.writes,
            format_ns(self.waited_ns),
            format_ns(self.flushed_ns)
        );
        let _ = writeln!(
            text,
            "Its hottest block is number {} of {} by time that could be saved.",
            self.best_rank, self.ranks
        );
        let room = (self.capacity / BLOCK_BYTES) as usize;
        let with = format!(
            "With {} for {}'s hottest blocks",
            format_bytes(self.capacity),
            self.area
        );
        let verdict = if self.inside == self.touched {
            format!("{with} it is on the fast device")
        } else if self.inside > 0 {
            format!(
                "{with}, {} of {} blocks are on the fast device",
                self.inside, self.touched
            )
        } else {
            format!(
                "{with} it is not on the fast device: {} others save more",
                room.min(self.ranks)
            )
        };
        let _ = writeln!(
            text,
            "{verdict}; the last block that has room saves {}.",
            format_ns(self.last_saved_ns)
        );
    }
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
