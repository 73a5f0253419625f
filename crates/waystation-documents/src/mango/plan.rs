//! Plans: which index a query goes through.
//!
//! An index holds the documents that have all of its columns, so it serves a query whose matches have them: the
//! selector requires each column, or the sort names it. Of several that serve, CouchDB's order chooses: the one whose
//! leading columns the selector narrows best, then the one with fewest columns, then the first by name.

use super::path::FieldPath;
use super::selector::Selector;
use crate::error::{Error, Result};
use crate::json::{Json, Kind};

/// In which order a query goes through an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// The lowest values first.
    #[default]
    Ascending,
    /// The highest values first.
    Descending,
}

/// The order of a query's answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sort {
    /// The fields, the first one first; none: any order.
    pub fields: Vec<FieldPath>,
    /// One direction for all.
    pub direction: Direction,
}

impl Sort {
    /// Reads the canonical JSON of `sort`: names, or objects of a name and `"asc"` or `"desc"`.
    ///
    /// # Errors
    /// The protocol's `invalid_sort_json`, `invalid_sort_field`, `invalid_sort_dir`, `unsupported_mixed_sort`.
    pub fn parse(json: Json<'_>) -> Result<Self> {
        let shown = super::term::term;
        if json.kind() != Kind::Array {
            let reason = format!("Sort must be an array of sort specs, not: {}", shown(json));
            return Err(Error::query("invalid_sort_json", reason));
        }
        let mut sort = Self::default();
        let mut directions = Vec::new();
        for field in json.elements() {
            let mut members = field.members();
            let (name, direction) = match (field.string(), members.next(), members.next()) {
                (Some(name), ..) => (name, None),
                (None, Some((name, direction)), None) => {
                    (crate::json::unquote(name), direction.string())
                }
                _ => {
                    let reason = format!("Invalid sort field: {}", shown(field));
                    return Err(Error::query("invalid_sort_field", reason));
                }
            };
            directions.push(match direction.as_deref() {
                None if field.kind() == Kind::String => Direction::Ascending,
                Some("asc") => Direction::Ascending,
                Some("desc") => Direction::Descending,
                _ => {
                    let reason = format!("Invalid sort direction: {}", shown(field));
                    return Err(Error::query("invalid_sort_dir", reason));
                }
            });
            sort.fields.push(FieldPath::parse(&name)?);
        }
        if let Some((first, rest)) = directions.split_first() {
            if rest.iter().any(|other| other != first) {
                let reason = "Sorts currently only support a single direction for all fields.";
                return Err(Error::query("unsupported_mixed_sort", reason));
            }
            sort.direction = *first;
        }
        Ok(sort)
    }
}

/// An index that a query might go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its columns, the leading one first.
    pub columns: Vec<FieldPath>,
    /// It holds some documents only, and serves queries that name it.
    pub is_partial: bool,
}

/// How a query is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// All documents are read in the order of their identifiers.
    AllDocuments,
    /// The index of this name is read.
    Index(String),
}

impl Plan {
    /// Chooses among `candidates`; `named`: the query asks for these, the best of which is taken if one serves.
    ///
    /// # Errors
    /// The protocol's `no_usable_index` if the answers are to be in an order that no index has.
    pub fn choose(
        selector: &Selector,
        sort: &Sort,
        candidates: &[Candidate],
        named: &[String],
    ) -> Result<Self> {
        let is_named = |candidate: &Candidate| named.contains(&candidate.name);
        let serves = |candidate: &&Candidate| {
            (is_named(candidate) || !candidate.is_partial) && candidate.serves(selector, sort)
        };
        let serving: Vec<&Candidate> = candidates.iter().filter(serves).collect();
        let best = |among: &mut dyn Iterator<Item = &Candidate>| {
            let ranked = among.map(|it| (it.rank(selector), it.name.clone()));
            ranked.min().map(|(_, name)| name)
        };
        let chosen = best(&mut serving.iter().copied().filter(|it| is_named(it)));
        if let Some(name) = chosen.or_else(|| best(&mut serving.iter().copied())) {
            return Ok(Self::Index(name));
        }
        let by_id = match sort.fields.as_slice() {
            [] => true,
            [field] => field.is_id() && selector.requires(field),
            _ => false,
        };
        if by_id {
            return Ok(Self::AllDocuments);
        }
        let reason = "No index exists for this sort, try indexing by the sort fields.";
        Err(Error::query("no_usable_index", reason))
    }
}

impl Candidate {
    fn serves(&self, selector: &Selector, sort: &Sort) -> bool {
        let is_there = |column: &FieldPath| {
            let is_in_all = column.is_id() || column.steps() == ["_rev"];
            is_in_all || sort.fields.contains(column) || selector.requires(column)
        };
        self.columns.iter().all(is_there) && self.sorts(selector, &sort.fields)
    }

    /// Whether its entries are in the order of `fields`, where columns that the selector fixes may stand between.
    fn sorts(&self, selector: &Selector, fields: &[FieldPath]) -> bool {
        let mut wanted = fields.iter().peekable();
        for column in &self.columns {
            match wanted.peek() {
                None => return true,
                Some(field) if *field == column => drop(wanted.next()),
                Some(_) if selector.fixes(column) => {}
                Some(_) => return false,
            }
        }
        wanted.peek().is_none()
    }

    /// Lower is better.
    fn rank(&self, selector: &Selector) -> (usize, usize) {
        let fields = selector.fields();
        let narrowed = |column: &&FieldPath| {
            selector.ranges(std::slice::from_ref(column)).is_some() && fields.contains(column)
        };
        let prefix = self.columns.iter().take_while(narrowed).count();
        (fields.len().saturating_sub(prefix), self.columns.len())
    }
}
