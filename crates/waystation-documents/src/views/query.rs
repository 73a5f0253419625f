//! Queries of views: their parameters, and which of them go together. Words and sentences are CouchDB's.

use super::design::{DesignDocument, View};
use super::order::RowOrder;
use crate::error::{Error, Result};
use crate::json::{Json, Kind, canonical, quote};
use crate::partition::check_partition;

/// Whether an index is brought up to date before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Update {
    /// Yes.
    #[default]
    Before,
    /// No.
    Never,
    /// Afterwards: the caller has to, with [`Shard::build_views`](crate::Shard::build_views).
    Lazy,
}

/// Which rows are reduced together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// All.
    Whole,
    /// Those whose keys are arrays with the same first elements, so many; and those of equal keys.
    Level(usize),
    /// Those of equal keys.
    Exact,
}

/// What is asked of a view. Keys are canonical JSON.
///
/// ```
/// use waystation_documents::views::ViewQuery;
/// let mut query = ViewQuery::default();
/// query.set("startkey", r#"["a", 1]"#)?;
/// query.set("group_level", "1")?;
/// assert_eq!(query.start_key.as_deref(), Some(r#"["a",1]"#));
/// assert_eq!(query.group_level, Some(1));
/// assert!(query.set("descending", "maybe").is_err());
/// # Ok::<(), waystation_documents::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the protocol has these switches"
)]
pub struct ViewQuery {
    /// These keys only, in this order; rows that are not reduced stand in the reverse order if the answer descends.
    pub keys: Option<Vec<String>>,
    /// The first key.
    pub start_key: Option<String>,
    /// The first document among the rows of the first key.
    pub start_id: Option<String>,
    /// The last key.
    pub end_key: Option<String>,
    /// The last document among the rows of the last key.
    pub end_id: Option<String>,
    /// Whether rows of the last key belong to the answer.
    pub inclusive_end: bool,
    /// From the last key to the first one.
    pub descending: bool,
    /// How many rows are passed over.
    pub skip: u64,
    /// How many rows are wanted at most.
    pub limit: Option<u64>,
    /// Whether documents stand beside their rows.
    pub include_docs: bool,
    /// Whether included documents name their conflicts.
    pub conflicts: bool,
    /// Whether rows are reduced; `None`: if the view has a reduce function.
    pub reduce: Option<bool>,
    /// Whether rows of equal keys are reduced together, and not all rows.
    pub group: bool,
    /// Rows whose keys are arrays with the same first elements, so many, are reduced together, and so are rows of equal
    /// keys of other kinds; 0: all rows. It counts more than `group`.
    pub group_level: Option<usize>,
    /// Whether the index is brought up to date.
    pub update: Update,
    /// Whether the answer names the update sequence.
    pub update_seq: bool,
    /// Whether rows of several shards are brought into one order.
    pub sorted: bool,
    /// The partition whose rows are wanted.
    pub partition: Option<String>,
}

impl Default for ViewQuery {
    fn default() -> Self {
        Self {
            keys: None,
            start_key: None,
            start_id: None,
            end_key: None,
            end_id: None,
            inclusive_end: true,
            descending: false,
            skip: 0,
            limit: None,
            include_docs: false,
            conflicts: false,
            reduce: None,
            group: false,
            group_level: None,
            update: Update::Before,
            update_seq: false,
            sorted: true,
            partition: None,
        }
    }
}

