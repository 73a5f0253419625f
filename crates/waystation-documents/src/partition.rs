//! Partitions: what stands before the colon in the identifiers of a partitioned database.

use crate::error::{Error, Result};

/// What ends the partition in an identifier.
pub(crate) const END: char = ':';

/// The partition in the identifier `id`; `None` if it names none.
pub(crate) fn partition_of(id: &str) -> Option<&str> {
    id.split_once(END).map(|(partition, _)| partition)
}

/// Checks that a partition may be called `name`.
///
/// # Errors
/// [`Error::Query`] `illegal_partition`.
pub fn check_partition(name: &str) -> Result<()> {
    let reason = if name.is_empty() {
        "Partition must not be empty"
    } else if name.starts_with('_') {
        "Partition must not start with an underscore"
    } else if name.contains(END) {
        "Partition must not contain a colon"
    } else {
        return Ok(());
    };
    Err(Error::query("illegal_partition", reason))
}

/// The identifiers between which all documents of the partition `name` are; the second one is no document's.
pub fn bounds_of(name: &str) -> (String, String) {
    // A semicolon comes next behind a colon.
    (format!("{name}:"), format!("{name};"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_a_partition_and_no_other() {
        let (begin, end) = bounds_of("a");
        let ids = [
            ("a:", true),
            ("a:z", true),
            ("a:\u{10ffff}", true),
            ("a", false),
            ("a;", false),
            ("aa:b", false),
            ("a-b:c", false),
        ];
        for (id, is_within) in ids {
            assert_eq!(
                (begin.as_str()..end.as_str()).contains(&id),
                is_within,
                "{id}"
            );
            assert_eq!(partition_of(id) == Some("a"), is_within, "{id}");
        }
    }

    #[test]
    fn partitions_have_names() {
        for name in ["", "_a", "a:b"] {
            let error = check_partition(name).expect_err(name);
            assert_eq!(error.word(), "illegal_partition");
        }
        assert!(check_partition("sensor 7/ü").is_ok());
    }
}
