//! Rows of views, and their order.

use super::query::ViewQuery;
use crate::json::Json;
use crate::revision::Revision;
use std::cmp::Ordering;

/// A row of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewRow {
    /// The key, as JSON.
    pub key: String,
    /// The document that emitted it.
    pub id: String,
    /// The value, as JSON.
    pub value: String,
    /// The key's sort key.
    pub(crate) sort_key: Vec<u8>,
    /// Which of the ranges of the query it was found in.
    pub(crate) place: usize,
    /// Which of the rows that the document emitted under this view.
    pub(crate) number: u32,
}

/// The document that stands beside a row if documents are included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its identifier.
    pub id: String,
    /// The revision that is asked for; `None`: the winner.
    pub revision: Option<Revision>,
}

impl ViewRow {
    /// The document that is included beside this row: its own, or the one that the value names by `_id` (and `_rev`).
    /// `None` if the value names none by `"_id": null`, or names it wrongly.
    pub fn link(&self) -> Option<Link> {
        let value = Json::new(&self.value);
        let revision = value.member("_rev").and_then(Json::string);
        let revision = revision.map(|it| it.parse()).transpose().ok()?;
        let id = match value.member("_id") {
            None => self.id.clone(),
            Some(id) => id.string()?.into_owned(),
        };
        Some(Link { id, revision })
    }
}

/// The order of rows in an answer: by the place in `keys`, then by key, document and number. Documents compare by
/// their bytes.
pub(crate) fn compare_rows(one: &ViewRow, other: &ViewRow, query: &ViewQuery) -> Ordering {
    let by_key =
        (&one.sort_key, &one.id, one.number).cmp(&(&other.sort_key, &other.id, other.number));
    let by_key = if query.descending {
        by_key.reverse()
    } else {
        by_key
    };
    one.place.cmp(&other.place).then(by_key)
}
