//! What host and drive say to each other once they know each other.

use waystation_documents::shard::{CopyPage, Entry, Request, Told, Turn};
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
    /// Remove the shard.
    RemoveShard { shard: ShardName },
    /// Answer the request when it is its turn.
    Ask {
        shard: ShardName,
        turn: Turn,
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
    /// No more rows, or pages: the connection is for other calls again.
    EndRows,
    /// Copy the shard as it stands now; the connection is for that until it ends.
    Copy { shard: ShardName },
    /// The next page of the copy.
    NextPage,
    /// The entries of the page.
    PageEntries,
}

/// What a drive says.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is done, or failed.
    Done { outcome: DocumentResult<()> },
    /// What the shard answers; or why it does not.
    Replied { told: DocumentResult<Told> },
    /// Rows of a view follow: how many it has, and up to which update sequence.
    Rows { begun: DocumentResult<RowsBegun> },
    /// How many rows stand before the first one.
    Offset { offset: DocumentResult<u64> },
    /// The next rows, and whether they are the last ones.
    MoreRows { page: DocumentResult<RowsPage> },
    /// The next page of a copy.
    Page { page: DocumentResult<CopyPage> },
    /// The entries of the page.
    Entries { entries: DocumentResult<Vec<Entry>> },
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
        3 => Ask { shard, turn, request },
        4 => Rows { shard, design, name, query, limits },
        5 => Offset { most },
        6 => MoreRows,
        7 => EndRows,
        8 => RemoveShard { shard },
        9 => Copy { shard },
        10 => NextPage,
        11 => PageEntries,
    }
    Answer {
        1 => Done { outcome },
        2 => Replied { told },
        3 => Rows { begun },
        4 => Offset { offset },
        5 => MoreRows { page },
        6 => Page { page },
        7 => Entries { entries },
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
    use waystation_documents::shard::{KeySpan, Reply, Turns};
    use waystation_documents::wire::{VERSION, decode, encode};

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

    // Bytes as version 2 has them: a change of one of them is a new version.

    #[test]
    fn calls_have_the_bytes_of_their_version() {
        assert_eq!(VERSION, 2);
        let uuid = "0123456789abcdef0123456789abcdef";
        let range = "00000000-7fffffff";
        let shard = ShardName {
            database: uuid.to_owned(),
            range: range.to_owned(),
        };
        let name = [&[32], uuid.as_bytes(), &[17], range.as_bytes()].concat();
        let turn = Turn {
            after: 300,
            number: 5,
        };
        let span = KeySpan {
            after: None,
            end: Some(b"k".to_vec()),
        };
        let ask = |request| Call::Ask {
            shard: shard.clone(),
            turn,
            request,
        };
        let calls: [(Call, Vec<u8>); 5] = [
            (
                Call::Create {
                    shard: shard.clone(),
                },
                [&[1], &name[..]].concat(),
            ),
            (
                ask(Request::Info),
                [&[3], &name[..], &[0xac, 2, 5, 1]].concat(),
            ),
            (
                ask(Request::Fill {
                    span,
                    entries: vec![(b"k".to_vec(), vec![9])],
                }),
                [
                    &[3],
                    &name[..],
                    &[0xac, 2, 5, 31, 0, 1, 1, b'k', 1, 1, b'k', 1, 9],
                ]
                .concat(),
            ),
            (
                Call::RemoveShard {
                    shard: shard.clone(),
                },
                [&[8], &name[..]].concat(),
            ),
            (Call::NextPage, vec![10]),
        ];
        for (call, bytes) in calls {
            assert_eq!(encode(&call), bytes, "{call:?}");
            let read: Call = decode(&bytes).expect("a call");
            assert_eq!(encode(&read), bytes, "{call:?}");
        }
    }

    #[test]
    fn answers_have_the_bytes_of_their_version() {
        let span = KeySpan {
            after: None,
            end: Some(b"k".to_vec()),
        };
        let told = Told {
            latest: 300,
            turns: Turns { begun: 6, done: 5 },
            reply: Ok(Reply::Done),
        };
        let page = CopyPage {
            span,
            digest: vec![1, 2],
            bytes: 300,
        };
        let answers = [
            (
                Answer::Replied { told: Ok(told) },
                vec![2, 1, 0xac, 2, 6, 5, 1, 1],
            ),
            (
                Answer::Page { page: Ok(page) },
                vec![6, 1, 0, 1, 1, b'k', 2, 1, 2, 0xac, 2],
            ),
            (
                Answer::Done {
                    outcome: Err(Error::Conflict),
                },
                vec![1, 0, 1],
            ),
        ];
        for (answer, bytes) in answers {
            assert_eq!(encode(&answer), bytes, "{answer:?}");
            let read: Answer = decode(&bytes).expect("an answer");
            assert_eq!(encode(&read), bytes, "{answer:?}");
        }
    }
}