impl ViewQuery {
    /// Sets the parameter `name` to `value`, as it stands in a URL (decoded), or as JSON from a request's body. Answers
    /// whether there is such a parameter: others are none of a view's and are ignored.
    ///
    /// # Errors
    /// [`Error::Query`] `query_parse_error`.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "key" => {
                self.start_key = Some(key(name, value)?);
                self.end_key.clone_from(&self.start_key);
            }
            "keys" => {
                let list = key(name, value)?;
                if Json::new(&list).kind() != Kind::Array {
                    return Err(refused("`keys` must be an array of strings."));
                }
                let elements = Json::new(&list).elements();
                let mut keys: Vec<String> = elements.map(|it| it.text().to_owned()).collect();
                // A list of one key is that key.
                match keys.pop() {
                    Some(only) if keys.is_empty() => return self.set("key", &only),
                    last => keys.extend(last),
                }
                self.keys = Some(keys);
            }
            "startkey" | "start_key" => self.start_key = Some(key(name, value)?),
            "endkey" | "end_key" => self.end_key = Some(key(name, value)?),
            "startkey_docid" | "start_key_doc_id" => self.start_id = Some(text(value)),
            "endkey_docid" | "end_key_doc_id" => self.end_id = Some(text(value)),
            "inclusive_end" => self.inclusive_end = boolean(value)?,
            "descending" => self.descending = boolean(value)?,
            "skip" => self.skip = count(value)?,
            "limit" => self.limit = Some(count(value)?),
            "include_docs" => self.include_docs = boolean(value)?,
            "conflicts" => self.conflicts = boolean(value)?,
            "reduce" => self.reduce = Some(boolean(value)?),
            "group" => self.group = boolean(value)?,
            "group_level" => {
                let level = usize::try_from(count(value)?).unwrap_or(usize::MAX);
                self.group_level = Some(level);
            }
            "update" | "stale" => self.update = update(name, &text(value))?,
            "update_seq" => self.update_seq = boolean(value)?,
            "sorted" => self.sorted = boolean(value)?,
            "stable" => drop(boolean(value)?),
            "partition" => {
                let partition = text(value);
                check_partition(&partition)?;
                self.partition = Some(partition);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Which rows are reduced together.
    pub(crate) fn grouping(&self) -> Grouping {
        match self.group_level {
            Some(0) => Grouping::Whole,
            Some(level) => Grouping::Level(level),
            None if self.group => Grouping::Exact,
            None => Grouping::Whole,
        }
    }

    /// Whether the rows of `view` are reduced.
    pub fn reduces(&self, view: &View) -> bool {
        view.is_reduced() && self.reduce != Some(false)
    }

    /// Checks that the parameters go together, and with `view` of `design`.
    ///
    /// # Errors
    /// [`Error::Query`] `query_parse_error`.
    pub fn check(&self, design: &DesignDocument, view: &View) -> Result<()> {
        match (&self.partition, design.is_partitioned) {
            (None, true) => {
                let reason = "`partition` parameter is mandatory for queries to this view.";
                return Err(refused(reason));
            }
            (Some(_), false) => {
                let reason = "`partition` parameter is not supported in this design doc";
                return Err(refused(reason));
            }
            _ => {}
        }
        let has_range = self.start_key.is_some() || self.end_key.is_some();
        if self.keys.is_some() && has_range {
            return Err(refused(
                "`keys` is incompatible with `key`, `start_key` and `end_key`",
            ));
        }
        if !view.is_reduced() && self.reduce == Some(true) {
            return Err(refused("Reduce is invalid for map-only views."));
        }
        let reduces = self.reduces(view);
        if !reduces && self.grouping() != Grouping::Whole {
            return Err(refused("Invalid use of grouping on a map view."));
        }
        if reduces && self.include_docs {
            return Err(refused("`include_docs` is invalid for reduce"));
        }
        if reduces && self.conflicts {
            return Err(refused("`conflicts` is invalid for reduce views."));
        }
        let has_several = self.keys.as_ref().is_some_and(|keys| keys.len() > 1);
        if reduces && has_several && self.grouping() != Grouping::Exact {
            return Err(refused(
                "Multi-key fetches for reduce views must use `group=true`",
            ));
        }
        self.check_range(design.order)
    }

    fn check_range(&self, order: RowOrder) -> Result<()> {
        let (Some(start), Some(end)) = (&self.start_key, &self.end_key) else {
            return Ok(());
        };
        let key_of = |text: &str| order.key_of(Json::new(text));
        let (start, end) = (key_of(start), key_of(end));
        let (first, last) = if self.descending {
            (end, start)
        } else {
            (start, end)
        };
        if first > last {
            let other = !self.descending;
            return Err(refused(format!(
                "No rows can match your key range, reverse your start_key and end_key or set descending={other}"
            )));
        }
        Ok(())
    }
}

fn refused(reason: impl Into<String>) -> Error {
    Error::query("query_parse_error", reason)
}

