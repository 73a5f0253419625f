//! The engine's own small files and records, parsed and written again: what fuzzers feed and compare. No part of the
//! engine's interface.

use crate::backup;
use crate::cemetery;
use crate::devices::checkpoint;
use crate::devices::index_snapshot;
use crate::devices::record::DeviceEvent;
use crate::lsm::version::SideFile;

/// The side file `WAYSTATION` that `bytes` are, written anew; none if they are not one.
pub fn side_file(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(SideFile::decode(bytes).ok()?.encode())
}

/// The checkpoint `DEVICES` that `bytes` are, written anew; none if they are not one.
pub fn device_checkpoint(bytes: &[u8]) -> Option<Vec<u8>> {
    let saved = checkpoint::decode(bytes).ok()?;
    Some(checkpoint::encode(
        &saved.directory,
        saved.devices.iter(),
        &saved.ledger,
    ))
}

/// The section of the index snapshot `INDEXES` that `bytes` are, written anew; none if they are not one.
pub fn index_snapshot_section(bytes: &[u8]) -> Option<Vec<u8>> {
    index_snapshot::rewritten(bytes).ok()
}

/// The event of a device that the payload `bytes` of a log's record is, written anew; none if it is not one.
pub fn device_event(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(DeviceEvent::decode(bytes).ok()?.encode())
}

/// The list of a backup's files that `bytes` are, written anew; none if they are not one.
pub fn backup(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(backup::Manifest::decode(bytes).ok()?.encode())
}

/// The list of a backup with the files `names`, for fuzzers to begin with.
pub fn backup_of(names: &[&str]) -> Vec<u8> {
    let item = |name: &&str| backup::Item {
        name: (*name).to_owned(),
        bytes: 1 << 20,
        checksum: 7,
    };
    let manifest = backup::Manifest {
        number: 1,
        taken_at: 1_700_000_000,
        last_sequence: 1_000,
        extractor: "until/3a".to_owned(),
        items: names.iter().map(item).collect(),
    };
    manifest.encode()
}

/// The file `GRAVES` that `bytes` are, written anew; none if they are not one.
pub fn graves(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(cemetery::checkpoint::decode(bytes).ok()?.encode())
}
