//! Which files a database consists of, by their names: `LevelDB`'s names, and names that `LevelDB` does not know.

use waystation_format::filename;

/// The lock file, `LevelDB`'s.
pub(crate) const LOCK_NAME: &str = "LOCK";
/// Which life of the database owns the log.
pub(crate) const JOURNAL_NAME: &str = "JOURNAL";
/// The next [`JOURNAL_NAME`].
pub(crate) const JOURNAL_DRAFT: &str = "JOURNAL.tmp";
/// The log's staging ring.
pub(crate) const RING_NAME: &str = "journal.ring";
/// A ring of another size that is being made. The storage knows this name.
pub(crate) const RING_DRAFT: &str = "journal.ring.new";
/// A segment of the log that is written before it has its name.
pub(crate) const DRAFT_NAME: &str = "journal-draft.tmp";
/// Room that an opening finds on a full disk.
pub(crate) const RESERVE_NAME: &str = "RESERVE";
/// What this engine keeps beside `LevelDB`'s MANIFEST.
pub(crate) const SIDE_FILE: &str = "WAYSTATION";
/// The next [`SIDE_FILE`].
pub(crate) const SIDE_TEMPORARY: &str = "WAYSTATION.new";
/// The device table.
pub(crate) const CHECKPOINT_NAME: &str = "DEVICES";
/// The next [`CHECKPOINT_NAME`].
pub(crate) const CHECKPOINT_DRAFT: &str = "DEVICES.new";
/// The indexes of the upper level, as they were a moment ago.
pub(crate) const INDEX_SNAPSHOT_NAME: &str = "INDEXES";
/// The next [`INDEX_SNAPSHOT_NAME`].
pub(crate) const INDEX_SNAPSHOT_DRAFT: &str = "INDEXES.new";
/// The graves.
pub(crate) const GRAVES_NAME: &str = "GRAVES";
/// The next [`GRAVES_NAME`].
pub(crate) const GRAVES_DRAFT: &str = "GRAVES.new";
/// What a fast tier holds and gains, for tools.
pub(crate) const PLACEMENT_NAME: &str = "PLACEMENT";
/// The next [`PLACEMENT_NAME`].
pub(crate) const PLACEMENT_DRAFT: &str = "PLACEMENT.new";
/// A table that is being moved from the fast directory.
pub(crate) const TABLE_DRAFT: &str = "TABLE.new";
/// The fast directory that holds segments of the log and tables.
pub(crate) const FAST_NAME: &str = "FAST";
/// The next [`FAST_NAME`].
pub(crate) const FAST_DRAFT: &str = "FAST.new";

/// What the tree's state holds once the log beside it belongs to it: gone when another program wrote to the
/// directory since.
pub(crate) const LOG_STATE: &str = "log";
/// What the tree's state holds once devices are kept apart: their table must be there then.
pub(crate) const DEVICES_STATE: &str = "devices";
/// What the tree's state holds while there is a file of graves that belongs to the tables.
pub(crate) const GRAVES_STATE: &str = "graves";

const SEGMENT_PREFIX: &str = "journal-";
const SEGMENT_SUFFIX: &str = ".seg";
const SPILL_SUFFIX: &str = ".vault";

/// The names under which files are written that are not in force yet. A leftover is never looked into.
pub(crate) const DRAFTS: [&str; 10] = [
    JOURNAL_DRAFT,
    RING_DRAFT,
    DRAFT_NAME,
    SIDE_TEMPORARY,
    CHECKPOINT_DRAFT,
    INDEX_SNAPSHOT_DRAFT,
    GRAVES_DRAFT,
    PLACEMENT_DRAFT,
    FAST_DRAFT,
    TABLE_DRAFT,
];

/// The name of the log's segment `number`.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{SEGMENT_PREFIX}{number:010}{SEGMENT_SUFFIX}")
}

/// The number of the segment called `name`, if that is a segment's name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name
        .strip_prefix(SEGMENT_PREFIX)?
        .strip_suffix(SEGMENT_SUFFIX)?;
    digits.parse().ok()
}

/// The name of the file of spilled graves `number`.
pub(crate) fn spill_name(number: u64) -> String {
    format!("{number:06}{SPILL_SUFFIX}")
}

/// The number of the file of spilled graves called `name`, if that is the name of one.
pub(crate) fn spill_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SPILL_SUFFIX)?;
    let are_digits = digits.len() >= 6 && digits.bytes().all(|it| it.is_ascii_digit());
    are_digits.then(|| digits.parse().ok()).flatten()
}

/// Whether `name` is that of a file of ours which `LevelDB` does not know.
pub(crate) fn is_own(name: &str) -> bool {
    let names = [
        JOURNAL_NAME,
        RING_NAME,
        RESERVE_NAME,
        SIDE_FILE,
        CHECKPOINT_NAME,
        INDEX_SNAPSHOT_NAME,
        GRAVES_NAME,
        PLACEMENT_NAME,
        FAST_NAME,
    ];
    let is_numbered = segment_number(name).is_some() || spill_number(name).is_some();
    names.contains(&name) || DRAFTS.contains(&name) || is_numbered
}

/// Whether `name` is that of any file of a database.
pub(crate) fn is_of_database(name: &str) -> bool {
    is_own(name) || filename::parse(name).is_some()
}