fn key(name: &str, value: &str) -> Result<String> {
    canonical(value.as_bytes()).map_err(|error| refused(format!("`{name}` is {error}")))
}

/// A text that may stand in quotes.
fn text(value: &str) -> String {
    let quoted = value
        .starts_with('"')
        .then(|| canonical(value.as_bytes()).ok())
        .flatten();
    let unquoted = quoted.and_then(|it| Json::new(&it).string().map(std::borrow::Cow::into_owned));
    unquoted.unwrap_or_else(|| value.to_owned())
}

fn boolean(value: &str) -> Result<bool> {
    match text(value).to_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(refused(format!(
            "Invalid boolean parameter: {}",
            quote(other)
        ))),
    }
}

fn count(value: &str) -> Result<u64> {
    let value = text(value);
    let number: Result<i64, _> = value.parse();
    let number =
        number.map_err(|_| refused(format!("Invalid value for integer: {}", quote(&value))))?;
    let positive = u64::try_from(number);
    positive.map_err(|_| {
        refused(format!(
            "Invalid value for positive integer: {}",
            quote(&value)
        ))
    })
}

fn update(name: &str, value: &str) -> Result<Update> {
    match (name, value) {
        ("update", "true") => Ok(Update::Before),
        ("update", "false") | ("stale", "ok") => Ok(Update::Never),
        ("update", "lazy") | ("stale", "update_after") => Ok(Update::Lazy),
        _ => Err(refused(format!("Invalid value for `{name}`."))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values of parameters.
    type Parameters<'a> = &'a [(&'a str, &'a str)];

    fn check(parameters: Parameters<'_>) -> [Result<()>; 2] {
        let body = r#"{"views":{"map":{"map":"x"},"reduce":{"map":"x","reduce":"_count"}}}"#;
        let design = DesignDocument::parse("_design/d", body).expect(body);
        ["map", "reduce"].map(|view| {
            let mut query = ViewQuery::default();
            for (name, value) in parameters {
                assert!(query.set(name, value)?, "{name}");
            }
            query.check(&design, design.view(view)?)
        })
    }

    #[test]
    fn parameters_that_do_not_go_together_are_refused() {
        // Parameters, and whether a view without and one with a reduce function takes them.
        let cases: [(Parameters<'_>, [bool; 2]); 20] = [
            (&[("key", "1")], [true, true]),
            (&[("keys", "[1,2]")], [true, false]),
            (&[("keys", "[1,2]"), ("group", "true")], [false, true]),
            (&[("keys", "[1,2]"), ("reduce", "false")], [true, true]),
            (&[("keys", "[1,2]"), ("startkey", "1")], [false, false]),
            (&[("keys", "[1]"), ("startkey", "0")], [true, true]),
            (&[("keys", "[]")], [true, true]),
            (&[("group", "true"), ("group_level", "0")], [true, true]),
            (
                &[("group_level", "1"), ("keys", "[1,2]"), ("group", "true")],
                [false, false],
            ),
            (&[("keys", "1")], [false, false]),
            (&[("reduce", "true")], [false, true]),
            (&[("group_level", "2")], [false, true]),
            (&[("group_level", "-1")], [false, false]),
            (&[("include_docs", "true")], [true, false]),
            (&[("startkey", "2"), ("endkey", "1")], [false, false]),
            (
                &[("startkey", "2"), ("endkey", "1"), ("descending", "true")],
                [true, true],
            ),
            (&[("limit", "x")], [false, false]),
            (&[("key", "{")], [false, false]),
            (
                &[
                    ("stale", "ok"),
                    ("update", "lazy"),
                    ("stable", "true"),
                    ("sorted", "false"),
                ],
                [true, true],
            ),
            (&[("update", "perhaps")], [false, false]),
        ];
        for (parameters, expected) in cases {
            let checked = check(parameters);
            for error in checked.iter().filter_map(|it| it.as_ref().err()) {
                assert_eq!(error.word(), "query_parse_error");
            }
            assert_eq!(checked.map(|it| it.is_ok()), expected, "{parameters:?}");
        }
    }

    #[test]
    fn other_parameters_are_left_to_others() -> Result<()> {
        assert!(!ViewQuery::default().set("attachments", "true")?);
        Ok(())
    }
}
