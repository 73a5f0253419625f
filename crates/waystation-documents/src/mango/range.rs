//! Ranges: where in an index the documents are that a selector may match.
//!
//! A condition on an index's column narrows it to ranges of sort keys, `$and` to what all of its parts leave, `$or` to
//! what any of them leaves, provided that each narrows the column. The ranges hold every match and may hold more: what
//! is read there is matched again.

use super::condition::{Argument, Comparison, Condition};
use super::path::FieldPath;
use super::selector::{Node, Selector};
use crate::collate::{AFTER, key_of};
use crate::json::{Json, Kind, quote};

/// More ranges than this are read as one from the first to the last.
const RANGES_MAX: usize = 1000;
/// Sorts behind every text that begins as it does.
const LAST_CHARACTER: char = '\u{10ffff}';

/// Sort keys from `begin` to before `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub begin: Vec<u8>,
    /// Behind the last key.
    pub end: Vec<u8>,
    /// It holds the keys of one value: the next column narrows it further.
    pub(crate) is_point: bool,
}

impl KeyRange {
    fn new(begin: Vec<u8>, end: Vec<u8>) -> Self {
        Self {
            begin,
            end,
            is_point: false,
        }
    }

    fn whole() -> Self {
        Self::new(Vec::new(), vec![AFTER])
    }

    fn is_empty(&self) -> bool {
        self.begin >= self.end
    }

    fn intersection(&self, other: &Self) -> Self {
        let begin = self.begin.clone().max(other.begin.clone());
        let end = self.end.clone().min(other.end.clone());
        Self {
            is_point: self.is_point || other.is_point,
            ..Self::new(begin, end)
        }
    }
}

fn behind(mut key: Vec<u8>) -> Vec<u8> {
    key.push(AFTER);
    key
}

fn point(value: Json<'_>) -> KeyRange {
    let key = key_of(value);
    KeyRange {
        is_point: true,
        ..KeyRange::new(key.clone(), behind(key))
    }
}

/// The keys of all values of one kind.
fn of_kind(kind: Kind) -> KeyRange {
    let first = kind as u8 + 1;
    KeyRange::new(vec![first], vec![first + 1])
}

impl Selector {
    /// The ranges of an index on `columns` that hold every match, in order; `None` if the selector narrows nothing.
    pub fn ranges(&self, columns: &[FieldPath]) -> Option<Vec<KeyRange>> {
        let (first, rest) = columns.split_first()?;
        let mut ranges = self.root.column(first)?;
        for column in rest {
            let Some(next) = self.root.column(column) else {
                break;
            };
            if ranges.len() * next.len() > RANGES_MAX || !ranges.iter().all(|it| it.is_point) {
                break;
            }
            let narrowed = |range: &KeyRange| {
                let join = |tail: &KeyRange| KeyRange {
                    begin: [&range.begin[..], &tail.begin].concat(),
                    end: [&range.begin[..], &tail.end].concat(),
                    is_point: tail.is_point,
                };
                next.iter().map(join).collect::<Vec<_>>()
            };
            ranges = ranges.iter().flat_map(narrowed).collect();
        }
        Some(ranges)
    }

    /// Whether every match has the field at `path`: an index on it holds all of them.
    pub fn requires(&self, path: &FieldPath) -> bool {
        self.root.requires(path)
    }

    /// Whether the field at `path` is the same in all matches, so that a sort may pass over it.
    pub fn fixes(&self, path: &FieldPath) -> bool {
        self.root.fixes(path)
    }

    /// The fields that conditions name, each once.
    pub fn fields(&self) -> Vec<&FieldPath> {
        let mut fields = Vec::new();
        self.root.collect_fields(&mut fields);
        fields
    }
}

impl Node {
    /// The ranges of the column `path` that hold every match; `None` if it is not narrowed.
    fn column(&self, path: &FieldPath) -> Option<Vec<KeyRange>> {
        match self {
            Self::And(parts) => {
                let mut narrowing = parts.iter().filter_map(|part| part.column(path));
                let first = narrowing.next()?;
                Some(narrowing.fold(first, |ranges, more| intersect(&ranges, &more)))
            }
            Self::Or(parts) if !parts.is_empty() => {
                let ranges: Option<Vec<_>> = parts.iter().map(|part| part.column(path)).collect();
                Some(unite(ranges?.concat()))
            }
            // Identifiers compare by their bytes, which is not the order of the keys.
            Self::Field(field, condition) if field == path && !path.is_id() => condition.column(),
            Self::Or(_) | Self::Not(_) | Self::Field(..) => None,
        }
    }

    fn requires(&self, path: &FieldPath) -> bool {
        match self {
            Self::And(parts) => parts.iter().any(|part| part.requires(path)),
            Self::Or(parts) => !parts.is_empty() && parts.iter().all(|part| part.requires(path)),
            Self::Not(_) => false,
            Self::Field(field, condition) => {
                field == path && !matches!(condition, Condition::Exists(false))
            }
        }
    }

