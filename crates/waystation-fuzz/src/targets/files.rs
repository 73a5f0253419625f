//! Whole files: through the parsers of the engine, through `dump`, and as part of a database that is opened.

use crate::fixture::{DIR, Kind};
use crate::image::{Image, write_file};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::OnceLock;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, IterOptions, inspect, parsers};
use waystation_format::checksum;
use waystation_format::leveldb_log::RecordWriter;

/// The same with the checksum that fits at its end.
fn healed(bytes: &[u8]) -> Vec<u8> {
    let covered = &bytes[..bytes.len().saturating_sub(4)];
    let sum = checksum::mask(checksum::crc32c(covered));
    [covered, &sum.to_le_bytes()].concat()
}

/// Gives a journal the checksum that fits.
pub(super) fn heal_journal(bytes: &mut [u8]) {
    if bytes.len() >= 12 {
        let sum = checksum::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The side file.
pub(super) fn side_file(bytes: &[u8]) {
    for bytes in [bytes, &healed(bytes)] {
        if let Some(again) = parsers::side_file(bytes) {
            assert_eq!(parsers::side_file(&again), Some(again));
        }
    }
}

/// The checkpoint of the device table, and events of devices in the log.
pub(super) fn device_checkpoint(bytes: &[u8]) {
    for bytes in [bytes, &healed(bytes)] {
        if let Some(again) = parsers::device_checkpoint(bytes) {
            assert_eq!(parsers::device_checkpoint(&again), Some(again));
        }
    }
    if let Some(again) = parsers::device_event(bytes) {
        assert_eq!(parsers::device_event(&again), Some(again));
    }
}

/// The cemetery's file.
pub(super) fn graves(bytes: &[u8]) {
    for bytes in [bytes, &healed(bytes)] {
        if let Some(again) = parsers::graves(bytes) {
            assert_eq!(parsers::graves(&again), Some(again));
        }
    }
}

/// A section of an image of the indexes.
pub(super) fn image(bytes: &[u8]) {
    if let Some(again) = parsers::index_snapshot_section(bytes) {
        assert_eq!(parsers::index_snapshot_section(&again), Some(again));
    }
}

/// The sections of the images that were kept, and one of a stay that settles.
pub(super) fn image_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![b"\x02d:\x05\x90\x4e\x09\x00\x00".to_vec()];
    for image in super::file_seeds("INDEXES") {
        // Behind the header and the section's frame, before the end.
        let behind = image.get(48 + 8..).unwrap_or_default();
        seeds.push(behind[..behind.len().saturating_sub(32)].to_vec());
    }
    seeds
}

/// The list of a backup's files.
pub(super) fn backup(bytes: &[u8]) {
    for bytes in [bytes, &healed(bytes)] {
        if let Some(again) = parsers::backup(bytes) {
            assert_eq!(parsers::backup(&again), Some(again));
        }
    }
}

/// Lists of a small backup and of one with devices.
pub(super) fn backup_seeds() -> Vec<Vec<u8>> {
    let plain = ["000004.ldb", "MANIFEST-000005"];
    let devices = [
        "000004.ldb",
        "DEVICES",
        "GRAVES",
        "JOURNAL",
        "MANIFEST-000005",
        "WAYSTATION",
        "journal-0000000001.seg",
    ];
    vec![parsers::backup_of(&plain), parsers::backup_of(&devices)]
}

/// The names of the files that a file may have; the first byte chooses.
const NAMES: [&str; 10] = [
    "000004.ldb",
    "MANIFEST-000001",
    "CURRENT",
    "JOURNAL",
    "WAYSTATION",
    "DEVICES",
    "journal-0000000001.seg",
    "journal.ring",
    "000004.log",
    "INDEXES",
];

/// Splits the choice of a name off.
fn chosen(bytes: &[u8]) -> Option<(&'static str, &[u8])> {
    let (choice, content) = bytes.split_first()?;
    Some((NAMES[usize::from(*choice) % NAMES.len()], content))
}

/// `dump` of any file.
pub(super) fn dump(bytes: &[u8]) {
    let Some((name, content)) = chosen(bytes) else {
        return;
    };
    let storage = SimStorage::new(1);
    let path = Path::new("/f").join(name);
    let made = storage
        .create_dir(Path::new("/f"))
        .and_then(|()| write_file(&*storage, &path, content));
    assert!(made.is_ok());
    let mut items = 0;
    // An error is an answer; only items without end are not.
    let _ = inspect::dump(&*storage, &path, &mut |_| {
        items += 1;
        ControlFlow::Continue(())
    });
    assert!(items <= 64 + 2 * content.len(), "{items} items");
}

pub(super) fn dump_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for kind in Kind::ALL {
        for (name, content) in kind.load().unwrap_or_default().files {
            let alike = |other: &str| {
                other[..4] == name[..name.len().min(4)] || other[6..] == name[name.len().min(6)..]
            };
            if let Some(choice) = (NAMES.iter())
                .position(|other| *other == name)
                .or_else(|| NAMES.iter().position(|other| alike(other)))
            {
                let used = content
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |at| at + 1);
                seeds.push([&[choice as u8], &content[..used]].concat());
            }
        }
    }
    seeds
}

