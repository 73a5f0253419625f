//! What host and drive say to each other once they know each other.

use waystation_documents::shard::{Reply, Request};
use waystation_documents::views::{DesignDocument, Limits, ViewQuery, ViewRow};
use waystation_documents::wire::{wire_enum, wire_struct};
use waystation_documents::{Error, Result as DocumentResult};

/// Names a shard on a drive.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ShardName {
    /// The uuid of the database: 32 hexadecimal digits.
    pub(crate) database: String,
    /// The range: two numbers of eight hexadecimal digits with a dash between them.
    pub(crate) range: String,
}

/// What a host says.
#[derive(Debug)]
pub(crate) enum Call {
    /// Make the shard.
    Create { shard: ShardName },
    /// Remove all shards of the database.
    Remove { database: String },
    /// Answer the request; new update sequences follow `after`.
    Ask {
        shard: ShardName,
        after: u64,
        request: Request,
    },
    /// Read rows of a view from one snapshot; the connection is for them until they end.
    Rows {
        shard: ShardName,
        design: DesignDocument,
        name: String,
        query: ViewQuery,
        limits: Limits,
    },
    /// How many rows stand before the first one?
    Offset { most: u64 },
    /// The next rows.
    MoreRows,
    /// No more rows: the connection is for other calls again.
    EndRows,
}

/// What a drive says.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is done, or failed.
    Done { outcome: DocumentResult<()> },
    /// The reply, and the shard's latest update sequence.
    Replied {
        latest: u64,
        reply: DocumentResult<Reply>,
    },
    /// Rows of a view follow: how many it has, and up to which update sequence.
    Rows { begun: DocumentResult<RowsBegun> },
    /// How many rows stand before the first one.
    Offset { offset: DocumentResult<u64> },
    /// The next rows, and whether they are the last ones.
    MoreRows { page: DocumentResult<RowsPage> },
}

/// Figures about the rows of a view.
#[derive(Debug)]
pub(crate) struct RowsBegun {
    pub(crate) total: u64,
    pub(crate) sequence: u64,
}

/// Rows of a view.
#[derive(Debug)]
pub(crate) struct RowsPage {
    pub(crate) rows: Vec<ViewRow>,
    pub(crate) is_end: bool,
}

wire_struct! {
    ShardName { database, range }
    RowsBegun { total, sequence }
    RowsPage { rows, is_end }
}

wire_enum! {
    Call {
        1 => Create { shard },
        2 => Remove { database },
        3 => Ask { shard, after, request },
        4 => Rows { shard, design, name, query, limits },
        5 => Offset { most },
        6 => MoreRows,
        7 => EndRows,
    }
    Answer {
        1 => Done { outcome },
        2 => Replied { latest, reply },
        3 => Rows { begun },
        4 => Offset { offset },
        5 => MoreRows { page },
    }
}

impl ShardName {
    /// Checks that the names are of the only form that they have, and so lead nowhere else in a file system.
    pub(crate) fn check(&self) -> DocumentResult<()> {
        let is_range = self
            .range
            .split_once('-')
            .is_some_and(|(begin, end)| [begin, end].iter().all(|it| it.len() == 8 && is_hex(it)));
        check_database(&self.database)?;
        if is_range {
            return Ok(());
        }
        Err(Error::BadRequest("a shard has the name of no range".into()))
    }
}

/// Checks that `database` is a uuid.
pub(crate) fn check_database(database: &str) -> DocumentResult<()> {
    if database.len() == 32 && is_hex(database) {
        return Ok(());
    }
    Err(Error::BadRequest(
        "a database has no uuid as its name".into(),
    ))
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        let name = |database: &str, range: &str| ShardName {
            database: database.to_owned(),
            range: range.to_owned(),
        };
        let uuid = "0123456789abcdef0123456789abcdef";
        assert!(name(uuid, "00000000-7fffffff").check().is_ok());
        for (database, range) in [
            ("..", "00000000-7fffffff"),
            (uuid, "../../../etc"),
            (uuid, "00000000/7fffffff"),
            (uuid, ""),
            ("0123456789ABCDEF0123456789abcdef", "00000000-7fffffff"),
        ] {
            assert!(name(database, range).check().is_err(), "{database} {range}");
        }
    }
}
