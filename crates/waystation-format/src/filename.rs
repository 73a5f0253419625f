//! The names of the files of a database directory, as LevelDB gives them.
//!
//! | name | content |
//! |---|---|
//! | `CURRENT` | the name of the manifest in force, then a newline |
//! | `MANIFEST-NNNNNN` | a log of version edits |
//! | `NNNNNN.ldb`, `NNNNNN.sst` | a table (`.sst` is the older name) |
//! | `NNNNNN.log` | a write-ahead log of LevelDB |
//! | `NNNNNN.dbtmp` | a file that is about to be renamed |
//! | `LOCK`, `LOG`, `LOG.old` | the lock, the running commentary and the one before |
//!
//! A number has at least six digits when written and any count of digits when read. LevelDB ignores every
//! other name, and so do we: side files of one's own are safe.

use crate::error::FormatError;

/// The file that names the manifest in force.
pub const CURRENT: &str = "CURRENT";
/// The lock file.
pub const LOCK: &str = "LOCK";
/// The running commentary.
pub const INFO_LOG: &str = "LOG";
/// The commentary of the life before.
pub const OLD_INFO_LOG: &str = "LOG.old";

const MANIFEST_PREFIX: &str = "MANIFEST-";

/// What a name in a database directory stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// The file that names the manifest in force.
    Current,
    /// The lock file.
    Lock,
    /// The running commentary, or the one before.
    InfoLog,
    /// A manifest and its number.
    Manifest(u64),
    /// A write-ahead log in LevelDB's format and its number.
    Log(u64),
    /// A table and its number, under either of its names.
    Table(u64),
    /// A file about to be renamed and its number.
    Temporary(u64),
}

/// What `name` stands for; `None` for a name that is not LevelDB's.
pub fn parse(name: &str) -> Option<FileKind> {
    match name {
        CURRENT => return Some(FileKind::Current),
        LOCK => return Some(FileKind::Lock),
        INFO_LOG | OLD_INFO_LOG => return Some(FileKind::InfoLog),
        _ => {}
    }
    if let Some(number) = name.strip_prefix(MANIFEST_PREFIX) {
        return parse_number(number).map(FileKind::Manifest);
    }
    let (number, extension) = name.split_once('.')?;
    let number = parse_number(number)?;
    match extension {
        "log" => Some(FileKind::Log(number)),
        "ldb" | "sst" => Some(FileKind::Table(number)),
        "dbtmp" => Some(FileKind::Temporary(number)),
        _ => None,
    }
}

/// Digits only: `str::parse` would take a sign.
fn parse_number(digits: &str) -> Option<u64> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}

/// The name of table `number`.
pub fn table_name(number: u64) -> String {
    format!("{number:06}.ldb")
}

/// The name an old LevelDB gave to table `number`; to be tried when [`table_name`] does not exist.
pub fn legacy_table_name(number: u64) -> String {
    format!("{number:06}.sst")
}

/// The name of LevelDB's write-ahead log `number`.
pub fn log_name(number: u64) -> String {
    format!("{number:06}.log")
}

/// The name of manifest `number`.
pub fn manifest_name(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:06}")
}

/// The name of the file that is renamed to `CURRENT` once it names manifest `number`.
pub fn temporary_name(number: u64) -> String {
    format!("{number:06}.dbtmp")
}

/// What `CURRENT` holds while manifest `number` is in force.
pub fn current_content(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:06}\n")
}

/// The name of the file that the content of `CURRENT` names. LevelDB takes any name; what holds here is only
/// that it is one name, within the directory, ended by a newline.
pub fn parse_current(content: &[u8]) -> Result<&str, FormatError> {
    let text = std::str::from_utf8(content)
        .map_err(|e| FormatError::malformed(e.valid_up_to(), "CURRENT is not text"))?;
    let name = text.strip_suffix('\n').ok_or(FormatError::truncated(
        content.len(),
        "CURRENT does not end with a newline",
    ))?;
    let outside = name.is_empty() || name == "." || name == "..";
    if outside || name.contains(['/', '\\', '\0', '\n']) {
        return Err(FormatError::malformed(
            0,
            "CURRENT does not name one file of its directory",
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The cases of LevelDB's `db/filename_test.cc`.
    #[test]
    fn names_that_are_and_are_not() {
        let known = [
            ("100.log", FileKind::Log(100)),
            ("0.log", FileKind::Log(0)),
            ("0.sst", FileKind::Table(0)),
            ("0.ldb", FileKind::Table(0)),
            ("CURRENT", FileKind::Current),
            ("LOCK", FileKind::Lock),
            ("MANIFEST-2", FileKind::Manifest(2)),
            ("MANIFEST-7", FileKind::Manifest(7)),
            ("LOG", FileKind::InfoLog),
            ("LOG.old", FileKind::InfoLog),
            ("18446744073709551615.log", FileKind::Log(u64::MAX)),
            ("000007.dbtmp", FileKind::Temporary(7)),
        ];
        for (name, kind) in known {
            assert_eq!(parse(name), Some(kind), "{name}");
        }
        let foreign = [
            "",
            "foo",
            "foo-dx-100.log",
            ".log",
            "manifest",
            "CURREN",
            "CURRENTX",
            "MANIFES",
            "MANIFEST",
            "MANIFEST-",
            "XMANIFEST-3",
            "MANIFEST-3x",
            "LOC",
            "LOCKx",
            "LO",
            "LOGx",
            "18446744073709551616.log",
            "184467440737095516150.log",
            "100",
            "100.",
            "100.lop",
            "+1.log",
            "wal-000007.log",
            "000099.vlog",
        ];
        for name in foreign {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn current_names_one_file_of_its_directory() {
        assert_eq!(
            parse_current(current_content(5).as_bytes()),
            Ok("MANIFEST-000005")
        );
        for bad in ["", "\n", "MANIFEST-1", "../x\n", "..\n", "a\nb\n"] {
            assert!(parse_current(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(parse_current(&[0xff, b'\n']).is_err());
    }

    proptest! {
        #[test]
        fn written_names_parse_back(number: u64) {
            prop_assert_eq!(parse(&table_name(number)), Some(FileKind::Table(number)));
            prop_assert_eq!(parse(&legacy_table_name(number)), Some(FileKind::Table(number)));
            prop_assert_eq!(parse(&log_name(number)), Some(FileKind::Log(number)));
            prop_assert_eq!(parse(&manifest_name(number)), Some(FileKind::Manifest(number)));
            prop_assert_eq!(parse(&temporary_name(number)), Some(FileKind::Temporary(number)));
        }

        #[test]
        fn any_name_and_content_is_answered(name: String, content: Vec<u8>) {
            let _ = parse(&name);
            let _ = parse_current(&content);
        }
    }
}
