//! A cursor over tables that lie one behind the other: a sorted level, or one table of level 0.
//!
//! Tables are opened when the cursor gets to them. A cursor that is made and not used costs two reference counts.

use crate::error::Result;
use crate::lsm::version::Version;
use crate::sst::InternalIterator;
use crate::sst::{TableCache, TableIterator, TableMeta};
use std::cmp::Ordering;
use std::sync::Arc;
use waystation_format::order::Order;

/// Tables in the order of their keys, no two of which share an internal key.
#[derive(Debug, Clone)]
pub(crate) enum Run {
    /// A level below level 0 of a version.
    Level(Arc<Version>, usize),
    /// One table.
    Table(Arc<TableMeta>),
    /// What a caller chose.
    List(Arc<[Arc<TableMeta>]>),
}

impl Run {
    #[inline]
    fn tables(&self) -> &[Arc<TableMeta>] {
        match self {
            Self::Level(version, level) => version.level(*level),
            Self::Table(table) => std::slice::from_ref(table),
            Self::List(tables) => tables,
        }
    }
}

/// A cursor over a run of tables.
pub(crate) struct LevelIterator {
    cache: Arc<TableCache>,
    run: Run,
    /// Whether tables are read for a merge, and not for a reader.
    for_merge: bool,
    /// Which table the cursor is in, if it is in any.
    position: usize,
    table: Option<TableIterator>,
    /// What of the tables ahead is of no use.
    skip: Option<Skip>,
}

/// Versions below `covering` are of no use up to `bound`.
struct Skip {
    /// An internal key; forward: excluded, or no bound; on the way back: included.
    bound: Option<Vec<u8>>,
    covering: u64,
    is_forward: bool,
}

impl Skip {
    fn is_of_no_use(&self, table: &TableMeta) -> bool {
        let facts = table.facts();
        facts.is_some_and(|facts| facts.largest_sequence < self.covering)
    }

    /// How the bound lies to an internal key.
    fn cmp_bound(&self, order: &Order, key: &[u8]) -> Ordering {
        let bound = self.bound.as_deref();
        bound.map_or(Ordering::Greater, |bound| {
            order.compare_internal(bound, key)
        })
    }
}

impl LevelIterator {
    /// A cursor for readers.
    pub(crate) fn new(cache: Arc<TableCache>, run: Run) -> Self {
        Self {
            cache,
            run,
            for_merge: false,
            position: 0,
            table: None,
            skip: None,
        }
    }

    /// A cursor for merges: see [`Table::scan`](crate::sst::Table::scan).
    pub(crate) fn for_merge(cache: Arc<TableCache>, run: Run) -> Self {
        Self {
            for_merge: true,
            ..Self::new(cache, run)
        }
    }

    /// Makes table `position` the current one, nowhere yet.
    fn open(&mut self, position: usize) -> Result<&mut TableIterator> {
        let table = self.cache.get(&self.run.tables()[position]);
        let table = table.inspect_err(|_| self.table = None)?;
        self.position = position;
        Ok(match &mut self.table {
            Some(iter) => {
                iter.reset(table);
                iter
            }
            none if self.for_merge => none.insert(table.scan()),
            none => none.insert(table.iter()),
        })
    }

    /// Table `position` as the current one, wherever it was left if it is that already.
    fn at(&mut self, position: usize) -> Result<&mut TableIterator> {
        if self.table.is_none() || self.position != position {
            return self.open(position);
        }
        match &mut self.table {
            Some(iter) => Ok(iter),
            None => unreachable!("the table was looked at above"),
        }
    }

    /// Goes to the first entry of table `position` or of those behind it.
    fn enter_forward(&mut self, mut position: usize) -> Result<()> {
        while position < self.run.tables().len() {
            if self.skip.is_some() && self.skip_into(position)? {
                if self.valid() {
                    return Ok(());
                }
                position += 1;
                continue;
            }
            self.at(position)?.seek_to_first()?;
            if self.valid() {
                return Ok(());
            }
            position += 1;
        }
        self.table = None;
        Ok(())
    }

    /// Goes to the last entry of the tables before table `position`.
    fn enter_backward(&mut self, mut position: usize) -> Result<()> {
        while position > 0 {
            position -= 1;
            if self.skip.is_some() && self.skip_back_into(position)? {
                if self.valid() {
                    return Ok(());
                }
                continue;
            }
            self.at(position)?.seek_to_last()?;
            if self.valid() {
                return Ok(());
            }
        }
        self.table = None;
        Ok(())
    }

