//! Which files a database consists of, by their names: `LevelDB`'s and those that `LevelDB` does not know.

pub(crate) use super::reserve::RESERVE_NAME;
use crate::cemetery::checkpoint::{GRAVES_DRAFT, GRAVES_NAME};
use crate::cemetery::vault::vault_number;
use crate::device::checkpoint::{CHECKPOINT_DRAFT, CHECKPOINT_NAME};
use crate::device::image::{IMAGE_DRAFT, IMAGE_NAME};
use crate::log::{DRAFT_NAME, JOURNAL_DRAFT, JOURNAL_NAME, RING_DRAFT, RING_NAME, segment_number};
use crate::lsm::version::{SIDE_FILE, SIDE_TEMPORARY};
use waystation_format::filename;

/// Whether `name` is that of a file of ours which `LevelDB` does not know.
pub(super) fn is_own(name: &str) -> bool {
    let names = [
        JOURNAL_NAME,
        JOURNAL_DRAFT,
        RESERVE_NAME,
        RING_NAME,
        RING_DRAFT,
        DRAFT_NAME,
        SIDE_FILE,
        SIDE_TEMPORARY,
        CHECKPOINT_NAME,
        CHECKPOINT_DRAFT,
        IMAGE_NAME,
        IMAGE_DRAFT,
        GRAVES_NAME,
        GRAVES_DRAFT,
    ];
    let is_numbered = segment_number(name).is_some() || vault_number(name).is_some();
    names.contains(&name) || is_numbered
}

/// The names under which files are written that are not in force yet. A leftover is never looked into.
pub(super) const DRAFTS: [&str; 7] = [
    JOURNAL_DRAFT,
    RING_DRAFT,
    DRAFT_NAME,
    SIDE_TEMPORARY,
    CHECKPOINT_DRAFT,
    IMAGE_DRAFT,
    GRAVES_DRAFT,
];

/// Whether `name` is that of any file of a database.
pub(crate) fn is_of_database(name: &str) -> bool {
    is_own(name) || filename::parse(name).is_some()
}
