//! What [`super::pick()`] may answer.

use super::Job;
use crate::lsm::version::UserRange;
use crate::sst::TableMeta;
use crate::sync::Arc;
use waystation_format::order::Order;

/// The next thing worth doing to the tree.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// The tree is in shape, or whatever is due runs already.
    Nothing,
    /// Tables change their level; nothing is read or written but the MANIFEST.
    Move(Move),
    /// Tables are merged into new ones.
    Merge(Job),
    /// Tables hold only deletions of what does not exist: they go unread.
    Drop(Discard),
}

/// Tables that sink one level as they are.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    /// The level they leave.
    pub from: usize,
    /// The level they enter.
    pub to: usize,
    /// The tables.
    pub tables: Vec<Arc<TableMeta>>,
}

/// Tables that go unread.
#[derive(Debug, Clone)]
pub(crate) struct Discard {
    /// Their level.
    pub level: usize,
    /// The tables.
    pub tables: Vec<Arc<TableMeta>>,
}

impl Choice {
    /// The tables it takes, and the level and user-key range it writes to. Keys are in `order`.
    pub(crate) fn footprint(&self, order: &Order) -> Option<(Vec<u64>, usize, UserRange<'_>)> {
        match self {
            Self::Nothing => None,
            Self::Move(Move {
                to: level, tables, ..
            })
            | Self::Drop(Discard { level, tables }) => {
                let range = UserRange::hull(order, tables.iter().map(|table| &**table))?;
                Some((
                    tables.iter().map(|table| table.number).collect(),
                    *level,
                    range,
                ))
            }
            Self::Merge(job) => {
                let range = UserRange::hull(order, job.tables())?;
                Some((
                    job.tables().map(|table| table.number).collect(),
                    job.output_level,
                    range,
                ))
            }
        }
    }
}