    /// Goes to the first entry at or after `internal_key` that is not to be skipped.
    fn seek_and_skip(&mut self, internal_key: &[u8]) -> Result<()> {
        let tables = self.run.tables();
        let order = self.cache.order();
        let position = tables.partition_point(|table| {
            order.compare_internal(&table.largest, internal_key) == Ordering::Less
        });
        if position == tables.len() {
            self.table = None;
            return Ok(());
        }
        if self.skip.is_none() || !self.skip_into(position)? {
            self.at(position)?.seek(internal_key)?;
        }
        if self.valid() {
            return Ok(());
        }
        self.enter_forward(position + 1)
    }

    /// Goes past useless entries of table `position`; whether there is anything of that kind. The cursor is not
    /// valid then if that is all of the table.
    fn skip_into(&mut self, position: usize) -> Result<bool> {
        let table = &self.run.tables()[position];
        let Some(skip) = &self.skip else {
            return Ok(false);
        };
        if !skip.is_forward
            || skip.cmp_bound(self.cache.order(), &table.smallest) != Ordering::Greater
        {
            self.skip = None;
            return Ok(false);
        }
        if !skip.is_of_no_use(table) {
            return Ok(false);
        }
        let bound = skip.bound.clone();
        if let Some(bound) = bound
            && self.cache.order().compare_internal(&bound, &table.largest) != Ordering::Greater
        {
            self.at(position)?.seek(&bound)?;
        } else {
            self.table = None;
        }
        Ok(true)
    }

    /// The same on the way back.
    fn skip_back_into(&mut self, position: usize) -> Result<bool> {
        let table = &self.run.tables()[position];
        let Some(skip) = &self.skip else {
            return Ok(false);
        };
        if skip.is_forward
            || skip.cmp_bound(self.cache.order(), &table.largest) == Ordering::Greater
        {
            self.skip = None;
            return Ok(false);
        }
        if !skip.is_of_no_use(table) {
            return Ok(false);
        }
        let bound = skip.bound.clone();
        if let Some(bound) = bound
            && self.cache.order().compare_internal(&bound, &table.smallest) == Ordering::Greater
        {
            // No version has the bound's number: this goes before it.
            self.at(position)?.seek_for_prev(&bound)?;
        } else {
            self.table = None;
        }
        Ok(true)
    }
}

impl InternalIterator for LevelIterator {
    #[inline]
    fn valid(&self) -> bool {
        self.table.as_ref().is_some_and(TableIterator::valid)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.skip = None;
        self.enter_forward(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.skip = None;
        self.enter_backward(self.run.tables().len())
    }

    fn seek(&mut self, internal_key: &[u8]) -> Result<()> {
        self.skip = None;
        self.seek_and_skip(internal_key)
    }

    fn seek_past(&mut self, internal_key: &[u8], end: Option<&[u8]>, covering: u64) -> Result<()> {
        self.skip = Some(Skip {
            bound: end.map(<[u8]>::to_vec),
            covering,
            is_forward: true,
        });
        self.seek_and_skip(internal_key)
    }

    fn seek_for_prev(&mut self, internal_key: &[u8]) -> Result<()> {
        self.skip = None;
        let tables = self.run.tables();
        let order = self.cache.order();
        let behind = tables.partition_point(|table| {
            order.compare_internal(&table.smallest, internal_key) != Ordering::Greater
        });
        let Some(position) = behind.checked_sub(1) else {
            self.table = None;
            return Ok(());
        };
        self.at(position)?.seek_for_prev(internal_key)?;
        if self.valid() {
            return Ok(());
        }
        self.enter_backward(position)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(iter) = &mut self.table else {
            return Ok(());
        };
        iter.next()?;
        if iter.valid() {
            return Ok(());
        }
        self.enter_forward(self.position + 1)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let Some(iter) = &mut self.table else {
            return Ok(());
        };
        iter.prev()?;
        if iter.valid() {
            return Ok(());
        }
        self.enter_backward(self.position)
    }

    fn skip_forward(&mut self, end: Option<&[u8]>, covering: u64) -> Result<()> {
        self.skip = Some(Skip {
            bound: end.map(<[u8]>::to_vec),
            covering,
            is_forward: true,
        });
        let position = self.position;
        if self.skip_into(position)? && !self.valid() {
            return self.enter_forward(position + 1);
        }
        Ok(())
    }

    fn skip_backward(&mut self, start: &[u8], covering: u64) -> Result<()> {
        self.skip = Some(Skip {
            bound: Some(start.to_vec()),
            covering,
            is_forward: false,
        });
        let position = self.position;
        if self.skip_back_into(position)? && !self.valid() {
            return self.enter_backward(position);
        }
        Ok(())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.table.as_ref().map_or(&[], TableIterator::key)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.table.as_ref().map_or(&[], TableIterator::value)
    }
}
