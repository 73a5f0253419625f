//! The scripts that carry an advice out on Linux, and undo it. The user names the devices; nothing is executed here.
//!
//! A script is [`LIBRARY`], which is the same for all, between two short parts: the variables that the user sets, and
//! what is to be done with them. It checks all it can before it changes anything, stops at the first failure and takes
//! back what it had done; a copy is compared before it takes the place of what it was made of. At its end it writes the
//! script that undoes it. `tests/placement_script.rs` runs both for real.

use std::fmt::Write as _;

use super::{Candidate, How, Script, Share};
use crate::event::BLOCK_BYTES;
use crate::units::format_bytes;

/// The functions of every script.
const LIBRARY: &str = include_str!("placement.sh");
/// What an inode table, a journal and other descriptions of an ext4 file system take of each byte of its files, about.
const OVERHEAD_SHARE: u64 = 5;
/// And whatever its size.
const OVERHEAD_BYTES: u64 = 8 << 20;
/// The journal of a file system that is made for an area whose journal has no share of its own.
const INNER_JOURNAL_BYTES: u64 = 4 << 20;

/// What a file system takes that holds `bytes` of blocks: these and its own.
pub(super) fn file_system_bytes(bytes: u64) -> u64 {
    (bytes + bytes / OVERHEAD_SHARE + OVERHEAD_BYTES).next_multiple_of(BLOCK_BYTES)
}

/// The script for a candidate; none if nothing on Linux does it.
pub(super) fn script(candidate: &Candidate) -> Option<Script> {
    let moved = candidate.shares.iter().any(|share| share.how == How::Whole);
    let mut parts = Vec::new();
    let mut journal_bytes = INNER_JOURNAL_BYTES;
    for share in &candidate.shares {
        match share.how {
            // A file system that is moved takes its journal along.
            How::JournalSized if moved => journal_bytes = share.bytes,
            _ => parts.push(share),
        }
    }
    let number = |index: usize| {
        if parts.len() > 1 {
            (index + 1).to_string()
        } else {
            String::new()
        }
    };
    let steps: Option<Vec<Step>> = parts
        .iter()
        .enumerate()
        .map(|(index, share)| Step::of(share, &number(index), journal_bytes))
        .collect();
    Some(Script {
        what: candidate.name.clone(),
        text: text(candidate, &steps?),
    })
}

/// What one share takes: lines of the script.
struct Step {
    variables: String,
    checks: String,
    work: String,
}

impl Step {
    fn of(share: &Share, number: &str, journal_bytes: u64) -> Option<Self> {
        let area = one_line(&share.area);
        let device = |bytes: u64, what: &str| {
            format!(
                "FAST{number}=${{FAST{number}:-}} # an empty partition or volume of at least {bytes} bytes ({}), {what}\n",
                format_bytes(bytes)
            )
        };
        let mount =
            format!("MOUNTPOINT{number}=${{MOUNTPOINT{number}:-}} # where {area} is mounted\n");
        let fast = format!("\"$FAST{number}\"");
        let mounted = format!("\"$MOUNTPOINT{number}\"");
        Some(match share.how {
            How::Whole => {
                let bytes = share.bytes + journal_bytes;
                let mib = journal_bytes >> 20;
                Self {
                    variables: device(bytes, &format!("for the files of {area}")) + &mount,
                    checks: format!("check_mounted {mounted}\ncheck_empty {fast} {bytes}\n"),
                    work: format!("move_files {fast} {mounted} {mib}\n"),
                }
            }
            How::JournalSized => Self {
                variables: device(share.bytes, "for the journal") + &mount,
                checks: format!(
                    "check_journal {mounted}\ncheck_empty {fast} {}\n",
                    share.bytes
                ),
                work: format!("move_journal {fast} {mounted} {}\n", share.bytes),
            },
            How::SwapSized => Self {
                variables: device(share.bytes, "for swap"),
                checks: format!("check_empty {fast} {}\n", share.bytes),
                work: format!("swap_first {fast}\n"),
            },
            How::CacheWriteBack | How::CacheWriteThrough => {
                let mode = if share.how == How::CacheWriteBack {
                    "writeback"
                } else {
                    "writethrough"
                };
                Self {
                    variables: format!(
                        "{}{}VOLUME=${{VOLUME:-}} # the slow logical volume, as VG/LV\n",
                        cache_caveats(mode),
                        device(share.bytes, "for the cache")
                    ),
                    checks: format!(
                        "check_volume \"$VOLUME\"\ncheck_empty {fast} {}\n",
                        share.bytes
                    ),
                    work: format!("add_cache {fast} \"$VOLUME\" {mode}\n"),
                }
            }
            How::FirstTouch | How::HotSet | How::EngineCopies => return None,
        })
    }
}

/// What to know before a cache is made.
fn cache_caveats(mode: &str) -> String {
    let mut text = "\
# The cache is lvmcache's (dm-cache): its policy smq is near to LRU, and it keeps blocks of 32 KiB and more. The simulated
# one is an LRU of 4 KiB blocks before all areas: put file system and swap on one volume, or give each a cache of its own.
# Where the slow device is no logical volume: `make-bcache -C $FAST -B SLOW` (bcache) erases SLOW, so only a device without
# data can be given to it; `dmsetup create` with a cache table (dm-cache) needs a third device for its metadata.
"
    .to_owned();
    if mode == "writeback" {
        text.push_str("\
# write-back: what was written last is on the fast device alone. If that is lost, the file system is. Never remove it before
# `lvconvert --uncache`, which writes everything home.
");
    }
    text
}

fn text(candidate: &Candidate, steps: &[Step]) -> String {
    let join = |part: fn(&Step) -> &String| -> String { steps.iter().map(part).cloned().collect() };
    let mut text = format!(
        "#!/bin/sh\n# {}\n# Read it, set the variables, and run it as root. It stops at the first failure and takes back what it had done.\n",
        one_line(&candidate.name)
    );
    let fast_parts = steps
        .iter()
        .filter(|step| step.variables.contains("FAST"))
        .count();
    if fast_parts > 1 {
        let _ = writeln!(
            text,
            "# Each share has a device of its own: partition the fast one first (sfdisk), or make volumes."
        );
    }
    text.push_str("set -eu\n\n");
    text.push_str(&join(|step| &step.variables));
    text.push_str(
        "UNDO=${UNDO:-$PWD/undo-placement.sh} # the script that undoes all is written here\n\n",
    );
    let _ = write!(
        text,
        "library() {{\n  cat <<'END_OF_LIBRARY'\n{LIBRARY}END_OF_LIBRARY\n}}\neval \"$(library)\"\n\nbegin\n"
    );
    text.push_str(&join(|step| &step.checks));
    text.push_str(&join(|step| &step.work));
    text.push_str("finish\n");
    text
}

/// A name that ends no comment.
fn one_line(name: &str) -> String {
    name.replace(char::is_control, " ")
}
