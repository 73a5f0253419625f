//! Reductions: many rows become one value.
//!
//! ```text
//!   rows of a shard -> Accumulator \
//!   rows of a shard -> Accumulator -> merged -> JSON
//! ```
//!
//! Rows are reduced when they are read: an accumulator takes a row at a time and stays small, however many rows there
//! are. CouchDB's own reducers are native; a function of the design document gets its rows in chunks, and the results
//! of the chunks again (`rereduce`). Error texts are CouchDB's.

mod distinct;
mod figures;
mod script;
mod sum;

use super::row::ViewRow;
use super::script::{Defined, Limits, Sandbox};
use crate::error::{Error, Result};
use crate::json::Json;
use distinct::Distinct;
use figures::Figures;
use script::Chunks;
use sum::Total;

/// How the rows of a view are reduced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reducer {
    /// `_sum`
    Sum,
    /// `_count`
    Count,
    /// `_stats`
    Stats,
    /// `_approx_count_distinct`
    Distinct,
    /// A function of the design document.
    Script(String),
}

impl Reducer {
    /// The reducer that `source` is or names.
    pub(crate) fn parse(source: &str) -> Result<Self> {
        // What stands behind the name of a native reducer means nothing, as in CouchDB.
        match source.split_whitespace().next().unwrap_or_default() {
            "_sum" => Ok(Self::Sum),
            "_count" => Ok(Self::Count),
            "_stats" => Ok(Self::Stats),
            "_approx_count_distinct" => Ok(Self::Distinct),
            name if name.starts_with('_') => Err(Error::query(
                "invalid_design_doc",
                format!("`{name}` is not a supported reduce function."),
            )),
            _ => Ok(Self::Script(source.to_owned())),
        }
    }
}

/// What has been reduced so far.
#[derive(Debug, Clone)]
pub(crate) enum Accumulator {
    Sum(Total),
    Count(u64),
    Stats(Option<Figures>),
    Distinct(Box<Distinct>),
    Script(Chunks),
}

/// Reduces: knows the reducer, and has the sandbox if it needs one.
pub(crate) struct Reduction {
    reducer: Reducer,
    script: Option<(Sandbox, Defined)>,
}

impl Reduction {
    pub(crate) fn new(reducer: &Reducer, limits: Limits) -> Result<Self> {
        let script = match reducer {
            Reducer::Script(source) => {
                let mut sandbox = Sandbox::new(limits, "{}")?;
                let function = sandbox.define(source)?;
                Some((sandbox, function))
            }
            _ => None,
        };
        let reducer = reducer.clone();
        Ok(Self { reducer, script })
    }

    /// An accumulator of no rows.
    pub(crate) fn begin(&self) -> Accumulator {
        match self.reducer {
            Reducer::Sum => Accumulator::Sum(Total::default()),
            Reducer::Count => Accumulator::Count(0),
            Reducer::Stats => Accumulator::Stats(None),
            Reducer::Distinct => Accumulator::Distinct(Box::default()),
            Reducer::Script(_) => Accumulator::Script(Chunks::default()),
        }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::Query`] `invalid_value` for a value that `_stats` cannot take; [`Error::Script`].
    pub(crate) fn add(&mut self, to: &mut Accumulator, row: &ViewRow) -> Result<()> {
        match to {
            Accumulator::Sum(total) => total.add(Json::new(&row.value)),
            Accumulator::Count(count) => *count += 1,
            Accumulator::Stats(figures) => {
                let more = Figures::of(Json::new(&row.value))?;
                merge_figures(figures, Some(more))?;
            }
            Accumulator::Distinct(distinct) => distinct.add(&row.sort_key),
            Accumulator::Script(chunks) => chunks.add(row, self.script.as_mut())?,
        }
        Ok(())
    }

    /// Adds what was reduced elsewhere, by the same reducer.
    ///
    /// # Errors
    /// As [`Reduction::add`].
    pub(crate) fn merge(&mut self, to: &mut Accumulator, other: Accumulator) -> Result<()> {
        match (to, other) {
            (Accumulator::Sum(total), Accumulator::Sum(other)) => total.merge(other),
            (Accumulator::Count(count), Accumulator::Count(other)) => *count += other,
            (Accumulator::Stats(figures), Accumulator::Stats(other)) => {
                merge_figures(figures, other)?;
            }
            (Accumulator::Distinct(distinct), Accumulator::Distinct(other)) => {
                distinct.merge(&other);
            }
            (Accumulator::Script(chunks), Accumulator::Script(other)) => {
                chunks.merge(other, self.script.as_mut())?;
            }
            (to, other) => unreachable!("one reducer has one accumulator: {to:?} {other:?}"),
        }
        Ok(())
    }

    /// The value, as JSON.
    ///
    /// # Errors
    /// [`Error::Script`].
    pub(crate) fn finish(&mut self, accumulator: Accumulator) -> Result<String> {
        Ok(match accumulator {
            Accumulator::Sum(total) => total.finish(),
            Accumulator::Count(count) => count.to_string(),
            Accumulator::Stats(figures) => {
                figures.map_or_else(|| "null".to_owned(), |it| it.to_json())
            }
            Accumulator::Distinct(distinct) => distinct.estimate().to_string(),
            Accumulator::Script(chunks) => chunks.finish(self.script.as_mut())?,
        })
    }

    /// Brings `accumulator` into the form in which it takes the least, before it waits for others.
    pub(crate) fn settle(&mut self, accumulator: &mut Accumulator) -> Result<()> {
        match accumulator {
            Accumulator::Script(chunks) => chunks.settle(self.script.as_mut()),
            _ => Ok(()),
        }
    }
}

fn merge_figures(figures: &mut Option<Figures>, more: Option<Figures>) -> Result<()> {
    *figures = match (figures.take(), more) {
        (Some(one), Some(other)) => Some(one.merged(other)?),
        (one, other) => one.or(other),
    };
    Ok(())
}

#[cfg(test)]
mod tests;