/// Opens a database in which one file has other content, reads and checks it. Whatever comes is fine but a panic.
pub(super) fn database(bytes: &[u8]) {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    let images =
        IMAGES.get_or_init(|| Kind::ALL.map(|kind| kind.load().unwrap_or_default()).into());
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let at = usize::from(*choice) % images.len();
    let (kind, image) = (Kind::ALL[at], &images[at]);
    let Some((which, content)) = rest.split_first() else {
        return;
    };
    let (name, before) = &image.files[usize::from(*which) % image.files.len()];
    // What is shorter than the file was is a piece of it, so that lengths stay right more often than not.
    let mut content = content.to_vec();
    if content.len() < before.len() && which % 2 == 0 {
        content.extend_from_slice(&before[content.len()..]);
    }
    match name.as_str() {
        "WAYSTATION" | "DEVICES" | "GRAVES" => content = healed(&content),
        "JOURNAL" => heal_journal(&mut content),
        // One more record, sound but for what it says.
        name if which % 4 > 1 && (name.starts_with("MANIFEST") || name.contains(".log")) => {
            let record = &rest[1..];
            content.clone_from(before);
            RecordWriter::new(content.len() as u64).append(record, &mut content);
        }
        _ => {}
    }
    let Ok(machine) = image.with(name, content).boot(Path::new(DIR)) else {
        return;
    };
    let _ = inspect::Inspection::open(machine.clone(), DIR).map(|found| found.check(&mut |_| ()));
    let Ok(db) = Db::open_with(machine, DIR, kind.options()) else {
        return;
    };
    for key in kind.content().keys() {
        let _ = db.get(key);
    }
    if let Ok(mut cursor) = db.iter(IterOptions::default()) {
        let mut went = cursor.seek_to_last();
        while went.is_ok() && cursor.valid() {
            went = cursor.prev();
        }
    }
    let _ = db.put(b"after", b"all");
    let _ = db.close();
}

pub(super) fn database_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (at, kind) in Kind::ALL.into_iter().enumerate() {
        let files = kind.load().unwrap_or_default().files;
        for (which, (_, content)) in files.iter().enumerate() {
            let used = content
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            seeds.push([&[at as u8, which as u8], &content[..used]].concat());
            // As one record behind the others: the file is the same counted on to a number with the bit for it.
            for count in (which..256)
                .step_by(files.len())
                .filter(|count| count % 4 > 1)
                .take(1)
            {
                for record in super::format::version_edit_payloads()
                    .into_iter()
                    .chain(super::format::batch_seeds())
                {
                    seeds.push([&[at as u8, count as u8], &record[..]].concat());
                }
            }
        }
    }
    seeds
}
