//! What is fed with hostile bytes: every parser, each with the bytes it should have got to begin with.
//!
//! A target panics if something does not hold: it must neither panic otherwise, nor loop, nor give what it could not
//! have read. Checksums keep nearly everything hostile out, so targets also try the same bytes with the checksum that
//! fits, as somebody would who means harm.

mod compaction;
mod documents;
mod drive;
mod files;
mod format;
mod handoff;
mod log;
mod mqtt;
mod redis;
mod text;

use crate::fixture::Kind;

/// A parser under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Feeds it.
    pub run: fn(&[u8]),
    /// What it should get.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const ALL: [Target; 28] = [
    target("batch", format::batch, format::batch_seeds),
    target("block", format::block, format::block_seeds),
    target(
        "stored_block",
        format::stored_block,
        format::stored_block_seeds,
    ),
    target("filter", format::filter, format::filter_seeds),
    target("properties", format::properties, format::properties_seeds),
    target("version_edit", format::version_edit, || {
        file_seeds("MANIFEST")
    }),
    target("leveldb_log", format::leveldb_log, || file_seeds(".log")),
    target("log_block", log::block, log::block_seeds),
    target("log_record", log::record, log::record_seeds),
    target("segment", log::segment, || file_seeds(".seg")),
    target("journal", log::journal, || file_seeds("JOURNAL")),
    target("side_file", files::side_file, || file_seeds("WAYSTATION")),
    target("device_checkpoint", files::device_checkpoint, || {
        file_seeds("DEVICES")
    }),
    target("image", files::image, files::image_seeds),
    target("backup", files::backup, files::backup_seeds),
    target("graves", files::graves, || file_seeds("GRAVES")),
    target("dump", files::dump, files::dump_seeds),
    target("database", files::database, files::database_seeds),
    target("handoff", handoff::handoff, handoff::handoff_seeds),
    target(
        "compaction",
        compaction::compaction,
        compaction::compaction_seeds,
    ),
    target(
        "document_record",
        documents::record,
        documents::record_seeds,
    ),
    target("drive_message", drive::message, drive::message_seeds),
    target("redis_commands", redis::parser, redis::seeds),
    target("redis_session", redis::session, redis::seeds),
    target("mqtt_message", mqtt::message, mqtt::message_seeds),
    target("mqtt_settings", mqtt::settings, mqtt::settings_seeds),
    target("trace", text::trace, text::trace_seeds),
    target("names", text::names, text::names_seeds),
];

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds }
}

/// The target of that name.
pub fn named(name: &str) -> Option<Target> {
    ALL.into_iter().find(|target| target.name == name)
}

/// Feeds the target of that name, which there must be.
pub fn feed(name: &str, bytes: &[u8]) {
    let target = named(name);
    assert!(target.is_some(), "there is no target {name}");
    if let Some(target) = target {
        (target.run)(bytes);
    }
}

/// The files of all fixtures whose name contains `part`; their padding is cut off.
fn file_seeds(part: &str) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for kind in Kind::ALL {
        let image = kind.load().unwrap_or_default();
        for (name, content) in image.files {
            if name.contains(part) {
                let used = content
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |at| at + 1);
                seeds.push(content[..content.len().min(used.next_multiple_of(8))].to_vec());
            }
        }
    }
    seeds
}