    fn fixes(&self, path: &FieldPath) -> bool {
        let equal = Comparison::Equal;
        match self {
            Self::And(parts) => parts.iter().any(|part| part.fixes(path)),
            Self::Field(field, Condition::Compare(comparison, _)) => {
                field == path && *comparison == equal
            }
            Self::Or(_) | Self::Not(_) | Self::Field(..) => false,
        }
    }

    fn collect_fields<'a>(&'a self, fields: &mut Vec<&'a FieldPath>) {
        match self {
            Self::And(parts) | Self::Or(parts) => {
                for part in parts {
                    part.collect_fields(fields);
                }
            }
            Self::Not(part) => part.collect_fields(fields),
            Self::Field(path, _) if fields.contains(&path) => {}
            Self::Field(path, _) => fields.push(path),
        }
    }
}

/// Identifiers from `begin` to `end`, both included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdRange {
    /// The first; `None`: from the beginning.
    pub begin: Option<String>,
    /// The last; `None`: to the end.
    pub end: Option<String>,
}

impl IdRange {
    fn narrow(&mut self, other: Self) {
        self.begin = other.begin.into_iter().chain(self.begin.take()).max();
        self.end = other.end.into_iter().chain(self.end.take()).min();
    }
}

impl Selector {
    /// The identifiers among which every match is.
    pub fn id_range(&self) -> IdRange {
        let mut range = IdRange::default();
        self.root.narrow_ids(&mut range);
        range
    }
}

impl Node {
    fn narrow_ids(&self, range: &mut IdRange) {
        match self {
            Self::And(parts) => parts.iter().for_each(|part| part.narrow_ids(range)),
            Self::Field(path, Condition::Compare(comparison, argument)) if path.is_id() => {
                let bound = argument.json().string().map(std::borrow::Cow::into_owned);
                let (begin, end) = match comparison {
                    Comparison::Equal => (bound.clone(), bound),
                    Comparison::Less | Comparison::LessOrEqual => (None, bound),
                    Comparison::Greater | Comparison::GreaterOrEqual => (bound, None),
                    Comparison::Unequal => (None, None),
                };
                range.narrow(IdRange { begin, end });
            }
            Self::Or(_) | Self::Not(_) | Self::Field(..) => {}
        }
    }
}

impl Condition {
    fn column(&self) -> Option<Vec<KeyRange>> {
        match self {
            Self::Compare(comparison, argument) => {
                let key = key_of(argument.json());
                let whole = KeyRange::whole();
                // Beyond 2^53 unequal integers share a key, so that a bound's own key belongs to both of its sides.
                let range = match comparison {
                    Comparison::Equal => point(argument.json()),
                    Comparison::Less | Comparison::LessOrEqual => {
                        KeyRange::new(whole.begin, behind(key))
                    }
                    Comparison::Greater | Comparison::GreaterOrEqual => {
                        KeyRange::new(key, whole.end)
                    }
                    Comparison::Unequal => return None,
                };
                Some(vec![range])
            }
            // An array matches if one of its elements is in the list.
            Self::In(list) => {
                let points = list.iter().map(Argument::json).map(point);
                Some(unite(points.chain([of_kind(Kind::Array)]).collect()))
            }
            Self::BeginsWith(prefix) => {
                let last = quote(&format!("{prefix}{LAST_CHARACTER}"));
                let begin = key_of(Json::new(&quote(prefix)));
                Some(vec![KeyRange::new(begin, behind(key_of(Json::new(&last))))])
            }
            Self::Regex(_) => Some(vec![of_kind(Kind::String)]),
            Self::Size(_) | Self::All(_) | Self::AnyElement(_) | Self::EveryElement(_) => {
                Some(vec![of_kind(Kind::Array)])
            }
            Self::AnyName(_) => Some(vec![of_kind(Kind::Object)]),
            Self::Modulo(..) => Some(vec![of_kind(Kind::Number)]),
            Self::NotIn(_) | Self::Exists(_) | Self::Type(_) | Self::Not(_) => None,
        }
    }
}

fn intersect(some: &[KeyRange], others: &[KeyRange]) -> Vec<KeyRange> {
    let pairs = some
        .iter()
        .flat_map(|one| others.iter().map(|other| one.intersection(other)));
    unite(pairs.filter(|range| !range.is_empty()).collect())
}

/// Puts ranges in order; what overlaps or touches becomes one.
fn unite(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort_by(|one, other| one.begin.cmp(&other.begin));
    let mut united: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match united.last_mut() {
            Some(last) if *last == range => {}
            Some(last) if range.begin < last.end => {
                last.end = last.end.clone().max(range.end);
                last.is_point = false;
            }
            _ => united.push(range),
        }
    }
    if united.len() > RANGES_MAX {
        let begin = united[0].begin.clone();
        let end = united.pop().map(|last| last.end).unwrap_or_default();
        return vec![KeyRange::new(begin, end)];
    }
    united
}
