//! Which files a database consists of, by their names: `LevelDB`'s and those that `LevelDB` does not know.

use crate::cemetery::checkpoint::{GRAVES_DRAFT, GRAVES_NAME};
use crate::cemetery::vault::vault_number;
use crate::device::checkpoint::{CHECKPOINT_DRAFT, CHECKPOINT_NAME};
use crate::device::image::{IMAGE_DRAFT, IMAGE_NAME};
use crate::log::{DRAFT_NAME, JOURNAL_NAME, RING_NAME, segment_number};
use crate::lsm::version::{SIDE_FILE, SIDE_TEMPORARY};
use waystation_format::filename;

/// Whether `name` is that of a file of ours which `LevelDB` does not know.
pub(super) fn is_own(name: &str) -> bool {
    let names = [
        JOURNAL_NAME,
        RING_NAME,
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
    let is_ring_draft = || name.strip_suffix(".new") == Some(RING_NAME);
    let is_numbered = segment_number(name).is_some() || vault_number(name).is_some();
    names.contains(&name) || is_numbered || is_ring_draft()
}

/// Whether `name` is that of any file of a database.
pub(crate) fn is_of_database(name: &str) -> bool {
    is_own(name) || filename::parse(name).is_some()
}
